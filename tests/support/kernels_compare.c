/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/kernels_compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/nondet.h"
#include "kernels/packed.h"

#define SLOT_BYTES ((size_t)1 << 20)
#define COLS_MAX 70u
#define TOKENS_MAX 9u
#define ROWS_MAX 11u
#define Y_STRIDE 64u

/* One comparison: the table, the truth, and where chance comes from. kind chooses the values. */
struct trial {
    const struct kernels *k, *ref;
    struct rng rng;
    uint32_t kind;
};

void *kernels_guarded(int slot, size_t size_bytes)
{
    static unsigned char *base[KERNELS_SLOTS];
    assert(slot >= 0 && slot < KERNELS_SLOTS && size_bytes <= SLOT_BYTES);
    if (base[slot] == NULL) {
        void *at = mmap(NULL, SLOT_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED || mprotect((char *)at + SLOT_BYTES, PAGE_BYTES, PROT_NONE) != 0) {
            abort();
        }
        base[slot] = at;
    }
    return base[slot] + SLOT_BYTES - size_bytes;
}

bool kernels_same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(isnan(a[i]) && isnan(b[i]))) {
            return false;
        }
    }
    return true;
}

static uint32_t pick(struct trial *t, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(&t->rng, high - low + 1);
}

static float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* kind 0: moderate numbers; 1: also signed zeros and subnormals; 2: any finite or infinite
 * pattern and NaN, rarely. */
static float value(struct trial *t)
{
    uint32_t bits = (uint32_t)rng_next(&t->rng);
    float moderate = (float)(bits >> 8) / 2097152.0f - 4.0f;
    switch (t->kind == 0 ? 9 : rng_below(&t->rng, 8)) {
    case 0:
        return float_of_bits(bits & 0x80000000u);
    case 1:
        return float_of_bits(bits & 0x807fffffu);
    case 2:
        return t->kind == 2 && bits % 16 == 0 ? float_of_bits(bits) : -moderate;
    default:
        return moderate;
    }
}

static float *values(struct trial *t, int slot, size_t n)
{
    float *x = kernels_guarded(slot, n * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        x[i] = value(t);
    }
    return x;
}

/* n bf16 numbers, at an odd address every other time. */
static unsigned char *weights(struct trial *t, int slot, size_t n)
{
    unsigned char *w = kernels_guarded(slot, 2 * n + pick(t, 0, 1));
    for (size_t i = 0; i < n; i++) {
        float x = value(t);
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        w[2 * i] = (unsigned char)(bits >> 16);
        w[2 * i + 1] = (unsigned char)(bits >> 24);
    }
    return w;
}

/* Two equal outputs of n floats, each against a guard: y for the table, z for the truth. */
struct outputs {
    float *y, *z;
};

static struct outputs outputs(size_t n)
{
    struct outputs out = {kernels_guarded(10, n * sizeof(float)),
                          kernels_guarded(11, n * sizeof(float))};
    memset(out.y, 0x5a, n * sizeof(float));
    memset(out.z, 0x5a, n * sizeof(float));
    return out;
}

typedef void matmul_function(const struct matmul *m);

/* The whole block, and then the same block in two parts of rows. */
static bool matmul_same(struct trial *t, struct matmul m, matmul_function *f,
                        matmul_function *truth, size_t row_bytes, size_t scale_bytes)
{
    size_t size = (m.tokens - 1) * m.y_stride + m.rows;
    struct outputs out = outputs(size);
    m.y = out.z;
    truth(&m);
    m.y = out.y;
    f(&m);
    if (!kernels_same(out.y, out.z, size)) {
        return false;
    }
    uint32_t split = pick(t, 1, m.rows);
    struct matmul first = m;
    first.rows = split;
    memset(out.y, 0x5a, size * sizeof(float));
    f(&first);
    if (split < m.rows) {
        struct matmul second = m;
        second.y += split;
        second.rows -= split;
        second.w += split * row_bytes;
        second.scale = m.scale == NULL ? NULL : m.scale + split * scale_bytes;
        second.escape_first =
            m.escape_first == NULL ? NULL : m.escape_first + 4 * (size_t)split;
        f(&second);
    }
    return kernels_same(out.y, out.z, size);
}

