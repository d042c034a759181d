/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/cli/sample_options.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

struct target {
    struct sample_cli sample;
};

static const struct option_row rows[] = {SAMPLE_OPTION_ROWS(struct target, "0", "1")};
static const struct option_row warm_rows[] = {SAMPLE_OPTION_ROWS(struct target, "0.6", "0.95")};
static const struct command command = {"draw", "[options]", "Draws.", rows, countof(rows), 0, 0};
static const struct command warm = {"draw", "[options]", "Draws.", warm_rows, countof(warm_rows),
                                    0, 0};

static struct sampling sampling;
static struct tiny folder;

/* Words cut at spaces. */
static int read_options(const struct command *c, const char *words)
{
    static char text[512];
    char *argv[16] = {(char *)"draw"};
    int argc = 1;
    struct target target;
    bool help;
    snprintf(text, sizeof text, "%s", words);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    err_clear();
    sampling_close(&sampling);
    memset(&target, 0, sizeof target);
    TRY(options_parse(c, &target, argc, argv, NULL, &help));
    return sampling_open(&sampling, &target.sample);
}

static void good(const char *words)
{
    ck_assert_msg(read_options(&command, words) == 0, "%s: %s", words, err_message());
}

START_TEST(defaults_take_the_likeliest)
{
    good("");
    ck_assert_ptr_null(sampling_wanted(&sampling));
    ck_assert(!sampling_idle(&sampling) && !sampling.seed_drawn);
    struct sample_options greedy = sample_greedy();
    ck_assert_float_eq(sampling.options.top_p, greedy.top_p);
    ck_assert_float_eq(sampling.options.repetition_penalty, greedy.repetition_penalty);
}
END_TEST

START_TEST(a_command_may_have_defaults_of_its_own)
{
    ck_assert_int_eq(read_options(&warm, ""), 0);
    ck_assert_float_eq(sampling.options.temperature, 0.6f);
    ck_assert_float_eq(sampling.options.top_p, 0.95f);
    ck_assert_ptr_eq(sampling_wanted(&sampling), &sampling.options);
    ck_assert_int_eq(read_options(&warm, "--temperature 0"), 0);
    ck_assert_ptr_null(sampling_wanted(&sampling));
}
END_TEST

START_TEST(every_option_arrives)
{
    good("--temperature .7 --top-p 0.9 --top-k 40 --min-p 0.05 --seed 12 --repetition-penalty 1.1 "
         "--logit-bias 42:ban,7:-2.5,11:3");
    const struct sample_options *o = sampling_wanted(&sampling);
    ck_assert_ptr_nonnull(o);
    ck_assert_float_eq(o->temperature, 0.7f);
    ck_assert_float_eq(o->top_p, 0.9f);
    ck_assert_uint_eq(o->top_k, 40);
    ck_assert_float_eq(o->min_p, 0.05f);
    ck_assert_uint_eq(o->seed, 12);
    ck_assert_float_eq(o->repetition_penalty, 1.1f);
    ck_assert_uint_eq(o->bias_count, 3); /* by id */
    ck_assert(o->biases[0].id == 7 && o->biases[0].value == -2.5f);
    ck_assert(o->biases[1].id == 11 && o->biases[1].value == 3);
    ck_assert(o->biases[2].id == 42 && o->biases[2].value == -INFINITY);
    ck_assert(!sampling.seed_drawn);
}
END_TEST

START_TEST(a_bias_or_a_penalty_alone_is_sampling_too)
{
    good("--logit-bias 3:1");
    ck_assert_ptr_nonnull(sampling_wanted(&sampling));
    good("--repetition-penalty 1.2");
    ck_assert_ptr_nonnull(sampling_wanted(&sampling));
    good("--top-p 0.5"); /* of no use without temperature */
    ck_assert_ptr_null(sampling_wanted(&sampling));
    ck_assert(sampling_idle(&sampling));
    good("--seed 1");
    ck_assert(sampling_idle(&sampling));
}
END_TEST

START_TEST(a_seed_that_is_not_given_is_drawn_and_told)
{
    uint64_t seeds[3];
    char text[256];
    for (int i = 0; i < 3; i++) {
        good("--temperature 1");
        ck_assert(sampling.seed_drawn);
        seeds[i] = sampling.options.seed;
        sampling_text(&sampling, text, sizeof text);
        char shown[32];
        snprintf(shown, sizeof shown, "seed %llu", (unsigned long long)seeds[i]);
        ck_assert_ptr_nonnull(strstr(text, shown));
    }
    ck_assert(seeds[0] != seeds[1] || seeds[1] != seeds[2]);
    good("--temperature 0.25 --seed 9007199254740991");
    ck_assert_uint_eq(sampling.options.seed, SAMPLE_SEED_MAX);
    sampling_text(&sampling, text, sizeof text);
    ck_assert_str_eq(text, "temperature 0.25, seed 9007199254740991");
}
END_TEST

START_TEST(the_report_has_numbers_as_they_were_typed)
{
    good("--temperature 0.7 --top-p 0.95 --seed 5 --logit-bias 42:ban,7:-2.5");
    cJSON *root = cJSON_CreateObject();
    sampling_json(&sampling, root);
    char *text = cJSON_PrintUnformatted(root);
    ck_assert_str_eq(text, "{\"sampling\":{\"temperature\":0.7,\"top_p\":0.95,\"top_k\":0,"
                     "\"min_p\":0,\"repetition_penalty\":1,\"seed\":5,\"logit_bias\":["
                     "{\"id\":7,\"value\":-2.5},{\"id\":42,\"value\":\"ban\"}]}}");
    cJSON_free(text);
    cJSON_Delete(root);
    good("");
    root = cJSON_CreateObject();
    sampling_json(&sampling, root);
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(cJSON_GetObjectItem(root, "sampling"), "seed")));
    cJSON_Delete(root);
}
END_TEST

