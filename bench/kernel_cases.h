/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_KERNEL_CASES_H
#define BENCH_KERNEL_CASES_H

/* What kernel_bench runs: one case per kernel and shape of the real geometry, the two loops that
 * bound them, and how much of each kernel a token takes. */

#include "core/base/base.h"
#include "kernels/kernels.h"
#include "kernels/packed.h"

#define DATA_BYTES (512 * MIB)
#define TILE_BYTES (4 * MIB)
#define STATE_BYTES (64 * MIB)
#define VECTOR 65536u /* floats of the small operands */
#define TOKENS_MAX 64u
#define HEAD 128u
#define HIDDEN 7168u
#define CONTEXT 1024u

struct bench {
    const struct kernels *k;
    unsigned char *data;   /* DATA_BYTES: small numbers as bf16, f32 and E8M0 alike */
    unsigned char *coded;  /* the same number of weights, packed: tiles of coded_bytes */
    uint64_t coded_bytes;
    float *state;          /* STATE_BYTES, recurrent matrices */
    float *x, *y;          /* VECTOR * TOKENS_MAX floats each */
    uint64_t begin, end;   /* the part of data this run may stream, in bytes */
    uint64_t elements, bytes; /* what the last run did */
};

struct bench_case {
    const char *name;
    void (*run)(struct bench *b, uint32_t cols, uint32_t tokens);
    uint32_t cols, tokens;
    bool weights; /* computes the more per byte the more tokens there are */
};

enum case_id {
    BF16_1, BF16_3, BF16_8, BF16_64, PACKED_1, PACKED_3, PACKED_8, PACKED_64,
    MXFP4_1, MXFP4_3072, MXFP4_3, MXFP4_8, MXFP4_64,
    ROUTER, TRANSPOSED, DOTS, MIX, SOFTMAX, KDA, CONV, DECAY, L2NORM, GATE, RMSNORM, HEAD_NORM,
    ATTNRES, SITU, SPLIT, ADD, EXP, TANH, CASE_COUNT
};

extern const struct bench_case CASES[CASE_COUNT];

/* Rows of a bf16 matrix that fill a tile. */
uint32_t tile_rows(uint32_t cols);

/* The read loop: a sum of size_bytes at data, four quarters side by side with 16-byte loads and
 * the lines ahead asked for, the fastest of those tried. */
uint64_t read_quarters(const unsigned char *data, uint64_t size_bytes);

/* Fused steps per nanosecond of one core, with everything in registers; 0 for scalar. */
double fma_peak(enum isa isa);

/* One part of a decode step with all weights resident, at full widths. */
struct item {
    const char *name;
    enum case_id id;
    double elements; /* of a step with CONTEXT positions */
};

#define ITEM_COUNT 19u
extern const struct item ITEMS[ITEM_COUNT];

#endif
