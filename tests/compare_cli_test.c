/* SPDX-License-Identifier: Apache-2.0 */

/* `k3ring compare` as a user meets it: files of bench and of run, refusals, hostile files. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"

#define METRIC(samples)                                                                           \
    "{\"name\":\"tokens_per_second\",\"unit\":\"tokens/s\",\"better\":\"higher\",\"samples\":["    \
    samples "]}"
#define POINT(settings, metrics) "{\"settings\":{" settings "},\"metrics\":[" metrics "]}"
#define BENCH(rest) "{\"k3ring\":{\"version\":\"0.1.0\",\"schema\":1},\"more\":[{}]," rest "}"
#define VALID "\"verdict\":{\"valid\":true,\"reasons\":[]},"
#define BASE BENCH(VALID "\"environment\":{\"cpu\":{\"model\":\"one\"}},\"points\":[" \
                   POINT("\"io_depth\":8", METRIC("10,10.1,9.9,10")) "]")

static char path_a[TINY_PATH_BYTES], path_b[TINY_PATH_BYTES], path_c[TINY_PATH_BYTES];

static void put(const char *name, const char *text)
{
    tiny_put(&folder, name, (const unsigned char *)text, strlen(text));
}

static void expect_said(const char *part)
{
    ck_assert_msg(strstr(process.out, part) != NULL, "no \"%s\" in:\n%s", part, process.out);
}

static void compare_two(const char *a, const char *b)
{
    put("a.json", a);
    put("b.json", b);
    k3ring("compare %s %s", path_a, path_b);
}

START_TEST(a_change_is_shown_with_verdict_and_differences)
{
    compare_two(BASE, BENCH(VALID "\"environment\":{\"cpu\":{\"model\":\"two\"}},\"points\":["
                            POINT("\"io_depth\":16", METRIC("12,12.1,11.9,12")) "]"));
    expect(0, NULL);
    ck_assert_str_eq(process.err, "");
    expect_said("  io_depth: 8 | 16\n");
    expect_said("  cpu.model: one | two\n");
    expect_said("+20.00");
    expect_said("faster\n");
    compare_two(BASE, BASE);
    expect_said("no difference\n");
    ck_assert_ptr_null(strstr(process.out, "that differ"));
}
END_TEST

START_TEST(one_sample_has_no_verdict_and_says_what_it_takes)
{
    compare_two(BASE, BENCH(VALID "\"points\":[" POINT("", METRIC("5")) "]"));
    expect(0, NULL);
    expect_said("-50.00");
    expect_said("one sample: no verdict");
    expect_said("needs 2 repeats");
}
END_TEST

START_TEST(an_invalid_verdict_is_shown_and_marks_its_figures)
{
    compare_two(BASE, BENCH("\"verdict\":{\"valid\":false,\"reasons\":[\"it "
                            "\\u001b[31mthrottled\"]},"
                            "\"points\":[" POINT("", METRIC("12,12.1,11.9,12")) "]"));
    expect(0, NULL);
    expect_said("! B: the verdict of its measurement is INVALID");
    expect_said("! B: it ?[31mthrottled\n");
    expect_said("faster !\n");
}
END_TEST

START_TEST(points_of_a_sweep_are_matched_and_others_are_told)
{
    compare_two(BENCH(VALID "\"points\":[" POINT("\"d\":1", METRIC("1,1.1")) ","
                      POINT("\"d\":2", METRIC("2,2.1")) "," POINT("\"d\":3", METRIC("3,3.1")) "]"),
                BENCH(VALID "\"points\":[" POINT("\"d\":2", METRIC("4,4.2")) ","
                      POINT("\"d\":4", METRIC("1,1.1")) "]"));
    expect(0, NULL);
    expect_said("\nd=2\nmetric");
    expect_said("+100.00");
    expect_said("! B: 1 of A's 3 points and 1 of its 2 have a counterpart\n");
    ck_assert_ptr_null(strstr(process.out, "d=1"));
    compare_two(BENCH(VALID "\"points\":[" POINT("\"d\":1", METRIC("1")) ","
                      POINT("\"d\":2", METRIC("2")) "]"),
                BENCH(VALID "\"points\":[" POINT("\"d\":3", METRIC("1")) "]"));
    expect(0, NULL);
    expect_said("nothing to compare");
}
END_TEST

START_TEST(three_files_stand_beside_the_first_also_as_json)
{
    put("a.json", BASE);
    put("b.json", BENCH(VALID "\"points\":[" POINT("", METRIC("12,12.1,11.9,12")) "]"));
    put("c.json", BENCH(VALID "\"points\":[" POINT("", METRIC("5,5.1,4.9,5")) "]"));
    k3ring("compare %s %s %s --json -", path_a, path_b, path_c);
    expect(0, NULL);
    cJSON *root = json_parse(process.out, strlen(process.out), "report", false);
    ck_assert_msg(root != NULL, "%s", err_message());
    const cJSON *point = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "points"), 0);
    const cJSON *metric = cJSON_GetArrayItem(cJSON_GetObjectItem(point, "metrics"), 0);
    const cJSON *files = cJSON_GetObjectItem(metric, "files");
    ck_assert_int_eq(cJSON_GetArraySize(files), 3);
    ck_assert_ptr_null(cJSON_GetObjectItem(cJSON_GetArrayItem(files, 0), "verdict"));
    const cJSON *b = cJSON_GetArrayItem(files, 1), *c = cJSON_GetArrayItem(files, 2);
    ck_assert_str_eq(cJSON_GetObjectItem(b, "verdict")->valuestring, "faster");
    ck_assert_str_eq(cJSON_GetObjectItem(c, "verdict")->valuestring, "slower");
    ck_assert_double_eq_tol(cJSON_GetObjectItem(c, "change_percent")->valuedouble, -50, 0.1);
    ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(c, "change_interval")), 2);
    cJSON_Delete(root);
}
END_TEST

/* ---- files of runs ---- */

