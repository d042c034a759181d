/* SPDX-License-Identifier: Apache-2.0 */

/* MXFP4 matrix products with AVX2. Byte shuffles turn nibbles into the two upper bytes of their
 * f32 image, an interleave joins these to 16-bit words, and a shift and a mask make two sets of
 * lanes out of each register of words, in the order of a split group. Nothing is scaled before it
 * meets its activation.
 *
 * One token: two rows share a register, one in each half, so that nothing crosses halves. CPUs
 * that carry out 256 bits in two steps gain nothing from that and have a form with one row in
 * registers of 128. Few tokens: a row decoded for up to four of them; more: avx2_folded.c, and for
 * what that leaves body_blocks.inc. */

#include "kernels/vec_avx2.h"

#include "kernels/body_math.inc"

#define TOKENS_MAX 4u  /* tokens that share a decoded weight here */
#define FOLDED_FROM 5u  /* tokens from which folding scales into weights pays */
#define BLOCKS_FROM 16u /* tokens from which decoding to memory pays */

ALWAYS_INLINE __m128i load_128(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

ALWAYS_INLINE __m256i both_halves(__m128i a)
{
    return _mm256_broadcastsi128_si256(a);
}

ALWAYS_INLINE const float *scale_at(unsigned char scale)
{
    return (const float *)(const void *)&mxfp4_scale_bits[scale];
}

/* ---- one token, two rows in a register ---- */

/* The codes of a group: even elements in low, odd ones in high. */
struct codes_256 {
    __m256i low, high;
};

ALWAYS_INLINE struct codes_256 codes_of_rows(const unsigned char *first, size_t row_bytes)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i codes = _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(first)),
                                            load_128(first + row_bytes), 1);
    return (struct codes_256){_mm256_and_si256(codes, nibble),
                              _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble)};
}

/* words[0]: of the first eight elements; words[1]: of the last eight. */
ALWAYS_INLINE void words_256(__m256i words[2], __m256i codes)
{
    __m256i upper = _mm256_shuffle_epi8(both_halves(_mm_setr_epi8(E2M1_BYTE3)), codes);
    __m256i lower = _mm256_shuffle_epi8(both_halves(_mm_setr_epi8(E2M1_BYTE2)), codes);
    words[0] = _mm256_unpacklo_epi8(lower, upper);
    words[1] = _mm256_unpackhi_epi8(lower, upper);
}

ALWAYS_INLINE __m256 quad_256(__m256i words, uint32_t odd)
{
    return odd ? V_F32(_mm256_and_si256(words, _mm256_set1_epi32(-0x10000)))
               : V_F32(_mm256_slli_epi32(words, 16));
}

/* The codes of the next group are made while this one is multiplied, which shortens the wait. */
static void two_rows(float out[2], const unsigned char *w, const unsigned char *scale,
                     const float *x, size_t groups)
{
    const size_t row_bytes = groups * MXFP4_GROUP_BYTES;
    __m256 acc[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                     _mm256_setzero_ps()};
    struct codes_256 next = codes_of_rows(w, row_bytes);
    for (size_t g = 0; g < groups; g++) {
        struct codes_256 codes = next;
        next = codes_of_rows(w + (g + 1 < groups ? g + 1 : g) * MXFP4_GROUP_BYTES, row_bytes);
        __m256 factor = _mm256_blend_ps(_mm256_broadcast_ss(scale_at(scale[g])),
                                        _mm256_broadcast_ss(scale_at(scale[groups + g])), 0xf0);
        __m256i even[2];
        __m256i odd[2];
        words_256(even, codes.low);
        words_256(odd, codes.high);
        UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const __m128 *at = (const __m128 *)(const void *)(x + g * MXFP4_GROUP + 4 * i);
            __m256 term = _mm256_mul_ps(quad_256(even[i / 2], i % 2), _mm256_broadcast_ps(at));
            term = _mm256_fmadd_ps(quad_256(odd[i / 2], i % 2), _mm256_broadcast_ps(at + 4), term);
            acc[i] = _mm256_fmadd_ps(term, factor, acc[i]);
        }
    }
    struct v16 first = {_mm256_permute2f128_ps(acc[0], acc[1], 0x20),
                        _mm256_permute2f128_ps(acc[2], acc[3], 0x20)};
    struct v16 second = {_mm256_permute2f128_ps(acc[0], acc[1], 0x31),
                         _mm256_permute2f128_ps(acc[2], acc[3], 0x31)};
    out[0] = v16_sum(v16_unsplit(first));
    out[1] = v16_sum(v16_unsplit(second));
}

