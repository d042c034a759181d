/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/synth_fill.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nondet.h"
#include "tests/support/suite.h"

static void k3_geometry(uint32_t layers, uint32_t experts, uint32_t vocab,
                        struct synth_geometry *geometry)
{
    const struct synth_options options = {.preset = SYNTH_K3, .layers = layers,
                                          .experts = experts, .vocab = vocab};
    ck_assert_int_eq(synth_geometry_init(&options, geometry), 0);
}

static const struct synth_tensor *find_tensor(const struct synth_shard *shard, const char *suffix)
{
    for (uint32_t i = 0; i < shard->tensor_count; i++) {
        const char *name = shard->tensors[i].name;
        if (strcmp(name + strlen(name) - strlen(suffix), suffix) == 0) {
            return &shard->tensors[i];
        }
    }
    ck_abort_msg("no tensor %s", suffix);
    return NULL;
}

/* One KDA layer and its fill. */
struct sample {
    struct synth_shard shard;
    struct synth_fill *fill;
    unsigned char *bytes;
    uint64_t count;
};

static void sample_init(struct sample *sample, uint64_t seed)
{
    struct synth_geometry geometry;
    k3_geometry(4, 8, 512, &geometry);
    ck_assert_int_eq(synth_shard_init(&geometry, 1, &sample->shard), 0);
    sample->fill = malloc(sizeof *sample->fill);
    sample->bytes = malloc(4 * MIB);
    ck_assert(sample->fill != NULL && sample->bytes != NULL);
    synth_fill_init(sample->fill, &geometry, seed);
}

static void sample_fini(struct sample *sample)
{
    synth_shard_fini(&sample->shard);
    free(sample->fill);
    free(sample->bytes);
}

/* Draws the first elements of a tensor. */
static const struct synth_tensor *sample_draw(struct sample *sample, const char *suffix)
{
    const struct synth_tensor *tensor = find_tensor(&sample->shard, suffix);
    const uint64_t unit = dtype_bytes(tensor->dtype);
    sample->count = min_u64(4 * MIB, tensor->size_bytes) / unit;
    synth_fill_run(sample->fill, tensor, 0, sample->count, sample->bytes);
    return tensor;
}

