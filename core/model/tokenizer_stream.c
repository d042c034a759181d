/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/utf8.h"
#include "core/model/tokenizer_priv.h"

static const unsigned char replacement[] = {0xEF, 0xBF, 0xBD}; /* U+FFFD */

static int byte_list_reserve(struct byte_list *list, size_t more_bytes)
{
    if (list->capacity - list->count >= more_bytes) {
        return 0;
    }
    size_t capacity = (list->count + more_bytes) * 2;
    unsigned char *grown = realloc(list->bytes, capacity);
    if (grown == NULL) {
        return err_set(ERR_MEMORY, "no memory for %zu bytes of text", list->count + more_bytes);
    }
    list->bytes = grown;
    list->capacity = capacity;
    return 0;
}

int byte_list_append(struct byte_list *list, const void *bytes, size_t count)
{
    if (count == 0) {
        return 0;
    }
    TRY(byte_list_reserve(list, count));
    memcpy(list->bytes + list->count, bytes, count);
    list->count += count;
    return 0;
}

/* Puts U+FFFD for what is not UTF-8 behind from_bytes of the list. */
static int repair(struct byte_list *list, size_t from_bytes)
{
    size_t size = list->count - from_bytes;
    unsigned char *text = malloc(size + 1);
    int rc = text != NULL ? 0 : err_set(ERR_MEMORY, "no memory for %zu bytes of text", size);
    if (rc == 0) {
        memcpy(text, list->bytes + from_bytes, size);
        list->count = from_bytes;
    }
    for (size_t at = 0; rc == 0 && at < size;) {
        uint32_t code;
        size_t good = utf8_read(text + at, size - at, &code);
        rc = good > 0 ? byte_list_append(list, text + at, good)
                      : byte_list_append(list, replacement, sizeof replacement);
        at += good > 0 ? good : utf8_bad_bytes(text + at, size - at);
    }
    free(text);
    return rc;
}

void tokenizer_stream_start(struct tokenizer_stream *stream, const struct tokenizer *t,
                            unsigned flags)
{
    *stream = (struct tokenizer_stream){.tokenizer = t, .flags = flags};
}

/* Puts what was held and then bytes behind the list, but for a character that is not whole yet. */
static int release(struct tokenizer_stream *stream, const unsigned char *bytes, size_t size_bytes,
                   bool end, struct byte_list *out)
{
    size_t from = out->count;
    if (stream->held_bytes + size_bytes == 0) {
        return 0;
    }
    TRY(byte_list_reserve(out, stream->held_bytes + size_bytes));
    TRY(byte_list_append(out, stream->held, stream->held_bytes));
    TRY(byte_list_append(out, bytes, size_bytes));
    size_t keep = end ? 0 : utf8_unfinished(out->bytes + from, out->count - from);
    out->count -= keep;
    memcpy(stream->held, out->bytes + out->count, keep);
    stream->held_bytes = keep;
    if ((stream->flags & DETOKENIZE_REPAIR) == 0 ||
        utf8_whole(out->bytes + from, out->count - from)) {
        return 0;
    }
    return repair(out, from); /* rare: it takes memory */
}

static int unknown_id(const struct tokenizer *t, uint32_t id)
{
    return err_set(ERR_USAGE, "%u is no token id: they end at %u", id, tokenizer_count(t) - 1);
}

int tokenizer_stream_push(struct tokenizer_stream *stream, uint32_t id, struct byte_list *out)
{
    size_t size;
    bool special;
    const unsigned char *bytes = tokenizer_token(stream->tokenizer, id, &size, &special);
    if (bytes == NULL) {
        return unknown_id(stream->tokenizer, id);
    }
    if (special && (stream->flags & DETOKENIZE_SKIP_SPECIAL) != 0) {
        return 0;
    }
    return release(stream, bytes, size, false, out);
}

int tokenizer_stream_end(struct tokenizer_stream *stream, struct byte_list *out)
{
    return release(stream, stream->held, 0, true, out);
}

int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t count, unsigned flags,
                     struct byte_list *out)
{
    struct tokenizer_stream stream;
    tokenizer_stream_start(&stream, t, flags);
    for (size_t i = 0; i < count; i++) {
        TRY(tokenizer_stream_push(&stream, ids[i], out));
    }
    return tokenizer_stream_end(&stream, out);
}
