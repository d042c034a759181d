/* SPDX-License-Identifier: Apache-2.0 */

/* `k3ring replay` as a user meets it: its figures, its refusals, its files. With a path to the
 * recorded trace of 92 layers as its argument, also checks the hits published for that one. */

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/opt.h"
#include "core/base/err.h"
#include "core/base/json.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"
#include "tests/support/trace_model.h"

#define SMALL TRACE_MODEL_SMALL_PATH /* 8 layers, 4 of 56 experts, 4,800 requests, 400 first */
#define K3_TOKENS 3U

static const char *recorded_path;
static struct tiny tiny, results;
static char full[TINY_PATH_BYTES]; /* a trace of the full model's shape */

static cJSON *report(void)
{
    expect(0, NULL);
    ck_assert_str_eq(process.err, "");
    cJSON *root = json_parse(process.out, strlen(process.out), "report", false);
    ck_assert_msg(root != NULL, "%s: %s", err_message(), process.out);
    return root;
}

static uint64_t number(const cJSON *object, const char *name)
{
    uint64_t value = 0;
    ck_assert_msg(json_u64(cJSON_GetObjectItem(object, name), &value), "%s is no number", name);
    return value;
}

static double real(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);
    ck_assert_msg(cJSON_IsNumber(item), "%s is no number", name);
    return cJSON_GetNumberValue(item);
}

/* Every third expert of the token before is asked for again. */
static void make_full_trace(void)
{
    struct trace trace;
    tiny_path(&results, "full.k3rt", full);
    tiny_need(trace_init(&trace, 92, 16, 92 * K3_TOKENS) == 0, "trace");
    for (uint32_t token = 0; token < K3_TOKENS; token++) {
        for (uint32_t layer = 0; layer < 92; layer++) {
            uint16_t ids[16];
            for (uint32_t i = 0; i < 16; i++) {
                ids[i] = (uint16_t)(i % 3 == 0 ? i : 16 * (token + 1) + 7 * layer + i);
            }
            trace_add(&trace, layer, ids, 1);
        }
    }
    tiny_need(trace_save(&trace, full) == 0, "trace file");
    trace_fini(&trace);
}

/* ---- figures ---- */

/* A row against the library's own count at the slots a run would be given. */
static void check_row(const cJSON *row, const struct trace *trace, uint32_t slots)
{
    const char *policy = cJSON_GetStringValue(cJSON_GetObjectItem(row, "policy"));
    bool beside = strcmp(policy, "arc") == 0;
    uint32_t given = slots - (beside ? 4 : 0);
    struct replay_count count;
    int rc = strcmp(policy, "opt") == 0
                 ? replay_opt(trace, 56, slots, 1, &count)
                 : replay_policy(trace, policy_find(policy), 56, given, 1, &count);
    ck_assert_int_eq(rc, 0);
    ck_assert_uint_eq(number(row, "slots"), slots);
    ck_assert_uint_eq(number(row, "expert_slots"), given);
    ck_assert_uint_eq(number(row, "hits"), count.hits);
    ck_assert_uint_eq(number(row, "misses"), 4800 - count.hits);
    ck_assert_uint_eq(number(row, "repeat_misses"), 4400 - count.hits);
    ck_assert_uint_eq(number(row, "evictions"), count.evictions);
    ck_assert(fabs(real(row, "hit_rate") - (double)count.hits / 4800) < 1e-12);
    ck_assert(fabs(real(row, "repeat_hit_rate") - (double)count.hits / 4400) < 1e-12);
    double bytes = (double)(4800 - count.hits) * 17547264.0 / 150;
    ck_assert(fabs(real(row, "bytes_per_token") - bytes) < 1);
}

START_TEST(every_policy_is_counted_as_a_run_would_count)
{
    static const uint32_t slots[] = {12, 60, 448};
    struct trace trace;
    ck_assert_int_eq(trace_load(&trace, SMALL), 0);
    k3ring("replay " SMALL " --slots 12,60,448 --json -");
    cJSON *root = report(), *shape = cJSON_GetObjectItem(root, "trace");
    const cJSON *rows = cJSON_GetObjectItem(root, "results");
    ck_assert_uint_eq(number(shape, "layers"), 8);
    ck_assert_uint_eq(number(shape, "requests"), 4800);
    ck_assert_uint_eq(number(shape, "first_touches"), 400);
    ck_assert_uint_eq(number(shape, "tokens"), 150);
    int policies = 0;
    while (policy_table[policies] != NULL) {
        policies++;
    }
    ck_assert_int_eq(cJSON_GetArraySize(rows), 3 * (policies + 1));
    for (int i = 0; i < cJSON_GetArraySize(rows); i++) {
        check_row(cJSON_GetArrayItem(rows, i), &trace, slots[i / (policies + 1)]);
    }
    cJSON_Delete(root);
    trace_fini(&trace);
}
END_TEST

