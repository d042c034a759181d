/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that are no numbers end the run and name the layer or the logit; good weights give the
 * golden hash wherever in the files they lie. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/rewrite.h"
#include "tests/support/suite.h"

#define WATCHDOG_SECONDS 120
#define NORM "language_model.model.norm.weight"
#define OUT_NORM "language_model.model.output_attn_res_norm.weight"

static struct tiny original; /* never changed by a test */

static void watch(void)
{
    alarm(WATCHDOG_SECONDS);
}

static void unwatch(void)
{
    alarm(0);
}

/* ---- weights that are no numbers ---- */

static const unsigned char bf16_nan[2] = {0xC0, 0x7F};
static const unsigned char bf16_inf[2] = {0x80, 0x7F};
static const unsigned char f32_nan[4] = {0, 0, 0xC0, 0x7F};
static const unsigned char scale_nan[1] = {0xFF};

/* An expert that the last prompt position of the golden run demands. */
static uint32_t demanded_expert(uint32_t layer)
{
    static struct tiny_run run;
    struct engine_options o = tiny_options(1);
    tiny_generate(&original, &o, 1, NULL, &run);
    ck_assert_msg(run.rc == 0, "%s", run.message);
    return run.route[layer][0];
}

/* The run must end with ERR_NUMERIC and the word, over every backend, with no token. */
static void expect_numeric(const char *tensor, uint64_t at_bytes, const void *bytes, size_t size,
                           const char *word)
{
    static const enum io_engine engines[] = {IO_URING, IO_PREAD, IO_SIM};
    static struct tiny_run run;
    struct tiny copy;
    tiny_copy(&copy, &original, TINY_MEMORY);
    tiny_poke(&copy, tensor, at_bytes, bytes, size);
    for (size_t i = 0; i < countof(engines); i++) {
        struct engine_options o = tiny_options(3);
        o.io = engines[i];
        o.stepped = o.io == IO_SIM;
        tiny_generate(&copy, &o, 3, NULL, &run);
        ck_assert_msg(run.rc == ERR_NUMERIC, "%s: rc %d '%s'", tensor, run.rc, run.message);
        ck_assert_msg(strstr(run.message, word) != NULL, "%s: no '%s' in '%s'", tensor, word,
                      run.message);
        ck_assert_msg(run.count == 0, "%s: made %u ids", tensor, run.count);
    }
    tiny_remove(&copy);
}

#define LAYER "language_model.model.layers."

START_TEST(a_bad_row_of_lm_head_is_named_by_its_logit)
{
    const char *head = "language_model.lm_head.weight";
    expect_numeric(head, 5 * 256, bf16_nan, sizeof bf16_nan, "logit 5 is NaN at step 0");
    expect_numeric(head, 5 * 256, bf16_inf, sizeof bf16_inf, "logit 5 is infinite at step 0");
    expect_numeric(head, 255 * 256 + 254, bf16_nan, sizeof bf16_nan, "logit 255 is NaN");
}
END_TEST

START_TEST(a_bad_norm_before_lm_head_stops_the_run)
{
    expect_numeric(NORM, 0, bf16_nan, sizeof bf16_nan, "logit 0 is NaN at step 0");
    expect_numeric(OUT_NORM, 4, bf16_nan, sizeof bf16_nan, "logit 0 is NaN at step 0");
}
END_TEST

START_TEST(a_bad_norm_of_a_layer_names_the_layer)
{
    expect_numeric(LAYER "3.input_layernorm.weight", 6, bf16_nan, sizeof bf16_nan, "layer 3 ");
    expect_numeric(LAYER "3.post_attention_layernorm.weight", 0, bf16_nan, sizeof bf16_nan,
                   "layer 3 ");
    expect_numeric(LAYER "3.self_attn.kv_a_layernorm.weight", 0, bf16_nan, sizeof bf16_nan,
                   "layer 3 ");
    expect_numeric(LAYER "0.input_layernorm.weight", 254, bf16_nan, sizeof bf16_nan, "layer 0 ");
}
END_TEST

START_TEST(a_bad_value_of_the_recurrence_names_the_layer)
{
    expect_numeric(LAYER "4.self_attn.dt_bias", 0, f32_nan, sizeof f32_nan, "layer 4 ");
    expect_numeric(LAYER "4.self_attn.A_log", 0, f32_nan, sizeof f32_nan, "layer 4 ");
    expect_numeric(LAYER "4.self_attn.k_conv1d.weight", 0, f32_nan, sizeof f32_nan, "layer 4 ");
}
END_TEST

