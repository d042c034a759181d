/* SPDX-License-Identifier: Apache-2.0 */

/* The transcendental functions of the contract, one value at a time. Every step is an IEEE
 * operation with one rounding, so the vector files reproduce it bit for bit; libm is used for
 * fmaf alone, which is exact everywhere. docs/NUMERICS.md states the errors. */

#include <math.h>

#include "kernels/format.h"
#include "kernels/kernels_priv.h"

float lanes_sum_f32(const float lanes[LANES_F32])
{
    double sum[LANES_F64];
    for (uint32_t j = 0; j < LANES_F64; j++) {
        sum[j] = (double)lanes[j] + (double)lanes[j + LANES_F64];
    }
    return (float)lanes_sum_f64(sum);
}

double lanes_sum_f64(const double lanes[LANES_F64])
{
    double four[4];
    for (uint32_t j = 0; j < 4; j++) {
        four[j] = lanes[j] + lanes[j + 4];
    }
    return (four[0] + four[2]) + (four[1] + four[3]);
}

float kernel_exp(float x)
{
    /* Comparisons are false for NaN, which therefore passes both clamps and stays NaN. */
    x = x < EXP_MIN ? EXP_MIN : x;
    x = x > EXP_MAX ? EXP_MAX : x;
    float biased = fmaf(x, EXP_LOG2E, EXP_ROUND);
    float n = biased - EXP_ROUND;
    float r = fmaf(n, -EXP_LN2_HIGH, x);
    r = fmaf(n, -EXP_LN2_LOW, r);
    float p = fmaf(EXP_C4, r, EXP_C3);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r, EXP_C1);
    p = fmaf(p, r, EXP_C0);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    /* 2^n in two factors, n = a + b with a = floor(n / 2): both are normal for n >= -150, and
     * only the last product can round, to a subnormal or to infinity. */
    uint32_t shifted = f32_to_bits(biased) - (EXP_ROUND_BITS - 256); /* n + 256 */
    uint32_t half = shifted >> 1;                                    /* a + 128 */
    float scale_a = f32_from_bits((half - 1) << 23);
    float scale_b = f32_from_bits((shifted - half - 1) << 23);
    return p * scale_a * scale_b;
}

float kernel_tanh(float x)
{
    uint32_t sign = f32_to_bits(x) & 0x80000000u;
    float a = f32_from_bits(f32_to_bits(x) & 0x7fffffffu);
    float square = a * a;
    float p = fmaf(TANH_C4, square, TANH_C3);
    p = fmaf(p, square, TANH_C2);
    p = fmaf(p, square, TANH_C1);
    p = fmaf(p, square, TANH_C0);
    float small = fmaf(a * square, p, a);
    float large = 1.0f - 2.0f / (kernel_exp(a + a) + 1.0f);
    float y = a < TANH_SPLIT ? small : large;
    return f32_from_bits(f32_to_bits(y) | sign);
}

float kernel_sigmoid(float x)
{
    return 1.0f / (1.0f + kernel_exp(-x));
}

float kernel_situ(float g, float u, float beta, float linear_beta)
{
    float gate = (beta * kernel_tanh(g / beta)) * kernel_sigmoid(g);
    return gate * (linear_beta * kernel_tanh(u / linear_beta));
}

/* log(m) for m in [sqrt(1/2), sqrt(2)]: 2 * atanh(s), s = (m - 1) / (m + 1), |s| < 0.1716; the
 * first term left out is below 2e-15. */
static double log_mantissa(double m)
{
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double p = 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    p = p * z + 1.0;
    return 2.0 * s * p;
}

float kernel_log(float x)
{
    if (!(x > 0.0f)) {
        return f32_from_bits(x == 0.0f ? 0xff800000u : 0x7fc00000u);
    }
    if (x > 0x1.fffffep+127f) {
        return x;
    }
    /* Every f32, subnormal or not, is a normal double: the exponent is read from its bits. */
    double wide = (double)x;
    uint64_t bits;
    memcpy(&bits, &wide, sizeof(bits));
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL;
    double m;
    memcpy(&m, &bits, sizeof(m));
    if (m > 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        exponent++;
    }
    return (float)((double)exponent * 0x1.62e42fefa39efp-1 + log_mantissa(m));
}
