/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/tokenizer_ranks.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/model/model_priv.h"

/* The released file has 2.8 MB; twenty times that is no tokenizer. */
#define FILE_CAP_BYTES (64 * MIB)
#define LINE_BYTES_MAX (RANKS_TOKEN_BYTES_MAX / 3 * 4 + 4 + sizeof " 2147483647")

/* A file on its way in. */
struct reader {
    const char *path;
    struct ranks *ranks;
    uint32_t line;         /* counts from 1 */
    uint32_t filled_bytes; /* of ranks->bytes */
};

static int refuse(const struct reader *reader, const char *what)
{
    return err_set(ERR_MODEL, "%s: line %u %s: fetch the file again", reader->path, reader->line,
                   what);
}

/* ---- one line ---- */

/* The six bits of a base64 digit, or 64. */
static uint32_t base64_digit(unsigned char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26U;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52U;
    }
    return c == '+' ? 62 : c == '/' ? 63 : 64;
}

/* Decodes digits, padded to fours, into target. Returns the bytes made, or -1: another character,
 * padding elsewhere than at the end, bits that no byte takes. */
static int base64_decode(const unsigned char *text, size_t digits, unsigned char *target)
{
    int made = 0;
    if (digits % 4 != 0) {
        return -1;
    }
    for (size_t i = 0; i < digits; i += 4) {
        size_t used = 4;
        uint32_t bits = 0;
        while (i + 4 == digits && used > 2 && text[i + used - 1] == '=') {
            used--;
        }
        for (size_t k = 0; k < 4; k++) {
            uint32_t digit = k < used ? base64_digit(text[i + k]) : 0;
            if (digit == 64) {
                return -1;
            }
            bits = bits << 6 | digit;
        }
        for (size_t k = 0; k < 3; k++) {
            unsigned char byte = (unsigned char)(bits >> (16 - 8 * k));
            if (k + 1 < used) {
                target[made++] = byte;
            } else if (byte != 0) {
                return -1;
            }
        }
    }
    return made;
}

/* Digits without leading zeros, at most 2^31 - 1; false on anything else. */
static bool read_rank(const unsigned char *text, size_t size_bytes, uint32_t *rank)
{
    uint64_t value = 0;
    if (size_bytes == 0 || size_bytes > 10 || (size_bytes > 1 && text[0] == '0')) {
        return false;
    }
    for (size_t i = 0; i < size_bytes; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        value = value * 10 + (text[i] - '0');
    }
    *rank = (uint32_t)value;
    return value <= INT32_MAX;
}

/* Takes a token into the table that finds it. Returns RANKS_NONE, or the rank it has already. */
static uint32_t insert(struct ranks *ranks, const unsigned char *bytes, size_t size_bytes,
                       uint32_t rank)
{
    uint64_t hash = XXH3_64bits(bytes, size_bytes);
    uint32_t known = ranks_find(ranks, bytes, size_bytes);
    if (known == RANKS_NONE) {
        uint32_t at = (uint32_t)hash & ranks->slot_mask;
        while (ranks->slots[at].rank != RANKS_NONE) {
            at = (at + 1) & ranks->slot_mask;
        }
        ranks->slots[at] = (struct ranks_slot){.tag = (uint32_t)(hash >> 32), .rank = rank};
    }
    return known;
}

/* Says what is wrong with a line that is not `base64 rank`. */
static int refuse_line(const struct reader *reader, const unsigned char *line, size_t size_bytes)
{
    if (memchr(line, '\0', size_bytes) != NULL) {
        return refuse(reader, "holds a zero byte");
    }
    if (size_bytes == 0) {
        return refuse(reader, "is empty");
    }
    if (size_bytes > LINE_BYTES_MAX) {
        return refuse(reader, "is longer than that of any token");
    }
    if (memchr(line, ' ', size_bytes) == NULL) {
        return refuse(reader, "has no rank");
    }
    if (line[0] == ' ') {
        return refuse(reader, "has an empty token");
    }
    return refuse(reader, "is not base64, a space and a rank below 2147483648");
}

static int store(struct reader *reader, int size_bytes, uint32_t rank)
{
    struct ranks *ranks = reader->ranks;
    unsigned char *bytes = ranks->bytes + reader->filled_bytes;
    if (rank >= ranks->count) {
        return err_set(ERR_MODEL, "%s: line %u has rank %u, but %u lines must have ranks 0 to %u: "
                       "fetch the file again", reader->path, reader->line, rank, ranks->count,
                       ranks->count - 1);
    }
    if (ranks->tokens[rank].size_bytes != 0) {
        return err_set(ERR_MODEL, "%s: line %u has rank %u, which an earlier line has: fetch the "
                       "file again", reader->path, reader->line, rank);
    }
    uint32_t known = insert(ranks, bytes, (size_t)size_bytes, rank);
    if (known != RANKS_NONE) {
        return err_set(ERR_MODEL, "%s: line %u has the token of rank %u once more: fetch the file "
                       "again", reader->path, reader->line, known);
    }
    ranks->tokens[rank] = (struct ranks_token){.begin_bytes = reader->filled_bytes,
                                               .size_bytes = (uint32_t)size_bytes};
    reader->filled_bytes += (uint32_t)size_bytes;
    if (size_bytes == 1) {
        ranks->byte_rank[bytes[0]] = rank;
    }
    ranks->longest_bytes = (uint32_t)max_u64(ranks->longest_bytes, (uint64_t)size_bytes);
    return 0;
}