START_TEST(the_table_says_what_the_json_says)
{
    char path[TINY_PATH_BYTES];
    tiny_path(&results, "report.json", path);
    k3ring("replay " SMALL " --policy lar,lru --slots 60 --json %s", path);
    expect(0, NULL);
    ck_assert_ptr_nonnull(strstr(process.out, "400 requests (8.33 %) are first touches"));
    ck_assert_ptr_nonnull(strstr(process.out, "(Kimi K3, which did not make this trace; --model"));
    ck_assert_ptr_nonnull(strstr(process.out, "lar             2576"));
    ck_assert_ptr_nonnull(strstr(process.out, "opt "));
    ck_assert_ptr_null(strstr(process.out, "lfu"));
    size_t size = 0;
    unsigned char *text = tiny_read(&results, "report.json", &size);
    cJSON *root = json_parse((const char *)text, size, "report", false);
    ck_assert_msg(root != NULL, "%s", err_message());
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "results"), 0);
    ck_assert_uint_eq(number(row, "hits"), 2576);
    cJSON_Delete(root);
    free(text);
    unlink(path);
}
END_TEST

START_TEST(the_full_models_slots_are_those_everybody_compares)
{
    static const uint32_t slots[] = {455, 911, 1344, 1823, 3647};
    k3ring("replay %s --policy lru --json -", full);
    cJSON *root = report();
    const cJSON *rows = cJSON_GetObjectItem(root, "results");
    ck_assert_int_eq(cJSON_GetArraySize(rows), 10);
    ck_assert_uint_eq(number(root, "expert_bytes"), 17547264);
    ck_assert_uint_eq(number(cJSON_GetObjectItem(root, "trace"), "experts"), 896);
    for (int i = 0; i < 5; i++) {
        ck_assert_uint_eq(number(cJSON_GetArrayItem(rows, 2 * i), "slots"), slots[i]);
    }
    cJSON_Delete(root);
}
END_TEST

/* Slots that the plan of the tiny model keeps, by `k3ring plan`. */
static uint64_t planned_slots(const char *ram)
{
    k3ring("plan %s --json --ram %s", tiny.dir, ram);
    cJSON *root = report();
    uint64_t slots = number(root, "cache_slots");
    cJSON_Delete(root);
    return slots;
}

START_TEST(ram_gives_the_slots_of_a_plan)
{
    /* The tiny model's shape: 12 layers, 4 of 16 experts. */
    struct trace trace;
    char path[TINY_PATH_BYTES];
    const struct trace_model shape = {.seed = 1, .layers = 12, .experts = 16, .top_k = 4,
                                      .tokens = 20};
    tiny_path(&results, "tiny.k3rt", path);
    ck_assert_int_eq(trace_model_make(&trace, &shape), 0);
    ck_assert_int_eq(trace_save(&trace, path), 0);
    trace_fini(&trace);
    uint64_t slots = planned_slots("24M");
    ck_assert_uint_gt(slots, 0);
    k3ring("replay %s --policy arc,lar --ram 24M --model %s --json -", path, tiny.dir);
    cJSON *root = report();
    const cJSON *rows = cJSON_GetObjectItem(root, "results");
    ck_assert_uint_eq(number(cJSON_GetArrayItem(rows, 0), "expert_slots"), slots);
    ck_assert_uint_eq(number(cJSON_GetArrayItem(rows, 1), "expert_slots"), slots);
    ck_assert_uint_eq(number(root, "expert_bytes"), 64 * 64 / 2 * 3 + 64 * 64 / 32 * 3);
    cJSON_Delete(root);
    k3ring("replay %s --ram 24M", path);
    expect_refusal(2, "--model");
    k3ring("replay " SMALL " --model %s", tiny.dir);
    expect_refusal(2, "did not make this trace");
    k3ring("replay %s --ram 1M --model %s", path, tiny.dir);
    expect_refusal(4, "--ram");
}
END_TEST

START_TEST(the_full_models_plan_needs_no_checkpoint)
{
    k3ring("replay %s --policy lar --ram 16G", full);
    expect(0, NULL);
    ck_assert_ptr_nonnull(strstr(process.out, "keeps 0 expert slots: a pinned byte"));
    k3ring("replay %s --policy lar --ram 128G --json -", full);
    cJSON *root = report();
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "results"), 0);
    /* 128 GiB less 111.2 GB of trunk and head and about a gigabyte, in slots of 17.55 MB. */
    ck_assert_uint_gt(number(row, "slots"), 1350);
    ck_assert_uint_lt(number(row, "slots"), 1470);
    cJSON_Delete(root);
}
END_TEST

/* ---- pictures ---- */

