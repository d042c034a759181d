/* SPDX-License-Identifier: Apache-2.0 */

/* Reads from a list: all of them, in order, never more in flight than asked for, over every engine;
 * and ends that are none of the list's. */

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/exec/reader.h"
#include "io/figures.h"
#include "tests/support/suite.h"

#define PAGES 600U
#define READS 100U

static char path[64];
static struct io_files files;
static struct io_log log_;

static void setup(void)
{
    static unsigned char page[PAGE_BYTES];
    const char *paths[] = {path};
    strcpy(path, "/tmp/k3ring-reader-test-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    for (uint32_t i = 0; i < PAGES; i++) {
        memcpy(page, &i, sizeof i);
        ck_assert_int_eq(write(fd, page, sizeof page), (ssize_t)sizeof page);
    }
    close(fd);
    ck_assert_int_eq(io_files_open(&files, paths, NULL, 1), 0);
    ck_assert_int_eq(io_log_open(&log_, 2 * READS), 0);
}

static void teardown(void)
{
    io_files_close(&files);
    io_log_close(&log_);
    unlink(path);
}

static bool next_read(void *ctx, struct reader_read *read)
{
    uint32_t *at = ctx;
    *read = (struct reader_read){.offset_bytes = *at * 5 * PAGE_BYTES,
                                 .size_bytes = (uint32_t)((1 + *at % 4) * PAGE_BYTES),
                                 .label = (uint8_t)(*at % 3)};
    return (*at)++ < READS;
}

static struct reader *open_reader(enum io_engine io, uint32_t depth, bool (*stop)(void))
{
    struct reader_options options = {.io = io, .depth = depth, .size_max_bytes = 4 * PAGE_BYTES,
                                     .log = &log_, .stop = stop};
    struct reader *r;
    ck_assert_int_eq(reader_open(&r, &files, &options), 0);
    return r;
}

START_TEST(every_read_of_the_list_is_made_in_its_order)
{
    const enum io_engine engines[] = {IO_URING, IO_PREAD, IO_SIM};
    const uint32_t depths[] = {1, 3, 16};
    struct reader_result result;
    struct io_figures figures;
    struct reader *r = open_reader(engines[_i % 3], depths[_i / 3], NULL);
    for (int again = 0; again < 2; again++) {
        uint32_t at = 0;
        io_log_clear(&log_);
        ck_assert_int_eq(reader_run(r, next_read, &at, &result), 0);
        ck_assert_uint_eq(result.requests, READS);
        ck_assert_uint_eq(result.bytes, READS / 4 * (1 + 2 + 3 + 4) * PAGE_BYTES);
        ck_assert_uint_eq(log_.count, READS);
        for (uint32_t i = 0; i < READS; i++) {
            ck_assert_uint_eq(log_.record[i].offset_bytes, i * 5 * PAGE_BYTES);
            ck_assert_uint_eq(log_.record[i].label, i % 3);
        }
        struct io_slice all = {0, UINT64_MAX, IO_ANY, IO_ANY};
        ck_assert_int_eq(io_figures(&log_, &all, &figures), 0);
        for (uint32_t level = io_depth_level(depths[_i / 3]) + 1; level < IO_LEVELS; level++) {
            ck_assert_uint_eq(figures.depth[level], 0);
        }
    }
    reader_close(r);
}
END_TEST

START_TEST(a_file_that_was_cut_is_named)
{
    struct reader_result result;
    struct reader *r = open_reader(IO_URING, 4, NULL);
    uint32_t at = 0;
    ck_assert_int_eq(truncate(path, (off_t)(100 * PAGE_BYTES)), 0);
    ck_assert_int_eq(reader_run(r, next_read, &at, &result), ERR_IO);
    ck_assert_ptr_nonnull(strstr(err_message(), path));
    ck_assert_ptr_nonnull(strstr(err_message(), "at offset"));
    reader_close(r);
}
END_TEST

static bool at_once(void)
{
    return true;
}

START_TEST(a_signal_ends_it_with_nothing_in_flight)
{
    struct reader_result result;
    struct reader *r = open_reader(IO_URING, 4, at_once);
    uint32_t at = 0;
    ck_assert_int_eq(reader_run(r, next_read, &at, &result), ERR_STOPPED);
    ck_assert_uint_lt(result.requests, READS);
    for (uint32_t i = 0; i < log_.count; i++) {
        ck_assert_uint_gt(log_.record[i].ended_ns, 0);
    }
    reader_close(r);
}
END_TEST

