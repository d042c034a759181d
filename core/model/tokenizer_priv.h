/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOKENIZER_PRIV_H
#define TOKENIZER_PRIV_H

/* What the files of the tokenizer share. No other folder includes it. */

#include "core/model/tokenizer.h"
#include "core/model/tokenizer_bpe.h"
#include "core/model/tokenizer_ranks.h"
#include "core/model/tokenizer_split.h"

/* ---- tokenizer_added.c ---------------------------------------------------------------- */

/* The 256 tokens behind those of the file. No text of one is the beginning of another's. */
struct added_tokens {
    uint32_t first;                      /* id of the first */
    char *text[TOKENIZER_ADDED];         /* never empty */
    size_t size_bytes[TOKENIZER_ADDED];
    bool special[TOKENIZER_ADDED];
    uint8_t sorted[TOKENIZER_ADDED];     /* by text */
    bool begins[256];                    /* whether a text begins with this byte */
};

/* Those of Kimi K3, with ids from first. With dir not NULL and a tokenizer_config.json in it, what
 * that says of them must be the same; it may name those that are reserved. */
int added_open(struct added_tokens *added, uint32_t first, const char *dir);
void added_close(struct added_tokens *added);

/* The first added token within size_bytes of text: its place, or size_bytes when there is none. */
size_t added_find(const struct added_tokens *added, const unsigned char *text, size_t size_bytes,
                  uint32_t *index);

/* ---- tokenizer.c ---------------------------------------------------------------------- */

struct tokenizer {
    struct ranks ranks;
    struct added_tokens added;
    struct splitter *splitter;
};

#endif
