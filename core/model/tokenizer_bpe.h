/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_TOKENIZER_BPE_H
#define MODEL_TOKENIZER_BPE_H

/* Byte pair encoding of one piece: single bytes, then again and again the adjacent pair whose bytes
 * together have the lowest rank, the leftmost of equals. Short pieces are searched anew for every
 * merge; long ones keep their pairs in a heap, n log n steps for n bytes. */

#include "core/model/tokenizer_ranks.h"

/* Working space, grown as needed. Begin with {0}; one thread, one tokenizer. */
struct bpe {
    struct bpe_part *parts;
    uint64_t *heap;      /* rank << 32 | place of the pair's first part */
    size_t heap_count;
    size_t capacity;     /* bytes of a piece that parts and heap have room for */
    struct bpe_known *known;
    uint32_t *ids;       /* of the piece, valid until the next call */
    size_t id_count;
    uint64_t steps;      /* pairs looked up, parts searched and entries moved so far */
};

/* Fills bpe->ids. size_bytes > 0 and below 2^31. */
int bpe_encode(struct bpe *bpe, const struct ranks *ranks, const unsigned char *piece,
               size_t size_bytes);
void bpe_free(struct bpe *bpe);

#endif
