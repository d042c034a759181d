/* SPDX-License-Identifier: Apache-2.0 */

/* The reads of a benchmark in fio's hands: every one lies in its file, and fio counts them all. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/bench_report.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"

static struct tiny disk;

static void setup_once(void)
{
    tiny_make(&disk, TINY_DISK);
    tiny_folder(&folder, TINY_MEMORY);
}

static void teardown_once(void)
{
    tiny_remove(&disk);
    tiny_remove(&folder);
}

struct reads {
    uint32_t count;
    double bytes;
};

/* Every read of a log lies within its file, in whole pages. */
static struct reads check_log(const char *path)
{
    struct reads reads = {0, 0};
    char line[1024];
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
    ck_assert_str_eq(line, "fio version 3 iolog\n");
    unsigned long long last = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long long stamp;
        unsigned long long offset;
        unsigned long long size;
        char name[512];
        if (sscanf(line, "%llu %511s read %llu %llu", &stamp, name, &offset, &size) != 4) {
            continue;
        }
        struct stat st;
        ck_assert_int_eq(stat(name, &st), 0);
        ck_assert(offset % 4096 == 0 && size % 4096 == 0 && size > 0);
        ck_assert_uint_le(offset + size, (unsigned long long)st.st_size);
        ck_assert_uint_ge(stamp, max_u64(1, last));
        last = stamp;
        reads.count++;
        reads.bytes += (double)size;
    }
    fclose(file);
    return reads;
}

static bool fio_here(void)
{
    return system("fio --version >/dev/null 2>&1") == 0; /* NOLINT(cert-env33-c) */
}

static void run_fio(const char *job_file, const struct reads *reads, uint32_t padding)
{
    char command[2 * TINY_PATH_BYTES];
    char out[TINY_PATH_BYTES];
    tiny_path(&folder, "fio.json", out);
    snprintf(command, sizeof command, "fio --readonly --output-format=json --output=%s %s "
             ">/dev/null 2>&1", out, job_file);
    ck_assert_int_eq(system(command), 0); /* NOLINT(cert-env33-c) */
    cJSON *root = report_read(out);
    const cJSON *first = cJSON_GetArrayItem(member(root, "jobs"), 0);
    ck_assert_double_eq(member_number(first, "error"), 0);
    /* All reads, and of the padding those that fio counts. */
    const cJSON *read = member(first, "read");
    double counted = member_number(member(read, "clat_ns"), "N");
    ck_assert_double_ge(counted, reads->count - padding + 1.0);
    ck_assert_double_le(counted, reads->count);
    ck_assert_double_eq(member_number(read, "io_bytes"),
                        reads->bytes - (reads->count - counted) * 4096);
    cJSON_Delete(root);
}

START_TEST(fio_plays_back_what_was_read)
{
    static const char *const names[] = {"", " with, blank: x"};
    char path[2 * TINY_PATH_BYTES];
    struct tiny model;
    tiny_copy(&model, &disk, TINY_DISK);
    char moved[sizeof model.dir + 32];
    snprintf(moved, sizeof moved, "%s%s", model.dir, names[_i]);
    if (_i == 1) { /* arguments are cut at blanks: by a link, whose files are elsewhere */
        ck_assert_int_eq(rename(model.dir, moved), 0);
        ck_assert_int_eq(symlink(moved, model.dir), 0);
    }
    k3ring("bench %s --ram 20M --pin 0 --limit-time 1 --tokens 3 --io-depth 4 --export-fio %s/fio",
           model.dir, folder.dir);
    report_expect();
    snprintf(path, sizeof path, "%s/fio.iolog", folder.dir);
    struct reads reads = check_log(path);
    ck_assert_uint_gt(reads.count, 50);
    if (fio_here()) {
        snprintf(path, sizeof path, "%s/fio.replay.fio", folder.dir);
        run_fio(path, &reads, 4);
        snprintf(path, sizeof path, "%s/fio.replay-timed.fio", folder.dir);
        run_fio(path, &reads, 4);
        snprintf(path, sizeof path, "%s/fio.limit.fio --runtime=1 --ramp_time=0", folder.dir);
        char command[2 * TINY_PATH_BYTES + 64];
        snprintf(command, sizeof command, "fio --readonly %s >/dev/null 2>&1", path);
        ck_assert_int_eq(system(command), 0); /* NOLINT(cert-env33-c) */
    } else {
        printf("note: fio is not installed: its side not looked at\n");
    }
    if (_i == 1) {
        unlink(model.dir);
        ck_assert_int_eq(rename(moved, model.dir), 0);
    }
    tiny_remove(&model);
}
END_TEST

static void has_line(const char *path, const char *wanted)
{
    char line[256];
    bool found = false;
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        found = found || strcmp(line, wanted) == 0;
    }
    fclose(file);
    ck_assert_msg(found, "%s: no line %s", path, wanted);
}

/* The last round visits the points backwards: the first one's reads were written down last. */
START_TEST(what_fio_gets_is_of_the_point_that_was_measured_last)
{
    char path[2 * TINY_PATH_BYTES];
    k3ring("bench %s --ram 32M --pin 0 --limit-time 0 --tokens 1 --io-depth 2,4 --repeat 2 "
           "--export-fio %s/back", disk.dir, folder.dir);
    report_expect();
    snprintf(path, sizeof path, "%s/back.replay.fio", folder.dir);
    has_line(path, "iodepth=2");
    snprintf(path, sizeof path, "%s/back.limit.fio", folder.dir);
    has_line(path, "iodepth=2");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench_export");
    TCase *tcase = tcase_create("fio");
    tcase_add_unchecked_fixture(tcase, setup_once, teardown_once);
    tcase_set_timeout(tcase, 240);
    tcase_add_loop_test(tcase, fio_plays_back_what_was_read, 0, 2);
    tcase_add_test(tcase, what_fio_gets_is_of_the_point_that_was_measured_last);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
