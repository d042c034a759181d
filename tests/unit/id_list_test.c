/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of token ids as they are typed, or pasted from what a command printed. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/options.h"
#include "tests/support/suite.h"

START_TEST(id_lists_are_read_in_order)
{
    uint32_t *ids = NULL;
    uint32_t count = 99;
    ck_assert_int_eq(options_ids("ids", "3,141,59,0,4294967295,3", &ids, &count), 6);
    ck_assert_uint_eq(count, 6);
    static const uint32_t expected[] = {3, 141, 59, 0, 4294967295, 3};
    ck_assert_mem_eq(ids, expected, sizeof expected);
    free(ids);
    ck_assert_int_eq(options_ids("ids", "7", &ids, &count), 1);
    ck_assert_uint_eq(ids[0], 7);
    free(ids);
}
END_TEST

START_TEST(id_lists_are_taken_as_other_commands_give_them)
{
    static const char *const forms[] = {"3 141 59", "3, 141, 59", "[3,141,59]", "[3, 141, 59]\n",
                                        " 3\t141\n59 ", " [ 3 141 59 ] ", "3 ,141 , 59"};
    static const uint32_t expected[] = {3, 141, 59};
    for (size_t i = 0; i < countof(forms); i++) {
        uint32_t *ids = NULL;
        uint32_t count = 99;
        ck_assert_msg(options_ids("ids", forms[i], &ids, &count) == 3, "'%s'", forms[i]);
        ck_assert_uint_eq(count, 3);
        ck_assert_mem_eq(ids, expected, sizeof expected);
        free(ids);
    }
}
END_TEST

static const char *const bad_ids[] = {
    "", " ", ",", "1,", ",1", "1,,2", "1, ,2", "[1", "1]", "[]", "[1,]", "[[1]]", "[1] 2", "1[2]",
    "-1", "+1", "1.0", "1e3", "0x10", "a", "1,b",
    "4294967296", "1,4294967296,2", "18446744073709551616", "1K", "1;2",
};

START_TEST(a_list_with_anything_else_is_refused_whole)
{
    uint32_t *ids = NULL;
    uint32_t count = 99;
    err_clear();
    ck_assert_int_eq(options_ids("ids", bad_ids[_i], &ids, &count), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err_message(), "--ids"));
    ck_assert_ptr_null(ids);
    ck_assert_uint_eq(count, 0);
}
END_TEST

int main(void)
{
    TCase *lists = tcase_create("lists");
    tcase_add_test(lists, id_lists_are_read_in_order);
    tcase_add_test(lists, id_lists_are_taken_as_other_commands_give_them);
    tcase_add_loop_test(lists, a_list_with_anything_else_is_refused_whole, 0,
                        (int)countof(bad_ids));
    Suite *suite = suite_create("id lists");
    suite_add_tcase(suite, lists);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