/* Mostly small; one in twelve has as many rows, columns and tokens as make a kernel go round all
 * of its loops. */
static struct matmul shape(struct trial *t, uint32_t cols, uint32_t unit)
{
    bool large = pick(t, 0, 11) == 0;
    struct matmul m = {.cols = large ? unit * pick(t, 1, 1500 / unit) : cols};
    m.rows = pick(t, 1, large ? Y_STRIDE : ROWS_MAX);
    m.tokens = large && pick(t, 0, 3) > 0 ? pick(t, 10, 70) : pick(t, 1, TOKENS_MAX);
    cols = m.cols;
    m.x_stride = cols + pick(t, 0, 3);
    m.y_stride = Y_STRIDE;
    m.x = values(t, 0, (m.tokens - 1) * m.x_stride + cols);
    return m;
}

static bool check_bf16(struct trial *t)
{
    struct matmul m = shape(t, pick(t, 1, COLS_MAX), 1);
    m.w = weights(t, 1, (size_t)m.rows * m.cols);
    return matmul_same(t, m, t->k->bf16, t->ref->bf16, 2 * (size_t)m.cols, 0);
}

static bool check_router(struct trial *t)
{
    struct matmul m = shape(t, pick(t, 1, COLS_MAX), 1);
    m.w = weights(t, 1, (size_t)m.rows * m.cols);
    return matmul_same(t, m, t->k->bf16_router, t->ref->bf16_router, 2 * (size_t)m.cols, 0);
}

/* Activations with exponents from one bound to another, and scales about those with which products
 * of the smallest just stay normal, or those of the largest just finite. */
static void mxfp4_borders(struct trial *t, float *x, size_t n, unsigned char *scale, size_t scales)
{
    uint32_t low = pick(t, 1, 200);
    uint32_t high = pick(t, low, pick(t, 0, 1) == 0 ? low + 2 : 254);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)rng_next(&t->rng);
        bits &= bits % 8 == 0 ? 0x80000000u : bits % 8 < 4 ? 0x80400000u : 0x807fffffu;
        bool zero = (bits & 0x7fffffffu) == 0 && pick(t, 0, 1) == 0;
        x[i] = float_of_bits(zero ? bits : bits | pick(t, low, high) << 23);
    }
    bool small = pick(t, 0, 1) == 0;
    int32_t from = small ? 129 - (int32_t)low : 376 - (int32_t)high;
    int32_t spread = pick(t, 0, 1) == 0 ? 0 : 3;
    from += (int32_t)pick(t, 0, 4) - 2;
    for (size_t i = 0; i < scales; i++) {
        int32_t byte = from + (int32_t)pick(t, 0, 2 * (uint32_t)spread) - spread;
        scale[i] = (unsigned char)(byte < 0 ? 0 : byte > 254 ? 254 : byte);
    }
}

static bool check_mxfp4(struct trial *t)
{
    struct matmul m = shape(t, 32 * pick(t, 1, 5), 32);
    size_t packed = (size_t)m.rows * m.cols / 2;
    size_t scales = (size_t)m.rows * m.cols / 32;
    unsigned char *w = kernels_guarded(1, packed + pick(t, 0, 1));
    unsigned char *scale = kernels_guarded(2, scales + pick(t, 0, 1));
    for (size_t i = 0; i < packed; i++) {
        w[i] = (unsigned char)rng_next(&t->rng);
    }
    for (size_t i = 0; i < scales; i++) {
        uint64_t byte = t->kind == 0 ? 115 + rng_below(&t->rng, 10) : rng_below(&t->rng, 24);
        scale[i] = (unsigned char)(t->kind == 2 && byte == 23 ? 255 : byte);
    }
    if (pick(t, 0, 2) == 0) {
        size_t n = (m.tokens - 1) * m.x_stride + m.cols;
        mxfp4_borders(t, kernels_guarded(0, n * sizeof(float)), n, scale, scales);
    }
    m.w = w;
    m.scale = scale;
    return matmul_same(t, m, t->k->mxfp4, t->ref->mxfp4, m.cols / 2, m.cols / 32);
}

