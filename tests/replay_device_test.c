/* SPDX-License-Identifier: Apache-2.0 */

/* `k3ring replay --device` as a user meets it: the reads of a run and as many hits, by the report
 * of that run; rates refused where there is no drive; its ends and refusals. */

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/json.h"
#include "tests/support/command.h"
#include "tests/support/packed.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"
#include "tests/support/trace_model.h"

#define TOKENS 30U
#define LAYERS (REF_LAYERS - 1U)

static struct tiny disk, memory, pack, results;
static char trace_path[TINY_PATH_BYTES]; /* recorded by a run over `disk` */

static const cJSON *at(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    ck_assert_msg(item != NULL, "no %s", name);
    return item;
}

static uint64_t number(const cJSON *object, const char *name)
{
    uint64_t value = 0;
    ck_assert_msg(json_u64(at(object, name), &value), "%s is no number", name);
    return value;
}

/* A figure of all reads. */
static double real(const cJSON *root, const char *name)
{
    return cJSON_GetNumberValue(at(at(root, "reads"), name));
}

static cJSON *report(void)
{
    cJSON *root = json_parse(process.out, strlen(process.out), "report", false);
    ck_assert_msg(root != NULL, "%s: %s%s", err_message(), process.out, process.err);
    return root;
}

/* The report of the replay that just ended, which says whether it is one of a drive. */
static cJSON *replayed(void)
{
    cJSON *root = report();
    bool valid = cJSON_IsTrue(at(root, "valid"));
    ck_assert_int_eq(process.status, valid ? 0 : 5);
    ck_assert_int_eq(cJSON_IsNull(at(at(root, "reads"), "gb_per_s")), !valid);
    ck_assert_int_eq(cJSON_IsNull(at(at(root, "reads"), "seconds_per_token")), !valid);
    if (valid && number(root, "tokens") > 1) {
        double rest = (double)(number(root, "tokens") - 1);
        double sum = real(root, "first_token_seconds") + rest * real(root, "later_token_seconds");
        ck_assert(fabs(sum - real(root, "wall_seconds")) < 1e-9);
        ck_assert(real(root, "first_token_seconds") > 0);
    }
    return root;
}

/* ---- the same as a run ---- */

static const char *const ways[] = {
    "--pin 0 --expert-slots 30",
    "--pin 0 --expert-slots 40 --cache-policy lar --io-size 4K --io-depth 3",
    "--pin 50% --expert-slots 7 --cache-policy lru --io pread",
    "--pin 1M --pin-order prefix --expert-slots all --cache-policy lfu",
    "--pin all --expert-slots 0",
    "--ram 26M",
    "--ram 22M --io-depth 16 --io-size 8K --cache-policy arc-global",
};

static void check_class(const cJSON *run, const cJSON *replay, const char *name, bool places)
{
    const cJSON *a = at(at(run, "reads"), name);
    const cJSON *b = at(at(replay, "reads"), name);
    ck_assert_uint_eq(number(a, "requests"), number(b, "requests"));
    ck_assert(places || number(a, "bytes") == number(b, "bytes"));
    ck_assert_uint_eq(number(at(b, "lat_ns"), "N"), number(b, "requests"));
}

static void compare(const struct tiny *model, const char *way)
{
    char path[TINY_PATH_BYTES];
    tiny_path(&results, "own", path);
    k3ring("run %s --ids 3 --gen %u --chunk 1 --trace %s --json - --quiet %s", model->dir, TOKENS,
           path, way);
    expect(0, NULL);
    cJSON *run = report();
    k3ring("replay %s --device %s --json - %s", path, model->dir, way);
    cJSON *replay = replayed();
    check_class(run, replay, "trunk", false);
    check_class(run, replay, "head", false);
    check_class(run, replay, "experts", false);
    check_class(run, replay, "embed", true); /* a trace does not tell which rows */
    ck_assert_uint_eq(number(replay, "tokens"), TOKENS);
    ck_assert_uint_eq(number(at(replay, "cache"), "demands"), number(at(run, "cache"), "demands"));
    ck_assert_uint_eq(number(at(replay, "cache"), "hits"), number(at(run, "cache"), "hits"));
    ck_assert_uint_eq(number(at(replay, "settings"), "expert_slots"),
                      number(at(run, "cache"), "slots"));
    cJSON_Delete(run);
    cJSON_Delete(replay);
    unlink(path);
}

