/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nondet.h"
#include "core/exec/crew.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define SEEDS 40
#define MS 1000000.0
#define BYTES (8 * GIB)

/* What a pass costs with a number of workers, in milliseconds. */
typedef double cost_fn(uint32_t workers);

static double fewer_by_one(uint32_t n) /* the last core belongs to the drive */
{
    return n < 8 ? 100.0 + 60.0 / n : 130.0;
}

static double half(uint32_t n) /* shared cores only add noise */
{
    return n <= 16 ? 100.0 + 400.0 / n : 125.0 + 2.0 * (n - 16);
}

static double one_alone(uint32_t n)
{
    return 90.0 + 12.0 * n;
}

static double all_of_them(uint32_t n)
{
    return 20.0 + 400.0 / n;
}

static double whatever(uint32_t n)
{
    (void)n;
    return 100.0;
}

struct curve {
    const char *name;
    cost_fn *cost;
    uint32_t most;
};

static const struct curve curves[] = {
    {"one less of eight", fewer_by_one, 8}, {"half of 32", half, 32},
    {"one of two", one_alone, 2},           {"one of four", one_alone, 4},
    {"all of two", all_of_them, 2},         {"all of 16", all_of_them, 16},
    {"no difference", whatever, 6},
};

/* Roughly normal, mean 1: the sum of four uniform draws. */
static double noise(struct rng *rng, double spread)
{
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += (double)rng_below(rng, 1000001) / 1e6 - 0.5;
    }
    return 1.0 + sum * spread;
}

static double best_cost(const struct curve *curve)
{
    double best = curve->cost(1);
    for (uint32_t n = 2; n <= curve->most; n++) {
        double cost = curve->cost(n);
        best = cost < best ? cost : best;
    }
    return best;
}

/* Mean cost of `passes` passes, relative to always using the best count. */
static double walk(struct crew *crew, const struct curve *curve, struct rng *rng, double spread,
                   int passes)
{
    double sum = 0;
    for (int i = 0; i < passes; i++) {
        uint32_t n = crew_next(crew, 1);
        ck_assert_uint_ge(n, 1);
        ck_assert_uint_le(n, curve->most);
        sum += curve->cost(n);
        crew_made(crew, 1, BYTES, (uint64_t)(curve->cost(n) * noise(rng, spread) * MS));
    }
    return sum / passes / best_cost(curve);
}

/* Not the last two percent: less than that is no reason to change. */
START_TEST(without_noise_the_fastest_count_is_found_and_kept)
{
    const struct curve *curve = &curves[_i];
    struct crew crew;
    struct rng rng = rng_seed(1);
    crew_init(&crew, curve->most, true);
    walk(&crew, curve, &rng, 0, 120);
    double late = walk(&crew, curve, &rng, 0, 1000);
    ck_assert_msg(late < 1.04, "%s: %.3f of the best", curve->name, late);
    double kept = curve->cost(crew.chosen) / best_cost(curve);
    ck_assert_msg(kept < 1.04, "%s: %u workers", curve->name, crew.chosen);
}
END_TEST

/* Passes scatter by 9 % here, and trials are paid for. */
START_TEST(with_noise_no_slower_count_is_kept_for_good)
{
    const struct curve *curve = &curves[_i / SEEDS];
    struct crew crew;
    struct rng rng = rng_seed((uint64_t)_i);
    crew_init(&crew, curve->most, true);
    walk(&crew, curve, &rng, 0.15, 400);
    double late = walk(&crew, curve, &rng, 0.15, 2000);
    ck_assert_msg(late < 1.09, "%s, seed %d: %.3f of the best, %u workers", curve->name, _i, late,
                  crew.chosen);
}
END_TEST

