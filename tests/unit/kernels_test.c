/* SPDX-License-Identifier: Apache-2.0 */

/* Operators against values worked out by hand or in float64, once per table of this CPU; the
 * weight formats, the router and the floating-point state. */

#include <check.h>
#include <math.h>
#include <string.h>
#include <xmmintrin.h>

#include "kernels/format.h"
#include "tests/support/kernels_compare.h"
#include "tests/support/suite.h"

static const enum isa ISAS[] = {ISA_SCALAR, ISA_AVX2, ISA_AVX512};

/* The table of loop number i, or scalar again where this CPU has none. */
static const struct kernels *table(int i)
{
    const struct kernels *k = kernels_select(ISAS[i]);
    kernels_thread_init();
    return k != NULL ? k : kernels_select(ISA_SCALAR);
}

static void near(const float *actual, const double *expected, size_t n, double relative)
{
    for (size_t i = 0; i < n; i++) {
        double error = fabs((double)actual[i] - expected[i]);
        ck_assert_msg(error <= relative * fabs(expected[i]) + 1e-9, "element %zu: %.9g, not %.9g",
                      i, (double)actual[i], expected[i]);
    }
}

START_TEST(situ_caps_the_gate_but_not_its_sigmoid)
{
    const float g[] = {1, 4, 10, -2, 0.25f, 1000};
    const float u[] = {1, 25, -30, 3, -0.5f, 1000};
    const double expected[] = {0.715817828,  56.9593195,    -82.2458215,
                               -0.657873819, -0.0701713493, 100};
    float y[countof(g)];
    table(_i)->situ(y, g, u, countof(g), 4.0f, 25.0f);
    near(y, expected, countof(g), 1e-6);
}
END_TEST

START_TEST(rmsnorm_takes_the_mean_and_adds_eps_inside_the_root)
{
    const float x[] = {1, 2, 3, 4};
    const float w[] = {1, 1, 2, 0.5f};
    const double expected[] = {0.365148128, 0.730296256, 2.19088877, 0.730296256};
    float y[4];
    table(_i)->rmsnorm(y, x, w, 4, 1e-5f);
    near(y, expected, 4, 3e-7);
}
END_TEST

START_TEST(l2norm_takes_the_sum)
{
    const float tiny[] = {3e-4f, -4e-4f};
    const double tiny_expected[] = {0.268328157, -0.357770876};
    const float x[] = {3, 4, 0, 0};
    const double expected[] = {0.599999988, 0.799999984, 0, 0};
    float y[4];
    table(_i)->l2norm(y, tiny, 2, 1e-6f, 1.0f);
    near(y, tiny_expected, 2, 3e-7);
    table(_i)->l2norm(y, x, 4, 1e-6f, 1.0f);
    near(y, expected, 4, 3e-7);
}
END_TEST

/* Seventeen channels: a full block and a tail. */
#define CHANNELS 17

START_TEST(convolution_sees_the_newest_input_through_the_last_tap)
{
    const float inputs[] = {1, 2, 3, 4, -5};
    const double expected[] = {0.239475064, 0.825286116, 1.76159416, 2.85772238, 0};
    float taps[CHANNELS][4];
    float history[3][CHANNELS] = {{0}};
    for (int c = 0; c < CHANNELS; c++) {
        const float tap[] = {0.1f, 0.2f, 0.3f, 0.4f};
        memcpy(taps[c], tap, sizeof(tap));
    }
    for (size_t t = 0; t < countof(inputs); t++) {
        float y[CHANNELS];
        double want[CHANNELS];
        for (int c = 0; c < CHANNELS; c++) {
            y[c] = inputs[t];
            want[c] = expected[t];
        }
        table(_i)->conv_silu(y, history[0], taps[0], y, 4, CHANNELS);
        for (int c = 0; c < CHANNELS; c++) {
            ck_assert(fabs((double)y[c] - want[c]) < 3e-7 * fabs(want[c]) + 2e-7);
        }
    }
    for (int c = 0; c < CHANNELS; c++) {
        ck_assert(history[0][c] == 3 && history[1][c] == 4 && history[2][c] == -5);
    }
}
END_TEST

