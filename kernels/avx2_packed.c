/* SPDX-License-Identifier: Apache-2.0 */

/* Packed bf16 with AVX2. A byte shuffle through the row's table makes high bytes of nibbles, and
 * two interleaves inside halves of registers join them with the low bytes and put the f32 images
 * in the order of lanes. */

#include "core/base/packed.h"
#include "kernels/vec_avx2.h"

#include "kernels/body_math.inc"

ALWAYS_INLINE __m256i load_256(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* Four steps of sixteen columns, of which this register has eight lanes. */
ALWAYS_INLINE __m256 half_block(__m256 acc, __m256i high, const unsigned char *low, const float *x)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i bytes = load_256(low);
    __m256i first = _mm256_unpacklo_epi8(bytes, high);
    __m256i last = _mm256_unpackhi_epi8(bytes, high);
    acc = _mm256_fmadd_ps(V_F32(_mm256_unpacklo_epi16(zero, first)), _mm256_loadu_ps(x), acc);
    acc = _mm256_fmadd_ps(V_F32(_mm256_unpackhi_epi16(zero, first)), _mm256_loadu_ps(x + 16), acc);
    acc = _mm256_fmadd_ps(V_F32(_mm256_unpacklo_epi16(zero, last)), _mm256_loadu_ps(x + 32), acc);
    return _mm256_fmadd_ps(V_F32(_mm256_unpackhi_epi16(zero, last)), _mm256_loadu_ps(x + 48), acc);
}

/* Lanes 8h .. 8h + 7 of a block at p. */
ALWAYS_INLINE __m256 block_lanes(__m256 acc, __m256i table, const unsigned char *p, const float *x,
                                 const uint32_t h)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i codes = load_256(p + 32 * h);
    __m256i low = _mm256_and_si256(codes, nibble);
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
    acc = half_block(acc, _mm256_shuffle_epi8(table, low), p + 64 + 32 * h, x + 8 * h);
    return half_block(acc, _mm256_shuffle_epi8(table, high), p + 128 + 32 * h, x + 64 + 8 * h);
}

ALWAYS_INLINE struct v16 packed_block(struct v16 acc, const unsigned char *table,
                                      const unsigned char *p, const float *x)
{
    __m256i values =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
    return v16_join(block_lanes(acc.lo, values, p, x, 0), block_lanes(acc.hi, values, p, x, 1));
}

/* Sixteen positions: a quad of f32 for each of four steps of sixteen columns. */
ALWAYS_INLINE void quads_store(float *out, __m128i high, __m128i low)
{
    const __m128i zero = _mm_setzero_si128();
    __m128i first = _mm_unpacklo_epi8(low, high);
    __m128i last = _mm_unpackhi_epi8(low, high);
    _mm_storeu_ps(out, _mm_castsi128_ps(_mm_unpacklo_epi16(zero, first)));
    _mm_storeu_ps(out + 16, _mm_castsi128_ps(_mm_unpackhi_epi16(zero, first)));
    _mm_storeu_ps(out + 32, _mm_castsi128_ps(_mm_unpacklo_epi16(zero, last)));
    _mm_storeu_ps(out + 48, _mm_castsi128_ps(_mm_unpackhi_epi16(zero, last)));
}

static void packed_block_decode(float *out, const unsigned char *p, const unsigned char *table)
{
    const __m128i nibble = _mm_set1_epi8(15);
    __m128i values = _mm_loadu_si128((const __m128i *)(const void *)table);
    for (size_t q = 0; q < 4; q++) {
        __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * q));
        __m128i low = _mm_loadu_si128((const __m128i *)(const void *)(p + 64 + 16 * q));
        __m128i high = _mm_shuffle_epi8(values, _mm_and_si128(codes, nibble));
        quads_store(out + 4 * q, high, low);
        low = _mm_loadu_si128((const __m128i *)(const void *)(p + 128 + 16 * q));
        high = _mm_shuffle_epi8(values, _mm_and_si128(_mm_srli_epi16(codes, 4), nibble));
        quads_store(out + 64 + 4 * q, high, low);
    }
}

#include "kernels/body_packed.inc"

void avx2_packed_decode(float *out, const struct matmul *m, uint32_t row, size_t c, size_t n)
{
    packed_decode(out, m, row, c, n);
}

void avx2_bf16_packed(const struct matmul *m)
{
    assert(packed_fits(m->cols));
    if (m->tokens == 1) {
        packed_one_token(m);
    } else {
        avx2_packed_tokens(m);
    }
}
