/* SPDX-License-Identifier: Apache-2.0 */

/* The AVX-512 table. One register is the contract's sixteen lanes, so the matrix products are
 * plain: one token with many rows in flight, a few tokens as blocks of rows by tokens in registers,
 * and more as in body_blocks.inc. tests/unit/kernels_avx512_emulated_test.c runs this same
 * source on a CPU without AVX-512. */

#include <math.h>

#include "core/base/packed.h"
#include "kernels/vec_avx512.h"

#include "kernels/body_math.inc"
#include "kernels/body_vector.inc"
#include "kernels/body_dots.inc"
#include "kernels/body_blocks.inc"

#define ROWS_MAX 8u   /* rows of a block against one token */
#define FEW_ROWS 4u   /* rows of a block against a few */
#define FEW_TOKENS 4u
#define BLOCKS_FROM 12u /* tokens from which decoding to memory pays */

/* A block of rows by tokens; unused row places repeat the last row. */
struct few {
    const unsigned char *w[ROWS_MAX];
    const unsigned char *scale[ROWS_MAX]; /* mxfp4 only */
    const float *x;
    size_t x_stride, cols;
    struct v16 acc[ROWS_MAX][FEW_TOKENS]; /* result */
};

/* rows and tokens are constants at every call. */
ALWAYS_INLINE void bf16_rows(struct few *b, const uint32_t rows, const uint32_t tokens)
{
    struct v16 acc[ROWS_MAX][FEW_TOKENS];
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            acc[r][t] = v16_set1(0.0f);
        }
    }
    size_t c = 0;
    for (; c + LANES_F32 <= b->cols; c += LANES_F32) {
        struct v16 x[FEW_TOKENS];
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
static void bf16_rows_tail(struct few *b, uint32_t rows, uint32_t tokens)
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

ALWAYS_INLINE void mxfp4_rows(struct few *b, const uint32_t rows, const uint32_t tokens)
{
    const __m512 values = _mm512_loadu_ps(mxfp4_value);
    struct v16 acc[ROWS_MAX][FEW_TOKENS];
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            acc[r][t] = v16_set1(0.0f);
        }
    }
    size_t groups = b->cols / MXFP4_GROUP;
    for (size_t g = 0; g < groups; g++) {
        struct v16 x_even[FEW_TOKENS];
        struct v16 x_odd[FEW_TOKENS];
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            const float *x = b->x + t * b->x_stride + g * MXFP4_GROUP;
            x_even[t] = v16_unsplit(v16_load(x));
            x_odd[t] = v16_unsplit(v16_load(x + MXFP4_GROUP_BYTES));
        }
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
                struct v16 term = v16_fma(odd, x_odd[t], v16_mul(even, x_even[t]));
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

#define ROWS_FUNCTION(format, rows, tokens)                                                    \
    static void format##_##rows##x##tokens(struct few *b)                                     \
    {                                                                                          \
        format##_rows(b, rows, tokens);                                                        \
    }

ROWS_FUNCTION(bf16, 8, 1)
ROWS_FUNCTION(bf16, 4, 2)
ROWS_FUNCTION(bf16, 4, 3)
ROWS_FUNCTION(bf16, 4, 4)
ROWS_FUNCTION(mxfp4, 8, 1)
ROWS_FUNCTION(mxfp4, 4, 2)
ROWS_FUNCTION(mxfp4, 4, 3)
ROWS_FUNCTION(mxfp4, 4, 4)

/* One format: how to run a block of 1..FEW_TOKENS tokens, and its row sizes. */
struct rows_format {
    void (*run[FEW_TOKENS])(struct few *b);
    size_t row_bytes, scale_bytes;
    bool has_tail; /* cols need not be a multiple of the vector */
};

/* Points the block at `rows` rows from first on; places up to `places` repeat the last one. */
static void rows_place(struct few *b, const struct matmul *m, const struct rows_format *f,
                       uint32_t first, uint32_t rows, uint32_t places)
{
    for (uint32_t r = 0; r < places; r++) {
        size_t row = first + (r < rows ? r : rows - 1);
        b->w[r] = m->w + row * f->row_bytes;
        b->scale[r] = f->scale_bytes > 0 ? m->scale + row * f->scale_bytes : NULL;
    }
}

