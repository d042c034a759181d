/* SPDX-License-Identifier: Apache-2.0 */

/* bf16 matrix products with AVX2. One token: four rows in flight, and weights kept as pairs, so
 * that a shift and a mask decode sixteen of them. Several tokens: two rows by up to three tokens
 * in registers, each weight decoded once for all three. */

#include "kernels/vec_avx2.h"

#include "kernels/body_math.inc"

#define ROWS 4u        /* rows of a block */
#define TOKENS_MAX 3u   /* tokens that share a decoded weight here */
#define BLOCKS_FROM 12u /* tokens from which decoding to memory pays */

/* The last elements of a row, then the tree. c elements are in the lanes already. */
static float row_finish(const float lanes[LANES_F32], const unsigned char *w, const float *x,
                        size_t c, size_t cols)
{
    struct v16 acc = v16_load(lanes);
    if (c < cols) {
        acc = v16_fma_n(v16_bf16_n(w + 2 * c, cols - c), v16_load_n(x + c, cols - c), acc,
                        cols - c);
    }
    return v16_sum(acc);
}

/* even: lanes 0 2 .. 14, odd: lanes 1 3 .. 15; back to 0 .. 15. */
ALWAYS_INLINE struct v16 lanes_merge(__m256 even, __m256 odd)
{
    __m256 lo = _mm256_unpacklo_ps(even, odd); /* 0..3, 8..11 */
    __m256 hi = _mm256_unpackhi_ps(even, odd); /* 4..7, 12..15 */
    return v16_join(_mm256_permute2f128_ps(lo, hi, 0x20), _mm256_permute2f128_ps(lo, hi, 0x31));
}

/* p[0..3] and p[8..11]. */
ALWAYS_INLINE __m256 load_4_and_4(const float *p)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + 8), 1);
}

static void rows_one_token(float out[ROWS], const unsigned char *const w[ROWS], const float *x,
                           size_t cols)
{
    const __m256i upper = _mm256_set1_epi32(-0x10000);
    __m256 even[ROWS];
    __m256 odd[ROWS];
    UNROLL
    for (uint32_t r = 0; r < ROWS; r++) {
        even[r] = _mm256_setzero_ps();
        odd[r] = _mm256_setzero_ps();
    }
    size_t c = 0;
    for (; c + LANES_F32 <= cols; c += LANES_F32) {
        __m256 a = load_4_and_4(x + c);
        __m256 b = load_4_and_4(x + c + 4);
        __m256 x_even = _mm256_shuffle_ps(a, b, 0x88);
        __m256 x_odd = _mm256_shuffle_ps(a, b, 0xdd);
        UNROLL
        for (uint32_t r = 0; r < ROWS; r++) {
            __m256i pair = _mm256_loadu_si256((const __m256i *)(const void *)(w[r] + 2 * c));
            __m256 w_even = V_F32(_mm256_slli_epi32(pair, 16));
            __m256 w_odd = V_F32(_mm256_and_si256(pair, upper));
            even[r] = _mm256_fmadd_ps(w_even, x_even, even[r]);
            odd[r] = _mm256_fmadd_ps(w_odd, x_odd, odd[r]);
        }
    }
    float lanes[ROWS][LANES_F32];
    UNROLL
    for (uint32_t r = 0; r < ROWS; r++) {
        v16_store(lanes[r], lanes_merge(even[r], odd[r]));
    }
    for (uint32_t r = 0; r < ROWS; r++) {
        out[r] = row_finish(lanes[r], w[r], x, c, cols);
    }
}