START_TEST(it_makes_the_reads_of_a_run)
{
    compare(&memory, ways[_i]);
}
END_TEST

START_TEST(it_does_so_on_a_drive)
{
    compare(&disk, "--ram 24M");
}
END_TEST

START_TEST(it_makes_the_reads_of_a_run_over_a_pack)
{
    compare(&pack, ways[_i]);
}
END_TEST

/* ---- the report ---- */

START_TEST(the_table_says_what_the_json_says)
{
    char line[128];
    size_t size = 0;
    char path[TINY_PATH_BYTES];
    tiny_path(&results, "report.json", path);
    k3ring("replay %s --device %s --pin 0 --expert-slots 20 --tokens 3 --json %s", trace_path,
           disk.dir, path);
    ck_assert(process.status == 0 || process.status == 5);
    unsigned char *text = tiny_read(&results, "report.json", &size);
    cJSON *root = json_parse((const char *)text, size, "report", false);
    ck_assert_msg(root != NULL, "%s", err_message());
    const cJSON *trunk = at(at(root, "reads"), "trunk");
    snprintf(line, sizeof line, "\ntrunk    %10llu %10.1f ",
             (unsigned long long)number(trunk, "requests"), (double)number(trunk, "requests") / 3);
    ck_assert_msg(strstr(process.out, line) != NULL, "%s: %s", line, process.out);
    ck_assert_ptr_nonnull(strstr(process.out, "3 of 3 tokens, 12 layers, 4 of 16 experts each"));
    ck_assert_ptr_nonnull(strstr(process.out, "20 expert slots, arc"));
    ck_assert_ptr_nonnull(strstr(process.out, "IO depths: 1="));
    snprintf(line, sizeof line, "experts: %u asked for, %llu hits", 3 * LAYERS * REF_TOP,
             (unsigned long long)number(at(root, "cache"), "hits"));
    ck_assert_ptr_nonnull(strstr(process.out, line));
    ck_assert_ptr_nonnull(strstr(process.out, process.status == 0 ? " seconds per token"
                                                                  : "reads alone: refused: "));
    cJSON_Delete(root);
    free(text);
    unlink(path);
}
END_TEST

START_TEST(in_memory_rates_are_refused_and_counts_are_not)
{
    k3ring("replay %s --device %s --json -", trace_path, memory.dir);
    cJSON *root = replayed();
    const cJSON *gate = cJSON_GetArrayItem(at(root, "gates"), 0);
    if (process.status == 0) {
        printf("skip: there is no folder in memory\n");
    } else {
        ck_assert_str_eq(cJSON_GetStringValue(at(gate, "severity")), "invalid");
        expect(5, "these are no figures of a drive: ");
        k3ring("replay %s --device %s", trace_path, memory.dir);
        expect(5, "these are no figures of a drive: ");
        ck_assert_ptr_nonnull(strstr(process.out, "reads alone: refused: "));
        ck_assert_ptr_null(strstr(process.out, "GB/s"));
    }
    cJSON_Delete(root);
}
END_TEST