/* ---- one token, one row in registers of 128 bits ---- */

struct codes_128 {
    __m128i low, high;
};

ALWAYS_INLINE struct codes_128 codes_of_row(const unsigned char *p)
{
    const __m128i nibble = _mm_set1_epi8(15);
    __m128i codes = load_128(p);
    return (struct codes_128){_mm_and_si128(codes, nibble),
                              _mm_and_si128(_mm_srli_epi16(codes, 4), nibble)};
}

ALWAYS_INLINE void words_128(__m128i words[2], __m128i codes)
{
    __m128i upper = _mm_shuffle_epi8(_mm_setr_epi8(E2M1_BYTE3), codes);
    __m128i lower = _mm_shuffle_epi8(_mm_setr_epi8(E2M1_BYTE2), codes);
    words[0] = _mm_unpacklo_epi8(lower, upper);
    words[1] = _mm_unpackhi_epi8(lower, upper);
}

/* A shuffle does what a shift would: two pipes have it, where Zen has one for shifts. */
ALWAYS_INLINE __m128 quad_128(__m128i words, uint32_t odd)
{
    const __m128i lower = _mm_setr_epi8(-1, -1, 0, 1, -1, -1, 4, 5, -1, -1, 8, 9, -1, -1, 12, 13);
    return _mm_castsi128_ps(odd ? _mm_and_si128(words, _mm_set1_epi32(-0x10000))
                                : _mm_shuffle_epi8(words, lower));
}

static float one_row(const unsigned char *w, const unsigned char *scale, const float *x,
                     size_t groups)
{
    __m128 acc[4] = {_mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps(), _mm_setzero_ps()};
    struct codes_128 next = codes_of_row(w);
    for (size_t g = 0; g < groups; g++) {
        struct codes_128 codes = next;
        next = codes_of_row(w + (g + 1 < groups ? g + 1 : g) * MXFP4_GROUP_BYTES);
        __m128 factor = _mm_broadcast_ss(scale_at(scale[g]));
        __m128i even[2];
        __m128i odd[2];
        words_128(even, codes.low);
        words_128(odd, codes.high);
        UNROLL
        for (uint32_t i = 0; i < 4; i++) {
            const float *at = x + g * MXFP4_GROUP + 4 * i;
            __m128 term = _mm_mul_ps(quad_128(even[i / 2], i % 2), _mm_loadu_ps(at));
            term = _mm_fmadd_ps(quad_128(odd[i / 2], i % 2), _mm_loadu_ps(at + 16), term);
            acc[i] = _mm_fmadd_ps(term, factor, acc[i]);
        }
    }
    return v16_sum(v16_unsplit(v16_join(_mm256_set_m128(acc[1], acc[0]),
                                        _mm256_set_m128(acc[3], acc[2]))));
}

/* ---- a few tokens ---- */

/* Element 2j in even, element 2j + 1 in odd, j in the order of a split group. */
struct group {
    struct v16 even, odd;
};

/* Words whose lower parts are the first eight of a split group, and upper parts the others. */
ALWAYS_INLINE struct v16 words_to_lanes(__m256i words)
{
    return v16_join(V_F32(_mm256_slli_epi32(words, 16)),
                    V_F32(_mm256_and_si256(words, _mm256_set1_epi32(-0x10000))));
}

/* The 32 codes of a group, one per byte: in each half eight even elements, then eight odd. */
ALWAYS_INLINE __m256i group_codes(const unsigned char *p)
{
    /* Each half takes its eight bytes twice, the first of a split group and the others taking
     * turns: one copy for the low nibbles, one, shifted, for the high ones. */
    const __m256i order =
        _mm256_setr_epi8(0, 8, 2, 10, 4, 12, 6, 14, 0, 8, 2, 10, 4, 12, 6, 14, 1, 9, 3, 11, 5, 13,
                         7, 15, 1, 9, 3, 11, 5, 13, 7, 15);
    __m256i codes = both_halves(load_128(p));
    codes = _mm256_shuffle_epi8(codes, order);
    codes = _mm256_blend_epi32(codes, _mm256_srli_epi16(codes, 4), 0xcc);
    return _mm256_and_si256(codes, _mm256_set1_epi8(15));
}

