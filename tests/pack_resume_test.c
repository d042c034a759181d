/* SPDX-License-Identifier: Apache-2.0 */

/* Packing that ends early, however it ends: nothing that is left opens as a model, and the same
 * command goes on to a pack that is byte for byte the one of a run without an end. */

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/nondet.h"
#include "core/cli/pack.h"
#include "tests/support/packed.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"

#define WATCHDOG_SECONDS 300
#define KILLS 24
#define LIMITS 10

static struct tiny source;
static struct tiny whole;  /* what an undisturbed run makes */
static struct tiny top;    /* holds the packs of a test */
static struct tiny out;    /* one of them: made by the program */
static uint32_t *kills_in_time; /* shared by the processes of the tests */

static void begin(void)
{
    tiny_folder(&top, TINY_MEMORY);
    snprintf(out.dir, sizeof out.dir, "%.200s/out", top.dir);
}

static void end(void)
{
    if (access(out.dir, F_OK) == 0) {
        tiny_remove(&out);
    }
    tiny_remove(&top);
}

static bool exists(const char *name)
{
    char path[TINY_PATH_BYTES];
    tiny_path(&out, name, path);
    return access(path, F_OK) == 0;
}

static void expect_same(const char *name)
{
    size_t sizes[2];
    unsigned char *mine = tiny_read(&out, name, &sizes[0]);
    unsigned char *right = tiny_read(&whole, name, &sizes[1]);
    ck_assert_msg(sizes[0] == sizes[1] && memcmp(mine, right, sizes[0]) == 0, "%s differs", name);
    free(mine);
    free(right);
}

static bool unfinished(void)
{
    return exists(PACK_JOURNAL) && !exists(PACK_MANIFEST);
}

/* Not a model yet, and told how to become one. */
static void expect_unfinished(void)
{
    k3ring("run %s --ids 1 --gen 1", out.dir);
    expect(3, "not finished");
    ck_assert_str_eq(process.out, "");
}

static void expect_finish(void)
{
    if (!exists(PACK_MANIFEST)) {
        k3ring("pack %s %s", source.dir, out.dir);
        expect(0, "experts");
    }
    expect_same(PACK_MANIFEST);
    expect_same(PACK_TRUNK);
    expect_same(PACK_EXPERTS);
    expect_same("config.json");
    k3ring("pack --verify %s", out.dir);
    expect(0, "byte for byte");
}

static void wait_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* Before that it might not even be the program yet. */
static void wait_until_begun(void)
{
    for (int turn = 0; turn < 2000 && !exists(PACK_JOURNAL) && !exists(PACK_MANIFEST); turn++) {
        wait_ns(1000000);
    }
}

/* The first kill comes while it writes, if it is not too quick for that; the others at any time,
 * a preparing run included. */
START_TEST(a_killed_run_is_taken_up)
{
    struct rng rng = rng_seed((uint64_t)_i);
    begin();
    for (int kill_number = 0; kill_number < 3; kill_number++) {
        process_start(&process, folder.dir, process_binary(), "pack %s %s --threads %d",
                      source.dir, out.dir, 1 + _i % 3);
        if (kill_number == 0) {
            wait_until_begun();
        }
        wait_ns(rng_below(&rng, 12000000) * (1 + (uint64_t)_i % 4));
        kill(process.pid, SIGKILL);
        process_wait(&process);
        if (unfinished()) {
            *kills_in_time += process.status == 128 + SIGKILL;
            expect_unfinished();
        }
    }
    expect_finish();
    end();
}
END_TEST

START_TEST(some_kill_met_an_unfinished_pack)
{
    printf("note: %u of %u kills met an unfinished pack\n", *kills_in_time, 3U * KILLS);
    ck_assert_uint_gt(*kills_in_time, 0);
}
END_TEST

/* A limit of the file size stops at a certain byte, as a full drive does. */
static void pack_within(uint64_t limit_bytes, int threads)
{
    struct rlimit before;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit tight = {.rlim_cur = limit_bytes, .rlim_max = before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &tight), 0);
    process_start(&process, folder.dir, process_binary(), "pack %s %s --threads %d", source.dir,
                  out.dir, threads);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    process_wait(&process);
}

START_TEST(a_run_that_finds_no_room_is_taken_up)
{
    struct stat status;
    char path[TINY_PATH_BYTES];
    begin();
    tiny_path(&whole, PACK_TRUNK, path);
    ck_assert_int_eq(stat(path, &status), 0);
    uint64_t steps = (uint64_t)_i;
    uint64_t limit = 65536 + (uint64_t)status.st_size * steps / LIMITS;
    pack_within(limit, 1 + _i % 3);
    expect(1, "the same command goes on");
    ck_assert(exists(PACK_JOURNAL) && !exists(PACK_MANIFEST));
    expect_unfinished();
    k3ring("pack %s %s", source.dir, out.dir);
    expect(0, "experts");
    if (_i > 1) { /* what was written before was kept */
        ck_assert_msg(strstr(process.err, "earlier run") != NULL, "%s", process.err);
    }
    expect_finish();
    end();
}
END_TEST

