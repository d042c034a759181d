/* SPDX-License-Identifier: Apache-2.0 */

/* How `k3ring run` chooses tokens and where it stops, as a user meets it. The tiny model's ids
 * stand for single bytes. */

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"
#include "tests/support/vocabulary.h"

#define GEN 30

static struct tiny model;
static char report_path[TINY_PATH_BYTES], vocabulary[TINY_PATH_BYTES];

static cJSON *report(void)
{
    size_t size;
    char *text = (char *)tiny_read(&folder, "report.json", &size);
    cJSON *root = json_parse(text, size, "report", false);
    ck_assert_msg(root != NULL, "%s", err_message());
    free(text);
    return root;
}

static const cJSON *at_path(const cJSON *root, const char *object, const char *name)
{
    const cJSON *item = object != NULL ? cJSON_GetObjectItemCaseSensitive(root, object) : root;
    item = cJSON_GetObjectItemCaseSensitive(item, name);
    ck_assert_msg(item != NULL, "no '%s'", name);
    return item;
}

/* Runs with 30 tokens to make; ids of the report. Returns how many. */
static int made(const char *options, uint32_t ids[GEN])
{
    k3ring("run %s --ids 3,141,59,26,53,58,97,93 --gen %d --json %s %s", model.dir, GEN,
           report_path, options);
    expect(0, NULL);
    cJSON *root = report();
    const cJSON *list = at_path(root, NULL, "generated_ids");
    int count = cJSON_GetArraySize(list);
    for (int i = 0; i < count; i++) {
        ids[i] = (uint32_t)cJSON_GetNumberValue(cJSON_GetArrayItem(list, i));
    }
    cJSON_Delete(root);
    return count;
}

START_TEST(a_seed_makes_the_same_tokens_on_any_machine)
{
    uint32_t a[GEN], b[GEN];
    char shown[256] = "";
    made("--temperature 3 --top-p 0.98 --seed 5", a);
    for (int i = 0; i < 10; i++) {
        size_t used = strlen(shown);
        snprintf(shown + used, sizeof shown - used, "%s%u", i > 0 ? "," : "", a[i]);
    }
    ck_assert_str_eq(shown, TINY_SAMPLED);
    made("--temperature 3 --top-p 0.98 --seed 5 --threads 1 --draft ngram --ram 40M --isa scalar",
         b);
    ck_assert_mem_eq(a, b, sizeof a);
    made("--temperature 3 --top-p 0.98 --seed 6", b);
    ck_assert_mem_ne(a, b, sizeof a);
}
END_TEST

START_TEST(a_drawn_seed_is_told_and_repeats_the_run)
{
    uint32_t a[GEN], b[GEN], c[GEN];
    char again[64];
    made("--temperature 3", a);
    const char *told = strstr(process.err, "seed ");
    ck_assert_ptr_nonnull(told);
    ck_assert_ptr_nonnull(strstr(process.err, "(drawn; --seed repeats it)"));
    cJSON *root = report();
    double seed = cJSON_GetNumberValue(at_path(root, "sampling", "seed"));
    ck_assert_double_eq(seed, (double)strtoull(told + 5, NULL, 10));
    cJSON_Delete(root);
    snprintf(again, sizeof again, "--temperature 3 --seed %.0f", seed);
    made(again, b);
    ck_assert_mem_eq(a, b, sizeof a);
    made("--temperature 3", c);
    ck_assert_mem_ne(a, c, sizeof a);
}
END_TEST

START_TEST(a_run_gone_on_with_from_its_state_draws_what_one_go_does)
{
    static const char chosen[] = "--temperature 3 --seed 11 --repetition-penalty 1.3";
    uint32_t all[GEN], rest[GEN];
    char state[TINY_PATH_BYTES];
    tiny_path(&folder, "state", state);
    made(chosen, all);
    k3ring("run %s --ids 3,141,59,26,53,58,97,93 --gen 13 --save-state %s %s", model.dir, state,
           chosen);
    expect(0, NULL);
    k3ring("run %s --load-state %s --gen %d --json %s %s", model.dir, state, GEN - 13,
           report_path, chosen);
    expect(0, NULL);
    cJSON *root = report();
    const cJSON *list = at_path(root, NULL, "generated_ids");
    ck_assert_int_eq(cJSON_GetArraySize(list), GEN - 13);
    for (int i = 0; i < GEN - 13; i++) {
        rest[i] = (uint32_t)cJSON_GetNumberValue(cJSON_GetArrayItem(list, i));
    }
    cJSON_Delete(root);
    ck_assert_mem_eq(rest, all + 13, (GEN - 13) * sizeof *all);
}
END_TEST

