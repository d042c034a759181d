/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/exec/sample.h"
#include "kernels/kernels.h"
#include "tests/support/suite.h"

#define VOCAB 200U
#define DRAWS 100000U

static const struct kernels *kernels;

static uint32_t choose(const struct sample_options *o, const float *logits, uint32_t vocab,
                       uint64_t number)
{
    struct sampler s;
    uint32_t id = UINT32_MAX;
    ck_assert_msg(sample_check(o, vocab) == 0, "%s", err_message());
    ck_assert_int_eq(sampler_open(&s, o, kernels, vocab), 0);
    ck_assert_msg(sampler_choose(&s, logits, NULL, 0, number, &id) == 0, "%s", err_message());
    sampler_close(&s);
    return id;
}

/* How often each of few tokens is drawn. */
static void draw(const struct sample_options *o, const float *logits, uint32_t vocab,
                 uint32_t *times)
{
    struct sampler s;
    memset(times, 0, vocab * sizeof *times);
    ck_assert_int_eq(sampler_open(&s, o, kernels, vocab), 0);
    for (uint32_t i = 0; i < DRAWS; i++) {
        uint32_t id;
        if (sampler_choose(&s, logits, NULL, 0, i, &id) != 0 || id >= vocab) {
            ck_abort_msg("draw %u", i);
        }
        times[id]++;
    }
    sampler_close(&s);
}

START_TEST(chances_are_those_of_splitmix64)
{
    ck_assert_double_eq(sample_chance(0, 0), (double)(0xE220A8397B1DCDAFULL >> 11) * 0x1p-53);
    ck_assert_double_eq(sample_chance(0, 1), (double)(0x6E789E6AA1B965F4ULL >> 11) * 0x1p-53);
    ck_assert_double_eq(sample_chance(0, 2), (double)(0x06C45D188009454FULL >> 11) * 0x1p-53);
    ck_assert_double_ne(sample_chance(1, 0), sample_chance(0, 0));
}
END_TEST

START_TEST(without_temperature_the_largest_logit_wins_and_of_equals_the_lower_id)
{
    const float logits[] = {1, 5, -2, 5, 4};
    struct sample_options o = sample_greedy();
    for (uint64_t number = 0; number < 20; number++) {
        ck_assert_uint_eq(choose(&o, logits, 5, number), 1);
    }
    o.temperature = 2;
    o.top_k = 1;
    for (uint64_t number = 0; number < 20; number++) {
        ck_assert_uint_eq(choose(&o, logits, 5, number), 1);
    }
}
END_TEST

START_TEST(tokens_come_as_often_as_their_logits_say)
{
    const float logits[] = {0, 1, 2, 3};
    uint32_t times[4];
    for (int t = 1; t <= 2; t++) {
        struct sample_options o = sample_greedy();
        double total = 0;
        o.temperature = (float)t;
        draw(&o, logits, 4, times);
        for (int i = 0; i < 4; i++) {
            total += exp(i / (double)t);
        }
        for (int i = 0; i < 4; i++) { /* within five deviations */
            double p = exp(i / (double)t) / total;
            ck_assert_double_lt(fabs(times[i] - p * DRAWS), 5 * sqrt(p * (1 - p) * DRAWS));
        }
    }
}
END_TEST

/* Chances 0.5, 0.25, 0.125, 0.0625, 0.0625, in mixed order. */
static const float halves[] = {-3 * 0.6931472f, -0.6931472f, 0, -3 * 0.6931472f, -2 * 0.6931472f};

static uint32_t kinds(const struct sample_options *o)
{
    uint32_t times[5], count = 0;
    draw(o, halves, 5, times);
    for (int i = 0; i < 5; i++) {
        count += times[i] > 0;
    }
    ck_assert_uint_gt(times[2], times[1]);
    return count;
}

START_TEST(limits_leave_the_likeliest)
{
    struct sample_options o = sample_greedy();
    o.temperature = 1;
    ck_assert_uint_eq(kinds(&o), 5);
    o.top_p = 0.76f;
    ck_assert_uint_eq(kinds(&o), 3);
    o.top_p = 0.74f;
    ck_assert_uint_eq(kinds(&o), 2);
    o.top_p = 0.01f;
    ck_assert_uint_eq(kinds(&o), 1);
    o.top_p = 1;
    o.min_p = 0.24f;
    ck_assert_uint_eq(kinds(&o), 3);
    o.min_p = 1;
    ck_assert_uint_eq(kinds(&o), 1);
    ck_assert_uint_eq(choose(&o, (const float[]){2, 2, 1}, 3, 0) +
                      choose(&o, (const float[]){2, 2, 1}, 3, 1), 1); /* equals both stay */
    o.min_p = 0;
    o.top_k = 4; /* of two equals the lower id stays */
    ck_assert_uint_eq(kinds(&o), 4);
    uint32_t times[5];
    draw(&o, halves, 5, times);
    ck_assert_uint_eq(times[3], 0);
    o.top_k = 2; /* top_p counts among the k: 2/3 and 1/3 */
    o.top_p = 0.66f;
    ck_assert_uint_eq(kinds(&o), 1);
    o.top_p = 0.67f;
    ck_assert_uint_eq(kinds(&o), 2);
}
END_TEST