START_TEST(an_interrupted_run_says_so_and_is_taken_up)
{
    begin();
    for (int i = 0; i < 40; i++) {
        process_start(&process, folder.dir, process_binary(), "pack %s %s --threads 1",
                      source.dir, out.dir);
        wait_until_begun();
        wait_ns((uint64_t)i * 500000);
        kill(process.pid, SIGINT);
        process_wait(&process);
        if (process.status == 130 && strstr(process.err, "goes on from here") != NULL) {
            break;
        }
        ck_assert_msg(process.status == 130 || process.status == 0, "exit %d: %s", process.status,
                      process.err);
        if (exists(PACK_MANIFEST)) {
            tiny_remove(&out);
        }
    }
    ck_assert_msg(process.status == 130, "no signal came in time: %s", process.err);
    expect_unfinished();
    expect_finish();
    end();
}
END_TEST

/* The machine may have gone down: what the journal says of unmarked items is looked at. */
START_TEST(bytes_that_never_reached_the_drive_are_written_again)
{
    begin();
    pack_within(2000000, 1);
    expect(1, "goes on");
    tiny_truncate(&out, PACK_TRUNK ".partial", -300000);
    expect_finish();
    end();
}
END_TEST

START_TEST(an_end_before_the_first_head_is_taken_up)
{
    size_t size_bytes;
    begin();
    pack_within(2000000, 1);
    tiny_put(&out, PACK_TRUNK ".partial", "", 0);
    k3ring("pack %s %s", source.dir, out.dir);
    expect_refusal(2, "is missing or empty"); /* the journal says that there was more */
    unsigned char *journal = tiny_read(&out, PACK_JOURNAL, &size_bytes);
    const unsigned char *line_end = memchr(journal, '\n', size_bytes);
    ck_assert_ptr_nonnull(line_end);
    tiny_put(&out, PACK_JOURNAL, journal, (size_t)(line_end - journal) + 1);
    free(journal);
    expect_finish();
    end();
}
END_TEST

START_TEST(a_cut_journal_is_taken_as_far_as_it_goes)
{
    begin();
    pack_within(2000000, 2);
    expect(1, "goes on");
    tiny_truncate(&out, PACK_JOURNAL, -_i);
    expect_finish();
    end();
}
END_TEST

START_TEST(other_terms_do_not_take_up_a_pack)
{
    begin();
    pack_within(2000000, 2);
    k3ring("pack %s %s --tile 64K", source.dir, out.dir);
    expect(2, "other options");
    k3ring("pack %s %s --trunk-only", source.dir, out.dir);
    expect(2, "other options");
    k3ring("pack %s %s --to %s/second", source.dir, out.dir, top.dir);
    expect(2, "other options");
    char path[TINY_PATH_BYTES];
    tiny_path(&top, "second", path);
    rmdir(path);
    tiny_put(&out, PACK_JOURNAL, "nonsense\n", 9);
    k3ring("pack %s %s", source.dir, out.dir);
    expect(2, "damaged");
    end();
}
END_TEST

/* Two folders, stopped when both hold something. */
static void pack_apart(const struct tiny *second)
{
    struct rlimit before;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit tight = {.rlim_cur = 1000000, .rlim_max = before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &tight), 0);
    process_start(&process, folder.dir, process_binary(), "pack %s %s --to %s --share 1,1",
                  source.dir, out.dir, second->dir);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    process_wait(&process);
    expect(1, "goes on");
}

static void expect_bytes(const char *name, const unsigned char *before, size_t size_bytes)
{
    size_t now_bytes;
    unsigned char *now = tiny_read(&out, name, &now_bytes);
    ck_assert_msg(now_bytes == size_bytes && memcmp(now, before, size_bytes) == 0, "%s changed",
                  name);
    free(now);
}

