/* SPDX-License-Identifier: Apache-2.0 */

/* Opening files, reading any range of them at once, and noticing that they changed. */

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "io/file.h"
#include "tests/support/suite.h"

#define FILE_BYTES (100000U)
#define BOUNCE_BYTES (8 * PAGE_BYTES)

static char directory[64];
static char path[2][128];
static struct io_files files;
static unsigned char *bounce;
static unsigned char *target;

static unsigned char byte_at(uint32_t file, uint64_t offset_bytes)
{
    return (unsigned char)rng_mix(offset_bytes + file * 7919U + 1);
}

static void write_file(const char *name, uint32_t file, uint64_t size_bytes)
{
    FILE *out = fopen(name, "wb");
    ck_assert_ptr_nonnull(out);
    for (uint64_t i = 0; i < size_bytes; i++) {
        fputc(byte_at(file, i), out);
    }
    ck_assert_int_eq(ferror(out), 0);
    ck_assert_int_eq(fclose(out), 0);
}

static void open_both(void)
{
    const char *paths[] = {path[0], path[1]};
    const uint64_t sizes[] = {FILE_BYTES, PAGE_BYTES};
    ck_assert_msg(io_files_open(&files, paths, sizes, 2) == 0, "%s", err_message());
}

static void setup(void)
{
    err_clear();
    snprintf(directory, sizeof directory, "/tmp/k3ring-file-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path[0], sizeof path[0], "%s/a", directory);
    snprintf(path[1], sizeof path[1], "%s/b", directory);
    write_file(path[0], 0, FILE_BYTES);
    write_file(path[1], 1, PAGE_BYTES);
    bounce = aligned_alloc(PAGE_BYTES, BOUNCE_BYTES);
    target = malloc(FILE_BYTES + 2);
    ck_assert(bounce != NULL && target != NULL);
}

static void teardown(void)
{
    io_files_close(&files);
    unlink(path[0]);
    unlink(path[1]);
    rmdir(directory);
    free(bounce);
    free(target);
}

static int read_now(uint32_t file, uint64_t offset_bytes, uint64_t size_bytes,
                    uint64_t bounce_bytes, uint64_t *read_bytes)
{
    return io_file_read(&files, file, offset_bytes, size_bytes, target + 1, bounce, bounce_bytes,
                        read_bytes);
}

static bool target_holds(uint32_t file, uint64_t offset_bytes, uint64_t size_bytes)
{
    uint64_t right = 0;
    for (uint64_t i = 0; i < size_bytes; i++) {
        right += target[1 + i] == byte_at(file, offset_bytes + i);
    }
    return right == size_bytes;
}

static bool message_has(const char *part)
{
    return strstr(err_message(), part) != NULL;
}

START_TEST(open_tells_size_and_what_is_in_force)
{
    open_both();
    ck_assert_uint_eq(files.count, 2);
    ck_assert_uint_eq(files.file[0].size_bytes, FILE_BYTES);
    ck_assert_uint_eq(files.file[1].size_bytes, PAGE_BYTES);
    uint32_t direct = 0;
    for (uint32_t i = 0; i < 2; i++) {
        const struct io_file *file = &files.file[i];
        bool flag = (fcntl(file->fd, F_GETFL) & O_DIRECT) != 0;
        ck_assert(flag == file->direct);
        ck_assert_uint_ge(file->alignment, 1);
        ck_assert_uint_eq(PAGE_BYTES % file->alignment, 0);
        ck_assert((fcntl(file->fd, F_GETFD) & FD_CLOEXEC) != 0);
        ck_assert_str_eq(file->path, path[i]);
        direct += file->direct;
    }
    ck_assert_uint_eq(files.direct_count, direct);
}
END_TEST

START_TEST(any_range_is_read_exactly)
{
    open_both();
    struct rng rng = rng_seed((uint64_t)_i);
    for (int turn = 0; turn < 60; turn++) {
        uint64_t offset = rng_below(&rng, FILE_BYTES + 1);
        uint64_t size = rng_below(&rng, FILE_BYTES - offset + 1);
        uint64_t bounce_bytes = (2 + rng_below(&rng, 7)) * PAGE_BYTES;
        uint64_t read_bytes = 5;
        memset(target, 0x5A, FILE_BYTES + 2);
        ck_assert_int_eq(read_now(0, offset, size, bounce_bytes, &read_bytes), 0);
        ck_assert(target_holds(0, offset, size));
        ck_assert_uint_eq(target[0], 0x5A);
        ck_assert_uint_eq(target[1 + size], 0x5A);
        uint64_t window = size == 0 ? 0
                                    : align_up(offset + size, PAGE_BYTES) -
                                          align_down(offset, PAGE_BYTES);
        ck_assert_uint_eq(read_bytes, 5 + window);
    }
}
END_TEST

START_TEST(each_file_has_its_own_bytes)
{
    open_both();
    uint64_t read_bytes = 0;
    ck_assert_int_eq(read_now(1, 100, 3996, BOUNCE_BYTES, &read_bytes), 0);
    ck_assert(target_holds(1, 100, 3996));
    ck_assert_uint_eq(read_bytes, PAGE_BYTES);
}
END_TEST

START_TEST(a_read_past_the_end_names_file_and_offset)
{
    open_both();
    uint64_t read_bytes = 0;
    ck_assert_int_eq(read_now(0, FILE_BYTES - 10, 11, BOUNCE_BYTES, &read_bytes), ERR_IO);
    ck_assert(message_has(path[0]) && message_has("99990"));
    err_clear();
    ck_assert_int_eq(read_now(0, UINT64_MAX - 2, 5, BOUNCE_BYTES, &read_bytes), ERR_IO);
    ck_assert_uint_eq(read_bytes, 0);
}
END_TEST

START_TEST(a_file_that_shrank_is_noticed_by_the_read)
{
    open_both();
    ck_assert_int_eq(truncate(path[0], 50000), 0);
    uint64_t read_bytes = 0;
    ck_assert_int_eq(read_now(0, 40000, 20000, BOUNCE_BYTES, &read_bytes), ERR_IO);
    ck_assert(message_has(path[0]) && message_has("shrank"));
}
END_TEST

START_TEST(a_file_of_another_size_is_refused)
{
    const char *paths[] = {path[1], path[0]};
    const uint64_t sizes[] = {PAGE_BYTES, FILE_BYTES - 1};
    ck_assert_int_eq(io_files_open(&files, paths, sizes, 2), ERR_IO);
    ck_assert(message_has(path[0]) && message_has("changed while opening"));
    ck_assert_uint_eq(files.count, 0);
}
END_TEST

START_TEST(what_is_no_file_is_refused)
{
    char fifo[160];
    snprintf(fifo, sizeof fifo, "%s/none", directory);
    const char *paths[] = {fifo};
    ck_assert_int_eq(io_files_open(&files, paths, NULL, 1), ERR_IO);
    ck_assert(message_has(fifo) && message_has("No such file"));
    err_clear();
    ck_assert_int_eq(mkfifo(fifo, 0600), 0); /* must not hang */
    ck_assert_int_eq(io_files_open(&files, paths, NULL, 1), ERR_IO);
    ck_assert(message_has("not a regular file"));
    unlink(fifo);
    err_clear();
    paths[0] = directory;
    ck_assert_int_eq(io_files_open(&files, paths, NULL, 1), ERR_IO);
}
END_TEST

START_TEST(where_direct_reads_are_refused_the_file_is_buffered)
{
    const char *paths[] = {"/proc/self/maps"};
    if (io_files_open(&files, paths, NULL, 1) < 0) {
        fprintf(stderr, "skipped: %s\n", err_message());
        return;
    }
    ck_assert(!files.file[0].direct);
    ck_assert_uint_eq(files.direct_count, 0);
    ck_assert_uint_eq(files.file[0].alignment, 1);
    ck_assert_int_eq(fcntl(files.file[0].fd, F_GETFL) & O_DIRECT, 0);
}
END_TEST

START_TEST(an_empty_file_opens)
{
    ck_assert_int_eq(truncate(path[1], 0), 0);
    const char *paths[] = {path[1]};
    ck_assert_int_eq(io_files_open(&files, paths, NULL, 1), 0);
    ck_assert_uint_eq(files.file[0].size_bytes, 0);
    ck_assert_int_eq(io_files_unchanged(&files), 0);
}
END_TEST

static void append(const char *name)
{
    FILE *out = fopen(name, "ab");
    ck_assert_ptr_nonnull(out);
    fputc(1, out);
    ck_assert_int_eq(fclose(out), 0);
}

static void rewrite_in_place(const char *name)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1, .tv_nsec = 5}};
    ck_assert_int_eq(utimensat(AT_FDCWD, name, times, 0), 0);
}

