/* SPDX-License-Identifier: Apache-2.0 */

/* The AVX-512 table. One register is the contract's sixteen lanes, so the matrix products are
 * plain: one token with many rows in flight, several tokens as blocks of rows by tokens in
 * which a weight is decoded once. tests/unit/kernels_avx512_emulated_test.c runs this same
 * source on a CPU without AVX-512. */

#include <math.h>

#include "kernels/vec_avx512.h"

#include "kernels/body_math.inc"
#include "kernels/body_vector.inc"
#include "kernels/body_dots.inc"

#define ROWS_MAX 8u   /* rows of a block against one token */
#define TILE_ROWS 4u  /* rows of a block against several */
#define TILE_TOKENS 4u

/* A block of rows by tokens; unused row places repeat the last row. */
struct tile {
    const unsigned char *w[ROWS_MAX];
    const unsigned char *scale[ROWS_MAX]; /* mxfp4 only */
    const float *x;
    size_t x_stride, cols;
    struct v16 acc[ROWS_MAX][TILE_TOKENS]; /* result */
};

/* rows and tokens are constants at every call. */
ALWAYS_INLINE void bf16_tile(struct tile *b, const uint32_t rows, const uint32_t tokens)
{
    struct v16 acc[ROWS_MAX][TILE_TOKENS];
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            acc[r][t] = v16_set1(0.0f);
        }
    }
    size_t c = 0;
    for (; c + LANES_F32 <= b->cols; c += LANES_F32) {
        struct v16 x[TILE_TOKENS];
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            x[t] = v16_load(b->x + t * b->x_stride + c);
        }
        UNROLL
        for (uint32_t r = 0; r < rows; r++) {
            struct v16 w = v16_bf16(b->w[r] + 2 * c);
            UNROLL
            for (uint32_t t = 0; t < tokens; t++) {
                acc[r][t] = v16_fma(w, x[t], acc[r][t]);
            }
        }
    }
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            b->acc[r][t] = acc[r][t];
        }
    }
}

/* The elements of a last, short block of columns. */
static void bf16_tile_tail(struct tile *b, uint32_t rows, uint32_t tokens)
{
    size_t left = b->cols % LANES_F32;
    size_t c = b->cols - left;
    for (uint32_t r = 0; left > 0 && r < rows; r++) {
        struct v16 w = v16_bf16_n(b->w[r] + 2 * c, left);
        for (uint32_t t = 0; t < tokens; t++) {
            struct v16 x = v16_load_n(b->x + t * b->x_stride + c, left);
            b->acc[r][t] = v16_fma_n(w, x, b->acc[r][t], left);
        }
    }
}

ALWAYS_INLINE void mxfp4_tile(struct tile *b, const uint32_t rows, const uint32_t tokens)
{
    const __m512 values = _mm512_loadu_ps(mxfp4_value);
    struct v16 acc[ROWS_MAX][TILE_TOKENS];
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            acc[r][t] = v16_set1(0.0f);
        }
    }
    size_t groups = b->cols / MXFP4_GROUP;
    for (size_t g = 0; g < groups; g++) {
        UNROLL
        for (uint32_t r = 0; r < rows; r++) {
            const unsigned char *p = b->w[r] + g * MXFP4_GROUP_BYTES;
            __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
            /* The permutation looks at the lower four bits of each lane only. */
            struct v16 even = {_mm512_permutexvar_ps(code, values)};
            struct v16 odd = {_mm512_permutexvar_ps(_mm512_srli_epi32(code, 4), values)};
            struct v16 scale = {
                V_F32(_mm512_set1_epi32((int)mxfp4_scale_bits[b->scale[r][g]]))};
            UNROLL
            for (uint32_t t = 0; t < tokens; t++) {
                const float *x = b->x + t * b->x_stride + g * MXFP4_GROUP;
                struct v16 term = v16_mul(even, v16_load(x));
                term = v16_fma(odd, v16_load(x + MXFP4_GROUP_BYTES), term);
                acc[r][t] = v16_fma(term, scale, acc[r][t]);
            }
        }
    }
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            b->acc[r][t] = acc[r][t];
        }
    }
}

