/* SPDX-License-Identifier: Apache-2.0 */

/* MXFP4 matrix products with AVX2. Byte shuffles turn nibbles into the two upper bytes of their
 * f32 image, an interleave joins these to 16-bit words, and a shift and a mask make two sets of
 * lanes out of each register of words. Nothing is scaled before it meets its activation. */

#include "kernels/vec_avx2.h"

#include "kernels/body_math.inc"

#define ROWS_MAX 2u   /* rows of a block against one token */
#define TOKENS_MAX 4u /* tokens that share a decoded weight */

/* The contract's lanes: element 2j in even, element 2j + 1 in odd, lane j. */
struct group {
    struct v16 even, odd;
};

ALWAYS_INLINE __m256i both_halves(__m128i a)
{
    return _mm256_broadcastsi128_si256(a);
}

/* Words whose lower parts are lanes 0..7 in order, and upper parts lanes 8..15. */
ALWAYS_INLINE struct v16 words_to_lanes(__m256i words)
{
    return v16_join(V_F32(_mm256_slli_epi32(words, 16)),
                    V_F32(_mm256_and_si256(words, _mm256_set1_epi32(-0x10000))));
}

/* The 32 codes of a group, one per byte: in each half eight even elements, then eight odd. */
ALWAYS_INLINE __m256i group_codes(const unsigned char *p)
{
    /* Each half takes its eight bytes twice, lanes j and j + 8 side by side: the first copy for
     * the low nibbles, the second, shifted, for the high ones. */
    const __m256i order =
        _mm256_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14,
                         7, 15, 4, 12, 5, 13, 6, 14, 7, 15);
    __m256i codes = both_halves(_mm_loadu_si128((const __m128i *)(const void *)p));
    codes = _mm256_shuffle_epi8(codes, order);
    codes = _mm256_blend_epi32(codes, _mm256_srli_epi16(codes, 4), 0xcc);
    return _mm256_and_si256(codes, _mm256_set1_epi8(15));
}

ALWAYS_INLINE struct group codes_decode(__m256i codes)
{
    const __m256i byte3 = both_halves(_mm_setr_epi8(E2M1_BYTE3));
    const __m256i byte2 = both_halves(_mm_setr_epi8(E2M1_BYTE2));
    __m256i upper = _mm256_shuffle_epi8(byte3, codes);
    __m256i lower = _mm256_shuffle_epi8(byte2, codes);
    return (struct group){words_to_lanes(_mm256_unpacklo_epi8(lower, upper)),
                          words_to_lanes(_mm256_unpackhi_epi8(lower, upper))};
}

/* Rows by tokens, both constants at every call; results to out[row * tokens + token]. The codes
 * of the next group are made while this one is multiplied, which shortens the wait for them. */
ALWAYS_INLINE void block(float *out, const struct matmul *m, uint32_t first, const float *x,
                         const uint32_t rows, const uint32_t tokens)
{
    size_t groups = m->cols / MXFP4_GROUP;
    struct v16 acc[ROWS_MAX][TOKENS_MAX];
    UNROLL
    for (uint32_t i = 0; i < rows * tokens; i++) {
        acc[i / tokens][i % tokens] = v16_set1(0.0f);
    }
    const unsigned char *w = m->w + first * groups * MXFP4_GROUP_BYTES;
    const unsigned char *scale = m->scale + first * groups;
    __m256i next[ROWS_MAX];
    UNROLL
    for (uint32_t r = 0; r < rows; r++) {
        next[r] = group_codes(w + r * groups * MXFP4_GROUP_BYTES);
    }
    for (size_t g = 0; g < groups; g++) {
        size_t ahead = g + 1 < groups ? g + 1 : g;
        UNROLL
        for (uint32_t r = 0; r < rows; r++) {
            struct group e = codes_decode(next[r]);
            next[r] = group_codes(w + (r * groups + ahead) * MXFP4_GROUP_BYTES);
            struct v16 factor = v16_set1(f32_from_bits(mxfp4_scale_bits[scale[r * groups + g]]));
            UNROLL
            for (uint32_t t = 0; t < tokens; t++) {
                const float *xt = x + t * m->x_stride + g * MXFP4_GROUP;
                struct v16 term = v16_mul(e.even, v16_load(xt));
                term = v16_fma(e.odd, v16_load(xt + MXFP4_GROUP_BYTES), term);
                acc[r][t] = v16_fma(term, factor, acc[r][t]);
            }
        }
    }
    UNROLL
    for (uint32_t i = 0; i < rows * tokens; i++) {
        out[i] = v16_sum(acc[i / tokens][i % tokens]);
    }
}

#define BLOCK_FUNCTION(rows, tokens)                                                           \
    static void block_##rows##x##tokens(float *out, const struct matmul *m, uint32_t first,    \
                                        const float *x)                                        \
    {                                                                                          \
        block(out, m, first, x, rows, tokens);                                                 \
    }

BLOCK_FUNCTION(1, 1)
BLOCK_FUNCTION(2, 1)
BLOCK_FUNCTION(1, 2)
BLOCK_FUNCTION(1, 3)
BLOCK_FUNCTION(1, 4)

static void one_token(const struct matmul *m)
{
    uint32_t r = 0;
    for (; r + 2 <= m->rows; r += 2) {
        block_2x1(m->y + r, m, r, m->x);
    }
    if (r < m->rows) {
        block_1x1(m->y + r, m, r, m->x);
    }
}

void avx2_mxfp4(const struct matmul *m)
{
    static void (*const by_tokens[TOKENS_MAX])(float *, const struct matmul *, uint32_t,
                                               const float *) = {block_1x1, block_1x2, block_1x3,
                                                                 block_1x4};
    assert(m->cols % MXFP4_GROUP == 0);
    if (m->tokens == 1) {
        one_token(m);
        return;
    }
    for (uint32_t r = 0; r < m->rows; r++) {
        for (uint32_t t = 0; t < m->tokens; t += TOKENS_MAX) {
            uint32_t tokens = m->tokens - t < TOKENS_MAX ? m->tokens - t : TOKENS_MAX;
            float out[TOKENS_MAX];
            by_tokens[tokens - 1](out, m, r, m->x + t * m->x_stride);
            for (uint32_t k = 0; k < tokens; k++) {
                m->y[(t + k) * m->y_stride + r] = out[k];
            }
        }
    }
}
