/* SPDX-License-Identifier: Apache-2.0 */

/* Speed of every kernel on one core, per instruction set, beside the speed of a plain read loop
 * over the same memory. Weights stream through a buffer far larger than the caches, as they do
 * in a run; vectors are small and stay in them.
 *   kernel_bench [--quick]    512 MiB and 5 repeats, or 64 MiB and 3; medians are printed */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/base.h"
#include "core/base/nondet.h"
#include "kernels/kernels.h"

#define VECTOR 65536u     /* floats of the small operands */
#define TOKENS_MAX 8u
#define REPEATS_MAX 5u
#define SOURCES 9u
#define HEAD 128u

struct bench {
    const struct kernels *k;
    unsigned char *data; /* size_bytes of random weights */
    size_t size_bytes;   /* what one run may stream */
    float *x, *y;        /* VECTOR * TOKENS_MAX floats each */
    uint64_t elements, bytes; /* what the last run did */
};

struct bench_case {
    const char *name;
    void (*run)(struct bench *b, uint32_t cols, uint32_t tokens);
    uint32_t cols, tokens;
};

static void run_bf16(struct bench *b, uint32_t cols, uint32_t tokens)
{
    uint32_t rows = (uint32_t)(4 * MIB / (2 * (uint64_t)cols));
    size_t tile_bytes = 2 * (size_t)rows * cols;
    for (size_t at = 0; at + tile_bytes <= b->size_bytes; at += tile_bytes) {
        struct matmul m = {.y = b->y, .y_stride = VECTOR, .x = b->x, .x_stride = VECTOR,
                           .w = b->data + at, .rows = rows, .cols = cols, .tokens = tokens};
        b->k->bf16(&m);
        b->bytes += tile_bytes;
        b->elements += (uint64_t)rows * cols * tokens;
    }
}

static void run_router(struct bench *b, uint32_t cols, uint32_t tokens)
{
    const uint32_t rows = 224; /* of 896 */
    size_t tile_bytes = 2 * (size_t)rows * cols;
    for (size_t at = 0; at + tile_bytes <= b->size_bytes / 2; at += tile_bytes) {
        struct matmul m = {.y = b->y, .y_stride = VECTOR, .x = b->x, .x_stride = VECTOR,
                           .w = b->data + at, .rows = rows, .cols = cols, .tokens = tokens};
        b->k->bf16_router(&m);
        b->bytes += tile_bytes;
        b->elements += (uint64_t)rows * cols * tokens;
    }
}

/* One expert matrix after the other: packed rows, then their scales. */
static void run_mxfp4(struct bench *b, uint32_t cols, uint32_t tokens)
{
    const uint32_t rows = 3072;
    size_t packed_bytes = (size_t)rows * cols / 2;
    size_t matrix_bytes = packed_bytes + (size_t)rows * cols / 32;
    for (size_t at = 0; at + matrix_bytes <= b->size_bytes; at += matrix_bytes) {
        struct matmul m = {.y = b->y, .y_stride = VECTOR, .x = b->x, .x_stride = VECTOR,
                           .w = b->data + at, .scale = b->data + at + packed_bytes,
                           .rows = rows, .cols = cols, .tokens = tokens};
        b->k->mxfp4(&m);
        b->bytes += matrix_bytes;
        b->elements += (uint64_t)rows * cols * tokens;
    }
}

static void run_transposed(struct bench *b, uint32_t cols, uint32_t tokens)
{
    (void)tokens;
    size_t tile_bytes = 2 * (size_t)HEAD * cols;
    for (size_t at = 0; at + tile_bytes <= b->size_bytes / 2; at += tile_bytes) {
        b->k->bf16_transposed(b->y, b->data + at, b->x, HEAD, cols);
        b->bytes += tile_bytes;
        b->elements += (uint64_t)HEAD * cols;
    }
}

/* The data as rows of f32. */
static void run_f32_dots(struct bench *b, uint32_t cols, uint32_t tokens)
{
    (void)tokens;
    uint32_t count = (uint32_t)(b->size_bytes / 4 / cols / sizeof(float));
    count = count < VECTOR ? count : VECTOR;
    const float *rows = (const float *)(const void *)b->data;
    b->k->f32_dots(b->y, rows, cols, count, b->x, cols, 0.5f);
    b->elements += (uint64_t)count * cols;
    b->bytes += (uint64_t)count * cols * sizeof(float);
}

