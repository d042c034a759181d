/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/text_limit.h"
#include "tests/support/suite.h"

static void refused(const struct text_limit *limit, uint64_t size_bytes, const char *message)
{
    err_clear();
    ck_assert_int_eq(text_limit_check(limit, "--x", "y", size_bytes), ERR_FIT);
    ck_assert_str_eq(err_message(), message);
    err_clear();
}

START_TEST(memory_bounds_a_text)
{
    static const struct {
        enum text_kind kind;
        uint64_t ram_bytes, bytes;
    } rows[] = {
        {TEXT_PLAIN, 64 * MIB, 4 * MIB}, {TEXT_PLAIN, 1 * MIB, 256 * KIB},
        {TEXT_PLAIN, 4 * GIB, 256 * MIB}, {TEXT_PLAIN, 100 * GIB, 256 * MIB},
        {TEXT_JSON, 64 * MIB, 1 * MIB},  {TEXT_JSON, 16 * MIB, 256 * KIB},
        {TEXT_LINES, 64 * MIB, 32 * MIB}, {TEXT_LINES, 100 * GIB, 50 * GIB},
    };
    struct text_limit limit = text_limit_of(rows[_i].kind, rows[_i].ram_bytes);
    ck_assert_uint_eq(limit.bytes, rows[_i].bytes);
    ck_assert_int_eq(text_limit_check(&limit, "--x", "y", limit.bytes), 0);
    ck_assert_int_eq(text_limit_check(&limit, "--x", "y", limit.bytes + 1), ERR_FIT);
    err_clear();
}
END_TEST

START_TEST(without_a_number_it_is_what_the_machine_has)
{
    struct text_limit given = text_limit_of(TEXT_LINES, 0);
    struct text_limit automatic = text_limit_of(TEXT_LINES, UINT64_MAX);
    ck_assert_uint_ge(given.bytes, TEXT_LIMIT_LEAST);
    ck_assert_uint_lt(given.bytes, UINT64_MAX / 4);
    ck_assert_uint_gt(automatic.ram_bytes, 0);
}
END_TEST

START_TEST(a_context_bounds_a_text)
{
    struct text_limit limit = text_limit_of(TEXT_PLAIN, 64 * MIB);
    text_limit_context(&limit, TEXT_PLAIN, 1 << 20, 128);
    ck_assert_uint_eq(limit.bytes, 4 * MIB); /* has room for more than the memory */
    text_limit_context(&limit, TEXT_PLAIN, 8192, 128);
    ck_assert_uint_eq(limit.bytes, 1 * MIB);
    text_limit_context(&limit, TEXT_PLAIN, 1, 1);
    ck_assert_uint_eq(limit.bytes, TEXT_LIMIT_LEAST);
    limit = text_limit_of(TEXT_JSON, 64 * GIB);
    text_limit_context(&limit, TEXT_JSON, 8192, 128);
    ck_assert_uint_eq(limit.bytes, 8 * MIB);
    text_limit_context(&limit, TEXT_JSON, UINT64_MAX, UINT32_MAX);
    ck_assert_uint_eq(limit.bytes, 8 * MIB);
}
END_TEST

START_TEST(a_refusal_says_what_would_help)
{
    struct text_limit limit = text_limit_of(TEXT_PLAIN, 64 * MIB);
    refused(&limit, 5000000, "--x: y has 5000000 bytes, more than the 4194304 that 64.0 MiB of RAM "
            "have room for; give a larger --ram or a shorter text");
    text_limit_context(&limit, TEXT_PLAIN, 8192, 100);
    refused(&limit, 0, "--x: y has more than the 819200 bytes that 8192 positions have room for; "
            "give a larger --context or a shorter text");
    limit = text_limit_of(TEXT_PLAIN, 64 * GIB);
    refused(&limit, 0, "--x: y has more than the 268435456 bytes that a text may have; give a "
            "shorter one");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("text_limit");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, memory_bounds_a_text, 0, 8);
    tcase_add_test(all, without_a_number_it_is_what_the_machine_has);
    tcase_add_test(all, a_context_bounds_a_text);
    tcase_add_test(all, a_refusal_says_what_would_help);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
