/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/cli/compare.h"
#include "tests/support/suite.h"

static double some[] = {3.0, 4.0, 5.5, 4.5}, more[] = {6.0, 7.5, 5.0}, far[] = {60, 61, 62},
              zeros[] = {0, 0, 0}, mixed[] = {-1, 0, 1}, threes[] = {3, 3, 3};

static struct measured_metric metric(double *sample, uint32_t count, enum measured_better better)
{
    return (struct measured_metric){.name = "m", .unit = "s", .better = better, .sample = sample,
                                    .count = count};
}

static struct compare_change change(double *base, uint32_t base_count, double *other,
                                    uint32_t other_count, enum measured_better better)
{
    struct measured_metric a = metric(base, base_count, better);
    struct measured_metric b = metric(other, other_count, better);
    return compare_metric(&a, &b);
}

static void expect_near(double got, double wanted)
{
    ck_assert_msg(fabs(got - wanted) <= 1e-6 * fmax(1, fabs(wanted)), "%.12g, not %.12g", got,
                  wanted);
}

START_TEST(a_change_is_a_ratio_of_geometric_means)
{
    struct compare_change c = change(some, 4, more, 3, MEASURED_LOWER);
    ck_assert(c.has_percent && c.has_interval);
    expect_near(c.percent, 46.511504154);
    expect_near(c.low, -6.1858268658);
    expect_near(c.high, 128.809998877);
    ck_assert_int_eq(c.verdict, COMPARE_SAME);
}
END_TEST

START_TEST(the_verdict_follows_what_is_better)
{
    ck_assert_int_eq(change(some, 4, far, 3, MEASURED_LOWER).verdict, COMPARE_WORSE);
    ck_assert_int_eq(change(some, 4, far, 3, MEASURED_HIGHER).verdict, COMPARE_BETTER);
    ck_assert_int_eq(change(some, 4, far, 3, MEASURED_NEITHER).verdict, COMPARE_DIFFERS);
    ck_assert_int_eq(change(far, 3, some, 4, MEASURED_LOWER).verdict, COMPARE_BETTER);
    ck_assert_int_eq(change(far, 3, some, 4, MEASURED_HIGHER).verdict, COMPARE_WORSE);
    ck_assert_int_eq(change(far, 3, far, 3, MEASURED_HIGHER).verdict, COMPARE_SAME);
    ck_assert_str_eq(compare_verdict_name(COMPARE_BETTER, "tokens/s"), "faster");
    ck_assert_str_eq(compare_verdict_name(COMPARE_WORSE, "ms"), "slower");
    ck_assert_str_eq(compare_verdict_name(COMPARE_WORSE, "bytes"), "worse");
}
END_TEST

START_TEST(one_sample_gives_a_change_and_no_verdict)
{
    struct compare_change c = change(some, 4, far, 1, MEASURED_LOWER);
    ck_assert_int_eq(c.verdict, COMPARE_FEW);
    ck_assert(c.has_percent && !c.has_interval);
    c = change(some, 1, far, 1, MEASURED_LOWER);
    expect_near(c.percent, 1900);
    ck_assert_int_eq(c.verdict, COMPARE_FEW);
}
END_TEST

START_TEST(zeros_and_signs_are_compared_without_logarithms)
{
    struct compare_change c = change(mixed, 3, threes, 3, MEASURED_LOWER);
    ck_assert(!c.has_percent && !c.has_interval);
    ck_assert_int_eq(c.verdict, COMPARE_WORSE);
    c = change(zeros, 3, zeros, 3, MEASURED_LOWER);
    ck_assert_int_eq(c.verdict, COMPARE_SAME);
    c = change(threes, 3, zeros, 3, MEASURED_LOWER);
    expect_near(c.percent, -100);
    expect_near(c.low, -100);
    ck_assert_int_eq(c.verdict, COMPARE_BETTER);
}
END_TEST

START_TEST(what_is_missing_or_of_another_unit_is_not_compared)
{
    struct measured_metric a = metric(some, 4, MEASURED_LOWER), b = a;
    snprintf(b.unit, sizeof b.unit, "ms");
    ck_assert_int_eq(compare_metric(&a, NULL).verdict, COMPARE_ABSENT);
    ck_assert_int_eq(compare_metric(NULL, &a).verdict, COMPARE_ABSENT);
    ck_assert_int_eq(compare_metric(&a, &b).verdict, COMPARE_ABSENT);
}
END_TEST

/* ---- points ---- */

#define POINT(depth, rate)                                                                        \
    "{\"settings\":{\"io_depth\":" #depth ",\"policy\":\"arc\"},\"metrics\":[{\"name\":\"rate\","  \
    "\"unit\":\"GB/s\",\"better\":\"higher\",\"samples\":[" rate "]}]}"
