/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/nondet.h"
#include "tests/support/bench_sample.h"
#include "tests/support/suite.h"

#define NEAR 1e-9

static void near(double got, double expected)
{
    ck_assert_msg(fabs(got - expected) <= NEAR * fabs(expected) + 1e-15, "%.17g, expected %.17g",
                  got, expected);
}

static struct bench_shares shares_of(struct bench_sample *sample)
{
    struct bench_shares shares;
    bench_shares(bench_sample_round(sample, 0, 0), &shares);
    return shares;
}

START_TEST(a_round_says_how_much_of_the_limit_was_used)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    struct bench_shares s = shares_of(sample);
    near(s.limit_before, 1e9);
    near(s.limit_after, 0.99e9);
    near(s.limit, 0.995e9);
    near(s.drift, -0.01 / 0.995);
    near(s.run, 800e6 / 2.0);
    near(s.busy, 800e6 / 1.0);
    near(s.replay, 800e6);
    near(s.disk_busy, 0.5);
    near(s.of_run, 0.4 / 0.995);
    near(s.of_replay, 0.8 / 0.995);
    bench_sample_free(sample);
}
END_TEST

START_TEST(a_round_says_what_would_be_faster)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    struct bench_shares s = shares_of(sample);
    ck_assert(s.compute_measured);
    near(s.compute_s, 0.025);
    near(s.io_s, 40e6 / 800e6);
    near(s.overlap_tokens_s, 20);
    near(s.faster_tokens_s, 1 / (0.1 - 0.06 / 2));
    bench_sample_free(sample);
}
END_TEST

START_TEST(what_was_not_measured_has_a_substitute)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    struct bench_round *round = bench_sample_round(sample, 0, 0);
    bench_sample_skip(round, JOB_REPLAY, "no");
    bench_sample_skip(round, JOB_COMPUTE, "does not fit");
    round->limit[1][2].rate = 0;
    struct bench_shares s = shares_of(sample);
    ck_assert(!s.compute_measured);
    near(s.compute_s, 0.030);
    near(s.limit, 1e9);
    ck_assert(s.drift == 0 && s.replay == 0 && s.of_replay == 0);
    near(s.io_s, 40e6 / 1e9);
    near(s.overlap_tokens_s, 25);
    bench_sample_free(sample);
}
END_TEST

START_TEST(an_empty_round_is_all_zero)
{
    struct bench_round *round = calloc(1, sizeof *round);
    struct bench_shares s;
    ck_assert_ptr_nonnull(round);
    bench_shares(round, &s);
    const double all[] = {s.limit, s.limit_before, s.limit_after, s.drift, s.run, s.busy, s.replay,
                          s.of_run, s.of_busy, s.of_replay, s.disk_busy, s.compute_s, s.io_s,
                          s.overlap_tokens_s, s.faster_tokens_s};
    for (size_t i = 0; i < countof(all); i++) {
        ck_assert_msg(all[i] == 0, "figure %zu is %g", i, all[i]);
    }
    free(round);
}
END_TEST

/* Some of them without a limit, without reads, or never busy. */
START_TEST(run_is_busy_times_time_busy)
{
    struct rng rng = rng_seed(1000 + (uint64_t)_i);
    struct bench_round *round = calloc(1, sizeof *round);
    struct bench_shares s;
    ck_assert_ptr_nonnull(round);
    struct io_figures *f = &round->job[JOB_INFERENCE].all;
    f->wall_ns = 1 + rng_below(&rng, 1ULL << (1 + rng_below(&rng, 45)));
    f->busy_ns = rng_below(&rng, 8) == 0 ? 0 : 1 + rng_below(&rng, f->wall_ns);
    f->bytes = f->busy_ns == 0 ? 0 : rng_below(&rng, 1ULL << (1 + rng_below(&rng, 50)));
    for (uint32_t i = 0; i < 2; i++) {
        round->limit_best[i] = (uint32_t)rng_below(&rng, BENCH_LIMITS);
        round->limit[i][round->limit_best[i]].rate = (double)rng_below(&rng, 20) * 1e9 / 3;
    }
    bench_shares(round, &s);
    near(s.of_run, s.of_busy * s.disk_busy);
    near(s.run, s.busy * s.disk_busy);
    ck_assert(isfinite(s.of_run) && isfinite(s.drift) && s.disk_busy <= 1);
    free(round);
}
END_TEST

