/* SPDX-License-Identifier: Apache-2.0 */

/* Tables of the MXFP4 format, and the activation layout its kernels read. */

#include "kernels/format.h"
#include "kernels/kernels_priv.h"

const float mxfp4_value[16] = {
    0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f,
};

#define ONE(n) (uint32_t)(n) << 23
#define FOUR(n) ONE(n), ONE((n) + 1), ONE((n) + 2), ONE((n) + 3)
#define SIXTEEN(n) FOUR(n), FOUR((n) + 4), FOUR((n) + 8), FOUR((n) + 12)

const uint32_t mxfp4_scale_bits[256] = {
    0x00400000u, ONE(1),       ONE(2),       ONE(3),       FOUR(4),      FOUR(8),
    FOUR(12),    SIXTEEN(16),  SIXTEEN(32),  SIXTEEN(48),  SIXTEEN(64),  SIXTEEN(80),
    SIXTEEN(96), SIXTEEN(112), SIXTEEN(128), SIXTEEN(144), SIXTEEN(160), SIXTEEN(176),
    SIXTEEN(192), SIXTEEN(208), SIXTEEN(224), FOUR(240),   FOUR(244),    FOUR(248),
    ONE(252),    ONE(253),     ONE(254),     0x7fc00000u,
};

float mxfp4_scale(unsigned char scale)
{
    return f32_from_bits(mxfp4_scale_bits[scale]);
}

const unsigned char mxfp4_split_order[MXFP4_GROUP_BYTES] = {
    0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15,
};

void mxfp4_split_any(float *out, const float *x, uint32_t cols)
{
    for (uint32_t c = 0; c + MXFP4_GROUP <= cols; c += MXFP4_GROUP) {
        for (uint32_t i = 0; i < MXFP4_GROUP_BYTES; i++) {
            const float *pair = x + c + 2 * mxfp4_split_order[i];
            out[c + i] = pair[0];
            out[c + MXFP4_GROUP_BYTES + i] = pair[1];
        }
    }
}