#define FILE_OF(points) "{\"k3ring\":{\"version\":\"1\",\"schema\":1},\"points\":[" points "]}"

static struct measured take(const char *text)
{
    struct measured m;
    cJSON *tree = json_parse(text, strlen(text), "x", false);
    ck_assert_msg(tree != NULL, "%s", err_message());
    ck_assert_msg(measured_take(&m, "x", tree) == 0, "%s", err_message());
    cJSON_Delete(tree);
    return m;
}

START_TEST(points_are_matched_by_what_varies)
{
    uint32_t match[3];
    struct measured a = take(FILE_OF(POINT(1, "1,2") "," POINT(2, "2,3") "," POINT(4, "4,4.1")));
    struct measured b = take(FILE_OF(POINT(4, "4,4.1") "," POINT(1, "1,2")));
    struct measured c = take(FILE_OF(POINT(2, "4,4.1")));
    ck_assert_int_eq(compare_match(&a, &b, match), 2);
    ck_assert_uint_eq(match[0], 1);
    ck_assert_uint_eq(match[1], MEASURED_NONE);
    ck_assert_uint_eq(match[2], 0);
    ck_assert_int_eq(compare_match(&a, &c, match), 1);
    ck_assert_uint_eq(match[1], 0);
    ck_assert_int_eq(compare_match(&c, &b, match), 0);
    measured_fini(&a);
    measured_fini(&b);
    measured_fini(&c);
}
END_TEST

START_TEST(single_points_belong_together_whatever_their_settings)
{
    uint32_t match[1];
    struct measured a = take(FILE_OF(POINT(1, "1,2"))), b = take(FILE_OF(POINT(9, "1,2")));
    ck_assert_int_eq(compare_match(&a, &b, match), 1);
    ck_assert_uint_eq(match[0], 0);
    measured_fini(&a);
    measured_fini(&b);
}
END_TEST

START_TEST(the_worst_point_is_found)
{
    struct compare_worst worst;
    struct measured a = take(FILE_OF(POINT(1, "10,10") "," POINT(2, "20,20")));
    struct measured b = take(FILE_OF(POINT(2, "15,15") "," POINT(1, "11,11")));
    ck_assert_int_eq(compare_worst(&a, &b, "rate", &worst), 0);
    ck_assert_uint_eq(worst.points, 2);
    ck_assert_uint_eq(worst.base_point, 1);
    ck_assert_uint_eq(worst.other_point, 0);
    expect_near(worst.worse_percent, 25);
    expect_near(worst.worse_low, 25);
    ck_assert_int_eq(worst.change.verdict, COMPARE_WORSE);
    ck_assert_int_eq(compare_worst(&b, &b, "rate", &worst), 0);
    expect_near(worst.worse_percent, 0);
    ck_assert_int_eq(compare_worst(&a, &b, "nothing", &worst), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err_message(), "nothing"));
    measured_fini(&a);
    measured_fini(&b);
}
END_TEST

START_TEST(the_interval_towards_worse_is_in_order)
{
    struct compare_worst worst;
    struct measured a = take(FILE_OF(POINT(1, "10,11,12")));
    struct measured b = take(FILE_OF(POINT(1, "9,9.5,10")));
    ck_assert_int_eq(compare_worst(&a, &b, "rate", &worst), 0);
    ck_assert(worst.worse_low < worst.worse_percent && worst.worse_percent < worst.worse_high);
    expect_near(worst.worse_percent, -worst.change.percent);
    expect_near(worst.worse_low, -worst.change.high);
    measured_fini(&a);
    measured_fini(&b);
}
END_TEST

static Suite *compare_suite(void)
{
    Suite *suite = suite_create("compare");
    TCase *tcase = tcase_create("compare");
    tcase_add_test(tcase, a_change_is_a_ratio_of_geometric_means);
    tcase_add_test(tcase, the_verdict_follows_what_is_better);
    tcase_add_test(tcase, one_sample_gives_a_change_and_no_verdict);
    tcase_add_test(tcase, zeros_and_signs_are_compared_without_logarithms);
    tcase_add_test(tcase, what_is_missing_or_of_another_unit_is_not_compared);
    tcase_add_test(tcase, points_are_matched_by_what_varies);
    tcase_add_test(tcase, single_points_belong_together_whatever_their_settings);
    tcase_add_test(tcase, the_worst_point_is_found);
    tcase_add_test(tcase, the_interval_towards_worse_is_in_order);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return suite_run(compare_suite()) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