START_TEST(decay_follows_the_bounded_gate)
{
    const double a_log[] = {0, 0.5, -0.4, 1, 1.2};
    const float z[] = {0, 0.2f, 3, -2, -30};
    const float dt[] = {0, 0.1f, -1, -1, -10};
    const double alpha[] = {0.0820849986, 0.04478121, 0.0190064683, 0.998564745, 1};
    for (size_t i = 0; i < countof(z); i++) {
        float y;
        table(_i)->kda_decay(&y, &z[i], &dt[i], (float)exp(a_log[i]), -5.0f, 1);
        near(&y, &alpha[i], 1, 1e-6);
    }
}
END_TEST

START_TEST(delta_step_decays_reads_writes_and_reads_again)
{
    float s[] = {1, 2, 3, 4};
    const float q[] = {0.707106781f, 0};
    const float k[] = {0.6f, 0.8f};
    const float v[] = {1, -1};
    const float alpha[] = {0.5f, 0.25f};
    const double state[] = {0.53, 0.28, 0.79, 0.04};
    const double expected[] = {0.374766594, 0.197989899};
    float o[2];
    float scratch[4];
    table(_i)->kda_step(s, o, q, k, v, alpha, 0.5f, 2, scratch);
    near(s, state, 4, 3e-6); /* the last one is a difference of near numbers */
    near(o, expected, 2, 1e-6);
}
END_TEST

START_TEST(attnres_mixes_raw_sources_by_scores_of_normed_ones)
{
    const float a[] = {1, 0, -1, 2};
    const float b[] = {3, 1, 0, -2};
    const float *const source[] = {a, b};
    const float fold[] = {0.5f, -0.5f, 0.5f, 0.5f}; /* norm 1 1 .5 2 times .5 -.5 1 .25 */
    const double expected[] = {1.61301685, 0.306508423, -0.693491577, 0.773966309};
    float out[4];
    table(_i)->attnres(out, source, 2, fold, 4, 1e-5f);
    near(out, expected, 4, 1e-6);
    table(_i)->attnres(out, source, 1, fold, 4, 1e-5f);
    ck_assert(memcmp(out, a, sizeof(a)) == 0);
}
END_TEST

START_TEST(softmax_survives_large_scores_and_sums_to_one)
{
    float x[] = {1000, 1000, 999, -1000};
    const double expected[] = {0.42231879825, 0.42231879825, 0.15536240349, 0};
    table(_i)->softmax(x, 4);
    near(x, expected, 4, 3e-7);
    float one[] = {-INFINITY, 5};
    table(_i)->softmax(one, 2);
    ck_assert(one[0] == 0 && one[1] == 1);
}
END_TEST

/* The first bytes of a row of the released model, scale byte 121, and its eight elements. */
START_TEST(released_bytes_decode_low_nibble_first)
{
    const unsigned char packed[16] = {22, 185, 206, 35, 133, 171, 155, 162};
    const double expected[] = {0.0625,  0.0078125, -0.0078125, -0.0234375,
                               -0.0625, -0.03125,  0.0234375,  0.015625};
    const unsigned char scale = 121;
    for (uint32_t c = 0; c < 8; c++) {
        float x[32] = {0};
        float split[32];
        float y;
        x[c] = 1;
        table(_i)->mxfp4_split(split, x, 32);
        struct matmul m = {.y = &y, .y_stride = 1, .x = split, .x_stride = 32, .w = packed,
                       .scale = &scale, .rows = 1, .cols = 32, .tokens = 1};
        table(_i)->mxfp4(&m);
        near(&y, &expected[c], 1, 0);
    }
}
END_TEST

START_TEST(scale_byte_zero_is_subnormal_and_255_is_nan)
{
    ck_assert(mxfp4_scale(0) == 0x1p-127f && mxfp4_scale(1) == 0x1p-126f);
    ck_assert(mxfp4_scale(127) == 1.0f && mxfp4_scale(254) == 0x1p127f);
    ck_assert(isnan(mxfp4_scale(255)));
    for (uint32_t s = 1; s < 255; s++) {
        ck_assert(mxfp4_scale((unsigned char)s) == ldexpf(1.0f, (int)s - 127));
    }
    unsigned char packed[16] = {0x22};
    float split[32] = {1};
    unsigned char scale = 0;
    float y;
    struct matmul m = {.y = &y, .y_stride = 1, .x = split, .x_stride = 32, .w = packed,
                       .scale = &scale, .rows = 1, .cols = 32, .tokens = 1};
    table(_i)->mxfp4(&m);
    ck_assert(y == 0x1p-127f);
    scale = 255;
    table(_i)->mxfp4(&m);
    ck_assert(isnan(y));
}
END_TEST