START_TEST(biases_and_penalties_change_what_is_made)
{
    uint32_t greedy[GEN], other[GEN];
    char ban[64];
    made("", greedy);
    snprintf(ban, sizeof ban, "--logit-bias %u:ban", greedy[0]);
    made(ban, other);
    for (int i = 0; i < GEN; i++) {
        ck_assert_uint_ne(other[i], greedy[0]);
    }
    ck_assert_ptr_nonnull(strstr(process.err, "1 biased ids"));
    made("--logit-bias 200:1000000", other);
    for (int i = 0; i < GEN; i++) {
        ck_assert_uint_eq(other[i], 200);
    }
    made("--logit-bias 200:1000000,100:999999.5 --repetition-penalty 2", other);
    ck_assert_uint_eq(other[0], 200);
    ck_assert_ptr_nonnull(strstr(process.err, "repetition penalty 2"));
}
END_TEST

START_TEST(what_has_no_effect_is_said)
{
    uint32_t ids[GEN];
    made("--top-p 0.5", ids);
    ck_assert_ptr_nonnull(strstr(process.err, "--temperature is 0"));
    made("", ids);
    ck_assert_ptr_null(strstr(process.err, "--temperature"));
    ck_assert_ptr_null(strstr(process.err, "sampling:"));
}
END_TEST

START_TEST(log_probabilities_stand_beside_every_token)
{
    uint32_t ids[GEN];
    int count = made(_i == 0 ? "--logprobs 3" : "--logprobs 0 --temperature 2 --seed 1", ids);
    cJSON *root = report();
    const cJSON *list = at_path(root, NULL, "logprobs");
    ck_assert_int_eq(cJSON_GetArraySize(list), count);
    for (int i = 0; i < count; i++) {
        const cJSON *token = cJSON_GetArrayItem(list, i);
        double own = cJSON_GetNumberValue(at_path(token, NULL, "logprob"));
        double sum = 0, before = 0;
        const cJSON *top = at_path(token, NULL, "top");
        ck_assert_uint_eq((uint32_t)cJSON_GetNumberValue(at_path(token, NULL, "id")), ids[i]);
        ck_assert_int_eq(cJSON_GetArraySize(top), _i == 0 ? 3 : 0);
        ck_assert_double_le(own, 0);
        for (int k = 0; k < cJSON_GetArraySize(top); k++) {
            const cJSON *entry = cJSON_GetArrayItem(top, k);
            double logprob = cJSON_GetNumberValue(at_path(entry, NULL, "logprob"));
            ck_assert(logprob <= before);
            before = logprob;
            sum += exp(logprob);
            if (k == 0) { /* greedy */
                ck_assert_uint_eq((uint32_t)cJSON_GetNumberValue(at_path(entry, NULL, "id")),
                                  ids[i]);
                ck_assert_double_eq(logprob, own);
            }
        }
        ck_assert_double_le(sum, 1 + 1e-6);
    }
    cJSON_Delete(root);
}
END_TEST

/* ---- texts that stop ---- */

static void run_text(const char *options)
{
    k3ring("run %s --tokenizer %s --prompt Hello,-you! --gen %d --quiet --json %s %s", model.dir,
           vocabulary, GEN, report_path, options);
    expect(0, NULL);
}

/* The report's "text" is what was printed, but for bytes that are no text. */
static void expect_report_text(const char *finish, const char *stop)
{
    cJSON *root = report();
    const char *text = cJSON_GetStringValue(at_path(root, NULL, "text"));
    ck_assert_ptr_nonnull(text);
    ck_assert_str_eq(cJSON_GetStringValue(at_path(root, NULL, "finish_reason")), finish);
    const cJSON *found = cJSON_GetObjectItem(root, "stop_text");
    ck_assert((found != NULL) == (stop != NULL));
    if (stop != NULL) {
        ck_assert_str_eq(cJSON_GetStringValue(found), stop);
    }
    cJSON_Delete(root);
}

/* Ids whose bytes are letters, one after the other, by biases no logit is above. */
START_TEST(a_text_ends_the_run_and_is_not_shown)
{
    char letters[64], options[TINY_PATH_BYTES + 128];
    uint32_t ids[GEN];
    snprintf(letters, sizeof letters, "--logit-bias %u:500000", (unsigned)_i);
    run_text(letters); /* one letter throughout */
    char line[GEN + 2];
    memset(line, (int)vocabulary_byte((uint32_t)_i), GEN);
    line[GEN] = '\n';
    line[GEN + 1] = '\0';
    ck_assert_str_eq(process.out, line);
    expect_report_text("length", NULL);
    char stop[5] = {0};
    memset(stop, (int)vocabulary_byte((uint32_t)_i), 4);
    snprintf(options, sizeof options, "%s --stop-text nothing --stop-text %s", letters, stop);
    run_text(options);
    ck_assert_str_eq(process.out, "\n");
    expect_report_text("stop", stop);
    cJSON *root = report();
    ck_assert_int_eq(cJSON_GetArraySize(at_path(root, NULL, "generated_ids")), 4);
    cJSON_Delete(root);
    /* A text that never comes whole is shown to its end. */
    snprintf(options, sizeof options, "%s --stop-text %s!", letters, stop);
    run_text(options);
    ck_assert_str_eq(process.out, line);
    /* With ids as the prompt and in the output the tokenizer is only asked for the text. */
    snprintf(options, sizeof options, "%s --stop-text %s --tokenizer %s", letters, stop,
             vocabulary);
    ck_assert_int_eq(made(options, ids), 4);
    expect_report_text("stop", stop);
}
END_TEST

