/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/nondet.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

START_TEST(the_clock_never_goes_back)
{
    uint64_t before = nondet_now_ns();
    for (int i = 0; i < 10000; i++) {
        uint64_t now = nondet_now_ns();
        ck_assert_uint_ge(now, before);
        before = now;
    }
}
END_TEST

/* No upper bound that a busy machine could break by accident: a minute says it counts
 * nanoseconds. */
START_TEST(the_clock_counts_nanoseconds)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    uint64_t start = nondet_now_ns();
    ck_assert_int_eq(nanosleep(&nap, NULL), 0);
    uint64_t passed_ns = nondet_now_ns() - start;
    ck_assert_uint_ge(passed_ns, 2000000);
    ck_assert_uint_lt(passed_ns, 60000000000ULL);
}
END_TEST

START_TEST(the_date_is_after_this_was_written)
{
    ck_assert_int_gt(nondet_date_s(), 1767225600); /* 2026 */
    ck_assert_int_lt(nondet_date_s(), 32503680000); /* 3000 */
}
END_TEST

START_TEST(seeds_of_the_system_differ)
{
    uint32_t first = nondet_seed();
    int different = 0;
    for (int i = 0; i < 16; i++) {
        different += nondet_seed() != first;
    }
    ck_assert_int_gt(different, 12);
}
END_TEST

/* Figures of other implementations of the generator. */
START_TEST(the_sequence_is_that_of_splitmix64)
{
    static const uint64_t known[] = {6457827717110365317ULL, 3203168211198807973ULL,
                                     9817491932198370423ULL, 4593380528125082431ULL,
                                     16408922859458223821ULL};
    struct rng rng = rng_seed(1234567);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        ck_assert_uint_eq(rng_next(&rng), known[i]);
    }
    rng = rng_seed(0);
    ck_assert_uint_eq(rng_next(&rng), 0xe220a8397b1dcdafULL);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_sequence_and_another_seed_another)
{
    struct rng a = rng_seed(99), b = rng_seed(99), c = rng_seed(100);
    int different = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t word = rng_next(&a);
        ck_assert_uint_eq(word, rng_next(&b));
        different += word != rng_next(&c);
    }
    ck_assert_int_eq(different, 1000);
}
END_TEST

/* Undoes x ^= x >> shift. */
static uint64_t unshift(uint64_t x, int shift)
{
    uint64_t original = x;
    for (int done = shift; done < 64; done += shift) {
        original = x ^ (original >> shift);
    }
    return original;
}

/* Inverse of an odd number modulo 2^64, by Newton's iteration. */
static uint64_t odd_inverse(uint64_t odd)
{
    uint64_t inverse = odd;
    for (int i = 0; i < 6; i++) {
        inverse *= 2 - odd * inverse;
    }
    return inverse;
}

START_TEST(the_finaliser_can_be_undone)
{
    struct rng rng = rng_seed(7);
    for (int i = 0; i < 1000; i++) {
        uint64_t word = i < 64 ? (uint64_t)1 << i : rng_next(&rng);
        uint64_t z = unshift(rng_mix(word), 31) * odd_inverse(0x94D049BB133111EBULL);
        z = unshift(z, 27) * odd_inverse(0xBF58476D1CE4E5B9ULL);
        ck_assert_uint_eq(unshift(z, 30), word);
    }
}
END_TEST

START_TEST(a_bounded_draw_stays_below_and_reaches_everything)
{
    struct rng rng = rng_seed(5);
    bool seen[7] = {false};
    for (int i = 0; i < 1000; i++) {
        uint64_t draw = rng_below(&rng, 7);
        ck_assert_uint_lt(draw, 7);
        seen[draw] = true;
    }
    for (size_t i = 0; i < 7; i++) {
        ck_assert(seen[i]);
    }
}
END_TEST

START_TEST(a_draw_below_one_is_zero_and_still_advances)
{
    struct rng rng = rng_seed(5);
    uint64_t before = rng.state;
    ck_assert_uint_eq(rng_below(&rng, 1), 0);
    ck_assert_uint_ne(rng.state, before);
}
END_TEST

static Suite *nondet_suite(void)
{
    Suite *suite = suite_create("nondet");
    TCase *all = tcase_create("nondet");
    tcase_add_test(all, the_clock_never_goes_back);
    tcase_add_test(all, the_clock_counts_nanoseconds);
    tcase_add_test(all, the_date_is_after_this_was_written);
    tcase_add_test(all, seeds_of_the_system_differ);
    tcase_add_test(all, the_sequence_is_that_of_splitmix64);
    tcase_add_test(all, the_same_seed_gives_the_same_sequence_and_another_seed_another);
    tcase_add_test(all, the_finaliser_can_be_undone);
    tcase_add_test(all, a_bounded_draw_stays_below_and_reaches_everything);
    tcase_add_test(all, a_draw_below_one_is_zero_and_still_advances);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    return suite_run(nondet_suite()) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