/* Weights whose high bytes are mostly few, coded; the values that are not become escapes. */
static bool check_packed(struct trial *t)
{
    struct matmul m = shape(t, 128 * pick(t, 1, 5) + (pick(t, 0, 1) ? pick(t, 0, 127) : 0), 1);
    if (!packed_fits(m.cols)) {
        return true;
    }
    size_t n = (size_t)m.rows * m.cols;
    unsigned char *w = weights(t, 1, n);
    uint32_t odd_one_in = pick(t, 0, 2) == 0 ? 3 : 200;
    for (size_t i = 0; i < n; i++) {
        if (pick(t, 0, odd_one_in) > 0) {
            w[2 * i + 1] = (unsigned char)(0x3b + (i * i + i / 7) % 7 + (i % 2) * 0x80);
        }
    }
    static unsigned char coded[SLOT_BYTES];
    struct packed_tile tile;
    uint64_t size = packed_encode_rows(coded, sizeof(coded), w, m.rows, m.cols);
    if (size == 0 || !packed_open(&tile, coded, size, m.rows, m.cols)) {
        return false;
    }
    size_t row_bytes = packed_row_bytes(m.cols);
    size_t lists = 4 * ((size_t)m.rows + 1);
    unsigned char *row = kernels_guarded(2, m.rows * row_bytes + pick(t, 0, 1));
    unsigned char *first = kernels_guarded(3, lists + pick(t, 0, 1));
    unsigned char *escape = kernels_guarded(4, size - m.rows * row_bytes - lists);
    memcpy(row, tile.row, m.rows * row_bytes);
    memcpy(first, tile.first, lists);
    memcpy(escape, tile.escape, size - m.rows * row_bytes - lists);
    struct outputs out = outputs((m.tokens - 1) * m.y_stride + m.rows);
    m.w = w;
    m.y = out.z;
    t->ref->bf16(&m);
    m.w = row;
    m.escape_first = first;
    m.escape = escape;
    m.y = out.y;
    t->ref->bf16_packed(&m);
    return kernels_same(out.y, out.z, (m.tokens - 1) * m.y_stride + m.rows) &&
           matmul_same(t, m, t->k->bf16_packed, t->ref->bf16_packed, row_bytes, 0);
}

static bool check_transposed(struct trial *t)
{
    uint32_t rows = pick(t, 1, ROWS_MAX);
    uint32_t cols = pick(t, 1, COLS_MAX);
    const unsigned char *w = weights(t, 0, (size_t)rows * cols);
    const float *q = values(t, 1, rows);
    struct outputs out = outputs(cols);
    t->k->bf16_transposed(out.y, w, q, rows, cols);
    t->ref->bf16_transposed(out.z, w, q, rows, cols);
    return kernels_same(out.y, out.z, cols);
}

static bool check_dots_and_mix(struct trial *t)
{
    uint32_t count = pick(t, 1, ROWS_MAX);
    uint32_t cols = pick(t, 1, COLS_MAX);
    size_t stride = cols + pick(t, 0, 5);
    const float *rows = values(t, 0, (count - 1) * stride + cols);
    const float *q = values(t, 1, cols);
    const float *p = values(t, 2, count);
    struct outputs out = outputs(count);
    t->k->f32_dots(out.y, rows, stride, count, q, cols, 0.0721687824f);
    t->ref->f32_dots(out.z, rows, stride, count, q, cols, 0.0721687824f);
    if (!kernels_same(out.y, out.z, count)) {
        return false;
    }
    out = outputs(cols);
    t->k->f32_mix(out.y, p, rows, stride, count, cols);
    t->ref->f32_mix(out.z, p, rows, stride, count, cols);
    return kernels_same(out.y, out.z, cols);
}

