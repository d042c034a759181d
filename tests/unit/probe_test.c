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

START_TEST(an_identity_tells_places_apart_in_one_clean_line)
{
    struct io_place a = {.device = 0x801, .file_system = "ext4", .drive = "sda", .model = "M\n1",
                         .serial = "S\x01\xff"};
    struct io_place b = a;
    char text[128];
    char other[128];
    io_place_identity(&a, text, sizeof text);
    ck_assert_str_eq(text, "ext4 8:1 sda M?1 S??");
    snprintf(b.serial, sizeof b.serial, "S2");
    io_place_identity(&b, other, sizeof other);
    ck_assert_str_ne(text, other);
    b = (struct io_place){.file_system = "nfs", .device = 0x30};
    io_place_identity(&b, other, sizeof other);
    ck_assert_str_eq(other, "nfs 0:48");
    io_place_identity(&a, text, 8);
    ck_assert_str_eq(text, "ext4 8:");
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
    tcase_add_test(tcase, an_identity_tells_places_apart_in_one_clean_line);
    tcase_add_test(tcase, a_file_that_is_none_is_an_error);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