static void rows_tokens(const struct matmul *m, const struct rows_format *f, struct few *b,
                      uint32_t first, uint32_t rows)
{
    for (uint32_t t = 0; t < m->tokens; t += FEW_TOKENS) {
        uint32_t tokens = m->tokens - t < FEW_TOKENS ? m->tokens - t : FEW_TOKENS;
        b->x = m->x + t * m->x_stride;
        f->run[tokens - 1](b);
        if (f->has_tail) {
            bf16_rows_tail(b, rows, tokens);
        }
        for (uint32_t k = 0; k < tokens; k++) {
            for (uint32_t r = 0; r < rows; r++) {
                m->y[(t + k) * m->y_stride + first + r] = v16_sum(b->acc[r][k]);
            }
        }
    }
}

static void rows_all(const struct matmul *m, const struct rows_format *f)
{
    uint32_t block = m->tokens == 1 ? ROWS_MAX : FEW_ROWS;
    struct few b;
    b.x_stride = m->x_stride;
    b.cols = m->cols;
    for (uint32_t first = 0; first < m->rows; first += block) {
        uint32_t rows = m->rows - first < block ? m->rows - first : block;
        rows_place(&b, m, f, first, rows, ROWS_MAX);
        rows_tokens(m, f, &b, first, rows);
    }
}

/* ---- several tokens: decoders and tiles of body_blocks.inc ---- */

TILE_FUNCTION(dot, 6, 1)
TILE_FUNCTION(dot, 6, 2)
TILE_FUNCTION(dot, 6, 3)
TILE_FUNCTION(dot, 6, 4)
TILE_FUNCTION(group, 3, 1)
TILE_FUNCTION(group, 3, 2)
TILE_FUNCTION(group, 3, 3)
TILE_FUNCTION(group, 3, 4)

static tile_function *const dot_tiles[] = {dot_6x1, dot_6x2, dot_6x3, dot_6x4};
static tile_function *const group_tiles[] = {group_3x1, group_3x2, group_3x3, group_3x4};

static void bf16_decode(float *out, const struct matmul *m, uint32_t row, size_t c, size_t n)
{
    const unsigned char *p = m->w + 2 * ((size_t)row * m->cols + c);
    for (size_t i = 0; i < n; i += LANES_F32) {
        v16_store_n(out + i, v16_bf16_n(p + 2 * i, n - i), n - i);
    }
}

static void mxfp4_decode(float *out, const struct matmul *m, uint32_t row, size_t c, size_t n)
{
    const __m128i order = _mm_loadu_si128((const __m128i *)(const void *)mxfp4_split_order);
    const __m512 values = _mm512_loadu_ps(mxfp4_value);
    size_t groups = m->cols / MXFP4_GROUP;
    const unsigned char *w = m->w + row * groups * MXFP4_GROUP_BYTES + c / 2;
    const unsigned char *scale = m->scale + row * groups + c / MXFP4_GROUP;
    for (size_t g = 0; g < n / MXFP4_GROUP; g++) {
        const unsigned char *p = w + g * MXFP4_GROUP_BYTES;
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m512i code = _mm512_cvtepu8_epi32(_mm_shuffle_epi8(bytes, order));
        float *place = out + g * MXFP4_GROUP;
        _mm512_storeu_ps(place, _mm512_permutexvar_ps(code, values));
        _mm512_storeu_ps(place + MXFP4_GROUP_BYTES,
                         _mm512_permutexvar_ps(_mm512_srli_epi32(code, 4), values));
        out[BLOCK_COLS + g] = f32_from_bits(mxfp4_scale_bits[scale[g]]);
    }
}

static struct v16 lanes_of_split(const float *acc)
{
    return v16_unsplit(v16_load(acc));
}

/* ---- packed bf16: the f32 images of a half block, four steps of sixteen columns ---- */

