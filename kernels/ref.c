/* SPDX-License-Identifier: Apache-2.0 */

/* The scalar table: the truth that every other table equals bit for bit. It spells out lanes
 * and trees and is written to be read, not to be fast. */

#include <math.h>

#include "core/base/packed.h"
#include "kernels/format.h"
#include "kernels/kernels_priv.h"

static float ref_bf16_row(const unsigned char *w, const float *x, uint32_t cols)
{
    float lanes[LANES_F32] = {0.0f};
    for (uint32_t c = 0; c < cols; c++) {
        float *lane = &lanes[c % LANES_F32];
        *lane = fmaf(bf16_load(w + 2 * (size_t)c), x[c], *lane);
    }
    return lanes_sum_f32(lanes);
}

static void ref_bf16(const struct matmul *m)
{
    for (uint32_t t = 0; t < m->tokens; t++) {
        for (uint32_t r = 0; r < m->rows; r++) {
            m->y[t * m->y_stride + r] = ref_bf16_row(m->w + 2 * (size_t)r * m->cols,
                                                     m->x + t * m->x_stride, m->cols);
        }
    }
}

/* Element c of a coded row, its high byte as the row's table has it. */
static uint32_t packed_bits(const unsigned char *row, uint32_t c, uint32_t cols)
{
    const unsigned char *block = row + PACKED_TABLE_BYTES +
                                 (size_t)(c / PACKED_BLOCK) * PACKED_BLOCK_BYTES;
    if (c >= cols / PACKED_BLOCK * PACKED_BLOCK) {
        const unsigned char *raw = block + 2 * (c % PACKED_BLOCK);
        return (uint32_t)raw[0] | (uint32_t)raw[1] << 8;
    }
    uint32_t half = c / 64 % 2;
    uint32_t e = c % 64; /* position 16q + 4k + i holds element 16k + 4q + i */
    uint32_t p = 16 * (e / 4 % 4) + 4 * (e / 16) + e % 4;
    uint32_t index = block[p] >> (4 * half) & 15u;
    return (uint32_t)block[64 + 64 * half + p] | (uint32_t)row[index] << 8;
}

static float ref_packed_row(const struct matmul *m, uint32_t r, const float *x)
{
    const unsigned char *row = m->w + r * packed_row_bytes(m->cols);
    const unsigned char *next = m->escape + 4 * (size_t)load_u32(m->escape_first + 4 * (size_t)r);
    const unsigned char *end =
        m->escape + 4 * (size_t)load_u32(m->escape_first + 4 * (size_t)r + 4);
    float lanes[LANES_F32] = {0.0f};
    for (uint32_t c = 0; c < m->cols; c++) {
        uint32_t bits = packed_bits(row, c, m->cols);
        if (next < end && load_u32(next) >> 8 == c) {
            bits = (bits & 0xffu) | (load_u32(next) & 0xffu) << 8;
            next += 4;
        }
        float *lane = &lanes[c % LANES_F32];
        *lane = fmaf(f32_from_bits(bits << 16), x[c], *lane);
    }
    return lanes_sum_f32(lanes);
}

static void ref_bf16_packed(const struct matmul *m)
{
    for (uint32_t t = 0; t < m->tokens; t++) {
        for (uint32_t r = 0; r < m->rows; r++) {
            m->y[t * m->y_stride + r] = ref_packed_row(m, r, m->x + t * m->x_stride);
        }
    }
}

/* x is split: in each group, 16 even elements and then 16 odd ones, those of byte order[i] at i. */
static float ref_mxfp4_row(const unsigned char *w, const unsigned char *scale, const float *x,
                           uint32_t cols)
{
    float lanes[LANES_F32] = {0.0f};
    for (uint32_t g = 0; g < cols / MXFP4_GROUP; g++) {
        const unsigned char *bytes = w + (size_t)g * MXFP4_GROUP_BYTES;
        const float *even = x + (size_t)g * MXFP4_GROUP;
        const float *odd = even + MXFP4_GROUP_BYTES;
        float factor = mxfp4_scale(scale[g]);
        for (uint32_t i = 0; i < LANES_F32; i++) {
            uint32_t j = mxfp4_split_order[i];
            float t = mxfp4_value[bytes[j] & 15] * even[i];
            t = fmaf(mxfp4_value[bytes[j] >> 4], odd[i], t);
            lanes[j] = fmaf(t, factor, lanes[j]);
        }
    }
    return lanes_sum_f32(lanes);
}

