/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/probe.h"
#include "tests/support/suite.h"

START_TEST(memory_is_named_as_such)
{
    struct io_place place;
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
    if (fd < 0) {
        printf("skip: /dev/shm takes no files here: %s\n", strerror(errno));
        return;
    }
    ck_assert_int_eq(io_probe(fd, &place), 0);
    ck_assert_str_eq(place.file_system, "tmpfs");
    ck_assert_str_eq(place.drive, "");
    ck_assert_str_eq(place.model, "");
    ck_assert_uint_eq(place.request_kib_max, 0);
    close(fd);
}
END_TEST

START_TEST(a_drive_is_found_where_the_system_shows_one)
{
    struct io_place place;
    struct stat st;
    int fd = open("/proc/self/exe", O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(io_probe(fd, &place), 0);
    ck_assert_uint_eq(place.device, st.st_dev);
    ck_assert(place.file_system[0] != '\0');
    ck_assert_int_eq(place.drive[0] != '\0', place.request_kib_max > 0);
    ck_assert_ptr_null(strchr(place.model, '\n'));
    close(fd);
}
END_TEST

START_TEST(a_file_that_is_none_is_an_error)
{
    struct io_place place;
    ck_assert_int_eq(io_probe(-1, &place), -EBADF);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("probe");
    TCase *tcase = tcase_create("places");
    tcase_add_test(tcase, memory_is_named_as_such);
    tcase_add_test(tcase, a_drive_is_found_where_the_system_shows_one);
    tcase_add_test(tcase, a_file_that_is_none_is_an_error);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