/* ---- against the definition ---- */

struct candidate {
    float logit, weight;
    uint32_t id;
};

static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit) {
        return x->logit < y->logit ? 1 : -1;
    }
    return x->id < y->id ? -1 : 1;
}

/* Everything sorted, everything summed. */
static uint32_t slow(const struct sample_options *o, const float *logits, uint64_t number)
{
    struct candidate all[VOCAB];
    uint32_t count = 0, most = o->top_k > 0 && o->top_k < VOCAB ? o->top_k : VOCAB;
    double total = 0, sum = 0, passed = 0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        all[i] = (struct candidate){.logit = logits[i] / o->temperature, .id = i};
    }
    qsort(all, VOCAB, sizeof *all, by_logit);
    const float top = all[0].logit;
    for (uint32_t i = 0; i < VOCAB; i++) {
        all[i].weight = kernel_exp(all[i].logit - top);
    }
    for (uint32_t i = 0; i < most; i++) {
        total += (double)all[i].weight;
    }
    while (count < most && all[count].weight >= o->min_p &&
           (o->top_p == 1 || sum < (double)o->top_p * total)) {
        sum += (double)all[count++].weight;
    }
    for (uint32_t i = 0; i + 1 < count; i++) {
        passed += (double)all[i].weight;
        if (passed > sample_chance(o->seed, number) * sum) {
            return all[i].id;
        }
    }
    return all[count - 1].id;
}

START_TEST(any_options_choose_what_the_definition_chooses)
{
    struct rng rng = rng_seed(11);
    for (int round = 0; round < 3000; round++) {
        float logits[VOCAB];
        struct sample_options o = sample_greedy();
        for (uint32_t i = 0; i < VOCAB; i++) { /* coarse, so that some are equal */
            logits[i] = (float)((double)rng_below(&rng, 64) / 8 - 4);
        }
        o.temperature = (float)(1 + rng_below(&rng, 8)) / 4;
        o.top_k = rng_below(&rng, 2) ? (uint32_t)rng_below(&rng, VOCAB + 10) : 0;
        o.top_p = rng_below(&rng, 2) ? (float)(1 + rng_below(&rng, 100)) / 100 : 1;
        o.min_p = rng_below(&rng, 2) ? (float)rng_below(&rng, 100) / 100 : 0;
        o.seed = rng_next(&rng);
        uint32_t got = choose(&o, logits, VOCAB, (uint64_t)round);
        uint32_t want = slow(&o, logits, (uint64_t)round);
        ck_assert_msg(got == want, "round %d: %u, not %u", round, got, want);
    }
}
END_TEST

START_TEST(every_instruction_set_draws_the_same_tokens)
{
    /* For good: a change here is a change of what users get for their seeds. */
    static const uint32_t drawn[] = {145, 135, 43, 124, 54, 123, 189, 107, 97, 75};
    float logits[VOCAB];
    struct sample_options o = sample_greedy();
    o.temperature = 0.7f;
    o.top_p = 0.95f;
    o.seed = 42;
    for (uint32_t i = 0; i < VOCAB; i++) {
        logits[i] = (float)(i * 37 % VOCAB) / 40;
    }
    for (enum isa isa = ISA_SCALAR; isa <= ISA_AVX512; isa++) {
        kernels = kernels_select(isa);
        for (uint32_t i = 0; kernels != NULL && i < countof(drawn); i++) {
            ck_assert_uint_eq(choose(&o, logits, VOCAB, i), drawn[i]);
        }
    }
}
END_TEST

/* ---- bias and repetition ---- */