ALWAYS_INLINE void packed_half(__m512 w[4], __m512i high, const unsigned char *low)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i bytes = _mm512_loadu_si512((const void *)low);
    __m512i first = _mm512_unpacklo_epi8(bytes, high);
    __m512i last = _mm512_unpackhi_epi8(bytes, high);
    w[0] = V_F32(_mm512_unpacklo_epi16(zero, first));
    w[1] = V_F32(_mm512_unpackhi_epi16(zero, first));
    w[2] = V_F32(_mm512_unpacklo_epi16(zero, last));
    w[3] = V_F32(_mm512_unpackhi_epi16(zero, last));
}

/* The eight steps of a block at p. */
ALWAYS_INLINE void packed_steps(__m512 w[8], const unsigned char *p, const unsigned char *table)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i values =
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
    __m512i codes = _mm512_loadu_si512((const void *)p);
    __m512i low = _mm512_and_si512(codes, nibble);
    __m512i high = _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble);
    packed_half(w, _mm512_shuffle_epi8(values, low), p + 64);
    packed_half(w + 4, _mm512_shuffle_epi8(values, high), p + 128);
}

ALWAYS_INLINE struct v16 packed_block(struct v16 acc, const unsigned char *table,
                                      const unsigned char *p, const float *x)
{
    __m512 w[8];
    packed_steps(w, p, table);
    UNROLL
    for (uint32_t i = 0; i < 8; i++) {
        acc.v = _mm512_fmadd_ps(w[i], _mm512_loadu_ps(x + 16 * i), acc.v);
    }
    return acc;
}

static void packed_block_decode(float *out, const unsigned char *p, const unsigned char *table)
{
    __m512 w[8];
    packed_steps(w, p, table);
    for (uint32_t i = 0; i < 8; i++) {
        _mm512_storeu_ps(out + 16 * i, w[i]);
    }
}

#include "kernels/body_packed.inc"

/* ---- the table ---- */

static void avx512_bf16(const struct matmul *m)
{
    struct rows_format few = {{bf16_8x1, bf16_4x2, bf16_4x3, bf16_4x4}, 2 * (size_t)m->cols, 0,
                              true};
    struct block_format many = {.row_bytes = 2 * (size_t)m->cols, .unit_bytes = 256,
                                .tile_rows = 6, .tile_tokens = 4, .run = dot_tiles,
                                .decode = bf16_decode, .lanes = lanes_as_stored};
    if (m->tokens < BLOCKS_FROM) {
        rows_all(m, &few);
    } else {
        blocks_multiply(m, &many);
    }
}

static void avx512_bf16_packed(const struct matmul *m)
{
    struct block_format f = {.row_bytes = packed_row_bytes(m->cols),
                             .head_bytes = PACKED_TABLE_BYTES, .unit_bytes = PACKED_BLOCK_BYTES,
                             .tile_rows = 6, .tile_tokens = 4, .run = dot_tiles,
                             .decode = packed_decode, .lanes = lanes_as_stored};
    assert(packed_fits(m->cols));
    if (m->tokens == 1) {
        packed_one_token(m);
    } else {
        blocks_multiply(m, &f);
    }
}

static void avx512_mxfp4(const struct matmul *m)
{
    struct rows_format few = {{mxfp4_8x1, mxfp4_4x2, mxfp4_4x3, mxfp4_4x4},
                              m->cols / 2, m->cols / MXFP4_GROUP, false};
    struct block_format many = {.row_bytes = m->cols / 2, .unit_bytes = 64, .tile_rows = 3,
                                .tile_tokens = 4, .run = group_tiles, .decode = mxfp4_decode,
                                .lanes = lanes_of_split};
    assert(m->cols % MXFP4_GROUP == 0);
    if (m->tokens < BLOCKS_FROM) {
        rows_all(m, &few);
    } else {
        blocks_multiply(m, &many);
    }
}

extern const struct kernels KERNELS_AVX512_TABLE;
const struct kernels KERNELS_AVX512_TABLE = {
    .name = "avx512",
    .bf16 = avx512_bf16,
    .bf16_packed = avx512_bf16_packed,
    .mxfp4 = avx512_mxfp4,
    VEC_ENTRIES,
};