START_TEST(what_may_still_become_the_text_is_held_back_to_the_end)
{
    /* Printed so far is never part of what ends the run: all bytes but the last two are shown. */
    run_text("--draft ngram");
    char all[PROCESS_TEXT_BYTES];
    size_t count = GEN;
    memcpy(all, process.out, sizeof all);
    for (size_t i = 0; i + 1 < count; i++) { /* two bytes an argument can hold */
        unsigned char a = (unsigned char)all[i], b = (unsigned char)all[i + 1];
        if (a <= ' ' || b <= ' ' || a >= 0x7F || b >= 0x7F) {
            continue;
        }
        char options[64], text[3] = {(char)a, (char)b, '\0'};
        const char *first = memmem(all, count, text, 2);
        size_t shown = (size_t)(first - all);
        snprintf(options, sizeof options, "--stop-text %s", text);
        run_text(options);
        ck_assert_int_eq(memcmp(process.out, all, shown), 0);
        ck_assert_int_eq(process.out[shown], '\n');
        ck_assert_int_eq(process.out[shown + 1], '\0');
        expect_report_text("stop", text);
        return;
    }
    ck_abort_msg("no two bytes of the text can be an argument");
}
END_TEST

static const struct {
    int status;
    const char *arguments, *part;
} refused[] = {
    {2, "--ids 1 --temperature -1", "--temperature: '-1' is not a number from 0 to 1000"},
    {2, "--ids 1 --temperature nan", "--temperature: 'nan'"},
    {2, "--ids 1 --top-p 1.5", "--top-p: '1.5' is not a number from 0 to 1"},
    {2, "--ids 1 --top-p 0", "--top-p: 0 is not above 0"},
    {2, "--ids 1 --min-p 1.5", "--min-p"},
    {2, "--ids 1 --top-k x", "--top-k"},
    {2, "--ids 1 --seed -1", "--seed"},
    {2, "--ids 1 --repetition-penalty 0", "--repetition-penalty"},
    {2, "--ids 1 --logit-bias 1:2:3", "--logit-bias: '1:2:3' is not ID:VALUE"},
    {2, "--ids 1 --logit-bias 256:1", "--logit-bias: id 256 is not of this model"},
    {2, "--ids 1 --logit-bias /nonexistent", "--logit-bias: /nonexistent"},
    {2, "--ids 1 --logprobs 3", "--logprobs: give --json FILE too"},
    {2, "--ids 1 --logprobs 101 --json -", "--logprobs: '101'"},
    {2, "--ids 1 --stop-text=", "--stop-text: an empty text"},
    {3, "--ids 1 --stop-text x", "tiktoken.model"},
};

START_TEST(what_cannot_be_chosen_is_refused)
{
    k3ring("run %s %s", model.dir, refused[_i].arguments);
    expect_refusal(refused[_i].status, refused[_i].part);
}
END_TEST

START_TEST(help_shows_the_options)
{
    k3ring("run --help");
    expect(0, NULL);
    ck_assert_ptr_nonnull(strstr(process.out, "--temperature T"));
    ck_assert_ptr_nonnull(strstr(process.out, "--stop-text TEXT"));
    ck_assert_ptr_nonnull(strstr(process.out, "--logit-bias LIST|FILE"));
}
END_TEST

static void setup_once(void)
{
    tiny_make(&model, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "tiktoken.model", vocabulary);
    vocabulary_write(vocabulary, NULL, 0);
    tiny_path(&folder, "report.json", report_path);
}

static void teardown_once(void)
{
    tiny_remove(&model);
    tiny_remove(&folder);
}

/* The id of a letter. */
static int id_of(unsigned char byte)
{
    uint32_t id = 0;
    while (vocabulary_byte(id) != byte) {
        id++;
    }
    return (int)id;
}

int main(void)
{
    Suite *suite = suite_create("choice");
    TCase *tcase = tcase_create("choice");
    int x = id_of('x');
    tcase_add_unchecked_fixture(tcase, setup_once, teardown_once);
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, a_seed_makes_the_same_tokens_on_any_machine);
    tcase_add_test(tcase, a_drawn_seed_is_told_and_repeats_the_run);
    tcase_add_test(tcase, a_run_gone_on_with_from_its_state_draws_what_one_go_does);
    tcase_add_test(tcase, biases_and_penalties_change_what_is_made);
    tcase_add_test(tcase, what_has_no_effect_is_said);
    tcase_add_loop_test(tcase, log_probabilities_stand_beside_every_token, 0, 2);
    tcase_add_loop_test(tcase, a_text_ends_the_run_and_is_not_shown, x, x + 1);
    tcase_add_test(tcase, what_may_still_become_the_text_is_held_back_to_the_end);
    tcase_add_loop_test(tcase, what_cannot_be_chosen_is_refused, 0, (int)countof(refused));
    tcase_add_test(tcase, help_shows_the_options);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
