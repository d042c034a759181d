/* SPDX-License-Identifier: Apache-2.0 */

/* Against figures worked out elsewhere: tables of Student's t, Simpson's rule over its density. */

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "core/cli/statistics.h"
#include "tests/support/suite.h"

static void expect_near(double got, double wanted, double tolerance)
{
    ck_assert_msg(fabs(got - wanted) <= tolerance * fmax(1, fabs(wanted)), "%.12g, not %.12g", got,
                  wanted);
}

static const struct {
    double level, freedom, t;
} quantile[] = {
    {0.95, 1, 12.7062047362}, {0.95, 2, 4.30265272975},  {0.95, 2.5, 3.57465484201},
    {0.95, 3, 3.18244630528}, {0.95, 7.25, 2.3481948491}, {0.95, 10, 2.22813885199},
    {0.95, 30, 2.0422724563}, {0.95, 100, 1.983971518},  {0.95, 1e7, 1.95996422},
    {0.99, 5, 4.03214298355}, {0.90, 4, 2.13184678633},  {0.50, 1, 1},
};

START_TEST(quantiles_are_those_of_the_tables)
{
    expect_near(statistics_t(quantile[_i].level, quantile[_i].freedom), quantile[_i].t, 1e-8);
}
END_TEST

START_TEST(the_median_is_in_the_middle)
{
    double odd[] = {5, -1, 3}, even[] = {4, 1, 3, 2}, one[] = {7}, large[] = {1e308, 1.5e308};
    expect_near(statistics_median(odd, 3), 3, 0);
    expect_near(statistics_median(even, 4), 2.5, 0);
    expect_near(statistics_median(one, 1), 7, 0);
    expect_near(statistics_median(large, 2), 1.25e308, 1e-15);
}
END_TEST

static struct moments of(const double *value, uint32_t count)
{
    struct moments m = {.count = 0};
    for (uint32_t i = 0; i < count; i++) {
        moments_add(&m, value[i]);
    }
    return m;
}

static const double a[] = {3.0, 4.0, 5.5, 4.5}, b[] = {6.0, 7.5, 5.0};

START_TEST(moments_are_those_of_the_sample)
{
    struct moments m = of(a, 4);
    expect_near(m.mean, 4.25, 1e-15);
    expect_near(moments_variance(&m), 3.25 / 3, 1e-14);
    m = of(a, 1);
    expect_near(moments_variance(&m), 0, 0);
    double close[] = {1e9 + 1, 1e9 + 2, 1e9 + 3};
    m = of(close, 3);
    expect_near(moments_variance(&m), 1, 1e-9);
}
END_TEST

START_TEST(welch_is_right_where_variances_and_counts_differ)
{
    struct interval d = statistics_welch(of(a, 4), of(b, 3), 0.95);
    expect_near(d.middle, 1.91666666667, 1e-9);
    expect_near(d.low, -0.59099338381, 1e-8);
    expect_near(d.high, 4.42432671715, 1e-8);
}
END_TEST

START_TEST(student_holds_the_mean)
{
    struct interval m = statistics_student(of(a, 4), 0.95);
    double half = 3.18244630528 * sqrt(3.25 / 3 / 4);
    expect_near(m.middle, 4.25, 1e-12);
    expect_near(m.high, 4.25 + half, 1e-9);
    expect_near(m.low, 4.25 - half, 1e-9);
}
END_TEST

START_TEST(repeats_that_are_alike_have_no_width)
{
    static const double two[] = {2, 2}, three[] = {3, 3, 3};
    struct interval d = statistics_welch(of(two, 2), of(three, 3), 0.95);
    expect_near(d.low, 1, 0);
    expect_near(d.high, 1, 0);
    d = statistics_welch(of(two, 2), of(b, 3), 0.95); /* one side alone has a spread */
    double error = sqrt(of(b, 3).squares / 2 / 3);
    expect_near(d.high - d.low, 2 * 4.30265272975 * error, 1e-8);
}
END_TEST

static Suite *statistics_suite(void)
{
    Suite *suite = suite_create("statistics");
    TCase *tcase = tcase_create("statistics");
    tcase_add_loop_test(tcase, quantiles_are_those_of_the_tables, 0,
                        (int)(sizeof quantile / sizeof quantile[0]));
    tcase_add_test(tcase, the_median_is_in_the_middle);
    tcase_add_test(tcase, moments_are_those_of_the_sample);
    tcase_add_test(tcase, welch_is_right_where_variances_and_counts_differ);
    tcase_add_test(tcase, student_holds_the_mean);
    tcase_add_test(tcase, repeats_that_are_alike_have_no_width);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return suite_run(statistics_suite()) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