static char *plotted(const char *plots, const char *file)
{
    char name[TINY_PATH_BYTES];
    size_t size = 0;
    snprintf(name, sizeof name, "%s/%s", plots, file);
    return (char *)tiny_read(&results, name, &size);
}

static void remove_plots(const char *plots)
{
    static const char *const ending[] = {"dat", "gp", "svg", "png"};
    char path[TINY_PATH_BYTES], name[TINY_PATH_BYTES];
    for (size_t i = 0; i < 2 * countof(ending); i++) {
        snprintf(name, sizeof name, "%s/%s.%s", plots, i % 2 == 0 ? "hit_rate" : "bytes_per_token",
                 ending[i / 2]);
        tiny_path(&results, name, path);
        unlink(path);
    }
    tiny_path(&results, plots, path);
    ck_assert_int_eq(rmdir(path), 0);
}

START_TEST(pictures_hold_the_figures_in_order_of_size)
{
    char path[TINY_PATH_BYTES];
    tiny_path(&results, "plots", path);
    k3ring("replay " SMALL " --policy lar,lru --slots 60,448,12 --plot %s", path);
    expect(0, NULL);
    bool drawn = process.err[0] == '\0';
    ck_assert(drawn || strstr(process.err, "gnuplot") != NULL);
    char *hits = plotted("plots", "hit_rate.dat");
    ck_assert_msg(strstr(hits, "lar\n# x y\n12 17.") != NULL, "%s", hits);
    ck_assert_msg(strstr(hits, "\n60 53.6666666667\n448 91.6666666667\n\n\n# block 1: lru") != NULL,
                  "%s", hits);
    ck_assert_ptr_nonnull(strstr(hits, "# block 2: opt"));
    char *bytes = plotted("plots", "bytes_per_token.dat");
    ck_assert_ptr_nonnull(strstr(bytes, "448 0.04679"));
    if (drawn) {
        char *svg = plotted("plots", "bytes_per_token.svg");
        ck_assert_ptr_nonnull(strstr(svg, "read per token (GB)"));
        free(svg);
    } else {
        printf("skip: gnuplot drew nothing: %s", process.err);
    }
    free(hits);
    free(bytes);
    remove_plots("plots");
}
END_TEST

START_TEST(without_gnuplot_a_replay_is_complete_and_says_once_what_to_install)
{
    char path[TINY_PATH_BYTES];
    tiny_path(&results, "plots", path);
    ck_assert_int_eq(setenv("PATH", "/nonexistent", 1), 0);
    k3ring("replay " SMALL " --policy lar --slots 60 --plot %s", path);
    ck_assert_int_eq(setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 1), 0);
    expect(0, "apt-get install gnuplot-nox, then run gnuplot hit_rate.gp in ");
    ck_assert_ptr_eq(strchr(process.err, '\n') + 1, process.err + strlen(process.err));
    ck_assert_ptr_nonnull(strstr(process.out, "lar             2576"));
    char *script = plotted("plots", "bytes_per_token.gp");
    ck_assert_ptr_nonnull(strstr(script, "set xtics nomirror ('lar' 0, 'opt' 1)"));
    free(script);
    remove_plots("plots");
}
END_TEST

/* ---- refusals ---- */

static const char *const wrong_usage[][2] = {
    {"--policy arcs", "did you mean arc?"},
    {"--policy xyz", "all of them are: arc lar"},
    {"--policy arc,,lar", "''"},
    {"--policy arc,lar,arc", "twice"},
    {"--policy averyveryverylongnamethatisnopolicyatall", "no cache policy"},
    {"--slots 455,", "--slots"},
    {"--slots 1,x", "--slots"},
    {"--slots -1", "--slots"},
    {"--slots 99999999999", "--slots"},
    {"--slots 455 --ram 16G", "give one"},
    {"--ram 1.5", "--ram"},
    {"--jsn x", "did you mean --json?"},
    {"surplus", "usage"},
};

START_TEST(wrong_words_are_refused_in_one_line)
{
    k3ring("replay " SMALL " %s", wrong_usage[_i][0]);
    expect_refusal(2, wrong_usage[_i][1]);
}
END_TEST

START_TEST(damaged_traces_are_refused_as_such)
{
    static const unsigned char sound[] = {'K', '3', 'R', 'T', 1, 2, 1, 0,
                                          0, 0, 5, 0, 0, 0, 6, 0};
    unsigned char bytes[sizeof sound];
    char path[TINY_PATH_BYTES];
    tiny_path(&results, "bad.k3rt", path);
    for (size_t at = 0; at < sizeof sound; at += at == 4 ? 1 : 4) {
        memcpy(bytes, sound, sizeof bytes);
        bytes[at] = at == 5 ? 3 : 0x77;
        if (at != 12) {
            tiny_put(&results, "bad.k3rt", bytes, sizeof bytes);
            k3ring("replay %s", path);
            expect_refusal(3, "bad.k3rt");
        }
    }
    for (size_t size = 0; size < sizeof sound; size += 4) {
        tiny_put(&results, "bad.k3rt", sound, size);
        k3ring("replay %s", path);
        expect_refusal(3, size == 8 ? "holds no routing" : "bad.k3rt");
    }
    static const unsigned char wide[] = {'K', '3', 'R', 'T', 1, 1, 0xff, 0xff, 0xfe, 0xff,
                                         0xff, 0xff};
    tiny_put(&results, "bad.k3rt", wide, sizeof wide);
    k3ring("replay %s", path);
    expect_refusal(3, "more than a replay takes");
    unlink(path);
    k3ring("replay %s", path);
    expect_refusal(3, "cannot open");
}
END_TEST