static bool check_split(struct trial *t)
{
    uint32_t cols = 32 * pick(t, 1, 4);
    const float *x = values(t, 0, cols);
    struct outputs out = outputs(cols);
    t->k->mxfp4_split(out.y, x, cols);
    t->ref->mxfp4_split(out.z, x, cols);
    return kernels_same(out.y, out.z, cols);
}

/* The one-input functions, apart and in place. */
static bool check_unary(struct trial *t)
{
    void (*const f[])(float *, const float *, size_t) = {t->k->exp, t->k->tanh, t->k->sigmoid,
                                                         t->k->silu};
    void (*const g[])(float *, const float *, size_t) = {t->ref->exp, t->ref->tanh,
                                                         t->ref->sigmoid, t->ref->silu};
    size_t n = pick(t, 1, COLS_MAX);
    const float *x = values(t, 0, n);
    for (size_t i = 0; i < countof(f); i++) {
        struct outputs out = outputs(n);
        f[i](out.y, x, n);
        g[i](out.z, x, n);
        if (!kernels_same(out.y, out.z, n)) {
            return false;
        }
        memcpy(out.y, x, n * sizeof(float));
        f[i](out.y, out.y, n);
        if (!kernels_same(out.y, out.z, n)) {
            return false;
        }
    }
    return true;
}

static bool check_binary(struct trial *t)
{
    size_t n = pick(t, 1, COLS_MAX);
    const float *a = values(t, 0, n);
    const float *b = values(t, 1, n);
    struct outputs out = outputs(n);
    t->k->gate(out.y, a, b, n);
    t->ref->gate(out.z, a, b, n);
    if (!kernels_same(out.y, out.z, n)) {
        return false;
    }
    memcpy(out.y, a, n * sizeof(float));
    t->k->situ(out.y, out.y, b, n, 4.0f, 25.0f);
    t->ref->situ(out.z, a, b, n, 4.0f, 25.0f);
    if (!kernels_same(out.y, out.z, n)) {
        return false;
    }
    t->k->kda_decay(out.y, a, b, 1.7f, -5.0f, n);
    t->ref->kda_decay(out.z, a, b, 1.7f, -5.0f, n);
    if (!kernels_same(out.y, out.z, n)) {
        return false;
    }
    t->k->add(out.y, a, b, n);
    t->ref->add(out.z, a, b, n);
    return kernels_same(out.y, out.z, n);
}

