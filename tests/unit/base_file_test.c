/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "tests/support/suite.h"

static char path[] = P_tmpdir "/k3ring-file-XXXXXX";

static void setup(void)
{
    strcpy(path + sizeof path - 7, "XXXXXX");
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "0123456789", 10), 10);
    close(fd);
    err_clear();
}

static void teardown(void)
{
    unlink(path);
}

START_TEST(a_file_is_read_whole_and_ended_by_a_zero_byte)
{
    struct file_text file;
    ck_assert_int_eq(file_read(path, 10, &file), 0);
    ck_assert_uint_eq(file.size_bytes, 10);
    ck_assert_str_eq(file.text, "0123456789");
    file_text_free(&file);
    ck_assert_ptr_null(file.text);
    file_text_free(&file);
}
END_TEST

START_TEST(an_empty_file_is_an_empty_text)
{
    struct file_text file;
    ck_assert_int_eq(truncate(path, 0), 0);
    ck_assert_int_eq(file_read(path, 10, &file), 0);
    ck_assert_uint_eq(file.size_bytes, 0);
    ck_assert_str_eq(file.text, "");
    file_text_free(&file);
}
END_TEST

START_TEST(a_file_longer_than_the_cap_is_refused_with_both_sizes)
{
    struct file_text file;
    ck_assert_int_eq(file_read(path, 9, &file), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(err_message(), "10 bytes, more than the 9"));
}
END_TEST

START_TEST(what_is_no_regular_file_is_refused_without_waiting)
{
    struct file_text file;
    ck_assert_int_eq(file_read("/", 9, &file), ERR_MODEL);
    err_clear();
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(file_read(path, 9, &file), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(err_message(), "No such file"));
    err_clear();
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(file_read(path, 9, &file), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(err_message(), "not a regular file"));
    ck_assert_int_eq(unlink(path), 0);
    err_clear();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strcpy(address.sun_path, path);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(file_read(path, 9, &file), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(err_message(), "and no file: give a file"));
    close(listener);
}
END_TEST

START_TEST(a_range_is_read_exactly_or_not_at_all)
{
    char text[8] = "";
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(file_read_at(fd, path, 3, text, 4), 0);
    ck_assert_str_eq(text, "3456");
    ck_assert_int_eq(file_read_at(fd, path, 7, text, 4), ERR_IO);
    ck_assert_ptr_nonnull(strstr(err_message(), "ended at byte 10"));
    close(fd);
}
END_TEST

START_TEST(paths_are_joined_with_one_slash)
{
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}};
    for (size_t i = 0; i < countof(cases); i++) {
        char *joined = path_join(cases[i][0], cases[i][1]);
        ck_assert_str_eq(joined, cases[i][2]);
        free(joined);
    }
    ck_assert_str_eq(path_name("a/b/c"), "c");
    ck_assert_str_eq(path_name("c"), "c");
    ck_assert_str_eq(path_name("a/"), "");
}
END_TEST

START_TEST(what_exists_is_told_from_what_does_not)
{
    ck_assert(file_exists(path));
    ck_assert(file_exists("/"));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert(!file_exists(path));
    ck_assert_int_eq(symlink("/nonexistent/target", path), 0);
    ck_assert(!file_exists(path));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base_file");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, a_file_is_read_whole_and_ended_by_a_zero_byte);
    tcase_add_test(all, an_empty_file_is_an_empty_text);
    tcase_add_test(all, a_file_longer_than_the_cap_is_refused_with_both_sizes);
    tcase_add_test(all, what_is_no_regular_file_is_refused_without_waiting);
    tcase_add_test(all, a_range_is_read_exactly_or_not_at_all);
    tcase_add_test(all, paths_are_joined_with_one_slash);
    tcase_add_test(all, what_exists_is_told_from_what_does_not);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
