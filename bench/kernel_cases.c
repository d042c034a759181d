/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/kernel_cases.h"

#include <immintrin.h>

#include "core/base/nondet.h"

#define SOURCES 9u
#define FMA_ROUNDS 2000000u

uint32_t tile_rows(uint32_t cols)
{
    return (uint32_t)(TILE_BYTES / (2 * (uint64_t)cols));
}

/* ---- weights ---- */

static void run_bf16(struct bench *b, uint32_t cols, uint32_t tokens)
{
    uint32_t rows = tile_rows(cols);
    size_t tile_bytes = 2 * (size_t)rows * cols;
    for (uint64_t at = b->begin; at + tile_bytes <= b->end; at += tile_bytes) {
        struct matmul m = {.y = b->y, .y_stride = VECTOR, .x = b->x, .x_stride = cols,
                           .w = b->data + at, .rows = rows, .cols = cols, .tokens = tokens};
        b->k->bf16(&m);
        b->bytes += tile_bytes;
        b->elements += (uint64_t)rows * cols * tokens;
    }
}

/* Tiles as a pack holds them, escapes included; as many weights as run_bf16 meets. */
static void run_packed(struct bench *b, uint32_t cols, uint32_t tokens)
{
    uint32_t rows = tile_rows(cols);
    for (uint64_t i = b->begin / TILE_BYTES; i < b->end / TILE_BYTES; i++) {
        const unsigned char *tile = b->coded + i * b->coded_bytes;
        const unsigned char *first = tile + rows * packed_row_bytes(cols);
        struct matmul m = {.y = b->y, .y_stride = VECTOR, .x = b->x, .x_stride = cols, .w = tile,
                           .escape_first = first, .escape = first + 4 * (rows + (size_t)1),
                           .rows = rows, .cols = cols, .tokens = tokens};
        b->k->bf16_packed(&m);
        b->bytes += b->coded_bytes;
        b->elements += (uint64_t)rows * cols * tokens;
    }
}

/* One expert matrix after the other: packed rows, then their scales. */
static void run_mxfp4(struct bench *b, uint32_t cols, uint32_t tokens)
{
    const uint32_t rows = 3072;
    size_t packed_bytes = (size_t)rows * cols / 2;
    size_t matrix_bytes = packed_bytes + (size_t)rows * cols / 32;
    for (uint64_t at = b->begin; at + matrix_bytes <= b->end; at += matrix_bytes) {
        struct matmul m = {.y = b->y, .y_stride = VECTOR, .x = b->x, .x_stride = cols,
                           .w = b->data + at, .scale = b->data + at + packed_bytes,
                           .rows = rows, .cols = cols, .tokens = tokens};
        b->k->mxfp4(&m);
        b->bytes += matrix_bytes;
        b->elements += (uint64_t)rows * cols * tokens;
    }
}

static void run_router(struct bench *b, uint32_t cols, uint32_t tokens)
{
    const uint32_t rows = 224; /* of 896 */
    size_t tile_bytes = 2 * (size_t)rows * cols;
    for (uint64_t at = b->begin; at + tile_bytes <= b->end / 4; at += tile_bytes) {
        struct matmul m = {.y = b->y, .y_stride = VECTOR, .x = b->x, .x_stride = cols,
                           .w = b->data + at, .rows = rows, .cols = cols, .tokens = tokens};
        b->k->bf16_router(&m);
        b->bytes += tile_bytes;
        b->elements += (uint64_t)rows * cols * tokens;
    }
}

static void run_transposed(struct bench *b, uint32_t cols, uint32_t tokens)
{
    (void)tokens;
    size_t tile_bytes = 2 * (size_t)HEAD * cols;
    for (uint64_t at = b->begin; at + tile_bytes <= b->end / 4; at += tile_bytes) {
        b->k->bf16_transposed(b->y, b->data + at, b->x, HEAD, cols);
        b->bytes += tile_bytes;
        b->elements += (uint64_t)HEAD * cols;
    }
}

/* ---- attention: the heads of a layer over one latent cache of CONTEXT positions ---- */