static void ref_mxfp4(const struct matmul *m)
{
    assert(m->cols % MXFP4_GROUP == 0);
    for (uint32_t t = 0; t < m->tokens; t++) {
        for (uint32_t r = 0; r < m->rows; r++) {
            m->y[t * m->y_stride + r] = ref_mxfp4_row(
                m->w + (size_t)r * (m->cols / 2), m->scale + (size_t)r * (m->cols / MXFP4_GROUP),
                m->x + t * m->x_stride, m->cols);
        }
    }
}

/* A product of two f32 is exact in double, so fused or not the lanes are the same. */
static void ref_bf16_router(const struct matmul *m)
{
    for (uint32_t t = 0; t < m->tokens; t++) {
        const float *x = m->x + t * m->x_stride;
        for (uint32_t r = 0; r < m->rows; r++) {
            const unsigned char *w = m->w + 2 * (size_t)r * m->cols;
            double lanes[LANES_F64] = {0.0};
            for (uint32_t c = 0; c < m->cols; c++) {
                lanes[c % LANES_F64] += (double)bf16_load(w + 2 * (size_t)c) * (double)x[c];
            }
            m->y[t * m->y_stride + r] = (float)lanes_sum_f64(lanes);
        }
    }
}

static void ref_bf16_transposed(float *y, const unsigned char *w, const float *q, uint32_t rows,
                                uint32_t cols)
{
    for (uint32_t c = 0; c < cols; c++) {
        float sum = 0.0f;
        for (uint32_t i = 0; i < rows; i++) {
            sum = fmaf(q[i], bf16_load(w + 2 * ((size_t)i * cols + c)), sum);
        }
        y[c] = sum;
    }
}

static void ref_f32_dots(float *y, const float *k, size_t stride, uint32_t count, const float *q,
                         uint32_t cols, float scale)
{
    for (uint32_t i = 0; i < count; i++) {
        float lanes[LANES_F32] = {0.0f};
        for (uint32_t c = 0; c < cols; c++) {
            float *lane = &lanes[c % LANES_F32];
            *lane = fmaf(k[i * stride + c], q[c], *lane);
        }
        y[i] = lanes_sum_f32(lanes) * scale;
    }
}

static void ref_f32_mix(float *y, const float *p, const float *v, size_t stride, uint32_t count,
                        uint32_t cols)
{
    for (uint32_t c = 0; c < cols; c++) {
        float sum = 0.0f;
        for (uint32_t i = 0; i < count; i++) {
            sum = fmaf(p[i], v[i * stride + c], sum);
        }
        y[c] = sum;
    }
}

static void ref_exp(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = kernel_exp(x[i]);
    }
}

static void ref_tanh(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = kernel_tanh(x[i]);
    }
}

static void ref_sigmoid(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = kernel_sigmoid(x[i]);
    }
}

static void ref_silu(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i] * kernel_sigmoid(x[i]);
    }
}

static void ref_gate(float *y, const float *x, const float *g, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i] * kernel_sigmoid(g[i]);
    }
}

static void ref_situ(float *y, const float *g, const float *u, size_t n, float beta,
                     float linear_beta)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = kernel_situ(g[i], u[i], beta, linear_beta);
    }
}

static void ref_add(float *y, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = a[i] + b[i];
    }
}

static double ref_dot_f64(const float *a, const float *b, size_t n)
{
    double lanes[LANES_F64] = {0.0};
    for (size_t i = 0; i < n; i++) {
        lanes[i % LANES_F64] += (double)a[i] * (double)b[i];
    }
    return lanes_sum_f64(lanes);
}

static double ref_sum_squares(const float *x, size_t n)
{
    return ref_dot_f64(x, x, n);
}

static void ref_rmsnorm(float *y, const float *x, const float *w, size_t n, float eps)
{
    float factor = (float)(1.0 / sqrt(ref_sum_squares(x, n) / (double)n + (double)eps));
    for (size_t i = 0; i < n; i++) {
        y[i] = w[i] * (x[i] * factor);
    }
}

static void ref_l2norm(float *y, const float *x, size_t n, float eps, float scale)
{
    float factor = (float)(1.0 / sqrt(ref_sum_squares(x, n) + (double)eps));
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i] * factor * scale;
    }
}