/* A hundred tokens are what a user waits for: they must not pay for the search. */
START_TEST(the_search_costs_little_where_all_workers_are_best)
{
    for (size_t i = 0; i < countof(curves); i++) {
        const struct curve *curve = &curves[i];
        struct crew crew;
        struct rng rng = rng_seed(7 + i);
        crew_init(&crew, curve->most, true);
        double cost = walk(&crew, curve, &rng, 0.05, 100) * best_cost(curve);
        double plain = curve->cost(curve->most);
        ck_assert_msg(cost < 1.10 * plain, "%s: %.3f of all workers", curve->name, cost / plain);
    }
}
END_TEST

START_TEST(the_gain_of_one_worker_less_is_had_within_a_few_tokens)
{
    struct crew crew;
    struct rng rng = rng_seed(3);
    crew_init(&crew, 2, true);
    walk(&crew, &curves[2], &rng, 0, 8);
    ck_assert_uint_eq(crew.chosen, 1);
    ck_assert_uint_eq(crew.beaten, 2);
    ck_assert(crew.gain > 0.85 && crew.gain < 0.95);
}
END_TEST

START_TEST(a_change_of_the_machine_is_noticed)
{
    const struct curve before = {"one of four", one_alone, 4};
    const struct curve after = {"all of four", all_of_them, 4};
    struct crew crew;
    struct rng rng = rng_seed(11);
    crew_init(&crew, 4, true);
    walk(&crew, &before, &rng, 0.02, 300);
    ck_assert_uint_eq(crew.chosen, 1);
    walk(&crew, &after, &rng, 0.02, 800);
    ck_assert_uint_eq(crew.chosen, 4);
}
END_TEST

START_TEST(a_count_that_was_given_is_obeyed)
{
    struct crew crew;
    struct rng rng = rng_seed(5);
    crew_init(&crew, 4, false);
    for (int i = 0; i < 200; i++) {
        ck_assert_uint_eq(crew_next(&crew, 1), 4);
        crew_made(&crew, 1, BYTES, 1 + rng_below(&rng, 1000));
    }
    ck_assert_uint_eq(crew.chosen, 4);
    ck_assert_uint_eq(crew.trials, 0);
}
END_TEST

START_TEST(one_worker_is_never_less_than_one)
{
    struct crew crew;
    struct rng rng = rng_seed(5);
    crew_init(&crew, 1, true);
    for (int i = 0; i < 200; i++) {
        ck_assert_uint_eq(crew_next(&crew, 1), 1);
        crew_made(&crew, 1, BYTES, 1 + rng_below(&rng, 1000));
    }
    ck_assert_uint_eq(crew.trials, 0);
}
END_TEST

START_TEST(passes_of_unlike_tokens_are_not_compared)
{
    struct crew crew;
    crew_init(&crew, 4, true);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t tokens = 1 + i % 3; /* never two alike in a row */
        ck_assert_uint_eq(crew_next(&crew, tokens), 4);
        crew_made(&crew, tokens, BYTES, 1000 / tokens);
    }
    ck_assert_uint_eq(crew.trials, 0);
}
END_TEST

START_TEST(a_long_prompt_takes_all_workers)
{
    struct crew crew;
    struct rng rng = rng_seed(3);
    crew_init(&crew, 2, true);
    walk(&crew, &curves[2], &rng, 0, 50);
    ck_assert_uint_eq(crew.chosen, 1);
    ck_assert_uint_eq(crew_next(&crew, CREW_TOKENS_MAX + 1), 2);
    crew_made(&crew, CREW_TOKENS_MAX + 1, BYTES, 1);
    ck_assert_uint_eq(crew_next(&crew, CREW_TOKENS_MAX), 1);
    crew_made(&crew, CREW_TOKENS_MAX, BYTES, 1000);
    ck_assert_uint_eq(crew.chosen, 1);
}
END_TEST

START_TEST(passes_of_several_sequences_are_compared_like_others)
{
    struct crew crew;
    crew_init(&crew, 2, true);
    for (int i = 0; i < 8; i++) {
        uint32_t n = crew_next(&crew, 12);
        crew_made(&crew, 12, BYTES, n == 1 ? 900 : 1000);
    }
    ck_assert_uint_eq(crew.chosen, 1);
}
END_TEST