#define RUN(hash, rest, more)                                                                     \
    "{\"prompt_ids\":[1,2],\"generated_ids\":[3,4],\"logits_hash\":\"" hash "\"," more             \
    "\"seconds_per_token\":{\"first\":1.5,\"rest\":" rest "},\"passes\":3,"                        \
    "\"reads\":{\"bytes\":3000000},\"settings\":{\"io_depth\":8,\"places\":[{\"drive\":\"x\"}]}}"

START_TEST(runs_are_compared_by_their_figures)
{
    compare_two(RUN("aa", "0.5", ""), RUN("aa", "0.25", ""));
    expect(0, NULL);
    expect_said("seconds_per_token        s          A           0.5");
    expect_said("-50.00");
    expect_said("bytes_per_pass           bytes      A       1000000");
    ck_assert_ptr_null(strstr(process.out, "logits_hash"));
    compare_two(RUN("aa", "0.5", ""), RUN("aa", "null", ""));
    expect(0, NULL);
    compare_two(RUN("aa", "0.5", ""), RUN("aa", "0.5", "\"error\":\"layer 3\","));
    expect_said("! B: the run failed");
    expect_said("! B: layer 3");
}
END_TEST

START_TEST(runs_that_computed_something_else_are_not_called_comparable)
{
    compare_two(RUN("aa", "0.5", ""), RUN("bb", "0.25", ""));
    expect(0, NULL);
    expect_said("! B: logits_hash differs from A's in 1 of 1 points");
    expect_said("no verdict !\n");
}
END_TEST

START_TEST(a_run_reported_by_k3ring_is_read)
{
    struct tiny tiny;
    tiny_make(&tiny, TINY_MEMORY);
    k3ring("run %s --ids 3,141,59 --gen 3 --json %s", tiny.dir, path_a);
    expect(0, NULL);
    k3ring("compare %s %s", path_a, path_a);
    expect(0, NULL);
    expect_said("tokens_per_second");
    expect_said("peak_rss_bytes");
    expect_said("trunk_read_p99");
    tiny_remove(&tiny);
}
END_TEST

/* ---- refusals ---- */

static const char *const bad_files[][2] = {
    {"", "not valid JSON"},
    {"{", "not valid JSON"},
    {"[]", "is not what"},
    {"null", "is not what"},
    {"{\"a\":1,\"a\":2}", "twice"},
    {"{\"k3ring\":1,\"points\":[]}", "is not what"},
    {"{\"k3ring\":{\"schema\":2},\"points\":[]}", "\"schema\" is not 1"},
    {"{\"k3ring\":{\"schema\":\"1\"},\"points\":[]}", "\"schema\" is not 1"},
    {BENCH("\"points\":[]"), "\"points\" must be"},
    {BENCH("\"points\":{\"a\":1}"), "\"points\" must be"},
    {BENCH("\"points\":[1]"), "point 1: needs"},
    {BENCH("\"points\":[{\"settings\":[],\"metrics\":[]}]"), "point 1: needs"},
    {BENCH("\"points\":[" POINT("", "1") "]"), "a metric needs"},
    {BENCH("\"points\":[" POINT("", "{\"name\":\"x\",\"samples\":1}") "]"), "a metric needs"},
    {BENCH("\"points\":[" POINT("", "{\"name\":\"x\",\"samples\":[1]}") "]"), "\"better\" must be"},
    {BENCH("\"points\":[" POINT("", METRIC("1,\"2\"")) "]"), "sample 2 is not a number"},
    {BENCH("\"points\":[" POINT("", METRIC("1e999")) "]"), "sample 1 is not a number"},
    {BENCH("\"points\":[" POINT("", METRIC("1") "," METRIC("1")) "]"), "stands there twice"},
    {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "not valid JSON"},
};

