/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_TOKENIZER_SPLIT_H
#define MODEL_TOKENIZER_SPLIT_H

/* How a text falls apart before tokens are merged: first into slices, which bounds the longest
 * piece, then into pieces by one pattern. The pattern is PCRE2's and asks for Unicode properties;
 * what it answers is that of Unicode 16.0 whatever version the library has (14.0 to 17.0). */

#include "core/base/base.h"

#define SPLIT_CUT_CHARACTERS 400000U /* a text is cut every so many, wherever that is */
#define SPLIT_RUN_CHARACTERS 25000U  /* of white space, or of none, in one slice on end */

/* The compiled pattern. Does not change; any thread. */
struct splitter;

/* machine_code: compile to it where the system allows; the interpreter gives the same pieces, more
 * slowly. ERR_MEMORY, or ERR_RUN with PCRE2's reason. */
int splitter_open(bool machine_code, struct splitter **out);
void splitter_close(struct splitter *splitter);

/* A text on its way. One thread. */
struct split {
    const struct splitter *splitter;
    const unsigned char *text;
    size_t size_bytes;
    size_t begin_bytes, end_bytes; /* of the slice in turn */
    uint32_t cut_left;             /* characters until the next cut */
    unsigned char *plain;          /* the slice as the pattern sees it: same places */
    size_t plain_capacity;
    void *match;                   /* PCRE2's */
};

/* Text is borrowed until split_end(). */
int split_start(struct split *split, const struct splitter *splitter, const void *text,
                size_t size_bytes);
void split_end(struct split *split);

/* Goes on to the next slice. 1, 0 when there is none, or ERR_MEMORY. */
int split_slice(struct split *split);

/* The end of the piece that begins at begin_bytes, within the current slice and before
 * limit_bytes, where the pattern sees the text end. Places count from the beginning of the text. */
int split_piece(struct split *split, size_t begin_bytes, size_t limit_bytes, size_t *end_bytes);

/* Bytes of the first cut of a text. */
size_t split_cut(const unsigned char *text, size_t size_bytes);

/* White space where runs are counted, which is not quite that of the pattern: the separators
 * U+001C to U+001F belong to it. */
bool split_is_space(uint32_t code);

/* A character of the same length in UTF-8 which every PCRE2 treats as Unicode 16.0 treats code;
 * most characters stand for themselves. */
uint32_t split_stand_in(uint32_t code);

#endif