/* The layers of the head are wrong, and so is what it says of tokens. */
START_TEST(a_trace_of_no_whole_positions_is_refused)
{
    static const unsigned char layers[] = {7, 9, 11, 16, 255};
    size_t size;
    char path[TINY_PATH_BYTES];
    struct tiny data = {.dir = "tests/data"};
    unsigned char *bytes = tiny_read(&data, "small.k3rt", &size);
    tiny_path(&results, "part.k3rt", path);
    for (size_t i = 0; i < countof(layers); i++) {
        bytes[6] = layers[i];
        tiny_put(&results, "part.k3rt", bytes, size);
        k3ring("replay %s", path);
        expect_refusal(3, layers[i] < 8 ? "part.k3rt" : "position by position");
    }
    bytes[6] = 8;
    tiny_put(&results, "part.k3rt", bytes, size - 16); /* a group less */
    k3ring("replay %s", path);
    expect_refusal(3, "position by position");
    free(bytes);
    unlink(path);
}
END_TEST

START_TEST(a_bad_output_is_told_before_the_replay)
{
    k3ring("replay " SMALL " --json /nonexistent/x.json");
    expect_refusal(1, "/nonexistent/x.json");
    k3ring("replay " SMALL " --plot /dev/null/x");
    expect_refusal(1, "/dev/null/x: cannot become a folder of pictures");
    k3ring("replay " SMALL " --policy lru --json /dev/full");
    expect(1, "/dev/full");
}
END_TEST

/* ---- the recorded trace ---- */

START_TEST(hits_on_the_recorded_trace_are_the_published_ones)
{
    static const char *const policies[] = {"arc", "lar", "lfu", "lru", "arc-global"};
    static const uint64_t hits[5][5] = {
        {2348, 2492, 1371, 0, 0},          {3718, 4181, 2391, 0, 0},
        {4936, 5271, 3117, 0, 0},          {5747, 5988, 4436, 5559, 4896},
        {7005, 7024, 6833, 6885, 6831}};
    k3ring("replay %s --policy arc,lar,lfu,lru,arc-global --json -", recorded_path);
    cJSON *root = report();
    const cJSON *rows = cJSON_GetObjectItem(root, "results");
    for (int i = 0; i < 25; i++) {
        const cJSON *row = cJSON_GetArrayItem(rows, i / 5 * 6 + i % 5);
        ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(row, "policy")),
                         policies[i % 5]);
        ck_assert_uint_eq(number(row, "hits"), hits[i / 5][i % 5]);
    }
    cJSON_Delete(root);
}
END_TEST

static Suite *replay_suite(void)
{
    Suite *suite = suite_create("replay");
    TCase *tcase = tcase_create("replay");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, every_policy_is_counted_as_a_run_would_count);
    tcase_add_test(tcase, the_table_says_what_the_json_says);
    tcase_add_test(tcase, the_full_models_slots_are_those_everybody_compares);
    tcase_add_test(tcase, ram_gives_the_slots_of_a_plan);
    tcase_add_test(tcase, the_full_models_plan_needs_no_checkpoint);
    tcase_add_test(tcase, pictures_hold_the_figures_in_order_of_size);
    tcase_add_test(tcase, without_gnuplot_a_replay_is_complete_and_says_once_what_to_install);
    tcase_add_loop_test(tcase, wrong_words_are_refused_in_one_line, 0, countof(wrong_usage));
    tcase_add_test(tcase, damaged_traces_are_refused_as_such);
    tcase_add_test(tcase, a_trace_of_no_whole_positions_is_refused);
    tcase_add_test(tcase, a_bad_output_is_told_before_the_replay);
    if (recorded_path != NULL) {
        tcase_add_test(tcase, hits_on_the_recorded_trace_are_the_published_ones);
    }
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    recorded_path = argc > 1 ? argv[1] : NULL;
    tiny_make(&tiny, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    tiny_folder(&results, TINY_MEMORY);
    make_full_trace();
    int failed = suite_run(replay_suite());
    tiny_remove(&tiny);
    tiny_remove(&folder);
    tiny_remove(&results);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
