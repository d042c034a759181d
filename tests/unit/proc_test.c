/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cgroup.h"
#include "core/base/proc.h"
#include "tests/support/suite.h"
#include "tests/support/system.h"

static struct tiny root;

START_TEST(a_text_is_cut_where_its_room_ends)
{
    char text[6];
    system_put(&root, "abcdefgh\n", "proc/long");
    ck_assert(proc_text(text, sizeof text, "%s/proc/long", root.dir));
    ck_assert_str_eq(text, "abcde");
    ck_assert(!proc_text(text, sizeof text, "%s/proc/absent", root.dir));
    ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(a_line_has_no_blanks_behind_it_and_no_control_bytes)
{
    char line[32];
    system_put(&root, "a\x01\xc3 b   \nsecond\n", "proc/line");
    ck_assert(proc_line(line, sizeof line, "%s/proc/line", root.dir));
    ck_assert_str_eq(line, "a?? b");
    system_put(&root, "  \n", "proc/blank");
    ck_assert(!proc_line(line, sizeof line, "%s/proc/blank", root.dir));
}
END_TEST

START_TEST(only_digits_are_a_number)
{
    static const struct {
        const char *text;
        uint64_t value;
    } rows[] = {{"4096\n", 4096}, {"0", 0}, {"max\n", 7}, {"-1\n", 7}, {"", 7}};
    for (size_t i = 0; i < countof(rows); i++) {
        system_put(&root, rows[i].text, "proc/number");
        ck_assert_uint_eq(proc_value(7, "%s/proc/%s", root.dir, "number"), rows[i].value);
    }
    ck_assert_uint_eq(proc_value(7, "%s/absent", root.dir), 7);
}
END_TEST

START_TEST(a_number_is_found_by_the_first_word_of_its_line)
{
    uint64_t value = 0;
    const char *text = "MemTotalX: 3 kB\nMemTotal:   5 kB\nxMemTotal: 6 kB\n";
    ck_assert(proc_number(text, "MemTotal:", &value));
    ck_assert_uint_eq(value, 5);
    ck_assert(!proc_number(text, "Mem", &value));
}
END_TEST

START_TEST(a_path_too_long_is_not_there)
{
    char line[8];
    char name[PROC_PATH_BYTES + 8];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    ck_assert(!proc_line(line, sizeof line, "/%s", name));
}
END_TEST

START_TEST(groups_are_walked_from_the_own_one_to_the_root)
{
    struct cgroup_path at;
    system_put(&root, "4:cpu,cpuacct:/x\n3:memory:/a/b\n0::/c\n", "proc/self/cgroup");
    ck_assert(cgroup_find(root.dir, "memory", &at));
    const char *known = at.folder + strlen(root.dir);
    ck_assert_str_eq(known, "/sys/fs/cgroup/memory/a/b");
    ck_assert(cgroup_up(&at));
    ck_assert(cgroup_up(&at));
    ck_assert_str_eq(known, "/sys/fs/cgroup/memory");
    ck_assert(!cgroup_up(&at));
    ck_assert(cgroup_find(root.dir, "cpuacct", &at));
    ck_assert_str_eq(known, "/sys/fs/cgroup/cpuacct/x");
    ck_assert(!cgroup_find(root.dir, "mem", &at));
    ck_assert(cgroup_find(root.dir, "", &at));
    ck_assert_str_eq(known, "/sys/fs/cgroup/unified/c");
    system_put(&root, "io\n", "sys/fs/cgroup/cgroup.controllers");
    ck_assert(cgroup_find(root.dir, "", &at));
    ck_assert_str_eq(known, "/sys/fs/cgroup/c");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proc");
    TCase *tcase = tcase_create("texts");
    tcase_add_test(tcase, a_text_is_cut_where_its_room_ends);
    tcase_add_test(tcase, a_line_has_no_blanks_behind_it_and_no_control_bytes);
    tcase_add_test(tcase, only_digits_are_a_number);
    tcase_add_test(tcase, a_number_is_found_by_the_first_word_of_its_line);
    tcase_add_test(tcase, a_path_too_long_is_not_there);
    tcase_add_test(tcase, groups_are_walked_from_the_own_one_to_the_root);
    suite_add_tcase(suite, tcase);
    tiny_folder(&root, TINY_MEMORY);
    int failed = suite_run(suite);
    system_remove(&root);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
