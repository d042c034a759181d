/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_TOKENIZER_H
#define MODEL_TOKENIZER_H

/* Text <-> token ids, as the tokenizer of Kimi K3 makes them: tiktoken.model holds the ordinary
 * tokens, 256 added ones follow them. docs/TEXT.md says what is done to a text, in which order.
 *
 * A struct tokenizer does not change once it is open: any number of threads may use one, each with
 * its own lists and streams. Resident for the released file: 4.6 MB (bytes of tokens 1.2, their
 * places 1.3, the table that finds them 2.1) and the compiled pattern, some 20 KB. A call takes a
 * copy of its slice of the text (at most 1.6 MB), 40 bytes per byte of the longest piece (at most
 * 5 MB), 0.1 MB beside, and what its lists grow to. */

#include "core/base/base.h"

#define TOKENIZER_FILE "tiktoken.model" /* in the folder of a checkpoint */
#define TOKENIZER_ADDED 256U /* tokens behind those of tiktoken.model */

struct tokenizer;

/* Grows as needed. Begin with {0}; free() what ids points to. */
struct token_list {
    uint32_t *ids;
    size_t count, capacity;
};

/* Grows as needed. Begin with {0}; free() what bytes points to. */
struct byte_list {
    unsigned char *bytes;
    size_t count, capacity;
};

/* Put count more behind a list. ERR_MEMORY. */
int token_list_append(struct token_list *list, const uint32_t *ids, size_t count);
int byte_list_append(struct byte_list *list, const void *bytes, size_t count);

/* path: tiktoken.model or the folder that holds it. In a folder, tokenizer_config.json and
 * config.json are read too, if they are there, and have to agree with it.
 * ERR_MODEL names the file, the line, what is wrong and what to do; also ERR_IO, ERR_MEMORY. */
int tokenizer_open(const char *path, struct tokenizer **out);
void tokenizer_close(struct tokenizer *t); /* NULL is fine */

/* Ids are below this: tokens of the file, then the added ones. */
uint32_t tokenizer_count(const struct tokenizer *t);
uint32_t tokenizer_first_added(const struct tokenizer *t);

/* Bytes of the longest token of the file. Text without added tokens has at most so many for each of
 * its ids. */
uint32_t tokenizer_longest_bytes(const struct tokenizer *t);

/* What it keeps in memory, without the compiled pattern. */
uint64_t tokenizer_resident_bytes(const struct tokenizer *t);

/* Bytes of a token, not terminated; valid while t is open. NULL for an id of no token. *special
 * (may be NULL) is what the added token's entry says. */
const unsigned char *tokenizer_token(const struct tokenizer *t, uint32_t id, size_t *size_bytes,
                                     bool *special);

/* ---- text to ids ---------------------------------------------------------------------- */

enum {
    /* The text of an added token becomes its id. Without it such text is text like any other:
     * what a user typed can then never become a control token. */
    TOKENIZE_ADDED = 1
};

/* Appends the ids of size_bytes of text, which may be any bytes: one that belongs to no UTF-8
 * character counts as a character of its own, neither letter, digit nor space. Nothing is put
 * before or after. */
int tokenizer_encode(const struct tokenizer *t, const void *text, size_t size_bytes,
                     unsigned flags, struct token_list *ids);

/* Called for every piece in turn. added_id is -1, or the id of the added token that it is. A
 * negative result ends the walk and is returned. */
typedef int tokenizer_visit(void *context, const unsigned char *piece, size_t size_bytes,
                            int64_t added_id);

/* Visits the pieces within which tokens are merged. Together they are the text. */
int tokenizer_split(const struct tokenizer *t, const void *text, size_t size_bytes,
                    unsigned flags, tokenizer_visit *visit, void *context);

/* Text is cut every so many characters before anything else, so a long one can be encoded cut by
 * cut. Returns the bytes of the first cut: size_bytes when there is no more than one. */
#define TOKENIZER_CUT_BYTES_MAX ((size_t)4 * 400000)
size_t tokenizer_cut(const void *text, size_t size_bytes);

/* ---- ids to text ---------------------------------------------------------------------- */

enum {
    DETOKENIZE_SKIP_SPECIAL = 1, /* leaves added tokens out that are special */
    DETOKENIZE_REPAIR = 2        /* bytes that are not UTF-8 come out as U+FFFD */
};

/* Appends the bytes of all ids. ERR_USAGE names an id of no token; the list then holds those
 * before it. */
int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t count, unsigned flags,
                     struct byte_list *out);

/* A text that appears token by token. Characters whose bytes are spread over tokens are held back
 * until they are whole. */
struct tokenizer_stream {
    const struct tokenizer *tokenizer;
    unsigned flags;        /* DETOKENIZE_... */
    unsigned char held[3]; /* the beginning of a character */
    size_t held_bytes;
};

void tokenizer_stream_start(struct tokenizer_stream *stream, const struct tokenizer *t,
                            unsigned flags);
/* Appends what can be shown now. ERR_USAGE for an id of no token, with nothing appended. */
int tokenizer_stream_push(struct tokenizer_stream *stream, uint32_t id, struct byte_list *out);
/* Appends what is still held, as it is (repaired, if so asked). The stream is as new then. */
int tokenizer_stream_end(struct tokenizer_stream *stream, struct byte_list *out);

#endif
