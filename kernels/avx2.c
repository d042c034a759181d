/* SPDX-License-Identifier: Apache-2.0 */

/* The AVX2 and FMA table: the shared bodies over pairs of 256-bit registers. */

#include <math.h>

#include "kernels/vec_avx2.h"

#include "kernels/body_math.inc"
#include "kernels/body_vector.inc"
#include "kernels/body_dots.inc"

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .bf16 = avx2_bf16,
    .mxfp4 = avx2_mxfp4,
    VEC_ENTRIES,
};
