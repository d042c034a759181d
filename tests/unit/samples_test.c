/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/nondet.h"
#include "core/cli/samples.h"
#include "tests/support/suite.h"

#define OF(...)                                                                                   \
    (&(struct samples){(const double[]){__VA_ARGS__},                                             \
                       sizeof((const double[]){__VA_ARGS__}) / sizeof(double)})

START_TEST(middles_and_ends)
{
    ck_assert(samples_median(OF(3, 1, 2)) == 2 && samples_middle(OF(3, 1, 2)) == 2);
    ck_assert(samples_median(OF(4, 1, 2, 3)) == 2.5 && samples_middle(OF(4, 1, 2, 3)) == 2);
    ck_assert(samples_median(OF(7, 7, 7, 1)) == 7 && samples_least(OF(7, 7, 7, 1)) == 1);
    ck_assert(samples_most(OF(2, 9, 4)) == 9);
    struct samples none = {NULL, 0};
    ck_assert(isnan(samples_median(&none)));
    ck_assert(isnan(samples_least(&none)) && isnan(samples_most(&none)));
    ck_assert_uint_eq(samples_middle(&none), 0);
}
END_TEST

/* Equal spreads and counts: freedom is 2 (n - 1), t the difference / (deviation x sqrt(2 / n)).
 * Chances from tables of Student's t. */
START_TEST(chances_are_those_of_the_tables)
{
    const double half = 1 / sqrt(2); /* two values half above and below: deviation 1 */
    double t = 4.302653 * sqrt(2.0 / 2);
    ck_assert(fabs(samples_chance(OF(-half, half), OF(t - half, t + half)) - 0.05) < 1e-6);
    t = 2.776445 * sqrt(2.0 / 3); /* deviation 1, freedom 4 */
    ck_assert(fabs(samples_chance(OF(-1, 0, 1), OF(t - 1, t, t + 1)) - 0.05) < 1e-6);
    /* One side does not scatter: freedom is the other's, odd ones too. */
    t = 12.7062047 * 1 / sqrt(2);
    ck_assert(fabs(samples_chance(OF(-half, half), OF(t, t)) - 0.05) < 1e-6);
    double e = 3.182446 * sqrt(4.0 / 3 / 4); /* four of +-1, freedom 3 */
    ck_assert(fabs(samples_chance(OF(-1, 1, -1, 1), OF(e, e)) - 0.05) < 1e-6);
}
END_TEST

/* Positive values are compared as ratios: the same ones have the same chance. */
START_TEST(chances_do_not_depend_on_the_unit)
{
    double chance = samples_chance(OF(1, 1.1, 1.2), OF(1.2, 1.3, 1.5));
    ck_assert(chance > 0.01 && chance < 0.2);
    ck_assert(fabs(samples_chance(OF(1e9, 1.1e9, 1.2e9), OF(1.2e9, 1.3e9, 1.5e9)) - chance) < 1e-9);
    double inverse = samples_chance(OF(1, 1 / 1.1, 1 / 1.2), OF(1 / 1.2, 1 / 1.3, 1 / 1.5));
    ck_assert(fabs(inverse - chance) < 1e-9);
}
END_TEST

START_TEST(one_value_says_nothing_of_noise)
{
    ck_assert(samples_chance(OF(1), OF(100)) == 1);
    ck_assert(samples_chance(OF(1, 1.001), OF(100)) == 1);
}
END_TEST

START_TEST(what_does_not_scatter_differs_when_it_differs)
{
    ck_assert(samples_chance(OF(1, 1), OF(2, 2)) == 0);
    ck_assert(samples_chance(OF(1, 1), OF(1, 1)) == 1);
}
END_TEST

static double roll(struct rng *rng)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        sum += (double)rng_below(rng, 1 << 20) / (1 << 20);
    }
    return sum;
}

/* Of pairs that come from one source so many are called different as is allowed. */
START_TEST(equal_sources_are_seldom_called_different)
{
    struct rng rng = rng_seed(7);
    uint32_t called = 0;
    for (int i = 0; i < 4000; i++) {
        double x[2][4];
        for (int k = 0; k < 4; k++) {
            x[0][k] = roll(&rng);
            x[1][k] = roll(&rng);
        }
        called += samples_chance(&(struct samples){x[0], 4}, &(struct samples){x[1], 4}) <
                  SAMPLES_CHANCE;
    }
    ck_assert_msg(called > 40 && called < 220, "%u of 4000", called);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("samples");
    TCase *test = tcase_create("samples");
    tcase_add_test(test, middles_and_ends);
    tcase_add_test(test, chances_are_those_of_the_tables);
    tcase_add_test(test, chances_do_not_depend_on_the_unit);
    tcase_add_test(test, one_value_says_nothing_of_noise);
    tcase_add_test(test, what_does_not_scatter_differs_when_it_differs);
    tcase_add_test(test, equal_sources_are_seldom_called_different);
    suite_add_tcase(suite, test);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
