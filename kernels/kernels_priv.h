/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_KERNELS_PRIV_H
#define KERNELS_KERNELS_PRIV_H

/* Shared by the files of kernels/ only: the lane counts, the constants of the transcendental
 * functions, and the table of each instruction set. */

#include "kernels/kernels.h"

#define LANES_F32 16u /* element i of an f32 dot belongs to lane i mod 16 */
#define LANES_F64 8u  /* element i of a double sum belongs to lane i mod 8 */

/* exp(x) = 2^n * e^r, n = round(x / ln 2), |r| <= ln 2 / 2.
 * EXP_ROUND is 1.5 * 2^23: adding it leaves n in the low bits of the sum.
 * EXP_LN2_HIGH has 9 significant bits, so n * EXP_LN2_HIGH is exact.
 * Outside [EXP_MIN, EXP_MAX] the result is 0 or infinity, as it is at the borders.
 * e^r = 1 + r + r^2 * (C0 + C1 r + ... + C4 r^4), minimax, error 3.2e-9. */
#define EXP_MIN (-104.0f)
#define EXP_MAX 89.0f
#define EXP_LOG2E 0x1.715476p+0f
#define EXP_ROUND 12582912.0f
#define EXP_ROUND_BITS 0x4b400000u
#define EXP_LN2_HIGH 0.693359375f
#define EXP_LN2_LOW (-0x1.bd0106p-13f)
#define EXP_C0 0x1.000000p-1f
#define EXP_C1 0x1.55548ep-3f
#define EXP_C2 0x1.55545ep-5f
#define EXP_C3 0x1.123b92p-7f
#define EXP_C4 0x1.6db480p-10f

/* tanh(x) = x + x^3 * (C0 + C1 x^2 + ... + C4 x^8) below TANH_SPLIT, minimax, error 4.4e-9. */
#define TANH_SPLIT 0.625f
#define TANH_C0 (-0x1.555532p-2f)
#define TANH_C1 0x1.110726p-3f
#define TANH_C2 (-0x1.b83c3ap-5f)
#define TANH_C3 0x1.5225c0p-6f
#define TANH_C4 (-0x1.75ddd0p-8f)

/* Unrolls the loop that follows, so that an array of accumulators lives in registers. */
#ifdef __clang__
/* A loop of one round leaves nothing to unroll, which clang would report. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

extern const struct kernels kernels_ref;
extern const struct kernels kernels_avx512;

/* The trees of the contract over stored lanes. */
float lanes_sum_f32(const float lanes[LANES_F32]);
double lanes_sum_f64(const double lanes[LANES_F64]);

/* Scalar forms with more than one operation, shared with the tails of the vector files. */
float kernel_situ(float g, float u, float beta, float linear_beta);

/* mxfp4_split is a permutation: the same for every table. */
void mxfp4_split_any(float *out, const float *x, uint32_t cols);

/* Parts of the AVX2 table that have files of their own. */
void avx2_bf16(const struct matmul *m);
void avx2_mxfp4(const struct matmul *m);
void avx2_mxfp4_halves(const struct matmul *m);
void avx2_bf16_packed(const struct matmul *m);
void avx2_mxfp4_tokens(const struct matmul *m); /* several tokens: avx2_blocks.c */
/* Several tokens, scales folded into weights; rows where that would change bits go to others. */
void avx2_mxfp4_folded(const struct matmul *m, void (*others)(const struct matmul *m));
void avx2_packed_tokens(const struct matmul *m);
/* n elements of a coded row from c on, a multiple of 128 or in the raw end. */
void avx2_packed_decode(float *out, const struct matmul *m, uint32_t row, size_t c, size_t n);

#endif