/* The folder is gone, then (a drive that is not mounted) there and empty, then back. */
START_TEST(a_part_that_is_gone_is_asked_for_and_nothing_is_lost)
{
    struct tiny second;
    struct tiny away;
    size_t trunk_bytes;
    size_t journal_bytes;
    begin();
    snprintf(second.dir, sizeof second.dir, "%.200s/second", top.dir);
    snprintf(away.dir, sizeof away.dir, "%.200s/away", top.dir);
    pack_apart(&second);
    unsigned char *trunk = tiny_read(&out, PACK_TRUNK ".partial", &trunk_bytes);
    unsigned char *journal = tiny_read(&out, PACK_JOURNAL, &journal_bytes);
    ck_assert_uint_gt(trunk_bytes, 500000);
    ck_assert_int_eq(rename(second.dir, away.dir), 0);
    for (int turn = 0; turn < 2; turn++) {
        k3ring("pack %s %s --to %s", source.dir, out.dir, second.dir);
        expect_refusal(2, "second/" PACK_TRUNK ".partial: is missing");
        ck_assert(access(second.dir, F_OK) != 0 || turn == 1);
        expect_bytes(PACK_TRUNK ".partial", trunk, trunk_bytes);
        expect_bytes(PACK_JOURNAL, journal, journal_bytes);
        ck_assert(turn == 1 || mkdir(second.dir, 0777) == 0);
    }
    free(trunk);
    free(journal);
    ck_assert_int_eq(rmdir(second.dir), 0); /* still empty */
    ck_assert_int_eq(rename(away.dir, second.dir), 0);
    k3ring("pack %s %s --to %s", source.dir, out.dir, second.dir);
    expect(0, "earlier run");
    k3ring("pack --verify %s", out.dir);
    expect(0, "byte for byte");
    tiny_remove(&second);
    end();
}
END_TEST

START_TEST(a_foreign_part_is_left_alone)
{
    struct tiny parts[2];
    size_t size_bytes;
    tiny_folder(&parts[0], TINY_MEMORY);
    tiny_folder(&parts[1], TINY_MEMORY);
    begin();
    pack_apart(&parts[0]);
    tiny_put(&parts[1], PACK_TRUNK, "somebody's", 10);
    k3ring("pack %s %s --to %s", source.dir, out.dir, parts[1].dir);
    expect(2, "no part of the unfinished pack");
    free(tiny_read(&parts[1], PACK_TRUNK, &size_bytes));
    ck_assert_uint_eq(size_bytes, 10);
    tiny_remove(&parts[0]);
    tiny_remove(&parts[1]);
    end();
}
END_TEST

static bool mount_small(const struct tiny *at, const char *options)
{
    return mount("tmpfs", at->dir, "tmpfs", 0, options) == 0;
}

START_TEST(a_drive_without_room_is_refused_before_the_first_byte)
{
    struct tiny small;
    tiny_folder(&small, TINY_DISK);
    if (!mount_small(&small, "size=3m")) {
        printf("skip: no tmpfs may be mounted here\n");
        tiny_remove(&small);
        return;
    }
    k3ring("pack %s %s/out", source.dir, small.dir);
    expect(4, "free");
    k3ring("pack %s %s/out --trunk-only", source.dir, small.dir);
    expect(4, "free");
    char path[TINY_PATH_BYTES];
    tiny_path(&small, "out", path);
    ck_assert(access(path, F_OK) != 0);
    umount(small.dir);
    tiny_remove(&small);
}
END_TEST

static Suite *resume_suite(void)
{
    Suite *suite = suite_create("pack resume");
    TCase *tcase = tcase_create("ends");
    tcase_set_timeout(tcase, WATCHDOG_SECONDS);
    tcase_add_loop_test(tcase, a_killed_run_is_taken_up, 0, KILLS);
    tcase_add_test(tcase, some_kill_met_an_unfinished_pack); /* after all of those */
    tcase_add_loop_test(tcase, a_run_that_finds_no_room_is_taken_up, 0, LIMITS);
    tcase_add_test(tcase, an_interrupted_run_says_so_and_is_taken_up);
    tcase_add_test(tcase, bytes_that_never_reached_the_drive_are_written_again);
    tcase_add_test(tcase, an_end_before_the_first_head_is_taken_up);
    tcase_add_loop_test(tcase, a_cut_journal_is_taken_as_far_as_it_goes, 1, 4);
    tcase_add_test(tcase, other_terms_do_not_take_up_a_pack);
    tcase_add_test(tcase, a_part_that_is_gone_is_asked_for_and_nothing_is_lost);
    tcase_add_test(tcase, a_foreign_part_is_left_alone);
    tcase_add_test(tcase, a_drive_without_room_is_refused_before_the_first_byte);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    kills_in_time = mmap(NULL, sizeof *kills_in_time, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tiny_need(kills_in_time != MAP_FAILED, "shared memory");
    tiny_make(&source, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    packed_make(&whole, &source, TINY_MEMORY, &(struct packed_form){.tile_bytes = 0});
    int failed = suite_run(resume_suite());
    tiny_remove(&whole);
    tiny_remove(&folder);
    tiny_remove(&source);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