START_TEST(a_reason_to_refuse_stands_before_any_number_of_warnings)
{
    const uint32_t points = 13;
    struct bench_sample *sample = bench_sample_new(points, 2);
    const struct bench_verdict *verdict = &sample->result.verdict;
    for (uint32_t i = 0; i < 2 * points; i++) { /* each has another count to tell */
        bench_sample_round(sample, i / 2, i % 2)->job[JOB_REPLAY].offloaded = 1 + i;
    }
    bench_judge(&sample->result);
    ck_assert(verdict->valid);
    ck_assert_uint_eq(verdict->count, BENCH_REASONS_MAX);
    bench_sample_round(sample, points - 1, 1)->job[JOB_INFERENCE].all.errors = 1;
    bench_judge(&sample->result);
    ck_assert(!verdict->valid);
    ck_assert_uint_eq(verdict->invalid, 1);
    ck_assert_uint_eq(verdict->count, BENCH_REASONS_MAX);
    ck_assert_str_eq(verdict->reason[0], "inference: 1 reads failed");
    bench_sample_free(sample);
}
END_TEST

/* Reasons that say so. */
static uint32_t told(const struct bench_verdict *verdict, const char *text)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < verdict->count; i++) {
        count += strstr(verdict->reason[i], text) != NULL;
    }
    return count;
}

static void slow_down(struct bench_sample *sample, uint32_t round, double share)
{
    struct bench_round *r = bench_sample_round(sample, 0, round);
    r->limit[1][r->limit_best[1]].rate = share * r->limit[0][r->limit_best[0]].rate;
}

START_TEST(a_drive_that_drifts_is_one_warning_for_all_rounds)
{
    struct bench_sample *sample = bench_sample_new(1, 2);
    const struct bench_verdict *verdict = &sample->result.verdict;
    slow_down(sample, 0, 0.92);
    slow_down(sample, 1, 0.8);
    bench_judge(&sample->result);
    ck_assert(verdict->valid);
    ck_assert_uint_eq(told(verdict, "the drive changed"), 1);
    ck_assert_uint_eq(told(verdict, "by up to -22 %"), 1);
    bench_sample_free(sample);
}
END_TEST

START_TEST(a_model_that_a_drive_may_hold_in_its_cache_is_told)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    const struct bench_verdict *verdict = &sample->result.verdict;
    for (uint64_t shift = 26; shift <= 32; shift += 6) { /* 64 MiB, 4 GiB */
        sample->result.model_bytes = 1ULL << shift;
        bench_judge(&sample->result);
        ck_assert(verdict->valid);
        ck_assert_uint_eq(told(verdict, "67.1 MB: a drive's own cache"), shift == 26);
        ck_assert_uint_eq(told(verdict, "own cache"), shift == 26);
    }
    bench_sample_free(sample);
}
END_TEST

START_TEST(a_drive_that_calls_itself_too_hot_and_slows_down_is_refused)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    const struct bench_verdict *verdict = &sample->result.verdict;
    sample->result.environment.device[0].too_hot_c = 82;
    bench_sample_round(sample, 0, 0)->job[JOB_INFERENCE].too_hot = 1;
    slow_down(sample, 0, 1);
    bench_judge(&sample->result);
    ck_assert(verdict->valid);
    ck_assert_uint_eq(told(verdict, "82 C or more, which it calls too hot"), 1);
    slow_down(sample, 0, 0.8);
    bench_judge(&sample->result);
    ck_assert(!verdict->valid);
    ck_assert_ptr_nonnull(strstr(verdict->reason[0], "throttled: at 82 C or more"));
    ck_assert_ptr_nonnull(strstr(verdict->reason[0], "it lost 22 % of its limit"));
    bench_sample_free(sample);
}
END_TEST

START_TEST(hit_rates_of_first_touches_are_told)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    const struct bench_verdict *verdict = &sample->result.verdict;
    struct bench_inference *in = &bench_sample_round(sample, 0, 0)->inference;
    in->demands = 1000;
    for (uint32_t slots = 0; slots <= 64; slots += 64) {
        sample->result.point[0].facts.cache_slots = slots;
        for (in->repeats = 499; in->repeats <= 500; in->repeats++) {
            bench_judge(&sample->result);
            ck_assert(verdict->valid);
            ck_assert_uint_eq(told(verdict, "for the first time"), slots > 0 && in->repeats < 500);
        }
    }
    bench_sample_free(sample);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench_shares");
    TCase *test = tcase_create("shares");
    tcase_add_test(test, a_round_says_how_much_of_the_limit_was_used);
    tcase_add_test(test, a_round_says_what_would_be_faster);
    tcase_add_test(test, what_was_not_measured_has_a_substitute);
    tcase_add_test(test, an_empty_round_is_all_zero);
    tcase_add_loop_test(test, run_is_busy_times_time_busy, 0, 300);
    tcase_add_test(test, a_drive_that_drifts_is_one_warning_for_all_rounds);
    tcase_add_test(test, a_model_that_a_drive_may_hold_in_its_cache_is_told);
    tcase_add_test(test, a_drive_that_calls_itself_too_hot_and_slows_down_is_refused);
    tcase_add_test(test, a_reason_to_refuse_stands_before_any_number_of_warnings);
    tcase_add_test(test, hit_rates_of_first_touches_are_told);
    suite_add_tcase(suite, test);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
