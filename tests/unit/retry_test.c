/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "core/base/nondet.h"
#include "core/base/retry.h"
#include "tests/support/suite.h"

START_TEST(pauses_double_and_end_at_a_tenth_of_a_second)
{
    ck_assert_uint_eq(retry_pause_ns(1), 10000);
    ck_assert_uint_eq(retry_pause_ns(2), 20000);
    ck_assert_uint_eq(retry_pause_ns(3), 40000);
    ck_assert_uint_eq(retry_pause_ns(14), 81920000);
    ck_assert_uint_eq(retry_pause_ns(15), 100000000);
    ck_assert_uint_eq(retry_pause_ns(UINT32_MAX), 100000000);
}
END_TEST

START_TEST(all_repeats_together_take_about_half_a_second)
{
    uint32_t retries = 0;
    uint64_t begun_ns = nondet_now_ns();
    while (retry_after(EAGAIN, &retries)) {
    }
    uint64_t took_ns = nondet_now_ns() - begun_ns;
    ck_assert_uint_eq(retries, RETRY_MAX);
    ck_assert_uint_ge(took_ns, 350000000);
    ck_assert_uint_lt(took_ns, 5000000000);
}
END_TEST

START_TEST(only_what_is_transient_is_asked_for_again)
{
    uint32_t retries = 0;
    uint64_t before = retry_total();
    ck_assert(!retry_after(EIO, &retries));
    ck_assert(!retry_after(0, &retries));
    ck_assert_uint_eq(retries, 0);
    ck_assert(retry_after(EINTR, &retries));
    ck_assert_uint_eq(retries, 1);
    ck_assert_uint_eq(retry_total(), before + 1);
    retry_note();
    ck_assert_uint_eq(retry_total(), before + 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("retry");
    TCase *tcase = tcase_create("pauses");
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, pauses_double_and_end_at_a_tenth_of_a_second);
    tcase_add_test(tcase, all_repeats_together_take_about_half_a_second);
    tcase_add_test(tcase, only_what_is_transient_is_asked_for_again);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
