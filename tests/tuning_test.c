/* SPDX-License-Identifier: Apache-2.0 */

/* `auto` of --io-depth, --io-size and --tile as a user sees it: measured once, remembered in the
 * folder for caches, whatever state that is in; and never another token. */

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/json.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define RUN "run %s --ids 3,141,59,26,53,58,97,93 --ram 64M "
#define FOUR_IDS "170 126 66 6\n"
#define AUTO "--io-depth auto --io-size auto --tile auto"
#define SOME "--io-depth 4 --io-size auto" /* few settings: a shorter measurement */
#define PAD_BYTES (28 * MIB)   /* of each header: enough data to measure */

static struct tiny small;   /* too small to measure, in memory */
static struct tiny large;   /* on a drive */
static struct tiny cache;   /* XDG_CACHE_HOME */

static bool says(const char *part)
{
    return strstr(process.err, part) != NULL;
}

static void cache_path(char path[TINY_PATH_BYTES])
{
    tiny_path(&cache, "k3ring/tuning.json", path);
}

static void forget(void)
{
    char path[TINY_PATH_BYTES];
    cache_path(path);
    unlink(path);
}

static bool remembered(void)
{
    char path[TINY_PATH_BYTES];
    cache_path(path);
    return access(path, F_OK) == 0;
}

/* Measures until the result is remembered: a busy drive may take several tries. False, said, when
 * there is no drive to measure or it never comes to rest. */
static bool measured(void)
{
    forget();
    for (int i = 0; i < 5 && !remembered(); i++) {
        k3ring(RUN "--gen 4 " SOME, large.dir);
        expect(0, "tile");
        ck_assert_str_eq(process.out, FOUR_IDS);
        if (says("no drive was measured")) {
            printf("skip: %s\n", process.err);
            return false;
        }
    }
    if (!remembered()) {
        printf("skip: the drive is too busy to be measured\n");
    }
    return remembered();
}

static void put(const char *text)
{
    tiny_put(&cache, "k3ring/tuning.json", text, strlen(text));
}

/* The file as text, to be free()d. */
static char *content(void)
{
    size_t size;
    unsigned char *bytes = tiny_read(&cache, "k3ring/tuning.json", &size);
    char *text = calloc(1, size + 1);
    ck_assert_ptr_nonnull(text);
    memcpy(text, bytes, size);
    free(bytes);
    return text;
}

static uint64_t number(const cJSON *object, const char *name)
{
    uint64_t value = 0;
    ck_assert_msg(json_u64(cJSON_GetObjectItem(object, name), &value), "%s is no number", name);
    return value;
}

START_TEST(a_measurement_is_remembered_and_used_again)
{
    if (!measured()) {
        return;
    }
    char *text = content();
    cJSON *root = json_parse(text, strlen(text), "tuning", false);
    ck_assert_ptr_nonnull(root);
    const cJSON *entry = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "entries"), 0);
    k3ring(RUN "--gen 4 --json - " SOME, large.dir);
    expect(0, "remembered from 20");
    cJSON *report = json_parse(process.out, strlen(process.out), "report", false);
    ck_assert_ptr_nonnull(report);
    const cJSON *settings = cJSON_GetObjectItem(report, "settings");
    const cJSON *tuning = cJSON_GetObjectItem(settings, "tuning");
    ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(tuning, "measured")));
    ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(tuning, "remembered")));
    ck_assert_uint_eq(number(settings, "io_depth"), number(entry, "io_depth"));
    ck_assert_uint_eq(number(tuning, "io_size"), number(entry, "io_size"));
    ck_assert(cJSON_GetObjectItem(tuning, "gb_per_s")->valuedouble > 0);
    cJSON_Delete(report);
    cJSON_Delete(root);
    char *again = content();
    ck_assert_str_eq(text, again); /* not written once more */
    free(again);
    free(text);
    k3ring("plan %s --ram 64M " SOME, large.dir);
    expect(0, NULL);
    ck_assert_ptr_nonnull(strstr(process.out, "TUNED "));
    ck_assert_ptr_nonnull(strstr(process.out, "remembered from 20"));
    k3ring("plan %s --ram 64M --remeasure " SOME, large.dir);
    ck_assert_ptr_nonnull(strstr(process.out, "measured in "));
}
END_TEST