START_TEST(an_expert_scale_of_255_names_the_layer)
{
    static const char *const parts[] = {"w1", "w2", "w3"};
    uint32_t expert = demanded_expert(6);
    for (size_t i = 0; i < countof(parts); i++) {
        char tensor[160];
        snprintf(tensor, sizeof tensor,
                 LAYER "6.block_sparse_moe.experts.%u.%s.weight_scale", expert, parts[i]);
        expect_numeric(tensor, 0, scale_nan, sizeof scale_nan, "layer 6 ");
    }
}
END_TEST

START_TEST(a_bad_router_weight_names_the_layer)
{
    const char *gate = LAYER "5.block_sparse_moe.gate.weight";
    expect_numeric(gate, 7 * 256, bf16_nan, sizeof bf16_nan, "layer 5 ");
    expect_numeric(gate, 7 * 256, bf16_inf, sizeof bf16_inf, "layer 5 ");
    expect_numeric(gate, 15 * 256 + 254, bf16_nan, sizeof bf16_nan, "layer 5 ");
}
END_TEST

START_TEST(a_bad_router_bias_names_the_layer)
{
    const char *bias = LAYER "5.block_sparse_moe.gate.e_score_correction_bias";
    expect_numeric(bias, 0, f32_nan, sizeof f32_nan, "layer 5");
    expect_numeric(bias, 60, f32_nan, sizeof f32_nan, "layer 5");
}
END_TEST

START_TEST(a_bad_embedding_stops_the_run)
{
    const char *embed = "language_model.model.embed_tokens.weight";
    expect_numeric(embed, 93 * 256 + 2, bf16_nan, sizeof bf16_nan, "layer 0 ");
    expect_numeric(embed, 3 * 256, bf16_inf, sizeof bf16_inf, "layer 0 ");
}
END_TEST

/* ---- other layouts of the same tensors ---- */

static void expect_golden(const struct tiny *tiny, uint64_t seed)
{
    static struct tiny_run run;
    static const uint64_t pins[] = {0, PLAN_AUTO};
    static const enum io_engine engines[] = {IO_URING, IO_PREAD, IO_SIM};
    for (size_t i = 0; i < countof(engines) * countof(pins); i++) {
        struct engine_options o = tiny_options(GOLDEN_STEPS);
        o.io = engines[i / 2];
        o.stepped = o.io == IO_SIM;
        o.sim.seed = seed;
        o.pin_bytes = pins[i % 2];
        o.expert_slots = i % 2 == 0 ? 3 : PLAN_AUTO;
        o.tile_bytes = i % 2 == 0 ? 4096 : PLAN_AUTO;
        tiny_generate(tiny, &o, GOLDEN_STEPS, NULL, &run);
        ck_assert_msg(run.rc == 0, "rc %d, '%s'", run.rc, run.message);
        ck_assert_str_eq(run.hash, TINY_HASH);
    }
}

static const struct rewrite_options layouts[] = {
    {.seed = 0, .shards = 1},
    {.seed = 11, .shards = 1, .odd_base = true},
    {.seed = 12, .shards = 7, .odd_base = true},
    {.seed = 13, .shards = 6},
    {.seed = 14, .shards = 13, .odd_base = true, .gap_bytes = 3},
};

START_TEST(tensors_anywhere_give_the_golden_hash)
{
    struct tiny copy;
    rewrite(&copy, &original, _i == 2 ? TINY_DISK : TINY_MEMORY, &layouts[_i]);
    expect_golden(&copy, (uint64_t)_i);
    tiny_remove(&copy);
}
END_TEST

/* ---- the suite ---- */

static void add_weights(Suite *suite)
{
    TCase *tcase = suite_case(suite, "weights", WATCHDOG_SECONDS, watch, unwatch);
    tcase_add_test(tcase, a_bad_row_of_lm_head_is_named_by_its_logit);
    tcase_add_test(tcase, a_bad_norm_before_lm_head_stops_the_run);
    tcase_add_test(tcase, a_bad_norm_of_a_layer_names_the_layer);
    tcase_add_test(tcase, a_bad_value_of_the_recurrence_names_the_layer);
    tcase_add_test(tcase, an_expert_scale_of_255_names_the_layer);
    tcase_add_test(tcase, a_bad_router_weight_names_the_layer);
    tcase_add_test(tcase, a_bad_router_bias_names_the_layer);
    tcase_add_test(tcase, a_bad_embedding_stops_the_run);
}

static void add_layouts(Suite *suite)
{
    TCase *tcase = suite_case(suite, "layouts", WATCHDOG_SECONDS, watch, unwatch);
    tcase_add_loop_test(tcase, tensors_anywhere_give_the_golden_hash, 0, countof(layouts));
}

int main(void)
{
    tiny_make(&original, TINY_MEMORY);
    Suite *suite = suite_create("weights");
    add_weights(suite);
    add_layouts(suite);
    int failed = suite_run(suite);
    tiny_remove(&original);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
