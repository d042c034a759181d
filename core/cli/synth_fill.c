/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/synth_fill.h"

#include <math.h>
#include <string.h>

#include "core/base/nondet.h"

#define GOLDEN 0x9E3779B97F4A7C15ULL

/* Deviation of a weight in units of its scale: the largest of 32 then lies near the last code,
 * as it does when a trained matrix is quantised. */
#define CODE_SPREAD 2.4

/* How the values of a tensor are drawn. */
struct recipe {
    bool uniform;  /* over centre +- spread; else Gaussian of deviation spread */
    double centre;
    double spread;
    uint64_t zero_from; /* elements from here on are 0 */
};

/* Slope of the Gaussian quantile function x(p) grows as x * slope^2: integrated in steps from
 * the median, finer where the tail bends, it needs neither exp nor log. */
static void quantile_step(double *x, double *slope, double step)
{
    const double x1 = *slope;
    const double s1 = *x * *slope * *slope;
    const double x2 = *slope + 0.5 * step * s1;
    const double s2 = (*x + 0.5 * step * x1) * x2 * x2;
    const double x3 = *slope + 0.5 * step * s2;
    const double s3 = (*x + 0.5 * step * x2) * x3 * x3;
    const double x4 = *slope + step * s3;
    const double s4 = (*x + step * x3) * x4 * x4;
    *x += step / 6.0 * (x1 + 2.0 * x2 + 2.0 * x3 + x4);
    *slope += step / 6.0 * (s1 + 2.0 * s2 + 2.0 * s3 + s4);
}

/* quantile[i] is the value below which a share of 1/2 + (i + 1/2) / 65536 lies. */
static void fill_quantiles(float *quantile)
{
    const double each = 0.5 / SYNTH_QUANTILES;
    double x = 0.0;
    double slope = 2.5066282746310002; /* sqrt(2 pi) */
    quantile_step(&x, &slope, 0.5 * each);
    quantile[0] = (float)x;
    for (uint32_t i = 1; i < SYNTH_QUANTILES; i++) {
        const uint32_t parts = 2 + 64 / (2 * (SYNTH_QUANTILES - i) - 1);
        for (uint32_t k = 0; k < parts; k++) {
            quantile_step(&x, &slope, each / parts);
        }
        quantile[i] = (float)x;
    }
}

/* The E2M1 code of a Gaussian chosen by 7 bits of magnitude and a sign bit. */
static unsigned char draw_code(const float *quantile, uint32_t bits)
{
    static const double borders[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0};
    const uint32_t stride = SYNTH_QUANTILES / 128;
    const double magnitude = CODE_SPREAD * (double)quantile[(bits & 127) * stride + stride / 2];
    unsigned char code = 0;
    while (code < countof(borders) && magnitude > borders[code]) {
        code++;
    }
    return (unsigned char)(code | ((bits & 128) != 0 ? 8 : 0));
}

static void fill_expert_tables(struct synth_fill *fill)
{
    unsigned char codes[256];
    for (uint32_t i = 0; i < 256; i++) {
        codes[i] = draw_code(fill->quantile, i);
        fill->scales[i] = (unsigned char)(i < 96 ? 119 : i < 220 ? 120 : i < 254 ? 121 : 122);
    }
    for (uint32_t i = 0; i < 65536; i++) {
        fill->nibbles[i] = (unsigned char)(codes[i & 255] | codes[i >> 8] << 4);
    }
}

void synth_fill_init(struct synth_fill *fill, const struct synth_geometry *geometry,
                     uint64_t seed)
{
    fill->preset = geometry->preset;
    fill->seed = seed;
    fill->kda_heads = geometry->config.kda_heads;
    fill->scaled_spread = 0.0;
    fill_quantiles(fill->quantile);
    fill_expert_tables(fill);
}

static uint64_t hash_name(const char *name)
{
    uint64_t hash = 14695981039346656037ULL; /* FNV-1a */
    for (; *name != '\0'; name++) {
        hash = (hash ^ (unsigned char)*name) * 1099511628211ULL;
    }
    return hash;
}