ALWAYS_INLINE struct group codes_decode(__m256i codes)
{
    __m256i words[2];
    words_256(words, codes);
    return (struct group){words_to_lanes(words[0]), words_to_lanes(words[1])};
}

/* One row by tokens, a constant at every call. */
ALWAYS_INLINE void row_tokens(float *out, const struct matmul *m, uint32_t row, const float *x,
                              const uint32_t tokens)
{
    size_t groups = m->cols / MXFP4_GROUP;
    struct v16 acc[TOKENS_MAX];
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        acc[t] = v16_set1(0.0f);
    }
    const unsigned char *w = m->w + row * groups * MXFP4_GROUP_BYTES;
    const unsigned char *scale = m->scale + row * groups;
    __m256i next = group_codes(w);
    for (size_t g = 0; g < groups; g++) {
        struct group e = codes_decode(next);
        next = group_codes(w + (g + 1 < groups ? g + 1 : g) * MXFP4_GROUP_BYTES);
        struct v16 factor = v16_set1(*scale_at(scale[g]));
        UNROLL
        for (uint32_t t = 0; t < tokens; t++) {
            const float *xt = x + t * m->x_stride + g * MXFP4_GROUP;
            struct v16 term = v16_mul(e.even, v16_load(xt));
            term = v16_fma(e.odd, v16_load(xt + MXFP4_GROUP_BYTES), term);
            acc[t] = v16_fma(term, factor, acc[t]);
        }
    }
    UNROLL
    for (uint32_t t = 0; t < tokens; t++) {
        out[t] = v16_sum(v16_unsplit(acc[t]));
    }
}

#define ROW_FUNCTION(tokens)                                                                   \
    static void row_##tokens(float *out, const struct matmul *m, uint32_t row, const float *x) \
    {                                                                                          \
        row_tokens(out, m, row, x, tokens);                                                    \
    }

ROW_FUNCTION(1)
ROW_FUNCTION(2)
ROW_FUNCTION(3)
ROW_FUNCTION(4)

static void few_tokens(const struct matmul *m)
{
    static void (*const run[TOKENS_MAX])(float *, const struct matmul *, uint32_t,
                                         const float *) = {row_1, row_2, row_3, row_4};
    for (uint32_t r = 0; r < m->rows; r++) {
        for (uint32_t t = 0; t < m->tokens; t += TOKENS_MAX) {
            uint32_t tokens = m->tokens - t < TOKENS_MAX ? m->tokens - t : TOKENS_MAX;
            float out[TOKENS_MAX];
            run[tokens - 1](out, m, r, m->x + t * m->x_stride);
            for (uint32_t k = 0; k < tokens; k++) {
                m->y[(t + k) * m->y_stride + r] = out[k];
            }
        }
    }
}

static void unfolded_tokens(const struct matmul *m)
{
    if (m->tokens < BLOCKS_FROM) {
        few_tokens(m);
    } else {
        avx2_mxfp4_tokens(m);
    }
}

static void several_tokens(const struct matmul *m)
{
    if (m->tokens < FOLDED_FROM) {
        few_tokens(m);
    } else {
        avx2_mxfp4_folded(m, unfolded_tokens);
    }
}

void avx2_mxfp4(const struct matmul *m)
{
    assert(m->cols % MXFP4_GROUP == 0);
    if (m->tokens > 1) {
        several_tokens(m);
        return;
    }
    size_t groups = m->cols / MXFP4_GROUP;
    uint32_t r = 0;
    for (; r + 2 <= m->rows; r += 2) {
        two_rows(m->y + r, m->w + r * groups * MXFP4_GROUP_BYTES, m->scale + r * groups, m->x,
                 groups);
    }
    if (r < m->rows) {
        m->y[r] = one_row(m->w + r * groups * MXFP4_GROUP_BYTES, m->scale + r * groups, m->x,
                          groups);
    }
}

void avx2_mxfp4_halves(const struct matmul *m)
{
    assert(m->cols % MXFP4_GROUP == 0);
    if (m->tokens > 1) {
        several_tokens(m);
        return;
    }
    size_t groups = m->cols / MXFP4_GROUP;
    for (uint32_t r = 0; r < m->rows; r++) {
        m->y[r] = one_row(m->w + r * groups * MXFP4_GROUP_BYTES, m->scale + r * groups, m->x,
                          groups);
    }
}