static int read_line(struct reader *reader, const unsigned char *line, size_t size_bytes)
{
    const unsigned char *space = memchr(line, ' ', size_bytes);
    uint32_t rank;
    int made = -1;
    size_bytes -= size_bytes > 0 && line[size_bytes - 1] == '\r'; /* a CR LF does no harm */
    if (space != NULL && size_bytes <= LINE_BYTES_MAX) {
        made = base64_decode(line, (size_t)(space - line),
                             reader->ranks->bytes + reader->filled_bytes);
    }
    if (made <= 0 || made > (int)RANKS_TOKEN_BYTES_MAX ||
        !read_rank(space + 1, (size_t)(line + size_bytes - space - 1), &rank)) {
        return refuse_line(reader, line, size_bytes);
    }
    return store(reader, made, rank);
}

/* ---- the file ---- */

static uint32_t count_lines(const struct file_text *file)
{
    uint32_t lines = 0;
    const char *end = file->text + file->size_bytes;
    for (const char *at = file->text; at < end; lines++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        at = stop != NULL ? stop + 1 : end;
    }
    return lines;
}

/* The table is at most three quarters full. Tokens take at most three bytes of four. */
static int reserve(struct ranks *ranks, size_t text_bytes)
{
    uint64_t slots = 512;
    while (slots * 3 / 4 < ranks->count) {
        slots *= 2;
    }
    ranks->slot_mask = (uint32_t)(slots - 1);
    ranks->bytes = malloc(text_bytes + 4);
    ranks->tokens = calloc(ranks->count, sizeof *ranks->tokens);
    ranks->slots = malloc(slots * sizeof *ranks->slots);
    if (ranks->bytes == NULL || ranks->tokens == NULL || ranks->slots == NULL) {
        return err_set(ERR_MEMORY, "no memory for a tokenizer of %u tokens", ranks->count);
    }
    memset(ranks->slots, 0xFF, slots * sizeof *ranks->slots); /* RANKS_NONE */
    for (size_t i = 0; i < countof(ranks->byte_rank); i++) {
        ranks->byte_rank[i] = RANKS_NONE;
    }
    ranks->resident_bytes = slots * sizeof *ranks->slots + ranks->count * sizeof *ranks->tokens;
    return 0;
}

/* Single bytes are the first tokens, in the order of GPT-2: those that can be seen, then the rest.
 * A file in which they lie elsewhere is not of this family. */
static int check_bytes(const struct ranks *ranks, const char *path)
{
    uint32_t rank = 0;
    for (int seen = 1; seen >= 0; seen--) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            bool visible = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
            if (visible != (seen != 0)) {
                continue;
            }
            if (ranks->byte_rank[byte] == RANKS_NONE) {
                return err_set(ERR_MODEL, "%s: has no token for the single byte 0x%02X: fetch the "
                               "file again", path, byte);
            }
            if (ranks->byte_rank[byte] != rank) {
                return err_set(ERR_MODEL, "%s: byte 0x%02X has rank %u, not %u as in Kimi K3: take "
                               "the tiktoken.model of the checkpoint", path, byte,
                               ranks->byte_rank[byte], rank);
            }
            rank++;
        }
    }
    return 0;
}

static int read_text(struct ranks *ranks, const char *path, const struct file_text *file)
{
    struct reader reader = {.path = path, .ranks = ranks};
    const unsigned char *at = (const unsigned char *)file->text;
    const unsigned char *end = at + file->size_bytes;
    TRY(foreign_check(path, file->text, min_u64(file->size_bytes, 64), file->size_bytes));
    ranks->count = count_lines(file);
    TRY(reserve(ranks, file->size_bytes));
    while (at < end) {
        const unsigned char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop != NULL ? stop : end;
        reader.line++;
        TRY(read_line(&reader, at, (size_t)(stop - at)));
        at = stop + 1;
    }
    TRY(check_bytes(ranks, path));
    unsigned char *fitting = realloc(ranks->bytes, reader.filled_bytes);
    ranks->bytes = fitting != NULL ? fitting : ranks->bytes;
    ranks->resident_bytes += reader.filled_bytes;
    return 0;
}

int ranks_read(struct ranks *ranks, const char *path)
{
    struct file_text file;
    *ranks = (struct ranks){.count = 0};
    TRY(file_read(path, FILE_CAP_BYTES, &file));
    int rc = read_text(ranks, path, &file);
    file_text_free(&file);
    if (rc < 0) {
        ranks_free(ranks);
    }
    return rc;
}

void ranks_free(struct ranks *ranks)
{
    free(ranks->bytes);
    free(ranks->tokens);
    free(ranks->slots);
    *ranks = (struct ranks){.count = 0};
}

uint32_t ranks_find(const struct ranks *ranks, const unsigned char *bytes, size_t size_bytes)
{
    uint64_t hash = XXH3_64bits(bytes, size_bytes);
    uint32_t tag = (uint32_t)(hash >> 32);
    for (uint32_t at = (uint32_t)hash & ranks->slot_mask;; at = (at + 1) & ranks->slot_mask) {
        const struct ranks_slot *slot = &ranks->slots[at];
        if (slot->rank == RANKS_NONE) {
            return RANKS_NONE;
        }
        if (slot->tag != tag) {
            continue;
        }
        struct ranks_token token = ranks->tokens[slot->rank];
        if (token.size_bytes == size_bytes &&
            memcmp(ranks->bytes + token.begin_bytes, bytes, size_bytes) == 0) {
            return slot->rank;
        }
    }
}