START_TEST(bias_moves_logits_and_bans)
{
    const float logits[] = {1, 2, 3};
    struct sample_bias biases[] = {{2, -INFINITY}, {0, 1.5f}};
    struct sample_options o = sample_greedy();
    uint32_t times[3];
    o.biases = biases;
    o.bias_count = 2;
    ck_assert_uint_eq(choose(&o, logits, 3, 0), 0);
    o.temperature = 1;
    draw(&o, logits, 3, times);
    ck_assert_uint_eq(times[2], 0);
    ck_assert(times[0] > times[1] && times[1] > 0);
    o.top_p = 0.9999f; /* the same through limits */
    draw(&o, logits, 3, times);
    ck_assert_uint_eq(times[2], 0);
    struct sample_bias all[] = {{0, -INFINITY}, {1, -INFINITY}, {2, -INFINITY}};
    struct sampler s;
    uint32_t id;
    o.biases = all;
    o.bias_count = 3;
    err_clear();
    ck_assert_int_eq(sampler_open(&s, &o, kernels, 3), 0);
    ck_assert_int_eq(sampler_choose(&s, logits, NULL, 0, 0, &id), ERR_RUN);
    sampler_close(&s);
}
END_TEST

START_TEST(repetition_is_penalised_once_and_only_when_asked)
{
    const float logits[] = {4, 3, -1, -1.5f};
    const uint32_t ids[] = {0, 0, 0, 2};
    struct sample_options o = sample_greedy();
    struct sampler s;
    uint32_t id;
    ck_assert_int_eq(sampler_open(&s, &o, kernels, 4), 0);
    ck_assert_int_eq(sampler_choose(&s, logits, ids, 4, 0, &id), 0);
    ck_assert_uint_eq(id, 0);
    s.options.repetition_penalty = 1.25f; /* 4 -> 3.2: once, not three times */
    ck_assert_int_eq(sampler_choose(&s, logits, ids, 4, 0, &id), 0);
    ck_assert_uint_eq(id, 0);
    s.options.repetition_penalty = 2; /* 4 -> 2, and -1 -> -2 */
    ck_assert_int_eq(sampler_choose(&s, logits, ids, 4, 0, &id), 0);
    ck_assert_uint_eq(id, 1);
    ck_assert_float_eq(s.logit[2], -2);
    ck_assert_int_eq(sampler_choose(&s, logits, NULL, 0, 0, &id), 0);
    ck_assert_uint_eq(id, 0); /* nothing is left of the ids before */
    sampler_close(&s);
}
END_TEST

START_TEST(options_out_of_range_are_refused)
{
    static const struct {
        struct sample_options o;
        const char *part;
    } rows[] = {
        {{.temperature = -1, .top_p = 1, .repetition_penalty = 1}, "--temperature"},
        {{.temperature = 1e-9f, .top_p = 1, .repetition_penalty = 1}, "--temperature"},
        {{.temperature = NAN, .top_p = 1, .repetition_penalty = 1}, "--temperature"},
        {{.top_p = 0, .repetition_penalty = 1}, "--top-p"},
        {{.top_p = 1.5f, .repetition_penalty = 1}, "--top-p"},
        {{.top_p = 1, .min_p = -0.1f, .repetition_penalty = 1}, "--min-p"},
        {{.top_p = 1, .min_p = NAN, .repetition_penalty = 1}, "--min-p"},
        {{.top_p = 1, .repetition_penalty = 0}, "--repetition-penalty"},
    };
    static const struct sample_bias bad[] = {{10, 0}, {0, NAN}, {0, INFINITY}, {0, 2e6f}};
    for (size_t i = 0; i < countof(rows) + countof(bad); i++) {
        struct sample_options o = i < countof(rows) ? rows[i].o : sample_greedy();
        if (i >= countof(rows)) {
            o.biases = &bad[i - countof(rows)];
            o.bias_count = 1;
        }
        err_clear();
        ck_assert_msg(sample_check(&o, 10) == ERR_USAGE, "number %zu", i);
        ck_assert_ptr_nonnull(strstr(err_message(), i < countof(rows) ? rows[i].part
                                                                     : "--logit-bias"));
    }
    struct sample_options good = sample_greedy();
    ck_assert_int_eq(sample_check(&good, 10), 0);
}
END_TEST

static void setup(void)
{
    kernels = kernels_select(ISA_AUTO);
    kernels_thread_init();
}

int main(void)
{
    Suite *suite = suite_create("sample");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, setup, NULL);
    tcase_add_test(all, chances_are_those_of_splitmix64);
    tcase_add_test(all, without_temperature_the_largest_logit_wins_and_of_equals_the_lower_id);
    tcase_add_test(all, tokens_come_as_often_as_their_logits_say);
    tcase_add_test(all, limits_leave_the_likeliest);
    tcase_add_test(all, any_options_choose_what_the_definition_chooses);
    tcase_add_test(all, every_instruction_set_draws_the_same_tokens);
    tcase_add_test(all, bias_moves_logits_and_bans);
    tcase_add_test(all, repetition_is_penalised_once_and_only_when_asked);
    tcase_add_test(all, options_out_of_range_are_refused);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