static void put_biases(const char *text, char words[TINY_PATH_BYTES + 32])
{
    char path[TINY_PATH_BYTES];
    tiny_put(&folder, "bias.json", text, strlen(text));
    tiny_path(&folder, "bias.json", path);
    snprintf(words, TINY_PATH_BYTES + 32, "--logit-bias %s", path);
}

START_TEST(biases_come_from_a_file_too)
{
    char words[TINY_PATH_BYTES + 32];
    put_biases("{\"9\": 1e2, \"3\": \"ban\"}", words);
    good(words);
    ck_assert_uint_eq(sampling.options.bias_count, 2);
    ck_assert(sampling.biases[0].id == 3 && sampling.biases[0].value == -INFINITY);
    ck_assert(sampling.biases[1].id == 9 && sampling.biases[1].value == 100);
    put_biases("{}", words);
    good(words);
    ck_assert_uint_eq(sampling.options.bias_count, 0);
    ck_assert_ptr_null(sampling_wanted(&sampling));
}
END_TEST

static const struct {
    const char *words, *part;
} bad[] = {
    {"--temperature -1", "--temperature: '-1'"},
    {"--temperature nan", "--temperature: 'nan'"},
    {"--temperature inf", "--temperature: 'inf'"},
    {"--temperature 1e2", "--temperature: '1e2'"},
    {"--temperature 1,5", "--temperature: '1,5'"},
    {"--temperature=", "--temperature: ''"},
    {"--temperature 1000.1", "from 0 to 1000"},
    {"--temperature 0.0001", "--temperature"},
    {"--top-p 0", "--top-p"},
    {"--top-p 1.01", "from 0 to 1"},
    {"--min-p 2", "--min-p"},
    {"--top-k -1", "--top-k"},
    {"--top-k 1.5", "--top-k"},
    {"--seed 9007199254740992", "--seed"},
    {"--seed x", "--seed"},
    {"--repetition-penalty 0", "--repetition-penalty"},
    {"--logit-bias 3:", "'3:' is not ID:VALUE"},
    {"--logit-bias 3:x", "'3:x'"},
    {"--logit-bias 3:nan", "'3:nan'"},
    {"--logit-bias 3:-inf", "'3:-inf'"},
    {"--logit-bias 3:1,", "'' is not"},
    {"--logit-bias 3:1,4", "'4' is not"},
    {"--logit-bias 3:1,:2", "':2' is not"},
    {"--logit-bias 4294967296:1", "'4294967296:1'"},
    {"--logit-bias 3:1,4:2,3:5", "id 3 occurs twice"},
    {"--logit-bias 3:2000000", "--logit-bias: 3:2e+06"},
    {"--logit-bias /nonexistent/bias", "/nonexistent/bias"},
};

START_TEST(what_is_no_option_is_refused)
{
    ck_assert_int_eq(read_options(&command, bad[_i].words), ERR_USAGE);
    ck_assert_msg(strstr(err_message(), bad[_i].part) != NULL, "%s: %s", bad[_i].words,
                  err_message());
    ck_assert_ptr_null(strchr(err_message(), '\n'));
}
END_TEST

static const struct {
    const char *file, *part;
} bad_files[] = {
    {"", "JSON"},
    {"[1]", "no JSON object"},
    {"{\"a\": 1}", "'a' is no token id"},
    {"{\"\": 1}", "'' is no token id"},
    {"{\"1\": null}", "'1' is no token id"},
    {"{\"1\": \"Ban\"}", "'1' is no token id"},
    {"{\"1\": 1, \"1\": 2}", "twice"},
    {"{\"1\": 1, \"01\": 2}", "id 1 occurs twice"},
    {"{\"1\": -1e300}", "too large"},
    {"{\"1\": 1e7}", "--logit-bias: 1:1e+07"},
};

START_TEST(a_file_that_holds_no_biases_is_refused)
{
    char words[TINY_PATH_BYTES + 32];
    put_biases(bad_files[_i].file, words);
    ck_assert_int_eq(read_options(&command, words), ERR_USAGE);
    ck_assert_msg(strstr(err_message(), bad_files[_i].part) != NULL, "%s: %s", bad_files[_i].file,
                  err_message());
}
END_TEST

static void setup(void)
{
    tiny_folder(&folder, TINY_MEMORY);
}

static void teardown(void)
{
    sampling_close(&sampling);
    tiny_remove(&folder);
}

int main(void)
{
    Suite *suite = suite_create("sample_options");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, defaults_take_the_likeliest);
    tcase_add_test(all, a_command_may_have_defaults_of_its_own);
    tcase_add_test(all, every_option_arrives);
    tcase_add_test(all, a_bias_or_a_penalty_alone_is_sampling_too);
    tcase_add_test(all, a_seed_that_is_not_given_is_drawn_and_told);
    tcase_add_test(all, the_report_has_numbers_as_they_were_typed);
    tcase_add_test(all, biases_come_from_a_file_too);
    tcase_add_loop_test(all, what_is_no_option_is_refused, 0, (int)countof(bad));
    tcase_add_loop_test(all, a_file_that_holds_no_biases_is_refused, 0, (int)countof(bad_files));
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
