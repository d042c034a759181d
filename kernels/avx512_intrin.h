/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_AVX512_INTRIN_H
#define KERNELS_AVX512_INTRIN_H

/* Where the AVX-512 intrinsics of avx512.c come from: the compiler, or, so that a CPU without
 * them can test the same source, SIMDe over AVX2 and FMA. Only the test that includes avx512.c
 * defines KERNELS_AVX512_EMULATED; its table then has a name of its own. That object is built
 * with -mavx2 -mfma -Wno-psabi: values of 64 bytes never leave it. */

#include <immintrin.h>

#ifdef KERNELS_AVX512_EMULATED

#if !defined(__AVX2__) || !defined(__FMA__) || defined(__AVX512F__)
#error "the emulation needs -mavx2 -mfma, so that its fused steps are fused, and no AVX-512"
#endif

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

/* Three conversions that SIMDe 0.7.4 lacks, as pairs of their 256-bit forms. */
static inline simde__m512d emulated_cvtps_pd(__m256 a)
{
    __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(a));
    __m256d hi = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
    return simde_mm512_insertf64x4(simde_mm512_castpd256_pd512(lo), hi, 1);
}

static inline simde__m512i emulated_cvtepu16_epi32(__m256i a)
{
    __m256i lo = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(a));
    __m256i hi = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1));
    return simde_mm512_inserti64x4(simde_mm512_castsi256_si512(lo), hi, 1);
}

static inline simde__m512i emulated_cvtepu8_epi32(__m128i a)
{
    __m256i lo = _mm256_cvtepu8_epi32(a);
    __m256i hi = _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8));
    return simde_mm512_inserti64x4(simde_mm512_castsi256_si512(lo), hi, 1);
}

/* SIMDe subtracts signed integers, and the exponent arithmetic of a NaN overflows them. */
static inline simde__m512i emulated_sub_epi32(simde__m512i a, simde__m512i b)
{
    __m256i lo = _mm256_sub_epi32(simde_mm512_castsi512_si256(a), simde_mm512_castsi512_si256(b));
    __m256i hi = _mm256_sub_epi32(simde_mm512_extracti64x4_epi64(a, 1),
                                  simde_mm512_extracti64x4_epi64(b, 1));
    return simde_mm512_inserti64x4(simde_mm512_castsi256_si512(lo), hi, 1);
}

#undef _mm512_sub_epi32
#define _mm512_sub_epi32(a, b) emulated_sub_epi32(a, b)
#define _mm512_cvtps_pd(a) emulated_cvtps_pd(a)
#define _mm512_cvtepu16_epi32(a) emulated_cvtepu16_epi32(a)
#define _mm512_cvtepu8_epi32(a) emulated_cvtepu8_epi32(a)

#define KERNELS_AVX512_TABLE kernels_avx512_emulated

#else

#define KERNELS_AVX512_TABLE kernels_avx512

#endif
#endif
