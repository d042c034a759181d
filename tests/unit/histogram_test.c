/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <math.h>

#include "core/base/histogram.h"
#include "core/base/nondet.h"
#include "tests/support/suite.h"

START_TEST(small_values_have_a_bucket_each)
{
    for (uint64_t value = 0; value < 128; value++) {
        ck_assert_uint_eq(histogram_bucket(value), value);
        ck_assert_uint_eq(histogram_value((uint32_t)value), value);
    }
}
END_TEST

/* Boundaries worked out by hand: 64 buckets from 128 to 256, two nanoseconds each; and so on. */
START_TEST(buckets_double_in_width_with_every_power_of_two)
{
    ck_assert_uint_eq(histogram_bucket(128), 128);
    ck_assert_uint_eq(histogram_bucket(129), 128);
    ck_assert_uint_eq(histogram_bucket(130), 129);
    ck_assert_uint_eq(histogram_bucket(255), 191);
    ck_assert_uint_eq(histogram_bucket(256), 192);
    ck_assert_uint_eq(histogram_bucket(259), 192);
    ck_assert_uint_eq(histogram_bucket(260), 193);
    ck_assert_uint_eq(histogram_bucket(1000000), 954);
    ck_assert_uint_eq(histogram_value(128), 129);
    ck_assert_uint_eq(histogram_value(192), 258);
    ck_assert_uint_eq(histogram_value(954), 1003520);
}
END_TEST

START_TEST(every_value_lies_in_its_bucket_and_order_is_kept)
{
    struct rng rng = rng_seed(3);
    uint32_t before = 0;
    for (uint32_t bucket = 1; bucket < HISTOGRAM_BUCKETS; bucket++) {
        ck_assert_uint_eq(histogram_bucket(histogram_value(bucket)), bucket);
        ck_assert_uint_gt(histogram_value(bucket), histogram_value(bucket - 1));
    }
    for (int i = 0; i < 100000; i++) {
        uint64_t value = rng_below(&rng, UINT64_MAX) >> rng_below(&rng, 64);
        uint32_t bucket = histogram_bucket(value);
        ck_assert_uint_lt(bucket, HISTOGRAM_BUCKETS);
        if (bucket < HISTOGRAM_BUCKETS - 1) {
            double off = fabs((double)histogram_value(bucket) - (double)value);
            ck_assert_double_le(off, (double)value / 127.0);
        }
    }
    for (uint64_t value = 0; value < 1000000; value += 37) {
        ck_assert_uint_ge(histogram_bucket(value), before);
        before = histogram_bucket(value);
    }
    ck_assert_uint_eq(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}
END_TEST

START_TEST(moments_and_percentiles_are_those_of_the_values)
{
    struct histogram h = {0};
    ck_assert_uint_eq(histogram_percentile(&h, 50), 0);
    ck_assert_double_eq(histogram_deviation(&h), 0);
    for (uint64_t value = 1; value <= 100; value++) {
        histogram_add(&h, value);
    }
    ck_assert_uint_eq(h.count, 100);
    ck_assert_uint_eq(h.least, 1);
    ck_assert_uint_eq(h.most, 100);
    ck_assert_double_eq_tol(h.mean, 50.5, 1e-9);
    ck_assert_double_eq_tol(histogram_deviation(&h), 29.011491975882016, 1e-9);
    ck_assert_uint_eq(histogram_percentile(&h, 1), 1);
    ck_assert_uint_eq(histogram_percentile(&h, 50), 50);
    ck_assert_uint_eq(histogram_percentile(&h, 99.99), 100);
}
END_TEST

START_TEST(merged_histograms_are_one_histogram)
{
    static struct histogram part[3], merged, whole;
    struct rng rng = rng_seed(9);
    for (int i = 0; i < 30000; i++) {
        uint64_t value = rng_below(&rng, 1U << (4 + i % 20));
        histogram_add(&whole, value);
        histogram_add(&part[i % 2], value); /* the third stays empty */
    }
    for (int i = 0; i < 3; i++) {
        histogram_merge(&merged, &part[i]);
    }
    ck_assert_mem_eq(merged.bucket, whole.bucket, sizeof whole.bucket);
    ck_assert_uint_eq(merged.count, whole.count);
    ck_assert_uint_eq(merged.least, whole.least);
    ck_assert_uint_eq(merged.most, whole.most);
    ck_assert_double_eq_tol(merged.mean / whole.mean, 1.0, 1e-12);
    ck_assert_double_eq_tol(histogram_deviation(&merged) / histogram_deviation(&whole), 1.0,
                            1e-12);
}
END_TEST

/* The middle of a bucket may lie beyond all values in it. */
START_TEST(percentiles_lie_between_the_least_and_the_most)
{
    struct histogram h = {.count = 0};
    histogram_add(&h, 118433780); /* stands above the middle of its bucket */
    ck_assert_uint_lt(histogram_value(histogram_bucket(h.least)), h.least);
    ck_assert_uint_eq(histogram_percentile(&h, 1), 118433780);
    histogram_add(&h, 153167000); /* below it */
    ck_assert_uint_gt(histogram_value(histogram_bucket(h.most)), h.most);
    ck_assert_uint_eq(histogram_percentile(&h, 50), 118433780);
    ck_assert_uint_eq(histogram_percentile(&h, 99.9), 153167000);
}
END_TEST

START_TEST(minutes_are_told_apart)
{
    struct histogram h = {.count = 0};
    const uint64_t seconds[] = {17, 27, 60, 600, 2000};
    for (size_t i = 0; i < countof(seconds); i++) {
        uint64_t value = seconds[i] * 1000000000ULL;
        uint64_t shown = histogram_value(histogram_bucket(value));
        ck_assert_uint_ge(shown, value / 128 * 127);
        ck_assert_uint_le(shown, value / 128 * 129);
        histogram_add(&h, value);
    }
    ck_assert_uint_ge(histogram_percentile(&h, 50), 59000000000ULL);
    ck_assert_uint_le(histogram_percentile(&h, 50), 61000000000ULL);
}
END_TEST

START_TEST(a_percentile_wants_values_beyond_it)
{
    struct histogram h = {.count = 0};
    for (uint64_t count = 1; count <= 1000; count++) {
        histogram_add(&h, count);
        ck_assert(histogram_tells(&h, 50) == (count >= 2));
        ck_assert(histogram_tells(&h, 99) == (count >= 100));
        ck_assert(histogram_tells(&h, 99.9) == (count >= 1000));
        ck_assert(!histogram_tells(&h, 99.99));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("histogram");
    TCase *tests = tcase_create("histogram");
    tcase_add_test(tests, small_values_have_a_bucket_each);
    tcase_add_test(tests, buckets_double_in_width_with_every_power_of_two);
    tcase_add_test(tests, every_value_lies_in_its_bucket_and_order_is_kept);
    tcase_add_test(tests, moments_and_percentiles_are_those_of_the_values);
    tcase_add_test(tests, merged_histograms_are_one_histogram);
    tcase_add_test(tests, percentiles_lie_between_the_least_and_the_most);
    tcase_add_test(tests, minutes_are_told_apart);
    tcase_add_test(tests, a_percentile_wants_values_beyond_it);
    suite_add_tcase(suite, tests);
    return suite_run(suite) == 0 ? 0 : 1;
}