/* A cache that fills makes each pass read less: its time says nothing about workers. */
START_TEST(passes_that_read_unlike_amounts_are_not_compared)
{
    struct crew crew;
    crew_init(&crew, 4, true);
    uint64_t bytes = BYTES;
    for (int i = 0; i < 60; i++) {
        crew_next(&crew, 1);
        crew_made(&crew, 1, bytes, bytes / 1000);
        bytes = bytes / 5 * 4;
        bytes = bytes < 64 * MIB ? BYTES : bytes;
    }
    ck_assert_uint_eq(crew.chosen, 4);
    ck_assert_uint_eq(crew.changes, 0);
    ck_assert_uint_gt(crew.trials, 0);
}
END_TEST

static void explained(const struct crew *crew, const char *part)
{
    char text[96];
    crew_explain(crew, text, sizeof text);
    ck_assert_msg(strstr(text, part) != NULL, "no \"%s\" in: %s", part, text);
    ck_assert_uint_lt(strlen(text), sizeof text - 1);
}

START_TEST(the_reason_is_said)
{
    struct crew crew;
    struct rng rng = rng_seed(1);
    crew_init(&crew, 4, false);
    explained(&crew, "--threads");
    crew_init(&crew, 1, true);
    explained(&crew, "one processor");
    crew_init(&crew, 4, true);
    explained(&crew, "too few tokens");
    walk(&crew, &(struct curve){"", all_of_them, 4}, &rng, 0, 50);
    explained(&crew, "fewer were not faster");
    crew_init(&crew, 2, true);
    walk(&crew, &curves[2], &rng, 0, 50);
    explained(&crew, "of the time of 2; 1 changes in");
}
END_TEST

/* Time of a stepped pass is drawn, so counts change at random; whatever they are, the bits stay. */
START_TEST(the_number_of_workers_does_not_move_a_bit)
{
    static struct tiny tiny;
    tiny_make(&tiny, TINY_MEMORY);
    struct tiny_run plain;
    struct engine_options options = tiny_options(40);
    options.chunk = 1;
    tiny_generate(&tiny, &options, 40, NULL, &plain);
    ck_assert_msg(plain.rc == 0, "%s", plain.message);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct tiny_run run;
        options.threads = 0;
        options.io = seed % 2 == 0 ? IO_SIM : IO_URING;
        options.stepped = options.io == IO_SIM;
        options.sim.seed = seed;
        tiny_generate(&tiny, &options, 40, NULL, &run);
        ck_assert_msg(run.rc == 0, "seed %d: %s", (int)seed, run.message);
        ck_assert_str_eq(run.hash, plain.hash);
    }
    tiny_remove(&tiny);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("crew");
    TCase *tcase = tcase_create("crew");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, without_noise_the_fastest_count_is_found_and_kept, 0,
                        (int)countof(curves));
    tcase_add_loop_test(tcase, with_noise_no_slower_count_is_kept_for_good, 0,
                        (int)countof(curves) * SEEDS);
    tcase_add_test(tcase, the_search_costs_little_where_all_workers_are_best);
    tcase_add_test(tcase, the_gain_of_one_worker_less_is_had_within_a_few_tokens);
    tcase_add_test(tcase, a_change_of_the_machine_is_noticed);
    tcase_add_test(tcase, a_count_that_was_given_is_obeyed);
    tcase_add_test(tcase, one_worker_is_never_less_than_one);
    tcase_add_test(tcase, passes_of_unlike_tokens_are_not_compared);
    tcase_add_test(tcase, a_long_prompt_takes_all_workers);
    tcase_add_test(tcase, passes_of_several_sequences_are_compared_like_others);
    tcase_add_test(tcase, passes_that_read_unlike_amounts_are_not_compared);
    tcase_add_test(tcase, the_reason_is_said);
    tcase_add_test(tcase, the_number_of_workers_does_not_move_a_bit);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