static void run_f32_dots(struct bench *b, uint32_t cols, uint32_t heads)
{
    const float *rows = (const float *)(const void *)b->data;
    for (uint32_t h = 0; h < heads; h++) {
        b->k->f32_dots(b->y, rows, cols, CONTEXT, b->x + h, cols, 0.5f);
        b->elements += (uint64_t)CONTEXT * cols;
        b->bytes += (uint64_t)CONTEXT * cols * sizeof(float);
    }
}

static void run_f32_mix(struct bench *b, uint32_t cols, uint32_t heads)
{
    const float *rows = (const float *)(const void *)b->data;
    for (uint32_t h = 0; h < heads; h++) {
        b->k->f32_mix(b->y, b->x + h, rows, cols + 64, CONTEXT, cols);
        b->elements += (uint64_t)CONTEXT * cols;
        b->bytes += (uint64_t)CONTEXT * cols * sizeof(float);
    }
}

static void run_kda(struct bench *b, uint32_t cols, uint32_t tokens)
{
    (void)tokens;
    float alpha[HEAD];
    size_t size = (size_t)cols * cols;
    const float *x = b->x;
    for (uint32_t i = 0; i < cols; i++) {
        alpha[i] = 0.75f; /* the state stays finite */
    }
    for (size_t at = 0; at + size <= STATE_BYTES / sizeof(float); at += size) {
        b->k->kda_step(b->state + at, b->y, x, x + cols, x + 2 * cols, alpha, 0.001f, cols,
                       b->y + cols);
        b->elements += size;
        b->bytes += 2 * size * sizeof(float);
    }
}

/* ---- vectors ---- */

#define VECTOR_CASE(name, call)                                                               \
    static void run_##name(struct bench *b, uint32_t cols, uint32_t rounds)                   \
    {                                                                                         \
        float *y = b->y;                                                                      \
        const float *x = b->x;                                                                \
        size_t n = cols;                                                                      \
        (void)x;                                                                              \
        for (uint32_t i = 0; i < rounds; i++) {                                               \
            b->k->call;                                                                       \
            b->elements += n;                                                                 \
            b->bytes += n * sizeof(float);                                                    \
        }                                                                                     \
    }

VECTOR_CASE(exp, exp(y, x, n))
VECTOR_CASE(tanh, tanh(y, x, n))
VECTOR_CASE(gate, gate(y, x, x + n, n))
VECTOR_CASE(situ, situ(y, x, x + n, n, 4.0f, 25.0f))
VECTOR_CASE(add, add(y, x, x + n, n))
VECTOR_CASE(rmsnorm, rmsnorm(y, x, x + n, n, 1e-5f))
VECTOR_CASE(l2norm, l2norm(y, x, n, 1e-6f, 1.0f))
VECTOR_CASE(softmax, softmax(y, n))
VECTOR_CASE(conv, conv_silu(y, y + n, x, x + 4 * n, 4, n))
VECTOR_CASE(decay, kda_decay(y, x, x + n, 1.0f, -5.0f, n))
VECTOR_CASE(split, mxfp4_split(y, x, (uint32_t)n))

static void run_attnres(struct bench *b, uint32_t cols, uint32_t rounds)
{
    const float *source[SOURCES];
    for (uint32_t k = 0; k < SOURCES; k++) {
        source[k] = b->x + (size_t)k * cols;
    }
    for (uint32_t i = 0; i < rounds; i++) {
        b->k->attnres(b->y, source, SOURCES, b->x + (size_t)SOURCES * cols, cols, 1e-5f);
        b->elements += (uint64_t)SOURCES * cols;
        b->bytes += (uint64_t)SOURCES * cols * sizeof(float);
    }
}