START_TEST(another_question_is_another_measurement)
{
    if (!measured()) {
        return;
    }
    k3ring(RUN "--gen 4 --io-size auto --io-depth 3", large.dir);
    expect(0, "io 3 x ");
    ck_assert_str_eq(process.out, FOUR_IDS);
    ck_assert(says("measured in "));
    k3ring(RUN "--gen 4 --io pread " SOME, large.dir);
    expect(0, "measured in ");
    ck_assert_str_eq(process.out, FOUR_IDS);
    k3ring(RUN "--gen 4 " SOME, large.dir);
    expect(0, "remembered from 20"); /* the first one is still known */
}
END_TEST

static const char *const damaged[] = {
    "", "{", "nonsense", "[]", "{}", "{\"k3ring_tuning\": 2, \"entries\": []}",
    "{\"k3ring_tuning\": 1}", "{\"k3ring_tuning\": 1, \"entries\": [{}]}",
    "{\"k3ring_tuning\": 1, \"entries\": [7]}",
    "{\"k3ring_tuning\": 1, \"entries\": [{\"device\": \"x\", \"asked\": \"y\", \"io_depth\": 0, "
    "\"io_size\": 4096, \"bytes_per_s\": 1, \"best_bytes_per_s\": 1, \"date\": 1}]}",
    "{\"k3ring_tuning\": 1, \"entries\": [{\"device\": \"x\", \"asked\": \"y\", \"io_depth\": 8, "
    "\"io_size\": 5000, \"bytes_per_s\": 1, \"best_bytes_per_s\": 1, \"date\": 1}]}",
};

START_TEST(a_damaged_or_foreign_file_is_ignored_with_a_note)
{
    char path[TINY_PATH_BYTES];
    tiny_path(&cache, "k3ring", path);
    mkdir(path, 0700);
    put(damaged[_i]);
    k3ring(RUN "--gen 4 " SOME, large.dir);
    expect(0, "ignored, the drive is measured anew");
    ck_assert(says("tuning.json: "));
    ck_assert_str_eq(process.out, FOUR_IDS);
    if (_i == 0) {
        put(damaged[_i]);
        k3ring(RUN "--gen 4 --quiet " SOME, large.dir);
        expect(0, NULL);
        ck_assert_str_eq(process.err, "");
    }
    forget();
}
END_TEST

START_TEST(a_folder_that_cannot_be_written_is_a_note)
{
    setenv("XDG_CACHE_HOME", "/proc/absent", 1);
    bool no_drive = false;
    bool told = false;
    for (int i = 0; i < 5 && !told && !no_drive; i++) {
        k3ring(RUN "--gen 4 " SOME, large.dir);
        expect(0, NULL);
        ck_assert_str_eq(process.out, FOUR_IDS);
        told = says("measured again next time");
        no_drive = says("no drive was measured") || says("speed varies");
    }
    ck_assert(told || no_drive);
}
END_TEST

START_TEST(without_a_folder_for_caches_nothing_is_remembered)
{
    setenv("XDG_CACHE_HOME", "relative/path", 1);
    unsetenv("HOME");
    k3ring(RUN "--gen 4 " AUTO, large.dir);
    expect(0, NULL);
    ck_assert_str_eq(process.out, FOUR_IDS);
    ck_assert(says("nor HOME names a folder") || says("speed varies") || says("no drive"));
}
END_TEST

START_TEST(home_takes_the_place_of_a_folder_for_caches)
{
    char path[TINY_PATH_BYTES];
    if (!measured()) {
        return;
    }
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", cache.dir, 1);
    tiny_path(&cache, ".cache/k3ring/tuning.json", path);
    for (int i = 0; i < 5 && access(path, F_OK) != 0; i++) {
        k3ring(RUN "--gen 4 " SOME, large.dir);
        expect(0, NULL);
    }
    ck_assert(access(path, F_OK) == 0 || says("speed varies"));
}
END_TEST

