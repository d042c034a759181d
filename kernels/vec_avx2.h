/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_VEC_AVX2_H
#define KERNELS_VEC_AVX2_H

/* Sixteen f32 lanes (v16) and eight double lanes (v8d) as pairs of AVX2 registers. The bodies in
 * body_*.inc are written against these names; vec_avx512.h offers the same ones. Every
 * operation rounds each lane once, except moves and bit operations, which do not round. */

#include <immintrin.h>

#include "kernels/format.h"
#include "kernels/kernels_priv.h"

struct v16 {
    __m256 lo, hi; /* lanes 0..7 and 8..15 */
};

struct v8d {
    __m256d lo, hi; /* lanes 0..3 and 4..7 */
};

/* One register, for code whose lanes need not be together. */
typedef __m256 reg;
#define REG_LANES 8u
#define TILE_MAX 4u /* rows or tokens of a register tile, at most */

#define reg_load(p) _mm256_loadu_ps(p)
#define reg_store(p, a) _mm256_storeu_ps(p, a)
#define reg_set1(x) _mm256_set1_ps(x)
#define reg_mul(a, b) _mm256_mul_ps(a, b)
#define reg_fma(a, b, c) _mm256_fmadd_ps(a, b, c) /* a * b + c, one rounding */

/* Hides from the compiler where a value came from. In a tile that takes all sixteen registers it
 * would else keep a constant in one, or load an operand anew for each use. */
#define OPAQUE(a) __asm__ volatile("" : "+x"(a))

#define V16_MAP2(op, a, b) ((struct v16){op((a).lo, (b).lo), op((a).hi, (b).hi)})

/* __m256i views, for integer operations on lanes. */
#define V_INT(x) _mm256_castps_si256(x)
#define V_F32(x) _mm256_castsi256_ps(x)

ALWAYS_INLINE struct v16 v16_join(__m256 lo, __m256 hi)
{
    return (struct v16){lo, hi};
}

ALWAYS_INLINE struct v16 v16_load(const float *p)
{
    return (struct v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

ALWAYS_INLINE void v16_store(float *p, struct v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}

ALWAYS_INLINE struct v16 v16_set1(float x)
{
    return (struct v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

ALWAYS_INLINE struct v16 v16_add(struct v16 a, struct v16 b)
{
    return V16_MAP2(_mm256_add_ps, a, b);
}

ALWAYS_INLINE struct v16 v16_sub(struct v16 a, struct v16 b)
{
    return V16_MAP2(_mm256_sub_ps, a, b);
}

ALWAYS_INLINE struct v16 v16_mul(struct v16 a, struct v16 b)
{
    return V16_MAP2(_mm256_mul_ps, a, b);
}

ALWAYS_INLINE struct v16 v16_div(struct v16 a, struct v16 b)
{
    return V16_MAP2(_mm256_div_ps, a, b);
}

/* a > b ? a : b, and a < b ? a : b: b when either is NaN. */
ALWAYS_INLINE struct v16 v16_max(struct v16 a, struct v16 b)
{
    return V16_MAP2(_mm256_max_ps, a, b);
}

ALWAYS_INLINE struct v16 v16_min(struct v16 a, struct v16 b)
{
    return V16_MAP2(_mm256_min_ps, a, b);
}

/* a * b + c, one rounding. */
ALWAYS_INLINE struct v16 v16_fma(struct v16 a, struct v16 b, struct v16 c)
{
    return (struct v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

ALWAYS_INLINE struct v16 v16_abs(struct v16 a)
{
    struct v16 mask = v16_set1(-0.0f);
    return (struct v16){_mm256_andnot_ps(mask.lo, a.lo), _mm256_andnot_ps(mask.hi, a.hi)};
}

/* The bits of a with the sign of sign; a is not negative. */
ALWAYS_INLINE struct v16 v16_with_sign(struct v16 a, struct v16 sign)
{
    struct v16 mask = v16_set1(-0.0f);
    struct v16 bit = V16_MAP2(_mm256_and_ps, sign, mask);
    return V16_MAP2(_mm256_or_ps, a, bit);
}

/* x < y ? a : b, lane by lane. */
ALWAYS_INLINE struct v16 v16_select_less(struct v16 x, struct v16 y, struct v16 a, struct v16 b)
{
    return (struct v16){
        _mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, y.lo, _CMP_LT_OQ)),
        _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, y.hi, _CMP_LT_OQ)),
    };
}

/* Lanes below n from a, the others from b. n <= 16. */
ALWAYS_INLINE struct v16 v16_select_first(size_t n, struct v16 a, struct v16 b)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i below_lo = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
    __m256i below_hi = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n - 8), lane);
    return (struct v16){_mm256_blendv_ps(b.lo, a.lo, V_F32(below_lo)),
                        _mm256_blendv_ps(b.hi, a.hi, V_F32(below_hi))};
}