#define TILE_FUNCTION(format, rows, tokens)                                                    \
    static void format##_##rows##x##tokens(struct tile *b)                                     \
    {                                                                                          \
        format##_tile(b, rows, tokens);                                                        \
    }

TILE_FUNCTION(bf16, 8, 1)
TILE_FUNCTION(bf16, 4, 2)
TILE_FUNCTION(bf16, 4, 3)
TILE_FUNCTION(bf16, 4, 4)
TILE_FUNCTION(mxfp4, 8, 1)
TILE_FUNCTION(mxfp4, 4, 2)
TILE_FUNCTION(mxfp4, 4, 3)
TILE_FUNCTION(mxfp4, 4, 4)

/* One format: how to run a tile of 1..TILE_TOKENS tokens, and its row sizes. */
struct tile_format {
    void (*run[TILE_TOKENS])(struct tile *b);
    size_t row_bytes, scale_bytes;
    bool has_tail; /* cols need not be a multiple of the vector */
};

/* Points the tile at `rows` rows from first on; places up to `places` repeat the last one. */
static void tile_place(struct tile *b, const struct matmul *m, const struct tile_format *f,
                       uint32_t first, uint32_t rows, uint32_t places)
{
    for (uint32_t r = 0; r < places; r++) {
        size_t row = first + (r < rows ? r : rows - 1);
        b->w[r] = m->w + row * f->row_bytes;
        b->scale[r] = f->scale_bytes > 0 ? m->scale + row * f->scale_bytes : NULL;
    }
}

static void tile_rows(const struct matmul *m, const struct tile_format *f, struct tile *b,
                      uint32_t first, uint32_t rows)
{
    for (uint32_t t = 0; t < m->tokens; t += TILE_TOKENS) {
        uint32_t tokens = m->tokens - t < TILE_TOKENS ? m->tokens - t : TILE_TOKENS;
        b->x = m->x + t * m->x_stride;
        f->run[tokens - 1](b);
        if (f->has_tail) {
            bf16_tile_tail(b, rows, tokens);
        }
        for (uint32_t k = 0; k < tokens; k++) {
            for (uint32_t r = 0; r < rows; r++) {
                m->y[(t + k) * m->y_stride + first + r] = v16_sum(b->acc[r][k]);
            }
        }
    }
}

static void tile_all(const struct matmul *m, const struct tile_format *f)
{
    uint32_t block = m->tokens == 1 ? ROWS_MAX : TILE_ROWS;
    struct tile b;
    b.x_stride = m->x_stride;
    b.cols = m->cols;
    for (uint32_t first = 0; first < m->rows; first += block) {
        uint32_t rows = m->rows - first < block ? m->rows - first : block;
        tile_place(&b, m, f, first, rows, ROWS_MAX);
        tile_rows(m, f, &b, first, rows);
    }
}

static void avx512_bf16(const struct matmul *m)
{
    struct tile_format f = {{bf16_8x1, bf16_4x2, bf16_4x3, bf16_4x4}, 2 * (size_t)m->cols, 0,
                            true};
    tile_all(m, &f);
}

static void avx512_mxfp4(const struct matmul *m)
{
    assert(m->cols % MXFP4_GROUP == 0);
    struct tile_format f = {{mxfp4_8x1, mxfp4_4x2, mxfp4_4x3, mxfp4_4x4},
                            m->cols / 2, m->cols / MXFP4_GROUP, false};
    tile_all(m, &f);
}

extern const struct kernels KERNELS_AVX512_TABLE;
const struct kernels KERNELS_AVX512_TABLE = {
    .name = "avx512",
    .bf16 = avx512_bf16,
    .mxfp4 = avx512_mxfp4,
    VEC_ENTRIES,
};
