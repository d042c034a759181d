/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_TOKENIZER_RANKS_H
#define MODEL_TOKENIZER_RANKS_H

/* tiktoken.model: lines of `base64(bytes) rank`. A token's rank is its id; of two possible merges
 * the one of lower rank comes first. Does not change once read; any thread. */

#include "core/base/base.h"

#define RANKS_NONE UINT32_MAX
#define RANKS_TOKEN_BYTES_MAX 4096U

/* A place in the table that finds tokens by their bytes. */
struct ranks_slot {
    uint32_t tag;  /* the upper half of the hash */
    uint32_t rank; /* RANKS_NONE: empty */
};

/* Where the bytes of a token lie. */
struct ranks_token {
    uint32_t begin_bytes; /* from those of the first in the file */
    uint32_t size_bytes;  /* > 0 */
};

struct ranks {
    uint32_t count;             /* ranks 0 .. count - 1 */
    unsigned char *bytes;       /* of all tokens */
    struct ranks_token *tokens; /* [count] */
    struct ranks_slot *slots; /* [slot_mask + 1], searched in a line from the hash */
    uint32_t slot_mask;
    uint32_t longest_bytes;
    uint32_t byte_rank[256];  /* of the 256 single bytes, all of which there are */
    uint64_t resident_bytes;
};

/* Reads and checks a file. ERR_MODEL names the line, what is wrong there and what to do. */
int ranks_read(struct ranks *ranks, const char *path);
void ranks_free(struct ranks *ranks); /* an empty struct is fine */

/* The rank of these bytes, or RANKS_NONE. size_bytes > 0. */
uint32_t ranks_find(const struct ranks *ranks, const unsigned char *bytes, size_t size_bytes);

#endif