/* Larger of the bit patterns taken as signed integers. */
ALWAYS_INLINE struct v16 v16_max_bits(struct v16 a, struct v16 b)
{
    return (struct v16){V_F32(_mm256_max_epi32(V_INT(a.lo), V_INT(b.lo))),
                        V_F32(_mm256_max_epi32(V_INT(a.hi), V_INT(b.hi)))};
}

ALWAYS_INLINE __m256 exp_scale_8(__m256 p, __m256 biased)
{
    const __m256i one = _mm256_set1_epi32(1);
    __m256i shifted =
        _mm256_sub_epi32(V_INT(biased), _mm256_set1_epi32((int)(EXP_ROUND_BITS - 256)));
    __m256i half = _mm256_srli_epi32(shifted, 1);
    __m256i a = _mm256_slli_epi32(_mm256_sub_epi32(half, one), 23);
    __m256i b = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_sub_epi32(shifted, half), one), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, V_F32(a)), V_F32(b));
}

/* p * 2^n in two steps, n being the integer that biased carries (see kernel_exp). */
ALWAYS_INLINE struct v16 v16_exp_scale(struct v16 p, struct v16 biased)
{
    return V16_MAP2(exp_scale_8, p, biased);
}

ALWAYS_INLINE __m256 bf16_load_8(const unsigned char *p)
{
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)p);
    return V_F32(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

ALWAYS_INLINE struct v16 v16_bf16(const unsigned char *p)
{
    return (struct v16){bf16_load_8(p), bf16_load_8(p + 16)};
}

ALWAYS_INLINE struct v8d v8d_zero(void)
{
    return (struct v8d){_mm256_setzero_pd(), _mm256_setzero_pd()};
}

ALWAYS_INLINE struct v8d v8d_widen(__m256 a)
{
    return (struct v8d){_mm256_cvtps_pd(_mm256_castps256_ps128(a)),
                        _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1))};
}

ALWAYS_INLINE struct v8d v8d_load_f32(const float *p)
{
    return v8d_widen(_mm256_loadu_ps(p));
}

ALWAYS_INLINE struct v8d v8d_bf16(const unsigned char *p)
{
    return v8d_widen(bf16_load_8(p));
}

ALWAYS_INLINE struct v8d v8d_add(struct v8d a, struct v8d b)
{
    return (struct v8d){_mm256_add_pd(a.lo, b.lo), _mm256_add_pd(a.hi, b.hi)};
}

/* a * b + c; the product of widened f32 is exact, so this rounds like multiply and add. */
ALWAYS_INLINE struct v8d v8d_fma(struct v8d a, struct v8d b, struct v8d c)
{
    return (struct v8d){_mm256_fmadd_pd(a.lo, b.lo, c.lo), _mm256_fmadd_pd(a.hi, b.hi, c.hi)};
}

ALWAYS_INLINE void v8d_store(double *p, struct v8d a)
{
    _mm256_storeu_pd(p, a.lo);
    _mm256_storeu_pd(p + 4, a.hi);
}

/* The tree (j, j+4), (j, j+2), (j, j+1). */
ALWAYS_INLINE double v8d_sum(struct v8d a)
{
    __m256d four = _mm256_add_pd(a.lo, a.hi);
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

/* Lanes j and j + 8, widened and added. */
ALWAYS_INLINE struct v8d v16_fold(struct v16 a)
{
    return v8d_add(v8d_widen(a.lo), v8d_widen(a.hi));
}

/* Lanes in the order of a split group (format.h), put in their own. */
ALWAYS_INLINE struct v16 v16_unsplit(struct v16 a)
{
    __m256 even = _mm256_permute2f128_ps(a.lo, a.hi, 0x20); /* 0 2 4 6, 8 10 12 14 */
    __m256 odd = _mm256_permute2f128_ps(a.lo, a.hi, 0x31);
    __m256 first = _mm256_unpacklo_ps(even, odd); /* 0..3, 8..11 */
    __m256 last = _mm256_unpackhi_ps(even, odd);  /* 4..7, 12..15 */
    return v16_join(_mm256_permute2f128_ps(first, last, 0x20),
                    _mm256_permute2f128_ps(first, last, 0x31));
}

#endif