const struct bench_case CASES[CASE_COUNT] = {
    [BF16_1] = {"bf16 x1", run_bf16, HIDDEN, 1, true},
    [BF16_3] = {"bf16 x3", run_bf16, HIDDEN, 3, true},
    [BF16_8] = {"bf16 x8", run_bf16, HIDDEN, 8, true},
    [BF16_64] = {"bf16 x64", run_bf16, HIDDEN, 64, true},
    [PACKED_1] = {"packed x1", run_packed, HIDDEN, 1, true},
    [PACKED_3] = {"packed x3", run_packed, HIDDEN, 3, true},
    [PACKED_8] = {"packed x8", run_packed, HIDDEN, 8, true},
    [PACKED_64] = {"packed x64", run_packed, HIDDEN, 64, true},
    [MXFP4_1] = {"mxfp4 x1", run_mxfp4, 3584, 1, true},
    [MXFP4_3072] = {"mxfp4 x1, w2", run_mxfp4, 3072, 1, true},
    [MXFP4_3] = {"mxfp4 x3", run_mxfp4, 3584, 3, true},
    [MXFP4_8] = {"mxfp4 x8", run_mxfp4, 3584, 8, true},
    [MXFP4_64] = {"mxfp4 x64", run_mxfp4, 3584, 64, true},
    [ROUTER] = {"router", run_router, HIDDEN, 1, false},
    [TRANSPOSED] = {"bf16 transposed", run_transposed, 512, 1, false},
    [DOTS] = {"f32 dots", run_f32_dots, 576, 24, false},
    [MIX] = {"f32 mix", run_f32_mix, 512, 24, false},
    [SOFTMAX] = {"softmax", run_softmax, CONTEXT, 512, false},
    [KDA] = {"kda step", run_kda, HEAD, 1, false},
    [CONV] = {"conv silu", run_conv, HEAD, 4096, false},
    [DECAY] = {"kda decay", run_decay, HEAD, 4096, false},
    [L2NORM] = {"l2norm", run_l2norm, HEAD, 4096, false},
    [GATE] = {"gate", run_gate, HEAD, 4096, false},
    [RMSNORM] = {"rmsnorm", run_rmsnorm, HIDDEN, 64, false},
    [HEAD_NORM] = {"rmsnorm of 128", run_rmsnorm, HEAD, 4096, false},
    [ATTNRES] = {"attnres", run_attnres, HIDDEN, 8, false},
    [SITU] = {"situ", run_situ, 3072, 64, false},
    [SPLIT] = {"mxfp4 split", run_split, 3072, 64, false},
    [ADD] = {"add", run_add, HIDDEN, 64, false},
    [EXP] = {"exp", run_exp, 12288, 64, false},
    [TANH] = {"tanh", run_tanh, 12288, 64, false},
};

/* ---- bounds of the machine ---- */

uint64_t read_quarters(const unsigned char *data, uint64_t size_bytes)
{
    __m128i sum[4] = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128(),
                      _mm_setzero_si128()};
    uint64_t quarter = size_bytes / 4;
    for (uint64_t i = 0; i + 64 <= quarter; i += 64) {
        for (uint32_t q = 0; q < 4; q++) {
            const unsigned char *p = data + q * quarter + i;
            _mm_prefetch((const char *)p + 1024, _MM_HINT_T0);
            for (uint32_t j = 0; j < 4; j++) {
                __m128i value = _mm_load_si128((const __m128i *)(const void *)(p + 16 * j));
                sum[j] = _mm_add_epi64(sum[j], value);
            }
        }
    }
    __m128i all = _mm_add_epi64(_mm_add_epi64(sum[0], sum[1]), _mm_add_epi64(sum[2], sum[3]));
    return (uint64_t)_mm_cvtsi128_si64(all);
}

#define EACH_OF_12(step) step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7) step(8) \
    step(9) step(10) step(11)
#define ACC_SET(i) acc[i] = SET1((float)(i));
#define ACC_STEP(i) acc[i] = FMA(acc[i], a, b); __asm__ volatile("" : "+x"(acc[i]));

/* Twelve chains, more than the steps in flight of any core. */
#define FMA_LOOP(vector, lanes)                                                                \
    vector acc[12];                                                                            \
    const vector a = SET1(0.5f);                                                               \
    const vector b = SET1(1.25f);                                                              \
    EACH_OF_12(ACC_SET)                                                                        \
    uint64_t begin_ns = nondet_thread_cpu_ns();                                                \
    for (uint32_t n = 0; n < FMA_ROUNDS; n++) {                                                \
        EACH_OF_12(ACC_STEP)                                                                   \
    }                                                                                          \
    return FMA_ROUNDS * 12.0 * (lanes) / (double)(nondet_thread_cpu_ns() - begin_ns);

