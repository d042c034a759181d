/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_FORMAT_H
#define KERNELS_FORMAT_H

/* Bit layouts of the two weight formats.
 *
 * bf16   the upper half of an f32, little endian, two bytes per element.
 * MXFP4  groups of 32 consecutive elements of a row. Byte j of a group holds element 2j in its
 *        low nibble and 2j + 1 in its high nibble, as E2M1 codes (bit 3 is the sign). One E8M0
 *        byte per group scales all 32 by 2^(byte - 127); 255 is NaN.
 *
 * E2M1 code   0    1    2    3    4    5    6    7      8..15: the same, negated
 * value       0   0.5   1   1.5   2    3    4    6
 * f32 bits 3f..   the upper 16 bits below; the lower 16 are zero for every code. */

#include <string.h>

#include "core/base/base.h"

#define MXFP4_GROUP 32u       /* elements that share a scale */
#define MXFP4_GROUP_BYTES 16u /* their packed size */

/* Bytes 3 and 2 of the f32 image of each code, for byte-shuffle decoders. */
#define E2M1_BYTE3                                                                             \
    0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, -0x80, -0x41, -0x41, -0x41, -0x40, -0x40,  \
        -0x40, -0x40
#define E2M1_BYTE2                                                                             \
    0x00, 0x00, -0x80, -0x40, 0x00, 0x40, -0x80, -0x40, 0x00, 0x00, -0x80, -0x40, 0x00, 0x40,  \
        -0x80, -0x40

/* Activations against MXFP4 weights are split: in each group of 32 first the even elements, then
 * the odd ones, both in this order. It is the one in which a shift and a mask take words apart:
 * even words 0 2 4 6, odd ones 1 3 5 7, and the same from 8 on. */
extern const unsigned char mxfp4_split_order[MXFP4_GROUP_BYTES];

/* f32 bits of 2^(byte - 127): entry 0 is subnormal, entry 255 a quiet NaN. */
extern const uint32_t mxfp4_scale_bits[256];

static inline float f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t f32_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline uint32_t load_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline float bf16_load(const unsigned char *p)
{
    return f32_from_bits((uint32_t)p[0] << 16 | (uint32_t)p[1] << 24);
}

#endif