static double sample_value(const struct sample *sample, const struct synth_tensor *tensor,
                           uint64_t i)
{
    uint32_t bits = 0;
    float value;
    if (tensor->dtype == DTYPE_BF16) {
        memcpy((char *)&bits + 2, sample->bytes + 2 * i, 2);
    } else {
        memcpy(&bits, sample->bytes + 4 * i, 4);
    }
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static void sample_moments(const struct sample *sample, const struct synth_tensor *tensor,
                           double *mean, double *deviation)
{
    double sum = 0.0;
    double squares = 0.0;
    for (uint64_t i = 0; i < sample->count; i++) {
        const double value = sample_value(sample, tensor, i);
        sum += value;
        squares += value * value;
    }
    *mean = sum / (double)sample->count;
    *deviation = sqrt(squares / (double)sample->count - *mean * *mean);
}

/* Bits per byte of every stride-th byte from first. */
static double entropy(const unsigned char *bytes, uint64_t count, uint64_t first, uint64_t stride)
{
    uint64_t seen[256] = {0};
    uint64_t total = 0;
    double bits = 0.0;
    for (uint64_t i = first; i < count; i += stride) {
        seen[bytes[i]]++;
        total++;
    }
    for (uint32_t i = 0; i < 256; i++) {
        const double share = (double)seen[i] / (double)total;
        bits -= share > 0.0 ? share * log2(share) : 0.0;
    }
    return bits;
}

START_TEST(matrices_have_the_statistics_of_trained_bf16_weights)
{
    struct sample sample;
    double mean;
    double deviation;
    sample_init(&sample, 1);
    const struct synth_tensor *tensor = sample_draw(&sample, "self_attn.q_proj.weight");
    sample_moments(&sample, tensor, &mean, &deviation);
    ck_assert_double_eq_tol(mean, 0.0, 1e-4);
    ck_assert_double_eq_tol(deviation, 1.0 / sqrt(7168.0), 1e-4);
    const double high = entropy(sample.bytes, 2 * sample.count, 1, 2);
    ck_assert_msg(high > 2.4 && high < 3.2, "high byte %g bits", high);
    ck_assert_double_ge(entropy(sample.bytes, 2 * sample.count, 0, 2), 7.9);
    uint64_t beyond = 0;
    for (uint64_t i = 0; i < sample.count; i++) {
        beyond += fabs(sample_value(&sample, tensor, i)) > 2.0 * deviation;
    }
    ck_assert_double_eq_tol((double)beyond / (double)sample.count, 0.0455, 0.002);
    sample_fini(&sample);
}
END_TEST

START_TEST(experts_are_dense_codes_of_sensible_scale)
{
    static const double code_values[] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
    struct sample sample;
    double codes = 0.0;
    double scales = 0.0;
    sample_init(&sample, 1);
    sample_draw(&sample, "experts.3.w1.weight_packed");
    for (uint64_t i = 0; i < sample.count; i++) {
        codes += pow(code_values[sample.bytes[i] & 7], 2) +
                 pow(code_values[sample.bytes[i] >> 4 & 7], 2);
    }
    codes /= 2.0 * (double)sample.count;
    ck_assert_double_ge(entropy(sample.bytes, sample.count, 0, 1), 7.4);
    sample_draw(&sample, "experts.3.w1.weight_scale");
    for (uint64_t i = 0; i < sample.count; i++) {
        ck_assert(sample.bytes[i] >= 119 && sample.bytes[i] <= 122);
        scales += ldexp(1.0, 2 * (sample.bytes[i] - 127));
    }
    const double deviation = sqrt(codes * scales / (double)sample.count) * sqrt(3584.0);
    ck_assert_msg(deviation > 0.7 && deviation < 1.4, "%g of 1 / sqrt(cols)", deviation);
    sample_fini(&sample);
}
END_TEST

START_TEST(small_tensors_keep_their_roles)
{
    struct sample sample;
    double mean;
    double deviation;
    sample_init(&sample, 1);
    const struct synth_tensor *tensor = sample_draw(&sample, "input_layernorm.weight");
    sample_moments(&sample, tensor, &mean, &deviation);
    ck_assert_double_eq_tol(mean, 1.0, 0.01);
    ck_assert_double_eq_tol(deviation, 0.05, 0.01);
    tensor = sample_draw(&sample, "A_log");
    for (uint64_t i = 0; i < 128; i++) {
        const double value = sample_value(&sample, tensor, i);
        ck_assert(i < 96 ? value >= 0.0 && value <= 1.0 : value == 0.0);
    }
    tensor = sample_draw(&sample, "e_score_correction_bias");
    sample_moments(&sample, tensor, &mean, &deviation);
    ck_assert(deviation > 0.0 && deviation < 0.01);
    sample_fini(&sample);
}
END_TEST

START_TEST(a_value_depends_on_seed_name_and_index_alone)
{
    static const char *const names[] = {"self_attn.q_proj.weight", "experts.3.w2.weight_packed",
                                        "experts.3.w2.weight_scale", "dt_bias"};
    struct sample sample;
    struct rng rng = rng_seed(99 + (uint64_t)_i);
    unsigned char piece[512];
    sample_init(&sample, 5);
    const struct synth_tensor *tensor = sample_draw(&sample, names[_i]);
    const uint64_t unit = dtype_bytes(tensor->dtype);
    for (uint32_t k = 0; k < 200; k++) {
        const uint64_t begin = rng_below(&rng, sample.count - 100);
        const uint64_t count = rng_below(&rng, 100);
        synth_fill_run(sample.fill, tensor, begin, count, piece + k % 3);
        ck_assert_mem_eq(piece + k % 3, sample.bytes + begin * unit, count * unit);
    }
    sample.fill->seed = 6;
    synth_fill_run(sample.fill, tensor, 0, 64, piece);
    ck_assert_mem_ne(piece, sample.bytes, 64);
    sample_fini(&sample);
}
END_TEST

START_TEST(equal_rows_of_two_experts_differ)
{
    struct sample sample;
    unsigned char other[256];
    sample_init(&sample, 5);
    sample_draw(&sample, "experts.3.w1.weight_packed");
    synth_fill_run(sample.fill, find_tensor(&sample.shard, "experts.4.w1.weight_packed"), 0, 256,
                   other);
    ck_assert_mem_ne(other, sample.bytes, 256);
    sample_fini(&sample);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("synth fill");
    TCase *fill = tcase_create("fill");
    tcase_add_test(fill, matrices_have_the_statistics_of_trained_bf16_weights);
    tcase_add_test(fill, experts_are_dense_codes_of_sensible_scale);
    tcase_add_test(fill, small_tensors_keep_their_roles);
    tcase_add_loop_test(fill, a_value_depends_on_seed_name_and_index_alone, 0, 4);
    tcase_add_test(fill, equal_rows_of_two_experts_differ);
    tcase_set_timeout(fill, 60);
    suite_add_tcase(suite, fill);
    return suite_run(suite) == 0 ? 0 : 1;
}