static void run_f32_mix(struct bench *b, uint32_t cols, uint32_t tokens)
{
    (void)tokens;
    uint32_t count = (uint32_t)(b->size_bytes / 4 / cols / sizeof(float));
    count = count < VECTOR ? count : VECTOR;
    const float *rows = (const float *)(const void *)b->data;
    b->k->f32_mix(b->y, b->x, rows, cols, count, 512);
    b->elements += (uint64_t)count * 512;
    b->bytes += (uint64_t)count * 512 * sizeof(float);
}

static void run_kda(struct bench *b, uint32_t cols, uint32_t tokens)
{
    (void)tokens;
    float *state = (float *)(void *)b->data;
    size_t count = b->size_bytes / 8 / (cols * cols * sizeof(float));
    const float *x = b->x;
    for (size_t h = 0; h < count; h++) {
        b->k->kda_step(state + h * cols * cols, b->y, x, x + cols, x + 2 * cols, x + 3 * cols,
                       0.5f, cols, b->y + cols);
        b->elements += (uint64_t)cols * cols;
        b->bytes += 2 * (uint64_t)cols * cols * sizeof(float);
    }
}

static void count_vector(struct bench *b, size_t n)
{
    b->elements += n;
    b->bytes += n * sizeof(float);
}

#define VECTOR_CASE(name, call)                                                               \
    static void run_##name(struct bench *b, uint32_t cols, uint32_t tokens)                   \
    {                                                                                         \
        float *y = b->y;                                                                      \
        const float *x = b->x;                                                                \
        size_t n = cols;                                                                      \
        (void)x;                                                                              \
        for (uint32_t i = 0; i < 64 * tokens; i++) {                                          \
            b->k->call;                                                                       \
            count_vector(b, n);                                                               \
        }                                                                                     \
    }

VECTOR_CASE(exp, exp(y, x, n))
VECTOR_CASE(tanh, tanh(y, x, n))
VECTOR_CASE(silu, silu(y, x, n))
VECTOR_CASE(situ, situ(y, x, x + n, n, 4.0f, 25.0f))
VECTOR_CASE(rmsnorm, rmsnorm(y, x, x + n, n, 1e-5f))
VECTOR_CASE(softmax, softmax(y, n))
VECTOR_CASE(conv, conv_silu(y, y + n, x, x + 4 * n, 4, n))
VECTOR_CASE(decay, kda_decay(y, x, x + n, 1.0f, -5.0f, n))

static void run_attnres(struct bench *b, uint32_t cols, uint32_t tokens)
{
    const float *source[SOURCES];
    for (uint32_t k = 0; k < SOURCES; k++) {
        source[k] = b->x + (size_t)k * cols;
    }
    for (uint32_t i = 0; i < 8 * tokens; i++) {
        b->k->attnres(b->y, source, SOURCES, b->x + (size_t)SOURCES * cols, cols, 1e-5f);
        count_vector(b, (size_t)SOURCES * cols);
    }
}

static const struct bench_case CASES[] = {
    {"bf16 x1", run_bf16, 7168, 1},
    {"bf16 x3", run_bf16, 7168, 3},
    {"bf16 x8", run_bf16, 7168, 8},
    {"mxfp4 x1 3584", run_mxfp4, 3584, 1},
    {"mxfp4 x1 3072", run_mxfp4, 3072, 1},
    {"mxfp4 x3", run_mxfp4, 3584, 3},
    {"mxfp4 x8", run_mxfp4, 3584, 8},
    {"router", run_router, 7168, 1},
    {"bf16 transposed", run_transposed, 512, 1},
    {"f32 dots", run_f32_dots, 576, 1},
    {"f32 mix", run_f32_mix, 576, 1},
    {"kda step", run_kda, HEAD, 1},
    {"conv silu", run_conv, 12288, 1},
    {"kda decay", run_decay, 12288, 1},
    {"exp", run_exp, 12288, 1},
    {"tanh", run_tanh, 12288, 1},
    {"silu", run_silu, 12288, 1},
    {"situ", run_situ, 6144, 1},
    {"rmsnorm", run_rmsnorm, 7168, 1},
    {"softmax", run_softmax, 4096, 1},
    {"attnres 9", run_attnres, 7168, 1},
};

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(values[0]), compare_doubles);
    return values[count / 2];
}