START_TEST(code_eight_is_negative_zero)
{
    ck_assert(mxfp4_value[8] == 0 && signbit(mxfp4_value[8]) && !signbit(mxfp4_value[0]));
    const float infinite = INFINITY;
    unsigned char packed[16] = {0};
    unsigned char scale = 127;
    float split[32] = {0};
    split[3] = infinite; /* zero times infinity must not be skipped */
    float y;
    struct matmul m = {.y = &y, .y_stride = 1, .x = split, .x_stride = 32, .w = packed,
                       .scale = &scale, .rows = 1, .cols = 32, .tokens = 1};
    table(_i)->mxfp4(&m);
    ck_assert(isnan(y));
}
END_TEST

START_TEST(dots_follow_lanes_and_tree)
{
    float x[32];
    unsigned char w[64];
    for (int i = 0; i < 32; i++) {
        x[i] = 1.0f;
        w[2 * i] = 0x80;
        w[2 * i + 1] = 0x3f; /* 1.0 */
    }
    /* f32 lane 0 loses its second element, 2^24 + 1; lane 1 cancels; the other 14 hold 29. */
    x[0] = 0x1p24f;
    x[1] = 0x1p24f;
    x[17] = -0x1p24f;
    x[2] = 2.0f;
    float y;
    struct matmul m = {.y = &y, .y_stride = 1, .x = x, .x_stride = 32, .w = w,
                       .rows = 1, .cols = 32, .tokens = 1};
    table(_i)->bf16(&m);
    ck_assert(y == 0x1p24f + 28.0f); /* 2^24 + 29 to the even neighbour */
    table(_i)->bf16_router(&m);
    ck_assert(y == 0x1p24f + 30.0f); /* nothing is lost in double */
}
END_TEST

START_TEST(max_abs_reports_infinity_and_nan)
{
    float x[40] = {1, -3, 2};
    ck_assert(table(_i)->max_abs(x, 40) == 3);
    x[39] = -INFINITY;
    ck_assert(isinf(table(_i)->max_abs(x, 40)));
    x[17] = NAN;
    ck_assert(isnan(table(_i)->max_abs(x, 40)));
}
END_TEST

START_TEST(router_weights_are_unbiased_and_normalised)
{
    const float logit[] = {0.2f, -0.1f, 0.5f, 0};
    const float bias[] = {0, 0.2f, -0.3f, 0.05f};
    const double expected[] = {0.487190434, 0.512809566};
    float score[4];
    uint16_t index[2];
    float weight[2];
    table(_i)->sigmoid(score, logit, 4);
    router_top_k(index, weight, score, bias, 4, 2, true, 1.0f);
    ck_assert(index[0] == 1 && index[1] == 3);
    near(weight, expected, 2, 2e-7);
}
END_TEST

/* The routed branch is normed afterwards, so no output of a model shows a lost division; these
 * weights do. */
START_TEST(router_without_renormalisation_is_told_apart)
{
    const float score[] = {0.5f, 0.25f, 0.125f, 0.75f};
    const float bias[4] = {0};
    uint16_t index[2];
    float with[2];
    float without[2];
    router_top_k(index, with, score, bias, 4, 2, true, 1.0f);
    router_top_k(index, without, score, bias, 4, 2, false, 1.0f);
    ck_assert(with[0] == (float)(0.75 / 1.25) && with[1] == (float)(0.5 / 1.25));
    ck_assert(without[0] == 0.75f && without[1] == 0.5f);
    router_top_k(index, with, score, bias, 4, 2, true, 2.5f);
    ck_assert(with[0] == 1.5f && with[1] == 1.0f);
}
END_TEST