START_TEST(holes_are_no_reads_of_a_drive)
{
    struct tiny holed;
    char path[TINY_PATH_BYTES];
    tiny_copy(&holed, &disk, TINY_DISK);
    tiny_path(&holed, tiny_shard(1), path);
    int fd = open(path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    off_t end = lseek(fd, 0, SEEK_END); /* the header is at the other end */
    bool punched = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, end - (1 << 18),
                             1 << 18) == 0;
    close(fd);
    k3ring("replay %s --device %s", trace_path, holed.dir);
    if (punched) {
        expect(5, "hole");
        ck_assert_ptr_nonnull(strstr(process.out, "refused: "));
    } else {
        printf("skip: this file system makes no holes\n");
    }
    tiny_remove(&holed);
}
END_TEST

START_TEST(the_simulator_is_no_drive)
{
    k3ring("replay %s --device %s --tokens 2 --io sim", trace_path, disk.dir);
    expect(5, "these are no figures of a drive: ");
    ck_assert(strstr(process.out, "refused: read by the simulator") != NULL);
}
END_TEST

/* ---- long ones ---- */

/* Positions that ask for what was asked before. Its path goes to path. */
static void make_long(uint32_t positions, char path[TINY_PATH_BYTES])
{
    struct trace trace;
    const struct trace_model shape = {.seed = 1, .layers = LAYERS, .experts = 16,
                                      .top_k = REF_TOP, .tokens = positions};
    tiny_path(&results, "long", path);
    ck_assert_int_eq(trace_model_make(&trace, &shape), 0);
    ck_assert_int_eq(trace_save(&trace, path), 0);
    trace_fini(&trace);
}

/* More reads than are written down at once. */
START_TEST(many_reads_are_counted_in_stretches)
{
    char path[TINY_PATH_BYTES];
    make_long(1000, path);
    const char *way = "--pin 0 --expert-slots 0 --cache-policy none --io-size 4K --io-depth 64";
    k3ring("replay %s --device %s --json - --tokens 1 %s", path, memory.dir, way);
    cJSON *one = replayed();
    k3ring("replay %s --device %s --json - %s", path, memory.dir, way);
    cJSON *all = replayed();
    const cJSON *reads = at(all, "reads");
    ck_assert_uint_eq(number(all, "tokens"), 1000);
    ck_assert_uint_gt(number(reads, "requests"), 1U << 19);
    ck_assert_uint_eq(number(at(reads, "trunk"), "requests"),
                      1000 * number(at(at(one, "reads"), "trunk"), "requests"));
    ck_assert_uint_eq(number(at(reads, "embed"), "requests"), 1000);
    ck_assert_uint_eq(number(at(reads, "lat_ns"), "N"), number(reads, "requests"));
    cJSON_Delete(one);
    cJSON_Delete(all);
    unlink(path);
}
END_TEST

START_TEST(a_signal_ends_it_with_what_was_measured)
{
    char path[TINY_PATH_BYTES];
    make_long(50000, path);
    process_start(&process, folder.dir, process_binary(),
                  "replay %s --device %s --pin 0 --expert-slots 0 --io-size 4K", path, disk.dir);
    usleep(500000);
    kill(process.pid, SIGINT);
    process_wait(&process);
    ck_assert_int_eq(process.status, 130);
    ck_assert(process.out[0] == '\0' || strstr(process.out, " of 50000 tokens (stopped)") != NULL);
    unlink(path);
}
END_TEST

/* ---- refusals ---- */

static const struct {
    int status;
    const char *arguments, *part;
} wrong[] = {
    {2, "--device MODEL --policy lar", "--cache-policy"},
    {2, "--device MODEL --slots 4", "--cache-policy"},
    {2, "--device MODEL --model MODEL", "--cache-policy"},
    {2, "--device MODEL --plot x", "--cache-policy"},
    {2, "--cache-policy lar", "--device"},
    {2, "--expert-slots 3", "--device"},
    {2, "--io-depth 4", "--device"},
    {2, "--pin 5%", "--device"},
    {2, "--tokens 4", "--device"},
    {2, "--device MODEL --tokens 0", "--tokens"},
    {2, "--device MODEL --io-size 5000", "4096"},
    {2, "--device MODEL --cache-policy best", "--cache-policy"},
    {2, "--device MODEL --remeasure", "--remeasure"},
    {3, "--device /nonexistent", "/nonexistent"},
    {4, "--device MODEL --ram 1M", "--ram"},
    {1, "--device MODEL --json /nonexistent/x.json", "/nonexistent/x.json"},
    {2, "--device MODEL --json MODEL/config.json", "config.json"},
};

