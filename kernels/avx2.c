/* SPDX-License-Identifier: Apache-2.0 */

/* The AVX2 and FMA tables: the shared bodies over pairs of 256-bit registers. */

#include <math.h>

#include "kernels/vec_avx2.h"

#include "kernels/body_math.inc"
#include "kernels/body_vector.inc"
#include "kernels/body_dots.inc"

#define COMMON_ENTRIES                                                                         \
    .name = "avx2", .bf16 = avx2_bf16, .bf16_packed = avx2_bf16_packed, VEC_ENTRIES

const struct kernels kernels_avx2 = {COMMON_ENTRIES, .mxfp4 = avx2_mxfp4};
const struct kernels kernels_avx2_halves = {COMMON_ENTRIES, .mxfp4 = avx2_mxfp4_halves};