static bool same_double(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

static bool check_norms(struct trial *t)
{
    size_t n = pick(t, 1, COLS_MAX);
    const float *x = values(t, 0, n);
    const float *w = values(t, 1, n);
    struct outputs out = outputs(n);
    t->k->rmsnorm(out.y, x, w, n, 1e-5f);
    t->ref->rmsnorm(out.z, x, w, n, 1e-5f);
    if (!kernels_same(out.y, out.z, n) ||
        !same_double(t->k->sum_squares(x, n), t->ref->sum_squares(x, n)) ||
        !same_double(t->k->dot_f64(x, w, n), t->ref->dot_f64(x, w, n))) {
        return false;
    }
    memcpy(out.y, x, n * sizeof(float));
    t->k->l2norm(out.y, out.y, n, 1e-6f, 0.0883883461f);
    t->ref->l2norm(out.z, x, n, 1e-6f, 0.0883883461f);
    return kernels_same(out.y, out.z, n);
}

static bool check_softmax(struct trial *t)
{
    size_t n = pick(t, 1, COLS_MAX);
    const float *x = values(t, 0, n);
    struct outputs out = outputs(n);
    memcpy(out.y, x, n * sizeof(float));
    memcpy(out.z, x, n * sizeof(float));
    t->k->softmax(out.y, n);
    t->ref->softmax(out.z, n);
    float max_y = t->k->max_abs(x, n);
    float max_z = t->ref->max_abs(x, n);
    return kernels_same(out.y, out.z, n) && kernels_same(&max_y, &max_z, 1);
}

static bool check_attnres(struct trial *t)
{
    size_t n = pick(t, 1, COLS_MAX);
    uint32_t count = pick(t, 1, 9);
    const float *source[9];
    for (uint32_t k = 0; k < count; k++) {
        source[k] = values(t, (int)k, n);
    }
    const float *fold = values(t, 9, n);
    struct outputs out = outputs(n);
    t->k->attnres(out.y, source, count, fold, n, 1e-5f);
    t->ref->attnres(out.z, source, count, fold, n, 1e-5f);
    return kernels_same(out.y, out.z, n);
}

static bool check_conv(struct trial *t)
{
    size_t n = pick(t, 1, COLS_MAX);
    uint32_t k = pick(t, 0, 2) > 0 ? 4 : pick(t, 1, 5);
    size_t history_size = (k - 1) * n;
    const float *taps = values(t, 0, n * k);
    const float *u = values(t, 1, n);
    float *history_y = values(t, 2, history_size);
    float *history_z = kernels_guarded(3, history_size * sizeof(float));
    memcpy(history_z, history_y, history_size * sizeof(float));
    struct outputs out = outputs(n);
    memcpy(out.y, u, n * sizeof(float));
    t->k->conv_silu(out.y, history_y, taps, out.y, k, n);
    t->ref->conv_silu(out.z, history_z, taps, u, k, n);
    return kernels_same(out.y, out.z, n) && kernels_same(history_y, history_z, history_size);
}

static bool check_kda(struct trial *t)
{
    uint32_t d = pick(t, 0, 9) == 0 ? 128 : pick(t, 1, 40);
    size_t size = (size_t)d * d;
    float *state_y = values(t, 0, size);
    float *state_z = kernels_guarded(1, size * sizeof(float));
    memcpy(state_z, state_y, size * sizeof(float));
    const float *q = values(t, 2, d);
    const float *k = values(t, 3, d);
    const float *v = values(t, 4, d);
    const float *alpha = values(t, 5, d);
    float *scratch = kernels_guarded(6, 2 * d * sizeof(float));
    struct outputs out = outputs(d);
    t->k->kda_step(state_y, out.y, q, k, v, alpha, 0.375f, d, scratch);
    t->ref->kda_step(state_z, out.z, q, k, v, alpha, 0.375f, d, scratch);
    return kernels_same(out.y, out.z, d) && kernels_same(state_y, state_z, size);
}

static const struct {
    const char *name;
    bool (*run)(struct trial *t);
} CHECKS[] = {
    {"bf16", check_bf16},
    {"bf16_router", check_router},
    {"mxfp4", check_mxfp4},
    {"bf16_packed", check_packed},
    {"bf16_transposed", check_transposed},
    {"f32_dots and f32_mix", check_dots_and_mix},
    {"mxfp4_split", check_split},
    {"exp, tanh, sigmoid and silu", check_unary},
    {"gate, situ, kda_decay and add", check_binary},
    {"rmsnorm, l2norm, sum_squares and dot_f64", check_norms},
    {"softmax and max_abs", check_softmax},
    {"attnres", check_attnres},
    {"conv_silu", check_conv},
    {"kda_step", check_kda},
};

int kernels_compare_count(void)
{
    return (int)countof(CHECKS);
}

const char *kernels_compare_name(int check)
{
    return CHECKS[check].name;
}

bool kernels_compare(int check, const struct kernels *k, uint64_t seed)
{
    struct trial t = {k, kernels_select(ISA_SCALAR), rng_seed(rng_mix(seed + 1)),
                      (uint32_t)(seed % 3)};
    return CHECKS[check].run(&t);
}