/* Two rows against tokens (a constant) tokens; results to out[row][token]. */
ALWAYS_INLINE void rows_tokens(float out[2][TOKENS_MAX], const unsigned char *const w[2],
                               const float *x, size_t x_stride, size_t cols,
                               const uint32_t tokens)
{
    __m256 acc[2][2][TOKENS_MAX]; /* half, row, token */
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        acc[0][0][t] = acc[0][1][t] = acc[1][0][t] = acc[1][1][t] = _mm256_setzero_ps();
    }
    size_t c = 0;
    for (; c + LANES_F32 <= cols; c += LANES_F32) {
        UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            __m256 first = bf16_load_8(w[0] + 2 * (c + 8 * h));
            __m256 second = bf16_load_8(w[1] + 2 * (c + 8 * h));
            UNROLL
            for (uint32_t t = 0; t < tokens; t++) {
                __m256 xt = _mm256_loadu_ps(x + t * x_stride + c + 8 * h);
                acc[h][0][t] = _mm256_fmadd_ps(first, xt, acc[h][0][t]);
                acc[h][1][t] = _mm256_fmadd_ps(second, xt, acc[h][1][t]);
            }
        }
    }
    float lanes[2][TOKENS_MAX][LANES_F32];
    UNROLL
    for (uint32_t r = 0; r < 2; r++) {
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            v16_store(lanes[r][t], v16_join(acc[0][r][t], acc[1][r][t]));
        }
    }
    for (uint32_t r = 0; r < 2; r++) {
        for (uint32_t t = 0; t < tokens; t++) {
            out[r][t] = row_finish(lanes[r][t], w[r], x + t * x_stride, c, cols);
        }
    }
}

static void rows_three_tokens(float out[2][TOKENS_MAX], const unsigned char *const w[2],
                              const float *x, size_t x_stride, size_t cols)
{
    rows_tokens(out, w, x, x_stride, cols, 3);
}

static void rows_two_tokens(float out[2][TOKENS_MAX], const unsigned char *const w[2],
                            const float *x, size_t x_stride, size_t cols)
{
    rows_tokens(out, w, x, x_stride, cols, 2);
}

/* A block of ROWS row pointers, of which the first `rows` count, against two or three tokens
 * from t on. */
static void block_tokens(const struct matmul *m, const unsigned char *const w[ROWS],
                         uint32_t first, uint32_t rows, uint32_t t, uint32_t tokens)
{
    const float *x = m->x + t * m->x_stride;
    for (uint32_t pair = 0; pair < rows; pair += 2) {
        float out[2][TOKENS_MAX];
        if (tokens == 3) {
            rows_three_tokens(out, w + pair, x, m->x_stride, m->cols);
        } else {
            rows_two_tokens(out, w + pair, x, m->x_stride, m->cols);
        }
        for (uint32_t r = pair; r < pair + 2 && r < rows; r++) {
            for (uint32_t k = 0; k < tokens; k++) {
                m->y[(t + k) * m->y_stride + first + r] = out[r - pair][k];
            }
        }
    }
}

static void block_one_token(const struct matmul *m, const unsigned char *const w[ROWS],
                            uint32_t first, uint32_t rows, uint32_t t)
{
    float out[ROWS];
    rows_one_token(out, w, m->x + t * m->x_stride, m->cols);
    for (uint32_t r = 0; r < rows; r++) {
        m->y[t * m->y_stride + first + r] = out[r];
    }
}

void avx2_bf16(const struct matmul *m)
{
    if (m->tokens >= BLOCKS_FROM) {
        avx2_bf16_tokens(m);
        return;
    }
    for (uint32_t first = 0; first < m->rows; first += ROWS) {
        uint32_t rows = m->rows - first < ROWS ? m->rows - first : ROWS;
        /* A short block repeats its last row and drops the extra results. */
        const unsigned char *w[ROWS];
        for (uint32_t r = 0; r < ROWS; r++) {
            w[r] = m->w + 2 * (size_t)(first + (r < rows ? r : rows - 1)) * m->cols;
        }
        uint32_t t = 0;
        for (; t + 1 < m->tokens; t += TOKENS_MAX) {
            uint32_t left = m->tokens - t;
            block_tokens(m, w, first, rows, t, left < TOKENS_MAX ? left : TOKENS_MAX);
        }
        if (t < m->tokens) {
            block_one_token(m, w, first, rows, t);
        }
    }
}