START_TEST(router_ties_go_to_the_lower_index)
{
    const float score[] = {0.5f, 0.75f, 0.5f, 0.75f, 0.5f};
    const float bias[5] = {0};
    uint16_t index[4];
    float weight[4];
    router_top_k(index, weight, score, bias, 5, 4, true, 1.0f);
    ck_assert(index[0] == 1 && index[1] == 3 && index[2] == 0 && index[3] == 2);
}
END_TEST

START_TEST(argmax_ties_go_to_the_lower_index)
{
    const float x[] = {-1, 3, 2, 3};
    ck_assert_uint_eq(argmax(x, 4), 1);
    ck_assert_uint_eq(argmax(x, 1), 0);
}
END_TEST

START_TEST(thread_init_sets_the_floating_point_state)
{
    _mm_setcsr(0x9fc0); /* flush to zero, subnormals are zero */
    kernels_thread_init();
    ck_assert_uint_eq(_mm_getcsr(), 0x1f80);
    volatile float tiny = 0x1p-126f;
    ck_assert(tiny * 0.5f == 0x1p-127f);
}
END_TEST

START_TEST(selection_names_what_it_returns)
{
    ck_assert_str_eq(kernels_select(ISA_SCALAR)->name, "scalar");
    const struct kernels *avx2 = kernels_select(ISA_AVX2);
    const struct kernels *avx512 = kernels_select(ISA_AVX512);
    const struct kernels *best = kernels_select(ISA_AUTO);
    ck_assert(avx2 == NULL || strcmp(avx2->name, "avx2") == 0);
    ck_assert(avx512 == NULL || strcmp(avx512->name, "avx512") == 0);
    ck_assert(best == (avx512 != NULL ? avx512 : avx2 != NULL ? avx2
                                                             : kernels_select(ISA_SCALAR)));
}
END_TEST

/* A row of zero weights against values that a padded lane would turn into NaN. */
START_TEST(nothing_past_a_row_takes_part)
{
    for (uint32_t cols = 1; cols <= 70; cols++) {
        float *x = kernels_guarded(0, cols * sizeof(float));
        unsigned char *w = kernels_guarded(1, 2 * (size_t)cols);
        for (uint32_t c = 0; c < cols; c++) {
            x[c] = 1;
            w[2 * c] = 0x80;
            w[2 * c + 1] = 0x3f;
        }
        float y;
        struct matmul m = {.y = &y, .y_stride = 1, .x = x, .x_stride = cols, .w = w,
                       .rows = 1, .cols = cols, .tokens = 1};
        table(_i)->bf16(&m);
        ck_assert(y == (float)cols);
        table(_i)->bf16_router(&m);
        ck_assert(y == (float)cols);
    }
}
END_TEST

static void add_operators(TCase *tcase)
{
    const TTest *const each_table[] = {
        situ_caps_the_gate_but_not_its_sigmoid,
        rmsnorm_takes_the_mean_and_adds_eps_inside_the_root,
        l2norm_takes_the_sum,
        convolution_sees_the_newest_input_through_the_last_tap,
        decay_follows_the_bounded_gate,
        delta_step_decays_reads_writes_and_reads_again,
        attnres_mixes_raw_sources_by_scores_of_normed_ones,
        softmax_survives_large_scores_and_sums_to_one,
        released_bytes_decode_low_nibble_first,
        scale_byte_zero_is_subnormal_and_255_is_nan,
        code_eight_is_negative_zero,
        dots_follow_lanes_and_tree,
        max_abs_reports_infinity_and_nan,
        router_weights_are_unbiased_and_normalised,
        nothing_past_a_row_takes_part,
    };
    for (size_t i = 0; i < countof(each_table); i++) {
        tcase_add_loop_test(tcase, each_table[i], 0, (int)countof(ISAS));
    }
    tcase_add_test(tcase, router_without_renormalisation_is_told_apart);
    tcase_add_test(tcase, router_ties_go_to_the_lower_index);
    tcase_add_test(tcase, argmax_ties_go_to_the_lower_index);
    tcase_add_test(tcase, thread_init_sets_the_floating_point_state);
    tcase_add_test(tcase, selection_names_what_it_returns);
}

int main(void)
{
    Suite *suite = suite_create("kernels");
    TCase *tcase = tcase_create("operators");
    add_operators(tcase);
    suite_add_tcase(suite, tcase);
    int failed = suite_run(suite);
    return failed != 0;
}