#define SET1 _mm256_set1_ps
#define FMA _mm256_fmadd_ps
__attribute__((target("avx2,fma"))) static double fma_avx2(void)
{
    FMA_LOOP(__m256, 8)
}
#undef SET1
#undef FMA

#define SET1 _mm512_set1_ps
#define FMA _mm512_fmadd_ps
__attribute__((target("avx512f"))) static double fma_avx512(void)
{
    FMA_LOOP(__m512, 16)
}

double fma_peak(enum isa isa)
{
    return isa == ISA_AVX512 ? fma_avx512() : isa == ISA_AVX2 ? fma_avx2() : 0;
}

/* ---- a resident token at full widths ---- */

#define KDA_LAYERS 69.0
#define MLA_LAYERS 24.0
#define MOE_LAYERS 92.0
#define HEADS 96.0
#define WIDTH 12288.0 /* HEADS * HEAD */
#define EXPERTS 16.0
#define EXPERT_WIDTH 3072.0
#define LATENT 3584.0
#define SHARED 6144.0
#define DENSE 33792.0
#define VOCAB 163840.0

#define KDA_WEIGHTS (5 * WIDTH * HIDDEN + HEAD * (HIDDEN + WIDTH) + HEADS * HIDDEN)
#define MLA_WEIGHTS (2 * WIDTH * HIDDEN + 1536.0 * HIDDEN + 18432.0 * 1536 + 576.0 * HIDDEN)
#define MOE_WEIGHTS (2 * LATENT * HIDDEN + 3 * SHARED * HIDDEN)
/* AttnRes mixes one source per block of 12 layers so far and the prefix, twice a layer. */
#define ATTNRES_SOURCES (12 * 2 * (2 + 3 + 4 + 5 + 6 + 7 + 8) + 9 * 2 * 9.0)

const struct item ITEMS[ITEM_COUNT] = {
    {"trunk and head, bf16", BF16_1,
     KDA_LAYERS * KDA_WEIGHTS + MLA_LAYERS * MLA_WEIGHTS + MOE_LAYERS * MOE_WEIGHTS +
         3 * DENSE * HIDDEN + VOCAB * HIDDEN},
    {"experts, MXFP4", MXFP4_1, MOE_LAYERS * EXPERTS * 3 * EXPERT_WIDTH * LATENT},
    {"router", ROUTER, MOE_LAYERS * 896 * HIDDEN},
    {"KDA recurrence", KDA, KDA_LAYERS * HEADS * HEAD * HEAD},
    {"short convolution", CONV, KDA_LAYERS * 3 * WIDTH},
    {"KDA decay (exp)", DECAY, KDA_LAYERS * WIDTH},
    {"KDA l2 norms", L2NORM, KDA_LAYERS * 2 * WIDTH},
    {"KDA output norms", HEAD_NORM, KDA_LAYERS * WIDTH},
    {"gates (exp)", GATE, (KDA_LAYERS + MLA_LAYERS) * WIDTH},
    {"attention scores", DOTS, MLA_LAYERS * HEADS * CONTEXT * 576},
    {"attention context", MIX, MLA_LAYERS * HEADS * CONTEXT * 512},
    {"attention softmax", SOFTMAX, MLA_LAYERS * HEADS * CONTEXT},
    {"absorbed queries", TRANSPOSED, MLA_LAYERS * WIDTH * 512},
    {"attention values", BF16_1, MLA_LAYERS * WIDTH * 512},
    {"norms", RMSNORM, 93 * 2.0 * HIDDEN + MLA_LAYERS * 2048 + MOE_LAYERS * LATENT},
    {"AttnRes", ATTNRES, ATTNRES_SOURCES * HIDDEN},
    {"SiTU (tanh, exp)", SITU, MOE_LAYERS * (EXPERTS * EXPERT_WIDTH + SHARED) + DENSE},
    {"split of activations", SPLIT, MOE_LAYERS * (EXPERTS * EXPERT_WIDTH + LATENT)},
    {"sums of the residual", ADD, 93 * 3.0 * HIDDEN},
};