START_TEST(where_there_is_no_drive_the_defaults_stay)
{
    k3ring(RUN "--gen 4 --json - " AUTO, small.dir);
    expect(0, "no drive was measured, since ");
    cJSON *report = json_parse(process.out, strlen(process.out), "report", false);
    ck_assert_ptr_nonnull(report);
    const cJSON *settings = cJSON_GetObjectItem(report, "settings");
    const cJSON *tuning = cJSON_GetObjectItem(settings, "tuning");
    ck_assert_uint_eq(number(settings, "io_depth"), 8);
    ck_assert_uint_eq(number(settings, "tile"), 4 * MIB);
    ck_assert_uint_eq(number(tuning, "io_size"), 4 * MIB);
    ck_assert(cJSON_IsFalse(cJSON_GetObjectItem(tuning, "measured")));
    cJSON_Delete(report);
    k3ring(RUN "--gen 4 --io sim " AUTO, large.dir);
    expect(0, "since reads are simulated");
    ck_assert_str_eq(process.out, FOUR_IDS);
    k3ring(RUN "--gen 4 --io-size 5000 --io-depth auto", large.dir);
    expect(2, "--io-size");
    k3ring(RUN "--gen 4 --remeasure", large.dir);
    expect(2, "--remeasure");
    k3ring(RUN "--gen 4 " AUTO, folder.dir);
    expect(3, NULL);
}
END_TEST

/* The signal meets the measurement or the run behind it, whichever is under way. */
START_TEST(a_signal_ends_the_measurement)
{
    static const int signals[] = {SIGINT, SIGTERM};
    forget();
    process_start(&process, folder.dir, process_binary(), RUN "--gen 4000 --pin 0 --remeasure "
                  AUTO, large.dir);
    process_await_handler(&process, signals[_i]);
    usleep(300000);
    kill(process.pid, signals[_i]);
    process_wait(&process);
    ck_assert_msg(process.status == 128 + signals[_i], "exit %d: %s", process.status, process.err);
    ck_assert(says("stopped"));
}
END_TEST

static void remove_cache(void)
{
    static const char *const inner[] = {"k3ring", ".cache/k3ring", ".cache", ""};
    for (size_t i = 0; i < countof(inner); i++) {
        struct tiny one;
        snprintf(one.dir, sizeof one.dir, "%.200s/%s", cache.dir, inner[i]);
        if (access(one.dir, F_OK) == 0) {
            tiny_remove(&one);
        }
    }
}

static void setup(void)
{
    setenv("XDG_CACHE_HOME", cache.dir, 1);
}

static Suite *tuning_suite(void)
{
    Suite *suite = suite_create("tuning");
    TCase *tcase = tcase_create("tuning");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, a_measurement_is_remembered_and_used_again);
    tcase_add_test(tcase, another_question_is_another_measurement);
    tcase_add_loop_test(tcase, a_damaged_or_foreign_file_is_ignored_with_a_note, 0,
                        (int)countof(damaged));
    tcase_add_test(tcase, a_folder_that_cannot_be_written_is_a_note);
    tcase_add_test(tcase, without_a_folder_for_caches_nothing_is_remembered);
    tcase_add_test(tcase, home_takes_the_place_of_a_folder_for_caches);
    tcase_add_test(tcase, where_there_is_no_drive_the_defaults_stay);
    tcase_add_loop_test(tcase, a_signal_ends_the_measurement, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    if (process_binary() == NULL) {
        fprintf(stderr, "tuning_test: there is no k3ring beside the folder of this test\n");
        return EXIT_FAILURE;
    }
    tiny_make(&small, TINY_MEMORY);
    tiny_make(&large, TINY_DISK);
    for (uint32_t shard = 0; shard < TINY_SHARDS; shard++) {
        tiny_pad_header(&large, shard, PAD_BYTES);
    }
    tiny_folder(&folder, TINY_MEMORY);
    tiny_folder(&cache, TINY_DISK);
    int failed = suite_run(tuning_suite());
    tiny_remove(&small);
    tiny_remove(&large);
    tiny_remove(&folder);
    remove_cache();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