/* Bytes per nanosecond of eight independent sums over the whole buffer. */
static double read_once(const unsigned char *data, size_t size_bytes, volatile uint64_t *sink)
{
    const uint64_t *words = (const uint64_t *)(const void *)data;
    uint64_t sum[8] = {0};
    uint64_t begin_ns = nondet_now_ns();
    for (size_t i = 0; i + 8 <= size_bytes / 8; i += 8) {
        for (size_t j = 0; j < 8; j++) {
            sum[j] += words[i + j];
        }
    }
    uint64_t wait_ns = nondet_now_ns() - begin_ns;
    *sink = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
    return (double)size_bytes / (double)wait_ns;
}

static double read_speed(const struct bench *b, uint32_t repeats)
{
    volatile uint64_t sink;
    double speed[REPEATS_MAX];
    for (uint32_t i = 0; i < repeats; i++) {
        speed[i] = read_once(b->data, b->size_bytes, &sink);
    }
    return median(speed, repeats);
}

static void case_print(struct bench *b, const struct bench_case *c, uint32_t repeats,
                       double read_gbs)
{
    double wait_ns[REPEATS_MAX];
    for (uint32_t i = 0; i < repeats; i++) {
        b->elements = b->bytes = 0;
        uint64_t begin_ns = nondet_now_ns();
        c->run(b, c->cols, c->tokens);
        wait_ns[i] = (double)(nondet_now_ns() - begin_ns);
    }
    double ns = median(wait_ns, repeats);
    double gbs = (double)b->bytes / ns;
    printf("%-16s %-7s %9.2f G/s %8.2f GB/s %5.0f%%   %7.3f .. %.3f ms\n", c->name, b->k->name,
           (double)b->elements / ns, gbs, 100.0 * gbs / read_gbs, wait_ns[0] / 1e6,
           wait_ns[repeats - 1] / 1e6);
}

static void fill(struct bench *b)
{
    struct rng rng = rng_seed(1);
    for (size_t i = 0; i + 8 <= b->size_bytes; i += 8) {
        /* Every byte in 0x38..0x3f: small numbers as bf16, f32 and E8M0, none subnormal. */
        uint64_t word = (rng_next(&rng) & 0x0707070707070707ULL) | 0x3838383838383838ULL;
        memcpy(b->data + i, &word, sizeof(word));
    }
    for (size_t i = 0; i < (size_t)VECTOR * TOKENS_MAX; i++) {
        b->x[i] = (float)rng_below(&rng, 65536) / 16384.0f - 2.0f;
        b->y[i] = 0.0f;
    }
}

static void isa_print(struct bench *b, enum isa isa, uint32_t repeats, double read_gbs)
{
    size_t size_bytes = b->size_bytes;
    b->k = kernels_select(isa);
    if (b->k == NULL) {
        return;
    }
    if (isa == ISA_SCALAR) {
        b->size_bytes = 8 * MIB;
    }
    for (size_t i = 0; i < countof(CASES); i++) {
        case_print(b, &CASES[i], repeats, read_gbs);
    }
    b->size_bytes = size_bytes;
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    if (argc > 2 || (argc == 2 && !quick)) {
        fprintf(stderr, "usage: kernel_bench [--quick]\n");
        return 2;
    }
    kernels_thread_init();
    uint32_t repeats = quick ? 3 : REPEATS_MAX;
    struct bench b = {.size_bytes = (quick ? 64 : 512) * MIB};
    b.data = aligned_alloc(HUGE_PAGE_BYTES, b.size_bytes);
    b.x = calloc((size_t)VECTOR * TOKENS_MAX, sizeof(float));
    b.y = calloc((size_t)VECTOR * TOKENS_MAX, sizeof(float));
    if (b.data == NULL || b.x == NULL || b.y == NULL) {
        fprintf(stderr, "kernel_bench: no memory for a buffer of %zu bytes\n", b.size_bytes);
        return 1;
    }
    fill(&b);
    double read_gbs = read_speed(&b, repeats);
    printf("read loop over %llu MiB: %.2f GB/s; one core, %u repeats, median, first .. last\n",
           (unsigned long long)(b.size_bytes / MIB), read_gbs, repeats);
    isa_print(&b, ISA_SCALAR, repeats, read_gbs);
    isa_print(&b, ISA_AVX2, repeats, read_gbs);
    isa_print(&b, ISA_AVX512, repeats, read_gbs);
    free(b.data);
    free(b.x);
    free(b.y);
    return 0;
}
