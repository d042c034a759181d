/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

/* Arithmetic under the numeric contract of docs/NUMERICS.md: pointers, sizes and row ranges, no
 * model, threads, allocation or I/O. One table per instruction set, every entry bit-identical to
 * `ref`. Pick once with kernels_select(); call kernels_thread_init() on every computing thread.
 *
 * Weights are const unsigned char * at any byte address. Nothing past the last element of a row
 * or vector is ever read. float arrays need only the alignment of float. */

#include "core/base/base.h"
#include "core/base/isa.h"

/* Y = X W^T for a block of whole rows: y[t*y_stride + r] = dot(row r of w, x + t*x_stride).
 * rows, cols, tokens >= 1. y of other rows and tokens is untouched. */
struct matmul {
    float *y;
    size_t y_stride;        /* floats between tokens */
    const float *x;
    size_t x_stride;        /* floats between tokens */
    const unsigned char *w; /* first row; bf16: rows of cols*2 bytes; mxfp4: of cols/2 bytes;
                               bf16_packed: of packed_row_bytes(cols) */
    const unsigned char *scale; /* mxfp4 only: rows of cols/32 E8M0 bytes */
    const unsigned char *escape_first; /* bf16_packed only: u32 LE [rows + 1], the number of the
                                          first escape of each row */
    const unsigned char *escape; /* bf16_packed only: u32 LE, column << 8 | high byte */
    uint32_t rows, cols, tokens;
};

struct kernels {
    const char *name; /* "scalar", "avx2", "avx512" */

    /* bf16 rows, 16 f32 lanes, fused. */
    void (*bf16)(const struct matmul *m);
    /* The rows of packed.h: same lanes, order and bits as bf16 on the decoded ones. */
    void (*bf16_packed)(const struct matmul *m);
    /* MXFP4 rows; x as laid out by mxfp4_split; cols % 32 == 0. */
    void (*mxfp4)(const struct matmul *m);
    /* Per group of 32: the 16 even elements, then the 16 odd ones, each in the order of format.h.
     * out and x are [cols]. */
    void (*mxfp4_split)(float *out, const float *x, uint32_t cols);
    /* bf16 rows dotted in 8 double lanes, rounded once to f32 (router logits). */
    void (*bf16_router)(const struct matmul *m);
    /* y[cols] = sum over rows i of w[i][:] * q[i], one fma per row from +0 (W_k^T q). */
    void (*bf16_transposed)(float *y, const unsigned char *w, const float *q, uint32_t rows,
                            uint32_t cols);
    /* y[i] = dot of q[cols] with k + i*stride, 16 f32 lanes, times scale (attention scores). */
    void (*f32_dots)(float *y, const float *k, size_t stride, uint32_t count, const float *q,
                     uint32_t cols, float scale);
    /* y[cols] = sum over i < count of p[i] * v[i*stride + :], one fma per i from +0 (context). */
    void (*f32_mix)(float *y, const float *p, const float *v, size_t stride, uint32_t count,
                    uint32_t cols);

    /* Element-wise, y may equal x (or any input). */
    void (*exp)(float *y, const float *x, size_t n);
    void (*tanh)(float *y, const float *x, size_t n);
    void (*sigmoid)(float *y, const float *x, size_t n);
    void (*silu)(float *y, const float *x, size_t n);              /* x * sigmoid(x) */
    void (*gate)(float *y, const float *x, const float *g, size_t n); /* x * sigmoid(g) */
    void (*situ)(float *y, const float *g, const float *u, size_t n, float beta,
                 float linear_beta);
    void (*add)(float *y, const float *a, const float *b, size_t n);

    /* Sums in 8 double lanes. */
    double (*sum_squares)(const float *x, size_t n);
    double (*dot_f64)(const float *a, const float *b, size_t n);

    /* y = w * (x * (float)(1 / sqrt(mean(x^2) + eps))). */
    void (*rmsnorm)(float *y, const float *x, const float *w, size_t n, float eps);
    /* y = x * (float)(1 / sqrt(sum(x^2) + eps)) * scale. */
    void (*l2norm)(float *y, const float *x, size_t n, float eps, float scale);
    /* In place over n scores: exp(x - max) / sum; the sum in double lanes. n >= 1. */
    void (*softmax)(float *x, size_t n);
    /* out[n] = sum over k < count of p_k * source[k][:], p = softmax of fold . source * rms.
     * count 1..CONFIG-dependent, <= KERNEL_SOURCES_MAX. Oldest source first. */
    void (*attnres)(float *out, const float *const *source, uint32_t count, const float *fold,
                    size_t n, float eps);

    /* Depthwise causal convolution of one step over n channels, then SiLU.
     * taps [n][k], oldest first; history [k-1][n], oldest first, shifted to take u in;
     * y[n]. y may equal u. */
    void (*conv_silu)(float *y, float *history, const float *taps, const float *u, uint32_t k,
                      size_t n);
    /* alpha[n] = exp(lower_bound * sigmoid(exp_a * (z + dt_bias))). */
    void (*kda_decay)(float *alpha, const float *z, const float *dt_bias, float exp_a,
                      float lower_bound, size_t n);
    /* One step of the gated delta rule of one head. s [d][d] row = key channel; q, k, alpha by
     * key channel; v, o by value channel; scratch [2*d]. */
    void (*kda_step)(float *s, float *o, const float *q, const float *k, const float *v,
                     const float *alpha, float beta, uint32_t d, float *scratch);

    /* Largest |x|; NaN if any element is NaN, +inf if any is infinite. */
    float (*max_abs)(const float *x, size_t n);
};

#define KERNEL_SOURCES_MAX 1026

/* The table of an ISA, or NULL when this CPU lacks it. ISA_AUTO: the widest there is. */
const struct kernels *kernels_select(enum isa isa);

/* Two tables for AVX2, the second for CPUs that carry out 256-bit operations in halves. Callers
 * take what kernels_select() gives; tests compare both. */
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx2_halves;

/* Sets MXCSR to 0x1F80 (round to nearest, subnormals kept, exceptions masked) and asserts it. */
void kernels_thread_init(void);

/* 2^(scale-127); 0 is 2^-127 (subnormal), 255 is NaN. */
float mxfp4_scale(unsigned char scale);
extern const float mxfp4_value[16]; /* E2M1 codes, 8 = -0 */

/* The k largest choices of n, choice = score + bias, ties to the lower index, best first. */
void router_order(uint16_t *index, float *choice, const float *score, const float *bias,
                  uint32_t n, uint32_t k);
/* The k largest of score[n] (choice = score + bias), ties to the lower index, best first.
 * weight[j] = score of index[j], normalised in double and rounded once when renormalize, times
 * scaling. Scores are sigmoid outputs. */
void router_top_k(uint16_t *index, float *weight, const float *score, const float *bias,
                  uint32_t n, uint32_t k, bool renormalize, float scaling);

/* Index of the largest element, ties to the lower index. n >= 1, no NaN. */
uint32_t argmax(const float *x, size_t n);

float kernel_exp(float x);     /* the contract's scalar forms */
float kernel_tanh(float x);
float kernel_sigmoid(float x);
float kernel_log(float x);

#endif