static uint16_t to_bf16(double value)
{
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static void store(double value, enum dtype dtype, unsigned char *out)
{
    const float single = (float)value;
    const uint16_t half = to_bf16(value);
    if (dtype == DTYPE_F32) {
        memcpy(out, &single, sizeof single);
    } else {
        memcpy(out, &half, sizeof half);
    }
}

static bool is_norm(enum tensor_id id)
{
    switch (id) {
    case T_INPUT_NORM: case T_POST_NORM: case T_ATTN_RES_NORM: case T_MLP_RES_NORM:
    case T_O_NORM: case T_Q_A_NORM: case T_KV_A_NORM: case T_LATENT_NORM: case T_NORM:
    case T_OUT_RES_NORM:
        return true;
    default:
        return false;
    }
}

/* 2^-floor(log2(cols) / 2), the fixed model's stand-in for 1 / sqrt(cols). */
static double power_below_root(uint64_t cols)
{
    uint32_t log2 = 0;
    while (cols >> (log2 + 1) != 0) {
        log2++;
    }
    return 1.0 / (double)((uint64_t)1 << (log2 >> 1));
}

static double tiny_matrix_spread(enum tensor_id id, uint64_t cols)
{
    const double base = power_below_root(cols);
    switch (id) {
    case T_DENSE_GATE: case T_DENSE_UP: case T_SHARED_GATE: case T_SHARED_UP: case T_O:
        return base * 8.0;
    case T_DENSE_DOWN: case T_SHARED_DOWN:
        return base / 16.0;
    case T_Q_B:
        return base * 4.0;
    default:
        return base;
    }
}

static struct recipe tiny_recipe(const struct synth_tensor *tensor, uint32_t kda_heads)
{
    struct recipe recipe = {.uniform = true, .zero_from = UINT64_MAX};
    if (is_norm(tensor->id)) {
        recipe.centre = 1.0;
        recipe.spread = 0.25;
        return recipe;
    }
    switch (tensor->id) {
    case T_A_LOG:
        recipe.zero_from = kda_heads;
        recipe.spread = 1.0;
        break;
    case T_EMBED: case T_DT_BIAS:
        recipe.spread = 1.0;
        break;
    case T_CONV_Q: case T_CONV_K: case T_CONV_V:
        recipe.spread = 0.5;
        break;
    case T_ATTN_RES_PROJ: case T_MLP_RES_PROJ: case T_OUT_RES_PROJ: case T_ROUTER: case T_LM_HEAD:
        recipe.spread = 0.25;
        break;
    case T_ROUTER_BIAS:
        recipe.spread = 0.125;
        break;
    default:
        recipe.spread = tiny_matrix_spread(tensor->id, tensor->shape[tensor->rank - 1]);
    }
    return recipe;
}

/* Products of unit vectors with these matrices have elements near 1, so activations keep their
 * size through any number of layers; what is added to the residual is kept a little smaller. */
static struct recipe k3_recipe(const struct synth_tensor *tensor, uint32_t kda_heads)
{
    struct recipe recipe = {.zero_from = UINT64_MAX};
    if (is_norm(tensor->id)) {
        recipe.centre = 1.0;
        recipe.spread = 0.05;
        return recipe;
    }
    switch (tensor->id) {
    case T_A_LOG:
        return (struct recipe){.uniform = true, .centre = 0.5, .spread = 0.5,
                               .zero_from = kda_heads};
    case T_ATTN_RES_PROJ: case T_MLP_RES_PROJ: case T_OUT_RES_PROJ:
        recipe.spread = 0.01;
        break;
    case T_DT_BIAS:
        recipe.spread = 0.1;
        break;
    case T_CONV_Q: case T_CONV_K: case T_CONV_V:
        recipe.spread = 0.3;
        break;
    case T_ROUTER_BIAS:
        recipe.spread = 0.001;
        break;
    case T_EMBED:
        recipe.spread = 0.02;
        break;
    case T_O: case T_DENSE_DOWN: case T_SHARED_DOWN:
        recipe.spread = 0.5 / sqrt((double)tensor->shape[1]);
        break;
    default:
        recipe.spread = 1.0 / sqrt((double)tensor->shape[1]);
    }
    return recipe;
}

/* The random word `index` of a tensor. */
static uint64_t word_at(uint64_t key, uint64_t index)
{
    return rng_mix(key + (index + 1) * GOLDEN);
}

/* 24 random bits to [-1, 1), exactly. */
static double draw_uniform(uint64_t word)
{
    return 2.0 * ((double)(word >> 40) / 16777216.0) - 1.0;
}

/* 16 random bits: a sign and a magnitude's index. */
static double draw_gaussian(const struct synth_fill *fill, uint64_t word)
{
    const double magnitude = (double)fill->quantile[word >> 48 & 0x7FFF];
    return word >> 63 != 0 ? -magnitude : magnitude;
}

/* One word per element; for all but the large matrices. */
static void fill_values(const struct synth_fill *fill, const struct synth_tensor *tensor,
                        const struct recipe *recipe, uint64_t key, struct synth_range range,
                        unsigned char *out)
{
    for (uint64_t i = range.begin; i < range.end; i++) {
        const uint64_t word = word_at(key, i);
        const double drawn = recipe->uniform ? draw_uniform(word) : draw_gaussian(fill, word);
        const double value = i < recipe->zero_from ? recipe->centre + recipe->spread * drawn : 0.0;
        store(value, tensor->dtype, out);
        out += dtype_bytes(tensor->dtype);
    }
}

static uint64_t draw_bf16(const uint16_t *scaled, uint64_t bits)
{
    return scaled[bits & 0x7FFF] | (bits & 0x8000);
}

/* Four elements of a bf16 matrix. */
static uint64_t four_bf16(const uint16_t *scaled, uint64_t key, uint64_t index)
{
    const uint64_t word = word_at(key, index);
    return draw_bf16(scaled, word) | draw_bf16(scaled, word >> 16) << 16 |
           draw_bf16(scaled, word >> 32) << 32 | draw_bf16(scaled, word >> 48) << 48;
}

/* Four bytes of packed codes. */
static uint32_t four_packed(const unsigned char *nibbles, uint64_t key, uint64_t index)
{
    const uint64_t word = word_at(key, index);
    return (uint32_t)nibbles[word & 0xFFFF] | (uint32_t)nibbles[word >> 16 & 0xFFFF] << 8 |
           (uint32_t)nibbles[word >> 32 & 0xFFFF] << 16 | (uint32_t)nibbles[word >> 48] << 24;
}

static void fill_matrix(const struct synth_fill *fill, uint64_t key, struct synth_range range,
                        unsigned char *out)
{
    uint64_t i = range.begin;
    while (i < range.end) {
        uint64_t four = four_bf16(fill->scaled, key, i / 4);
        const uint64_t count = min_u64(4 - i % 4, range.end - i);
        four >>= 16 * (i % 4);
        memcpy(out, &four, count * 2);
        out += count * 2;
        i += count;
        for (; i % 4 == 0 && i + 4 <= range.end; i += 4, out += 8) {
            four = four_bf16(fill->scaled, key, i / 4);
            memcpy(out, &four, sizeof four);
        }
    }
}

static void fill_packed(const struct synth_fill *fill, uint64_t key, struct synth_range range,
                        unsigned char *out)
{
    uint64_t i = range.begin;
    while (i < range.end) {
        uint32_t four = four_packed(fill->nibbles, key, i / 4);
        const uint64_t count = min_u64(4 - i % 4, range.end - i);
        four >>= 8 * (i % 4);
        memcpy(out, &four, count);
        out += count;
        i += count;
        for (; i % 4 == 0 && i + 4 <= range.end; i += 4, out += 4) {
            four = four_packed(fill->nibbles, key, i / 4);
            memcpy(out, &four, sizeof four);
        }
    }
}

static void fill_scales(const struct synth_fill *fill, uint64_t key, struct synth_range range,
                        unsigned char *out)
{
    for (uint64_t i = range.begin; i < range.end; i++) {
        *out++ = fill->scales[word_at(key, i / 8) >> (8 * (i % 8)) & 255];
    }
}

static void fill_tiny_bytes(const struct synth_tensor *tensor, uint64_t key,
                            struct synth_range range, unsigned char *out)
{
    const bool packed = tensor->part == W1_PACKED || tensor->part == W2_PACKED ||
                        tensor->part == W3_PACKED;
    for (uint64_t i = range.begin; i < range.end; i++) {
        const uint64_t word = word_at(key, i);
        *out++ = (unsigned char)(packed ? word >> 56 : 122 + (word >> 62));
    }
}

static void use_spread(struct synth_fill *fill, double spread)
{
    if (fill->scaled_spread == spread) {
        return;
    }
    for (uint32_t i = 0; i < SYNTH_QUANTILES; i++) {
        fill->scaled[i] = to_bf16(spread * (double)fill->quantile[i]);
    }
    fill->scaled_spread = spread;
}

static void fill_tiny(struct synth_fill *fill, const struct synth_tensor *tensor,
                      struct synth_range range, unsigned char *out)
{
    const uint64_t key = hash_name(tensor->name);
    if (tensor->dtype == DTYPE_U8) {
        fill_tiny_bytes(tensor, key, range, out);
    } else {
        const struct recipe recipe = tiny_recipe(tensor, fill->kda_heads);
        fill_values(fill, tensor, &recipe, key, range, out);
    }
}

static void fill_k3(struct synth_fill *fill, const struct synth_tensor *tensor,
                    struct synth_range range, unsigned char *out)
{
    const uint64_t key = rng_mix(hash_name(tensor->name) ^ rng_mix(fill->seed + GOLDEN));
    if (tensor->dtype == DTYPE_U8) {
        const bool packed = tensor->part == W1_PACKED || tensor->part == W2_PACKED ||
                            tensor->part == W3_PACKED;
        (packed ? fill_packed : fill_scales)(fill, key, range, out);
        return;
    }
    const struct recipe recipe = k3_recipe(tensor, fill->kda_heads);
    if (tensor->dtype == DTYPE_BF16 && recipe.centre == 0.0 && !recipe.uniform) {
        use_spread(fill, recipe.spread);
        fill_matrix(fill, key, range, out);
    } else {
        fill_values(fill, tensor, &recipe, key, range, out);
    }
}

void synth_fill_run(struct synth_fill *fill, const struct synth_tensor *tensor, uint64_t begin,
                    uint64_t count, unsigned char *out)
{
    const struct synth_range range = {begin, begin + count};
    assert(range.end * dtype_bytes(tensor->dtype) <= tensor->size_bytes);
    (fill->preset == SYNTH_TINY ? fill_tiny : fill_k3)(fill, tensor, range, out);
}