START_TEST(hostile_files_are_refused_in_one_line)
{
    put("a.json", BASE);
    put("b.json", bad_files[_i][0]);
    k3ring("compare %s %s", path_a, path_b);
    expect_refusal(1, bad_files[_i][1]);
    ck_assert_ptr_nonnull(strstr(process.err, "b.json"));
}
END_TEST

START_TEST(odd_but_sound_files_are_taken)
{
    static const char *const odd[] = {
        BENCH("\"verdict\":7,\"environment\":[1,[2,{}]],\"points\":[" POINT("", "") "]"),
        BENCH("\"verdict\":{\"reasons\":[1,null]},\"points\":[" POINT("\"a\":{\"b\":[null]}",
              METRIC("")) "]"),
        BENCH("\"points\":[" POINT("\"\\u0007\\uD83D\\uDE00\":\"\\n\"", METRIC("0,0,-0.0")) "]"),
        BENCH("\"points\":[" POINT("", METRIC("1e-320,1e99,-1e99")) "]"),
        "{\"generated_ids\":[],\"seconds_per_token\":{}}",
    };
    for (size_t i = 0; i < countof(odd); i++) {
        for (size_t k = 0; k < countof(odd); k++) {
            compare_two(odd[i], odd[k]);
            expect(0, NULL);
        }
    }
}
END_TEST

START_TEST(a_file_cut_anywhere_is_refused)
{
    size_t size = strlen(BASE);
    put("a.json", BASE);
    for (size_t cut = 0; cut < size; cut += 7) {
        tiny_put(&folder, "b.json", (const unsigned char *)BASE, cut);
        k3ring("compare %s %s", path_a, path_b);
        expect_refusal(1, "b.json");
    }
}
END_TEST

START_TEST(wrong_words_and_missing_files_are_refused)
{
    put("a.json", BASE);
    k3ring("compare %s", path_a);
    expect_refusal(2, "B.json is missing");
    k3ring("compare %s %s/none.json", path_a, folder.dir);
    expect_refusal(1, "there is no such file");
    k3ring("compare %s %s", path_a, folder.dir);
    expect_refusal(1, "not a regular file");
    k3ring("compare %s %s --json %s", path_a, path_a, path_a);
    expect_refusal(2, "is one of the files to compare");
    k3ring("compare %s %s --json /nonexistent/x", path_a, path_a);
    expect_refusal(1, "/nonexistent/x");
    k3ring("compare %s %s --json=%s/c.json", path_a, path_a, folder.dir);
    expect(0, NULL);
    expect_said("no difference");
}
END_TEST

static Suite *compare_suite(void)
{
    Suite *suite = suite_create("compare command");
    TCase *tcase = tcase_create("compare command");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_change_is_shown_with_verdict_and_differences);
    tcase_add_test(tcase, one_sample_has_no_verdict_and_says_what_it_takes);
    tcase_add_test(tcase, an_invalid_verdict_is_shown_and_marks_its_figures);
    tcase_add_test(tcase, points_of_a_sweep_are_matched_and_others_are_told);
    tcase_add_test(tcase, three_files_stand_beside_the_first_also_as_json);
    tcase_add_test(tcase, runs_are_compared_by_their_figures);
    tcase_add_test(tcase, runs_that_computed_something_else_are_not_called_comparable);
    tcase_add_test(tcase, a_run_reported_by_k3ring_is_read);
    tcase_add_loop_test(tcase, hostile_files_are_refused_in_one_line, 0, countof(bad_files));
    tcase_add_test(tcase, odd_but_sound_files_are_taken);
    tcase_add_test(tcase, a_file_cut_anywhere_is_refused);
    tcase_add_test(tcase, wrong_words_and_missing_files_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "a.json", path_a);
    tiny_path(&folder, "b.json", path_b);
    tiny_path(&folder, "c.json", path_c);
    int failed = suite_run(compare_suite());
    tiny_remove(&folder);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
