/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/cli/tuning_file.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

static struct tiny folder;
static char path[TINY_PATH_BYTES];
static char said[1024];

static void listen(const char *line)
{
    snprintf(said, sizeof said, "%s", line);
}

static struct tuning_entry entry_of(const char *device, const char *asked, uint64_t depth)
{
    struct tuning_entry entry = {.io_depth = depth, .io_size_bytes = 8192,
                                 .bytes_per_s = 3000000001, .best_bytes_per_s = 3100000000,
                                 .date_s = 1796000000};
    snprintf(entry.device, sizeof entry.device, "%s", device);
    snprintf(entry.asked, sizeof entry.asked, "%s", asked);
    return entry;
}

static bool found(const char *device, const char *asked, struct tuning_entry *entry)
{
    *entry = entry_of(device, asked, 0);
    return tuning_file_find(path, entry, listen);
}

static void setup(void)
{
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "tuning.json", path);
    said[0] = '\0';
    err_clear();
}

static void teardown(void)
{
    ck_assert_str_eq(err_message(), ""); /* nothing here is an error of the run */
    tiny_remove(&folder);
}

START_TEST(what_is_stored_is_found_by_device_and_question)
{
    struct tuning_entry entry = entry_of("nvme \"0\" \\ x", "all", 16);
    struct tuning_entry back;
    ck_assert(!found("nvme \"0\" \\ x", "all", &back));
    ck_assert_str_eq(said, "");
    tuning_file_store(path, &entry, listen);
    ck_assert(found("nvme \"0\" \\ x", "all", &back));
    ck_assert(memcmp(&entry, &back, sizeof entry) == 0);
    ck_assert(!found("nvme 1", "all", &back));
    ck_assert(!found("nvme \"0\" \\ x", "depth", &back));
    ck_assert_str_eq(said, "");
}
END_TEST

START_TEST(a_new_result_takes_the_place_of_the_old_one)
{
    struct tuning_entry back;
    for (uint64_t depth = 1; depth <= 3; depth++) {
        struct tuning_entry entry = entry_of("a", "all", depth);
        tuning_file_store(path, &entry, listen);
    }
    struct tuning_entry other = entry_of("b", "all", 9);
    tuning_file_store(path, &other, listen);
    ck_assert(found("a", "all", &back));
    ck_assert_uint_eq(back.io_depth, 3);
    ck_assert(found("b", "all", &back));
    ck_assert_uint_eq(back.io_depth, 9);
}
END_TEST

START_TEST(the_oldest_results_make_room)
{
    char name[16];
    struct tuning_entry back;
    for (unsigned i = 0; i < TUNING_ENTRIES_MAX + 5; i++) {
        snprintf(name, sizeof name, "drive %u", i);
        struct tuning_entry entry = entry_of(name, "all", 1 + i);
        tuning_file_store(path, &entry, listen);
    }
    ck_assert(!found("drive 4", "all", &back));
    ck_assert(found("drive 5", "all", &back));
    ck_assert_uint_eq(back.io_depth, 6);
    snprintf(name, sizeof name, "drive %u", TUNING_ENTRIES_MAX + 4);
    ck_assert(found(name, "all", &back));
    ck_assert_str_eq(said, "");
}
END_TEST

START_TEST(damage_is_told_once_and_mended_by_the_next_result)
{
    struct tuning_entry entry = entry_of("a", "all", 4);
    struct tuning_entry back;
    tiny_put(&folder, "tuning.json", "{\"k3ring_tuning\": 1, \"entries\": [", 33);
    ck_assert(!found("a", "all", &back));
    ck_assert_ptr_nonnull(strstr(said, "ignored, the drive is measured anew"));
    said[0] = '\0';
    tuning_file_store(path, &entry, listen);
    ck_assert_str_eq(said, "");
    ck_assert(found("a", "all", &back));
}
END_TEST

START_TEST(a_folder_in_the_place_of_the_file_is_told)
{
    struct tuning_entry entry = entry_of("a", "all", 4);
    struct tuning_entry back;
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert(!found("a", "all", &back));
    ck_assert(said[0] != '\0');
    said[0] = '\0';
    tuning_file_store(path, &entry, listen);
    ck_assert_ptr_nonnull(strstr(said, "measured again next time"));
    ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

START_TEST(the_path_comes_from_absolute_folders_only)
{
    static const struct {
        const char *cache, *home, *path;
    } cases[] = {{"/c", "/h", "/c/k3ring/tuning.json"},
                 {"c", "/h", "/h/.cache/k3ring/tuning.json"},
                 {"", "/h", "/h/.cache/k3ring/tuning.json"},
                 {NULL, "/h", "/h/.cache/k3ring/tuning.json"},
                 {"c", "h", NULL},
                 {NULL, NULL, NULL}};
    for (size_t i = 0; i < countof(cases); i++) {
        unsetenv("XDG_CACHE_HOME");
        unsetenv("HOME");
        if (cases[i].cache != NULL) {
            setenv("XDG_CACHE_HOME", cases[i].cache, 1);
        }
        if (cases[i].home != NULL) {
            setenv("HOME", cases[i].home, 1);
        }
        char *made = tuning_file_path();
        ck_assert_pstr_eq(made, cases[i].path);
        free(made);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tuning file");
    TCase *tcase = tcase_create("file");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, what_is_stored_is_found_by_device_and_question);
    tcase_add_test(tcase, a_new_result_takes_the_place_of_the_old_one);
    tcase_add_test(tcase, the_oldest_results_make_room);
    tcase_add_test(tcase, damage_is_told_once_and_mended_by_the_next_result);
    tcase_add_test(tcase, a_folder_in_the_place_of_the_file_is_told);
    tcase_add_test(tcase, the_path_comes_from_absolute_folders_only);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
