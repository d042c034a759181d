/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/run_text.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/text.h"
#include "core/model/endings.h"

#define OWN_BYTES (1 * MIB)  /* a tokenizer's pattern and what regular expressions take */
#define KEPT_TOKEN_BYTES 24U /* of text kept, and as JSON; most tokens are shorter */

int run_text_open(struct run_text *t, const struct tokenizer *given, const char *path,
                  const struct option_list *stops, bool keeps)
{
    *t = (struct run_text){.tokenizer = given, .keeps = keeps};
    TRY(stop_text_check("stop-text", stops));
    if (given == NULL && stops->count > 0) {
        TRY(tokenizer_open(path, &t->own));
        t->tokenizer = t->own;
    }
    if (t->tokenizer != NULL) {
        tokenizer_stream_start(&t->stream, t->tokenizer, DETOKENIZE_SKIP_SPECIAL);
    }
    stop_text_start(&t->stop, stops);
    return 0;
}

void run_text_fini(struct run_text *t)
{
    stop_text_fini(&t->stop);
    free(t->piece.bytes);
    free(t->shown.bytes);
    free(t->kept.bytes);
    free(t->reasoning.bytes);
    free(t->ends.ids);
    chat_parser_close(t->chat);
    tokenizer_close(t->own);
    *t = (struct run_text){.rc = 0};
}

uint64_t run_text_bytes(const struct run_text *t, uint64_t gen)
{
    if (t->tokenizer == NULL) {
        return 0;
    }
    return tokenizer_resident_bytes(t->tokenizer) + OWN_BYTES +
           (t->keeps ? KEPT_TOKEN_BYTES * gen : 0);
}

static void on_text(void *ctx, enum chat_channel channel, const char *text, size_t size_bytes)
{
    struct run_text *t = ctx;
    int rc = byte_list_append(channel == CHAT_REASONING ? &t->reasoning : &t->piece, text,
                              size_bytes);
    t->answered = t->answered || channel != CHAT_REASONING;
    t->rc = t->rc < 0 ? t->rc : rc;
}

static void on_call(void *ctx, const struct chat_call *call)
{
    struct run_text *t = ctx;
    (void)call;
    t->answered = true;
}

int run_text_chat(struct run_text *t, const char *model, bool thinking)
{
    const struct chat_events events = {.on_text = on_text, .on_call = on_call, .ctx = t};
    TRY(model_endings(model, ENDINGS_ANY, &t->ends));
    TRY(chat_parser_open(&t->chat, t->tokenizer, thinking, &events));
    chat_parser_ends(t->chat, &t->ends);
    return 0;
}

bool run_text_ends_with(const struct run_text *t, uint32_t id)
{
    return t->chat != NULL && chat_parser_ends_with(t->chat, id);
}

bool run_text_unanswered(const struct run_text *t)
{
    return t->chat != NULL && !t->answered;
}

/* Leaves in piece what the answer's response gets. */
static int take_answer(struct run_text *t, const uint32_t *id)
{
    struct chat_message message = {.role = CHAT_ASSISTANT};
    int rc = id != NULL ? chat_parser_push(t->chat, *id) : chat_parser_end(t->chat, &message);
    chat_message_fini(&message);
    return rc < 0 ? rc : t->rc;
}

static int take_token(struct run_text *t, const uint32_t *id)
{
    return id != NULL ? tokenizer_stream_push(&t->stream, *id, &t->piece)
                      : tokenizer_stream_end(&t->stream, &t->piece);
}

static int take(struct run_text *t, const uint32_t *id)
{
    int rc = t->chat != NULL ? take_answer(t, id) : take_token(t, id);
    if (rc == ERR_USAGE) {
        err_clear(); /* an id of the model alone */
        rc = 0;
    }
    TRY(rc);
    TRY(stop_text_push(&t->stop, t->piece.bytes, t->piece.count, &t->shown));
    if (id == NULL && t->stop.found == NULL) {
        TRY(stop_text_end(&t->stop, &t->shown));
    }
    return t->keeps ? byte_list_append(&t->kept, t->shown.bytes, t->shown.count) : 0;
}

void run_text_take(struct run_text *t, const uint32_t *id)
{
    t->piece.count = 0;
    t->shown.count = 0;
    bool open = t->tokenizer != NULL && t->stop.found == NULL && t->rc >= 0;
    if (open && (id == NULL || !run_text_over(t))) {
        t->rc = take(t, id);
    }
}

bool run_text_over(const struct run_text *t)
{
    return t->stop.found != NULL || t->rc < 0 ||
           (t->chat != NULL && chat_parser_over(t->chat));
}

static void add_text(cJSON *parent, const char *name, const void *bytes, size_t count)
{
    char *text = text_json(bytes, count);
    if (text != NULL) {
        cJSON_AddRawToObject(parent, name, text);
    }
    free(text);
}

void run_text_json(const struct run_text *t, cJSON *parent)
{
    if (t->tokenizer != NULL && t->keeps) {
        add_text(parent, "text", t->kept.bytes, t->kept.count);
    }
    if (t->chat != NULL && t->keeps) {
        add_text(parent, "reasoning", t->reasoning.bytes, t->reasoning.count);
    }
    if (t->stop.found != NULL) {
        add_text(parent, "stop_text", t->stop.found, strlen(t->stop.found));
    }
}