static void ref_softmax(float *x, size_t n)
{
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        max = x[i] > max ? x[i] : max;
    }
    double lanes[LANES_F64] = {0.0};
    for (size_t i = 0; i < n; i++) {
        x[i] = kernel_exp(x[i] - max);
        lanes[i % LANES_F64] += (double)x[i];
    }
    float sum = (float)lanes_sum_f64(lanes);
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] / sum;
    }
}

static void ref_attnres(float *out, const float *const *source, uint32_t count,
                        const float *fold, size_t n, float eps)
{
    assert(count >= 1 && count <= KERNEL_SOURCES_MAX);
    float p[KERNEL_SOURCES_MAX];
    for (uint32_t k = 0; k < count; k++) {
        double mean = ref_sum_squares(source[k], n) / (double)n;
        p[k] = (float)(ref_dot_f64(fold, source[k], n) / sqrt(mean + (double)eps));
    }
    ref_softmax(p, count);
    for (size_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (uint32_t k = 0; k < count; k++) {
            sum = fmaf(p[k], source[k][i], sum);
        }
        out[i] = sum;
    }
}

static void ref_conv_silu(float *y, float *history, const float *taps, const float *u,
                          uint32_t k, size_t n)
{
    for (size_t c = 0; c < n; c++) {
        const float *tap = taps + c * k;
        float newest = u[c];
        float sum = 0.0f;
        for (uint32_t j = 0; j + 1 < k; j++) {
            float *place = &history[j * n + c];
            sum = fmaf(tap[j], *place, sum);
            *place = j + 2 < k ? history[(j + 1) * n + c] : newest;
        }
        sum = fmaf(tap[k - 1], newest, sum);
        y[c] = sum * kernel_sigmoid(sum);
    }
}

static void ref_kda_decay(float *alpha, const float *z, const float *dt_bias, float exp_a,
                          float lower_bound, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float gate = kernel_sigmoid(exp_a * (z[i] + dt_bias[i]));
        alpha[i] = kernel_exp(lower_bound * gate);
    }
}

static void ref_kda_step(float *s, float *o, const float *q, const float *k, const float *v,
                         const float *alpha, float beta, uint32_t d, float *scratch)
{
    (void)scratch;
    for (uint32_t c = 0; c < d; c++) {
        float read = 0.0f;
        for (uint32_t i = 0; i < d; i++) {
            float *cell = &s[(size_t)i * d + c];
            *cell = *cell * alpha[i];
            read = fmaf(k[i], *cell, read);
        }
        float delta = beta * (v[c] - read);
        float sum = 0.0f;
        for (uint32_t i = 0; i < d; i++) {
            float *cell = &s[(size_t)i * d + c];
            *cell = fmaf(k[i], delta, *cell);
            sum = fmaf(q[i], *cell, sum);
        }
        o[c] = sum;
    }
}

/* Without its sign bit an f32 orders like an integer, infinity above all numbers and NaN above
 * infinity. */
static float ref_max_abs(const float *x, size_t n)
{
    uint32_t max = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = f32_to_bits(x[i]) & 0x7fffffffu;
        max = bits > max ? bits : max;
    }
    return f32_from_bits(max);
}

const struct kernels kernels_ref = {
    .name = "scalar",
    .bf16 = ref_bf16,
    .bf16_packed = ref_bf16_packed,
    .mxfp4 = ref_mxfp4,
    .mxfp4_split = mxfp4_split_any,
    .bf16_router = ref_bf16_router,
    .bf16_transposed = ref_bf16_transposed,
    .f32_dots = ref_f32_dots,
    .f32_mix = ref_f32_mix,
    .exp = ref_exp,
    .tanh = ref_tanh,
    .sigmoid = ref_sigmoid,
    .silu = ref_silu,
    .gate = ref_gate,
    .situ = ref_situ,
    .add = ref_add,
    .sum_squares = ref_sum_squares,
    .dot_f64 = ref_dot_f64,
    .rmsnorm = ref_rmsnorm,
    .l2norm = ref_l2norm,
    .softmax = ref_softmax,
    .attnres = ref_attnres,
    .conv_silu = ref_conv_silu,
    .kda_decay = ref_kda_decay,
    .kda_step = ref_kda_step,
    .max_abs = ref_max_abs,
};
