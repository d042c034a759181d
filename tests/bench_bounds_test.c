/* SPDX-License-Identifier: Apache-2.0 */

/* What `k3ring bench` must not do: take more memory than allowed, call a figure one of a drive that
 * is none, or replace a file of the model. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/suite.h"

#define QUICK "--ram 32M --limit-time 0 --tokens 2"

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

#ifndef K3RING_SANITIZED
/* However deep the queue and large the requests, in every job. */
START_TEST(memory_stays_below_its_ceiling)
{
    static const char *const windows[] = {"--io-depth 8", "--io-depth 64 --io-size 1M",
                                          "--io-depth 4 --io-size 16M"};
    struct rusage usage;
    k3ring("bench %s --ram 24M --limit-time 1 --tokens 3 %s", disk.dir, windows[_i]);
    ck_assert_msg(process.status == 0 || process.status == 5, "%s", process.err);
    ck_assert_int_eq(getrusage(RUSAGE_CHILDREN, &usage), 0);
    ck_assert_int_gt(usage.ru_maxrss, 4 * 1024);
    ck_assert_int_le(usage.ru_maxrss, 24 * 1024);
}
END_TEST
#endif

START_TEST(the_simulator_is_no_drive)
{
    k3ring("bench %s " QUICK " --io sim", disk.dir);
    ck_assert_int_eq(process.status, 5);
    ck_assert_ptr_nonnull(strstr(process.err, "simulator"));
}
END_TEST

/* Its requests are a thousandth of the model's: their rate says nothing of it. */
START_TEST(other_widths_tell_nothing_of_the_full_model)
{
    k3ring("bench %s " QUICK "", disk.dir);
    ck_assert_msg(process.status == 0 || process.status == 5, "%s", process.err);
    ck_assert_ptr_null(strstr(process.out, "Kimi K3"));
}
END_TEST

/* Time alone may decide, also where positions are few. */
START_TEST(a_runtime_needs_no_tokens)
{
    k3ring("bench %s --ram 64M --limit-time 0 --runtime 1", disk.dir);
    ck_assert_msg(process.status == 0 || process.status == 5, "%s", process.err);
    ck_assert_ptr_nonnull(strstr(process.out, "decode  "));
}
END_TEST

/* Neither by name nor by a link, whichever command and whatever the output. */
START_TEST(no_output_replaces_a_file_of_the_model)
{
    static const char *const ways[] = {
        "bench MODEL " QUICK " --output FILE", "bench MODEL " QUICK " --html FILE",
        "bench MODEL " QUICK " --trace FILE", "doctor MODEL --json FILE",
        "run MODEL --ids 1 --gen 1 --json FILE", "run MODEL --ids 1 --gen 1 --dump-logits FILE",
        "replay tests/data/small.k3rt --model MODEL --json FILE"};
    static const char *const names[] = {"model-00001-of-000003.safetensors", "config.json"};
    for (size_t i = 0; i < countof(ways) * countof(names) * 2; i++) {
        const char *name = names[i / countof(ways) % countof(names)];
        bool linked = i >= countof(ways) * countof(names);
        char target[TINY_PATH_BYTES];
        char link[TINY_PATH_BYTES];
        char arguments[4 * TINY_PATH_BYTES];
        struct stat before;
        struct stat after;
        tiny_path(&disk, name, target);
        tiny_path(&folder, "link", link);
        ck_assert_int_eq(symlink(target, link), 0);
        ck_assert_int_eq(stat(target, &before), 0);
        const char *way = ways[i % countof(ways)];
        const char *model = strstr(way, "MODEL");
        const char *file = strstr(way, "FILE");
        snprintf(arguments, sizeof arguments, "%.*s%s%.*s%s", (int)(model - way), way, disk.dir,
                 (int)(file - model - 5), model + 5, linked ? link : target);
        k3ring("%s", arguments);
        unlink(link);
        expect_refusal(2, "is not replaced");
        ck_assert_int_eq(stat(target, &after), 0);
        ck_assert_uint_eq(before.st_ino, after.st_ino);
        ck_assert_int_eq(before.st_size, after.st_size);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench_bounds");
    TCase *tcase = tcase_create("bench_bounds");
    tcase_add_unchecked_fixture(tcase, setup_once, teardown_once);
    tcase_set_timeout(tcase, 240);
#ifndef K3RING_SANITIZED
    tcase_add_loop_test(tcase, memory_stays_below_its_ceiling, 0, 3);
#endif
    tcase_add_test(tcase, the_simulator_is_no_drive);
    tcase_add_test(tcase, other_widths_tell_nothing_of_the_full_model);
    tcase_add_test(tcase, a_runtime_needs_no_tokens);
    tcase_add_test(tcase, no_output_replaces_a_file_of_the_model);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
