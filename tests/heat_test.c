/* SPDX-License-Identifier: Apache-2.0 */

/* Heat files as a user meets them: they change hits, never output, and survive being killed. */

#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/json.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define RUN "run %s --ids 3,141,59,26,53,58,97,93 --quiet --ram 64M --pin 0 --expert-slots 24 "

#define KILLS 24

static struct tiny tiny, results;
static char heat[TINY_PATH_BYTES];

static void begin(void)
{
    tiny_folder(&results, TINY_MEMORY);
    tiny_path(&results, "heat", heat);
}

static void end(void)
{
    tiny_remove(&results);
}

/* Hits of the report on standard output, after the golden hash was found in it. */
static uint64_t hits_of_golden_run(void)
{
    uint64_t hits = 0;
    cJSON *root = json_parse(process.out, strlen(process.out), "the report", false);
    ck_assert_msg(root != NULL, "%s", process.out);
    ck_assert_ptr_nonnull(strstr(process.out, TINY_HASH));
    ck_assert(json_u64(cJSON_GetObjectItem(cJSON_GetObjectItem(root, "cache"), "hits"), &hits));
    cJSON_Delete(root);
    return hits;
}

START_TEST(heat_changes_hits_and_not_a_bit_of_the_output)
{
    static const char *const policies[] = {"lar", "lfu", "lhr"};
    begin();
    k3ring(RUN "--gen 16 --json - --cache-policy %s", tiny.dir, policies[_i]);
    expect(0, NULL);
    uint64_t without = hits_of_golden_run(), hits = 0;
    for (int turn = 0; turn < 3; turn++) {
        k3ring(RUN "--gen 16 --json - --cache-policy %s --heat %s", tiny.dir, policies[_i], heat);
        expect(0, NULL);
        hits = hits_of_golden_run();
        ck_assert(turn > 0 || hits == without); /* there was no file yet */
        ck_assert_int_eq(access(heat, F_OK), 0);
    }
    ck_assert_msg(hits != without, "%s: %llu hits with and without", policies[_i],
                  (unsigned long long)hits);
    end();
}
END_TEST

START_TEST(what_cannot_be_heat_is_refused_in_one_line)
{
    char other[TINY_PATH_BYTES];
    begin();
    k3ring(RUN "--gen 1 --heat %s", tiny.dir, heat);
    expect(2, "lar, lfu, lhr");
    ck_assert_int_ne(access(heat, F_OK), 0);
    k3ring(RUN "--gen 1 --cache-policy lhr --heat -", tiny.dir);
    expect(2, "--heat");
    k3ring(RUN "--gen 1 --cache-policy lhr --json %s --heat %s", tiny.dir, heat, heat);
    expect(2, "two files");
    k3ring(RUN "--gen 1 --cache-policy lhr --heat /nowhere/heat", tiny.dir);
    expect(1, "/nowhere/heat");
    tiny_path(&results, "link", other);
    ck_assert_int_eq(symlink(heat, other), 0);
    k3ring(RUN "--gen 1 --cache-policy lhr --heat %s", tiny.dir, other);
    expect(2, "not a regular file");
    k3ring(RUN "--gen 1 --cache-policy lhr --heat %s", tiny.dir, heat);
    expect(0, NULL);
    k3ring(RUN "--gen 1 --cache-policy lar --heat %s", tiny.dir, heat);
    expect(2, "of the cache policy 'lhr'");
    end();
}
END_TEST

START_TEST(a_damaged_file_is_refused_and_left_alone)
{
    size_t size, again;
    begin();
    k3ring(RUN "--gen 4 --cache-policy lhr --heat %s", tiny.dir, heat);
    expect(0, NULL);
    unsigned char *bytes = tiny_read(&results, "heat", &size);
    bytes[size / 2] ^= 0x10;
    tiny_put(&results, "heat", bytes, size);
    k3ring(RUN "--gen 4 --cache-policy lhr --heat %s", tiny.dir, heat);
    expect(3, "damaged");
    unsigned char *after = tiny_read(&results, "heat", &again);
    ck_assert_uint_eq(size, again);
    ck_assert_mem_eq(bytes, after, size);
    free(bytes);
    free(after);
    end();
}
END_TEST

/* Takes away the new file that a killed run left beside the old one: open from the start, and
 * empty until it is saved. */
static bool saving_was_cut(void)
{
    struct stat status;
    bool cut = false;
    DIR *stream = opendir(results.dir);
    ck_assert_ptr_nonnull(stream);
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (strncmp(entry->d_name, "heat.", strlen("heat.")) == 0) {
            cut = fstatat(dirfd(stream), entry->d_name, &status, 0) == 0 && status.st_size > 0;
            unlinkat(dirfd(stream), entry->d_name, 0);
        }
    }
    closedir(stream);
    return cut;
}

/* Until something of the new file is there, or the program has ended. */
static void wait_for_saving(void)
{
    char path[TINY_PATH_BYTES];
    struct stat status;
    siginfo_t ended = {.si_pid = 0};
    snprintf(path, sizeof path, "%.400s.tmp.%d", heat, (int)process.pid);
    while ((stat(path, &status) < 0 || status.st_size == 0) &&
           waitid(P_PID, (id_t)process.pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == 0) {
        usleep(20);
    }
}

/* Whenever the program dies, the file is the old one or the new one, whole. Every other kill is
 * aimed at the saving. */
START_TEST(a_kill_at_any_moment_leaves_a_sound_file)
{
    uint32_t before_end = 0;
    uint32_t saving = 0;
    begin();
    k3ring(RUN "--gen 4 --cache-policy lhr --heat %s", tiny.dir, heat);
    expect(0, NULL);
    for (long turn = 0; turn < KILLS; turn++) {
        struct timespec wait = {.tv_nsec = turn * 4500000L};
        process_start(&process, folder.dir, process_binary(),
                      RUN "--gen 3 --cache-policy lhr --heat %s", tiny.dir, heat);
        if (turn % 2 == 0) {
            nanosleep(&wait, NULL);
        } else {
            wait_for_saving();
        }
        kill(process.pid, SIGKILL);
        process_wait(&process);
        before_end += process.status == 128 + SIGKILL;
        saving += saving_was_cut();
        ck_assert_int_eq(access(heat, F_OK), 0);
        k3ring(RUN "--gen 1 --cache-policy lhr --heat %s", tiny.dir, heat);
        expect(0, NULL);
    }
    printf("note: of %d kills %u came before the end, %u while heat was saved\n", KILLS, before_end,
           saving);
    ck_assert_uint_gt(before_end, 0);
    end();
}
END_TEST

START_TEST(heat_without_a_cache_is_told)
{
    begin();
    k3ring("run %s --ids 1,2 --gen 16 --ram 64M --pin 0 --expert-slots 0 --cache-policy lhr "
           "--heat %s", tiny.dir, heat);
    expect(0, "no expert cache to learn from");
    end();
}
END_TEST

static Suite *heat_suite(void)
{
    Suite *suite = suite_create("heat");
    TCase *tcase = tcase_create("heat");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, heat_changes_hits_and_not_a_bit_of_the_output, 0, 3);
    tcase_add_test(tcase, what_cannot_be_heat_is_refused_in_one_line);
    tcase_add_test(tcase, a_damaged_file_is_refused_and_left_alone);
    tcase_add_test(tcase, a_kill_at_any_moment_leaves_a_sound_file);
    tcase_add_test(tcase, heat_without_a_cache_is_told);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    tiny_make(&tiny, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    int failed = suite_run(heat_suite());
    tiny_remove(&tiny);
    tiny_remove(&folder);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