static void replace(const char *name)
{
    struct stat before;
    ck_assert_int_eq(stat(name, &before), 0);
    char other[160];
    snprintf(other, sizeof other, "%s.new", name);
    write_file(other, 0, FILE_BYTES);
    struct timespec times[2] = {before.st_atim, before.st_mtim};
    ck_assert_int_eq(utimensat(AT_FDCWD, other, times, 0), 0);
    ck_assert_int_eq(rename(other, name), 0);
}

static void remove_it(const char *name)
{
    ck_assert_int_eq(unlink(name), 0);
}

static void (*const changes[])(const char *) = {append, rewrite_in_place};
static void (*const moves[])(const char *) = {replace, remove_it};

START_TEST(a_file_that_lost_its_name_is_still_itself)
{
    open_both();
    moves[_i](path[0]);
    ck_assert_int_eq(io_files_unchanged(&files), 0);
}
END_TEST

START_TEST(every_kind_of_change_is_noticed)
{
    open_both();
    ck_assert_int_eq(io_files_unchanged(&files), 0);
    changes[_i](path[0]);
    ck_assert_int_eq(io_files_unchanged(&files), ERR_IO);
    ck_assert(message_has(path[0]) && message_has("changed while being read"));
}
END_TEST

START_TEST(the_limit_of_open_files_is_raised)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = 3;
        setrlimit(RLIMIT_NOFILE, &limit);
        const char *paths[] = {path[0]};
        _exit(io_files_open(&files, paths, NULL, 1) == 0 ? 0 : 1);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("file");
    TCase *tcase = tcase_create("files");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, open_tells_size_and_what_is_in_force);
    tcase_add_loop_test(tcase, any_range_is_read_exactly, 0, 5);
    tcase_add_test(tcase, each_file_has_its_own_bytes);
    tcase_add_test(tcase, a_read_past_the_end_names_file_and_offset);
    tcase_add_test(tcase, a_file_that_shrank_is_noticed_by_the_read);
    tcase_add_test(tcase, a_file_of_another_size_is_refused);
    tcase_add_test(tcase, what_is_no_file_is_refused);
    tcase_add_test(tcase, where_direct_reads_are_refused_the_file_is_buffered);
    tcase_add_test(tcase, an_empty_file_opens);
    tcase_add_loop_test(tcase, every_kind_of_change_is_noticed, 0, (int)countof(changes));
    tcase_add_loop_test(tcase, a_file_that_lost_its_name_is_still_itself, 0, (int)countof(moves));
    tcase_add_test(tcase, the_limit_of_open_files_is_raised);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
