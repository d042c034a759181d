/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/err.h"
#include "tests/support/suite.h"

#include <check.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

START_TEST(err_set_returns_the_code_it_was_given)
{
    err_clear();
    ck_assert_int_eq(err_code(), 0);
    ck_assert_int_eq(err_set(ERR_MODEL, "layer %d", 3), ERR_MODEL);
    ck_assert_int_eq(err_code(), ERR_MODEL);
    ck_assert_str_eq(err_message(), "layer 3");
}
END_TEST

START_TEST(the_first_message_wins_until_it_is_cleared)
{
    err_clear();
    err_set(ERR_IO, "read of %s failed", "shard 7");
    ck_assert_int_eq(err_set(ERR_RUN, "the pass failed"), ERR_RUN);
    ck_assert_str_eq(err_message(), "read of shard 7 failed");
    ck_assert_int_eq(err_code(), ERR_IO);
    err_clear();
    ck_assert_str_eq(err_message(), "");
    ck_assert_int_eq(err_code(), 0);
    err_set(ERR_RUN, "another");
    ck_assert_str_eq(err_message(), "another");
}
END_TEST

START_TEST(a_message_that_is_too_long_is_cut_and_ends)
{
    char text[2 * ERR_MESSAGE_BYTES];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    err_clear();
    err_set(ERR_USAGE, "%s", text);
    ck_assert_uint_eq(strlen(err_message()), ERR_MESSAGE_BYTES - 1);
    ck_assert_int_eq(strncmp(err_message(), text, ERR_MESSAGE_BYTES - 1), 0);
}
END_TEST

START_TEST(refused_memory_always_has_a_cure)
{
    err_clear();
    err_set(ERR_MEMORY, "no memory for %d slots; lower --ram", 3);
    ck_assert_str_eq(err_message(), "no memory for 3 slots; lower --ram");
    err_clear();
    err_set(ERR_MEMORY, "no memory for a list");
    ck_assert_ptr_nonnull(strstr(err_message(), "no memory for a list; free memory, or"));
    err_clear();
    err_set(ERR_RUN, "no memory for a list");
    ck_assert_str_eq(err_message(), "no memory for a list");
}
END_TEST

START_TEST(nothing_in_a_name_steers_a_terminal_or_spoils_json)
{
    err_clear();
    err_set(ERR_IO, "%s: gone", "a\033[2J\nb\x7F\xC2\x9B" "31m\xE2\x80\xAE" "c\xFF\xC3");
    ck_assert_str_eq(err_message(), "a?[2J?b??31m?c??: gone");
    err_clear();
    err_set(ERR_IO, "%s", "na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x8E\x89");
    ck_assert_str_eq(err_message(), "na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x8E\x89");
}
END_TEST

static void *fail_elsewhere(void *arg)
{
    bool *was_empty = arg;
    *was_empty = err_message()[0] == '\0';
    err_set(ERR_IO, "of the other thread");
    return NULL;
}

START_TEST(each_thread_has_its_own_message)
{
    pthread_t thread;
    bool was_empty = false;
    err_clear();
    err_set(ERR_FIT, "of this thread");
    ck_assert_int_eq(pthread_create(&thread, NULL, fail_elsewhere, &was_empty), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(was_empty);
    ck_assert_str_eq(err_message(), "of this thread");
}
END_TEST

START_TEST(every_code_has_the_documented_exit_status)
{
    ck_assert_int_eq(err_exit_status(ERR_RUN), 1);
    ck_assert_int_eq(err_exit_status(ERR_IO), 1);
    ck_assert_int_eq(err_exit_status(ERR_NUMERIC), 1);
    ck_assert_int_eq(err_exit_status(ERR_OUTPUT), 1);
    ck_assert_int_eq(err_exit_status(ERR_MEMORY), 1);
    ck_assert_int_eq(err_exit_status(ERR_USAGE), 2);
    ck_assert_int_eq(err_exit_status(ERR_MODEL), 3);
    ck_assert_int_eq(err_exit_status(ERR_FIT), 4);
    ck_assert_int_eq(err_exit_status(ERR_VERDICT), 5);
}
END_TEST

START_TEST(success_exits_with_zero_and_unknown_failures_with_one)
{
    ck_assert_int_eq(err_exit_status(0), 0);
    ck_assert_int_eq(err_exit_status(17), 0);
    ck_assert_int_eq(err_exit_status(-2), 1);
    ck_assert_int_eq(err_exit_status(-5999), 1);
}
END_TEST

/* Linux numbers its errors up to 4095; a code of ours must not look like one. */
START_TEST(codes_are_distinct_and_no_errno)
{
    static const int code[] = {
#define X(name, value, status, meaning) name,
        ERR_LIST(X)
#undef X
    };
    for (size_t i = 0; i < sizeof code / sizeof code[0]; i++) {
        ck_assert_int_lt(code[i], -4095);
        for (size_t j = 0; j < i; j++) {
            ck_assert_int_ne(code[i], code[j]);
        }
    }
}
END_TEST

static int reached;

static int try_then_go_on(int result)
{
    TRY(result);
    reached++;
    return 42;
}

START_TEST(try_returns_failures_and_passes_success_on)
{
    reached = 0;
    ck_assert_int_eq(try_then_go_on(ERR_IO), ERR_IO);
    ck_assert_int_eq(try_then_go_on(-1), -1);
    ck_assert_int_eq(reached, 0);
    ck_assert_int_eq(try_then_go_on(0), 42);
    ck_assert_int_eq(try_then_go_on(5), 42);
    ck_assert_int_eq(reached, 2);
}
END_TEST

static int count_up(int *calls)
{
    return -(++*calls);
}

static int try_a_call(int *calls)
{
    TRY(count_up(calls));
    return 0;
}

START_TEST(what_a_report_meets_is_told_behind_what_it_was_to_report)
{
    err_clear();
    ck_assert_int_eq(err_after(ERR_IO, "the drive fails"), ERR_IO);
    ck_assert_str_eq(err_message(), "the drive fails");
    err_clear();
    err_set(ERR_OUTPUT, "the disk is full");
    ck_assert_int_eq(err_after(ERR_IO, "the drive fails"), ERR_IO);
    ck_assert_str_eq(err_message(),
                     "the drive fails; nor could that be reported: the disk is full");
    ck_assert_int_eq(err_code(), ERR_IO);
}
END_TEST

START_TEST(try_evaluates_its_argument_once)
{
    int calls = 0;
    ck_assert_int_eq(try_a_call(&calls), -1);
    ck_assert_int_eq(calls, 1);
}
END_TEST

static Suite *err_suite(void)
{
    Suite *suite = suite_create("err");
    TCase *all = tcase_create("err");
    tcase_add_test(all, err_set_returns_the_code_it_was_given);
    tcase_add_test(all, the_first_message_wins_until_it_is_cleared);
    tcase_add_test(all, a_message_that_is_too_long_is_cut_and_ends);
    tcase_add_test(all, refused_memory_always_has_a_cure);
    tcase_add_test(all, nothing_in_a_name_steers_a_terminal_or_spoils_json);
    tcase_add_test(all, each_thread_has_its_own_message);
    tcase_add_test(all, every_code_has_the_documented_exit_status);
    tcase_add_test(all, success_exits_with_zero_and_unknown_failures_with_one);
    tcase_add_test(all, codes_are_distinct_and_no_errno);
    tcase_add_test(all, try_returns_failures_and_passes_success_on);
    tcase_add_test(all, what_a_report_meets_is_told_behind_what_it_was_to_report);
    tcase_add_test(all, try_evaluates_its_argument_once);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    return suite_run(err_suite()) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