START_TEST(an_empty_list_reads_nothing)
{
    struct reader_result result;
    struct reader *r = open_reader(IO_URING, 4, NULL);
    uint32_t at = READS;
    ck_assert_int_eq(reader_run(r, next_read, &at, &result), 0);
    ck_assert_uint_eq(result.bytes, 0);
    ck_assert_uint_eq(result.begun_ns, result.ended_ns);
    reader_close(r);
}
END_TEST

struct used {
    uint32_t next, used;  /* reads named and used */
    uint32_t fail_at;
    uint64_t bytes;
};

static bool name_all(void *ctx, struct reader_read *read)
{
    struct used *u = ctx;
    return next_read(&u->next, read);
}

static int use_read(void *ctx, const struct reader_read *read, const unsigned char *bytes,
                    uint32_t size_bytes)
{
    struct used *u = ctx;
    for (uint64_t at = 0; at < size_bytes; at += PAGE_BYTES) {
        uint32_t page;
        memcpy(&page, bytes + at, sizeof page);
        ck_assert_uint_eq(page, (u->used * 5 * PAGE_BYTES + at) / PAGE_BYTES);
    }
    ck_assert_uint_eq(read->offset_bytes, u->used * 5 * PAGE_BYTES);
    ck_assert_uint_eq(read->label, u->used % 3);
    u->bytes += size_bytes;
    return ++u->used == u->fail_at ? err_set(ERR_RUN, "enough") : 0;
}

START_TEST(bytes_are_used_in_the_order_of_the_list)
{
    const enum io_engine engines[] = {IO_URING, IO_PREAD, IO_SIM};
    const uint32_t depths[] = {1, 3, 16};
    struct reader_options options = {.io = engines[_i % 3], .depth = depths[_i / 3],
                                     .size_max_bytes = 4 * PAGE_BYTES, .use = use_read};
    struct reader *r;
    struct reader_result result;
    ck_assert_int_eq(reader_open(&r, &files, &options), 0);
    for (int again = 0; again < 2; again++) {
        struct used whole = {.next = 0};
        ck_assert_int_eq(reader_run(r, name_all, &whole, &result), 0);
        ck_assert_uint_eq(whole.used, READS);
        ck_assert_uint_eq(whole.bytes, result.bytes);
        struct used part = {.fail_at = 37};
        err_clear();
        ck_assert_int_eq(reader_run(r, name_all, &part, &result), ERR_RUN);
        ck_assert_uint_eq(part.used, 37);
        ck_assert_str_eq(err_message(), "enough");
    }
    reader_close(r);
}
END_TEST

static bool name_tail(void *ctx, struct reader_read *read)
{
    struct used *u = ctx;
    *read = (struct reader_read){.offset_bytes = (PAGES - 1) * PAGE_BYTES,
                                 .size_bytes = PAGE_BYTES};
    return u->next++ == 0;
}

static int use_tail(void *ctx, const struct reader_read *read, const unsigned char *bytes,
                    uint32_t size_bytes)
{
    struct used *u = ctx;
    (void)read;
    (void)bytes;
    u->bytes = size_bytes;
    return 0;
}

START_TEST(a_read_past_the_end_gives_what_there_is)
{
    const char *paths[] = {path};
    struct io_files cut;
    ck_assert_int_eq(truncate(path, (off_t)(PAGES * PAGE_BYTES - 1000)), 0);
    ck_assert_int_eq(io_files_open(&cut, paths, NULL, 1), 0);
    struct reader_options options = {.depth = 2, .size_max_bytes = PAGE_BYTES, .use = use_tail};
    struct reader *r;
    struct reader_result result;
    struct used u = {.next = 0};
    ck_assert_int_eq(reader_open(&r, &cut, &options), 0);
    ck_assert_int_eq(reader_run(r, name_tail, &u, &result), 0);
    ck_assert_uint_eq(u.bytes, PAGE_BYTES - 1000);
    reader_close(r);
    io_files_close(&cut);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reader");
    TCase *tcase = tcase_create("reader");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, every_read_of_the_list_is_made_in_its_order, 0, 9);
    tcase_add_test(tcase, a_file_that_was_cut_is_named);
    tcase_add_test(tcase, a_signal_ends_it_with_nothing_in_flight);
    tcase_add_test(tcase, an_empty_list_reads_nothing);
    tcase_add_loop_test(tcase, bytes_are_used_in_the_order_of_the_list, 0, 9);
    tcase_add_test(tcase, a_read_past_the_end_gives_what_there_is);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