START_TEST(what_cannot_be_meant_is_refused_in_one_line)
{
    char arguments[TINY_PATH_BYTES] = "";
    const char *from = wrong[_i].arguments;
    for (const char *place; (place = strstr(from, "MODEL")) != NULL; from = place + 5) {
        size_t used = strlen(arguments);
        snprintf(arguments + used, sizeof arguments - used, "%.*s%s", (int)(place - from), from,
                 disk.dir);
    }
    k3ring("replay %s %s%s", trace_path, arguments, from);
    expect_refusal(wrong[_i].status, wrong[_i].part);
}
END_TEST

START_TEST(a_trace_of_another_model_is_refused)
{
    k3ring("replay " TRACE_MODEL_SMALL_PATH " --device %s", disk.dir);
    expect_refusal(2, "did not make this trace");
}
END_TEST

START_TEST(a_trace_that_lacks_layers_is_refused)
{
    size_t size;
    char path[TINY_PATH_BYTES];
    tiny_path(&results, "part", path);
    unsigned char *bytes = tiny_read(&results, "trace", &size);
    tiny_put(&results, "part", bytes, size - 4 * REF_TOP);
    k3ring("replay %s --device %s", path, disk.dir);
    expect_refusal(3, "position by position");
    free(bytes);
    unlink(path);
}
END_TEST

START_TEST(an_output_that_cannot_be_written_is_told)
{
    k3ring("replay %s --device %s --tokens 1 --json /dev/full", trace_path, disk.dir);
    expect(1, "/dev/full");
}
END_TEST

static Suite *replay_device_suite(void)
{
    Suite *suite = suite_create("replay_device");
    TCase *tcase = tcase_create("replay_device");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, it_makes_the_reads_of_a_run, 0, countof(ways));
    tcase_add_test(tcase, it_does_so_on_a_drive);
    tcase_add_loop_test(tcase, it_makes_the_reads_of_a_run_over_a_pack, 0, countof(ways));
    tcase_add_test(tcase, the_table_says_what_the_json_says);
    tcase_add_test(tcase, in_memory_rates_are_refused_and_counts_are_not);
    tcase_add_test(tcase, holes_are_no_reads_of_a_drive);
    tcase_add_test(tcase, the_simulator_is_no_drive);
    tcase_add_test(tcase, many_reads_are_counted_in_stretches);
    tcase_add_test(tcase, a_signal_ends_it_with_what_was_measured);
    tcase_add_loop_test(tcase, what_cannot_be_meant_is_refused_in_one_line, 0, countof(wrong));
    tcase_add_test(tcase, a_trace_of_another_model_is_refused);
    tcase_add_test(tcase, a_trace_that_lacks_layers_is_refused);
    tcase_add_test(tcase, an_output_that_cannot_be_written_is_told);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    tiny_make(&disk, TINY_DISK);
    tiny_make(&memory, TINY_MEMORY);
    packed_make(&pack, &memory, TINY_MEMORY, &(struct packed_form){.tile_bytes = 0});
    tiny_folder(&folder, TINY_MEMORY);
    tiny_folder(&results, TINY_MEMORY);
    tiny_path(&results, "trace", trace_path);
    k3ring("run %s --ids 3 --gen %u --trace %s --quiet", disk.dir, TOKENS, trace_path);
    tiny_need(process.status == 0, "trace");
    int failed = suite_run(replay_device_suite());
    tiny_remove(&disk);
    tiny_remove(&memory);
    tiny_remove(&pack);
    tiny_remove(&folder);
    tiny_remove(&results);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
