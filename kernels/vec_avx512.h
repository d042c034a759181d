/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_VEC_AVX512_H
#define KERNELS_VEC_AVX512_H

/* Sixteen f32 lanes (v16) and eight double lanes (v8d), each one AVX-512 register. The names
 * are those of vec_avx2.h, where they are explained. */

#include "kernels/avx512_intrin.h"
#include "kernels/format.h"
#include "kernels/kernels_priv.h"

struct v16 {
    __m512 v;
};

struct v8d {
    __m512d v;
};

/* One register, for code whose lanes need not be together. */
typedef __m512 reg;
#define REG_LANES 16u
#define TILE_MAX 6u /* rows or tokens of a register tile, at most */

#define reg_load(p) _mm512_loadu_ps(p)
#define reg_store(p, a) _mm512_storeu_ps(p, a)
#define reg_set1(x) _mm512_set1_ps(x)
#define reg_mul(a, b) _mm512_mul_ps(a, b)
#define reg_fma(a, b, c) _mm512_fmadd_ps(a, b, c)

#define V_INT(x) _mm512_castps_si512(x)
#define V_F32(x) _mm512_castsi512_ps(x)

ALWAYS_INLINE struct v16 v16_join(__m256 lo, __m256 hi)
{
    return (struct v16){_mm512_insertf32x8(_mm512_castps256_ps512(lo), hi, 1)};
}

ALWAYS_INLINE struct v16 v16_load(const float *p)
{
    return (struct v16){_mm512_loadu_ps(p)};
}

ALWAYS_INLINE void v16_store(float *p, struct v16 a)
{
    _mm512_storeu_ps(p, a.v);
}

ALWAYS_INLINE struct v16 v16_set1(float x)
{
    return (struct v16){_mm512_set1_ps(x)};
}

ALWAYS_INLINE struct v16 v16_add(struct v16 a, struct v16 b)
{
    return (struct v16){_mm512_add_ps(a.v, b.v)};
}

ALWAYS_INLINE struct v16 v16_sub(struct v16 a, struct v16 b)
{
    return (struct v16){_mm512_sub_ps(a.v, b.v)};
}

ALWAYS_INLINE struct v16 v16_mul(struct v16 a, struct v16 b)
{
    return (struct v16){_mm512_mul_ps(a.v, b.v)};
}

ALWAYS_INLINE struct v16 v16_div(struct v16 a, struct v16 b)
{
    return (struct v16){_mm512_div_ps(a.v, b.v)};
}

/* a > b ? a : b, and a < b ? a : b: b when either is NaN. */
ALWAYS_INLINE struct v16 v16_max(struct v16 a, struct v16 b)
{
    return (struct v16){_mm512_max_ps(a.v, b.v)};
}

ALWAYS_INLINE struct v16 v16_min(struct v16 a, struct v16 b)
{
    return (struct v16){_mm512_min_ps(a.v, b.v)};
}

ALWAYS_INLINE struct v16 v16_fma(struct v16 a, struct v16 b, struct v16 c)
{
    return (struct v16){_mm512_fmadd_ps(a.v, b.v, c.v)};
}

ALWAYS_INLINE struct v16 v16_abs(struct v16 a)
{
    return (struct v16){V_F32(_mm512_and_si512(V_INT(a.v), _mm512_set1_epi32(0x7fffffff)))};
}

ALWAYS_INLINE struct v16 v16_with_sign(struct v16 a, struct v16 sign)
{
    __m512i bit = _mm512_and_si512(V_INT(sign.v), V_INT(_mm512_set1_ps(-0.0f)));
    return (struct v16){V_F32(_mm512_or_si512(V_INT(a.v), bit))};
}

ALWAYS_INLINE struct v16 v16_select_less(struct v16 x, struct v16 y, struct v16 a, struct v16 b)
{
    __mmask16 less = _mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ);
    return (struct v16){_mm512_mask_mov_ps(b.v, less, a.v)};
}

ALWAYS_INLINE struct v16 v16_select_first(size_t n, struct v16 a, struct v16 b)
{
    __mmask16 first = (__mmask16)(0xffffu >> (LANES_F32 - n));
    return (struct v16){_mm512_mask_mov_ps(b.v, first, a.v)};
}

ALWAYS_INLINE struct v16 v16_max_bits(struct v16 a, struct v16 b)
{
    return (struct v16){V_F32(_mm512_max_epi32(V_INT(a.v), V_INT(b.v)))};
}

ALWAYS_INLINE struct v16 v16_exp_scale(struct v16 p, struct v16 biased)
{
    const __m512i one = _mm512_set1_epi32(1);
    __m512i shifted =
        _mm512_sub_epi32(V_INT(biased.v), _mm512_set1_epi32((int)(EXP_ROUND_BITS - 256)));
    __m512i half = _mm512_srli_epi32(shifted, 1);
    __m512i a = _mm512_slli_epi32(_mm512_sub_epi32(half, one), 23);
    __m512i b = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_sub_epi32(shifted, half), one), 23);
    return (struct v16){_mm512_mul_ps(_mm512_mul_ps(p.v, V_F32(a)), V_F32(b))};
}

ALWAYS_INLINE struct v16 v16_bf16(const unsigned char *p)
{
    __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return (struct v16){V_F32(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}

ALWAYS_INLINE struct v8d v8d_zero(void)
{
    return (struct v8d){_mm512_setzero_pd()};
}

ALWAYS_INLINE struct v8d v8d_load_f32(const float *p)
{
    return (struct v8d){_mm512_cvtps_pd(_mm256_loadu_ps(p))};
}

ALWAYS_INLINE struct v8d v8d_bf16(const unsigned char *p)
{
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
    return (struct v8d){_mm512_cvtps_pd(_mm256_castsi256_ps(bits))};
}

ALWAYS_INLINE struct v8d v8d_add(struct v8d a, struct v8d b)
{
    return (struct v8d){_mm512_add_pd(a.v, b.v)};
}

ALWAYS_INLINE struct v8d v8d_fma(struct v8d a, struct v8d b, struct v8d c)
{
    return (struct v8d){_mm512_fmadd_pd(a.v, b.v, c.v)};
}

ALWAYS_INLINE void v8d_store(double *p, struct v8d a)
{
    _mm512_storeu_pd(p, a.v);
}

ALWAYS_INLINE double v8d_sum(struct v8d a)
{
    __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(a.v), _mm512_extractf64x4_pd(a.v, 1));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

ALWAYS_INLINE struct v8d v16_fold(struct v16 a)
{
    __m256 lo = _mm512_castps512_ps256(a.v);
    __m256 hi = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1));
    return v8d_add((struct v8d){_mm512_cvtps_pd(lo)}, (struct v8d){_mm512_cvtps_pd(hi)});
}

ALWAYS_INLINE struct v16 v16_unsplit(struct v16 a)
{
    const __m512i place = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    return (struct v16){_mm512_permutexvar_ps(place, a.v)};
}

#endif
