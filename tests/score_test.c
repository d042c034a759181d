/* SPDX-License-Identifier: Apache-2.0 */

/* Scores of a text: those of the second opinion, the same bits in any setting, and the windows of a
 * long text as docs/SCORE.md has them. Then the command. */

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/nondet.h"
#include "core/exec/score.h"
#include "tests/support/amount.h"
#include "tests/support/command.h"
#include "tests/support/grid.h"
#include "tests/support/suite.h"
#include "tests/support/vocabulary.h"

#define POINTS AMOUNT(20, 8, 1)
#define SHAPES_TRIED AMOUNT((int)countof(shapes), (int)countof(shapes), 1) /* it takes long */
#define TEXT 90U
#define TOLERANCE 1e-3

static struct tiny tiny;
static struct ref_weights *weights;
static uint32_t text[TEXT];
static char vocabulary[TINY_PATH_BYTES], text_path[TINY_PATH_BYTES], report_path[TINY_PATH_BYTES];

struct scored {
    double logprob[TEXT];
    struct score_result result;
};

static struct engine_options score_options(const struct score_request *r)
{
    struct engine_options options = tiny_options(1);
    options.context = r->window;
    options.prompt_tokens = r->window;
    options.logits_all = true;
    return options;
}

static void score(struct engine *e, const struct score_request *r, struct scored *out)
{
    memset(out, 0xFF, sizeof *out);
    out->result.logprob = out->logprob;
    ck_assert_msg(score_run(e, r, &out->result) == 0, "%s", err_message());
    ck_assert_uint_eq(out->result.scored, r->id_count - 1);
}

static void score_alone(const struct engine_options *options, const struct score_request *r,
                        struct scored *out)
{
    struct engine *e = NULL;
    ck_assert_msg(engine_open(&e, tiny.dir, options) == 0, "%s", err_message());
    score(e, r, out);
    engine_close(e);
}

/* ---- the second opinion ---- */

static double log_softmax(const double *logits, uint32_t id)
{
    double largest = -HUGE_VAL, total = 0;
    for (int i = 0; i < REF_VOCAB; i++) {
        largest = fmax(largest, logits[i]);
    }
    for (int i = 0; i < REF_VOCAB; i++) {
        total += exp(logits[i] - largest);
    }
    return logits[id] - largest - log(total);
}

/* Every token but the first, windows as the header of score.h defines them, token by token. */
static void reference_scores(uint32_t count, uint32_t window, uint32_t stride, double *logprob)
{
    uint32_t scored = 0;
    for (uint32_t begin = 0; scored < count - 1; begin += stride) {
        struct reference *ref = reference_open(weights, MUTATION_NONE);
        ck_assert_ptr_nonnull(ref);
        for (uint32_t at = begin; at < begin + window && at < count - 1; at++) {
            reference_step(ref, (int)text[at]);
            if (at >= scored) {
                logprob[at + 1] = log_softmax(ref->logits, text[at + 1]);
                scored = at + 1;
            }
        }
        reference_close(ref);
    }
}

static const struct {
    uint32_t count, window, stride, windows;
} shapes[] = {
    {2, 1, 1, 1},    {20, 19, 19, 1}, {32, 31, 31, 1}, {30, 10, 10, 3}, {31, 10, 10, 3},
    {32, 10, 10, 4}, {30, 10, 4, 6},  {18, 8, 1, 10},  {10, 1, 1, 9},
};

START_TEST(scores_are_those_of_the_second_opinion)
{
    static struct scored got;
    static double expected[TEXT];
    double nats = 0;
    struct score_request r = {.ids = text, .id_count = shapes[_i].count,
                              .window = shapes[_i].window, .stride = shapes[_i].stride};
    struct engine_options options = score_options(&r);
    options.chunk = 6; /* borders of passes are not those of windows */
    reference_scores(r.id_count, r.window, r.stride, expected);
    score_alone(&options, &r, &got);
    for (uint32_t at = 1; at < r.id_count; at++) {
        double error = fabs(got.logprob[at] - expected[at]);
        ck_assert_msg(error < TOLERANCE, "token %u: %.9g, not %.9g", at, got.logprob[at],
                      expected[at]);
        nats -= got.logprob[at];
    }
    ck_assert(nats == got.result.nats);
    ck_assert_uint_eq(got.result.windows, shapes[_i].windows);
    ck_assert_uint_eq(got.result.passes, score_passes(&r, 6 < r.window ? 6 : r.window));
}
END_TEST

/* ---- the same everywhere ---- */

START_TEST(scores_are_the_same_bits_in_any_setting)
{
    static struct scored truth, got;
    struct score_request r = {.ids = text, .id_count = TEXT, .window = 40, .stride = 25};
    struct engine_options options = score_options(&r);
    options.chunk = 1;
    score_alone(&options, &r, &truth);
    for (uint64_t i = 0; i < POINTS; i++) {
        struct grid_point point = grid_random(4400 + i);
        char command[512];
        grid_options(&point, r.window, 0, &options);
        options.logits_all = true;
        grid_floor(tiny.dir, &options);
        grid_command(&point, options.ram_bytes, 1, command, sizeof command);
        score_alone(&options, &r, &got);
        ck_assert_msg(memcmp(&truth.logprob[1], &got.logprob[1],
                             (TEXT - 1) * sizeof *got.logprob) == 0, "%s", command);
        ck_assert(truth.result.nats == got.result.nats);
        ck_assert_mem_eq(truth.result.hash, got.result.hash, LOGITS_HASH_BYTES);
    }
}
END_TEST

START_TEST(the_hash_is_that_of_generating_the_same_tokens)
{
    static struct scored got;
    uint32_t ids[1 + GOLDEN_STEPS] = {(uint32_t)golden_prompt[0]};
    struct generate_request g = {.ids = ids, .id_count = 1, .gen = GOLDEN_STEPS};
    struct generate_result made = {.ids = ids + 1};
    struct engine_options options = tiny_options(GOLDEN_STEPS);
    struct engine *e = NULL;
    ck_assert_int_eq(engine_open(&e, tiny.dir, &options), 0);
    ck_assert_int_eq(generate(e, &g, &made), 0);
    engine_close(e);
    struct score_request r = {.ids = ids, .id_count = countof(ids), .window = GOLDEN_STEPS,
                              .stride = GOLDEN_STEPS};
    options = score_options(&r);
    ck_assert_int_eq(engine_open(&e, tiny.dir, &options), 0);
    for (int again = 0; again < 2; again++) { /* a used engine serves as a new one */
        score(e, &r, &got);
        ck_assert_mem_eq(made.hash, got.result.hash, sizeof made.hash);
    }
    engine_close(e);
    for (uint32_t at = 1; at < countof(ids); at++) { /* the likeliest of all */
        ck_assert_double_gt(got.logprob[at], -log(REF_VOCAB));
    }
}
END_TEST

START_TEST(each_weight_is_read_once_for_a_chunk)
{
    static struct scored got;
    static const uint32_t chunks[] = {64, 16};
    struct engine_stats stats[countof(chunks)];
    struct score_request r = {.ids = text, .id_count = 65, .window = 64, .stride = 64};
    struct engine_options options = score_options(&r);
    options.pin_bytes = 0;
    for (size_t i = 0; i < countof(chunks); i++) {
        struct engine *e = NULL;
        options.chunk = chunks[i];
        ck_assert_msg(engine_open(&e, tiny.dir, &options) == 0, "%s", err_message());
        ck_assert_uint_eq(engine_plan_of(e)->chunk, chunks[i]);
        ck_assert_uint_eq(engine_plan_of(e)->request.head_rows, chunks[i]);
        score(e, &r, &got);
        engine_stats(e, &stats[i]);
        engine_close(e);
    }
    for (int class = 0; class < READ_CLASSES; class++) {
        if (class == READ_TRUNK || class == READ_HEAD) {
            ck_assert_uint_gt(stats[0].class[class].bytes, 0);
            ck_assert_uint_eq(4 * stats[0].class[class].bytes, stats[1].class[class].bytes);
        }
    }
}
END_TEST

/* Where only overlaps are read again, lm_head does not pass by. */
START_TEST(passes_without_a_score_read_no_head)
{
    static struct scored got;
    struct engine_stats stats;
    struct engine *e = NULL;
    struct score_request r = {.ids = text, .id_count = 61, .window = 40, .stride = 20};
    struct engine_options options = score_options(&r);
    options.pin_bytes = 0;
    options.chunk = 20;
    ck_assert_int_eq(engine_open(&e, tiny.dir, &options), 0);
    score(e, &r, &got);
    engine_stats(e, &stats);
    uint64_t head = engine_plan_of(e)->traffic[TRAFFIC_HEAD].window_bytes;
    ck_assert_uint_eq(got.result.passes, 4); /* 0-19, 20-39; 20-39 again, 40-59 */
    ck_assert_uint_eq(stats.class[READ_HEAD].bytes, 3 * head);
    engine_close(e);
}
END_TEST

START_TEST(a_budget_that_has_no_room_for_all_logits_takes_smaller_chunks)
{
    static struct scored got;
    struct score_request r = {.ids = text, .id_count = 65, .window = 64, .stride = 64};
    struct engine_options options = score_options(&r);
    struct model *model = NULL;
    struct plan *plan = NULL;
    ck_assert_int_eq(engine_plan(tiny.dir, &options, &model, &plan), 0);
    ck_assert_uint_eq(plan->chunk, 64);
    options.ram_bytes = plan->floor_bytes;
    plan_free(plan);
    model_close(model);
    struct engine *e = NULL;
    ck_assert_msg(engine_open(&e, tiny.dir, &options) == 0, "%s", err_message());
    ck_assert_uint_lt(engine_plan_of(e)->chunk, 64);
    ck_assert_uint_eq(engine_plan_of(e)->request.head_rows, engine_plan_of(e)->chunk);
    score(e, &r, &got);
    engine_close(e);
}
END_TEST

/* ---- the command ---- */

static cJSON *report(void)
{
    size_t size;
    char *bytes = (char *)tiny_read(&folder, "report.json", &size);
    cJSON *root = json_parse(bytes, size, "report", false);
    ck_assert_msg(root != NULL, "%s", err_message());
    free(bytes);
    return root;
}

static double number(const cJSON *root, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, name);
    ck_assert_msg(cJSON_IsNumber(item), "'%s' is no number", name);
    return item->valuedouble;
}

START_TEST(the_command_prints_a_line_and_reports_every_token)
{
    double nats = 0;
    tiny_put(&folder, "text.txt", "To be, or not\xC3\xA9", 15);
    k3ring("score %s %s --tokenizer %s --json %s --stride 5 --context 8", tiny.dir, text_path,
           vocabulary, report_path);
    expect(0, "windows of at most 8 tokens, 5 apart");
    ck_assert_ptr_nonnull(strstr(process.out, "perplexity "));
    ck_assert_ptr_nonnull(strstr(process.out, "bits per byte"));
    cJSON *root = report();
    const cJSON *tokens = cJSON_GetObjectItem(root, "tokens");
    ck_assert_int_eq(cJSON_GetArraySize(tokens), 15);
    for (int at = 0; at < 15; at++) {
        const cJSON *token = cJSON_GetArrayItem(tokens, at);
        const char *shown = cJSON_GetStringValue(cJSON_GetObjectItem(token, "text"));
        ck_assert_ptr_nonnull(shown);
        if (at < 13) {
            ck_assert(shown[0] == "To be, or not"[at] && shown[1] == '\0');
        } else {
            ck_assert_str_eq(shown, "\xEF\xBF\xBD"); /* half a character is none */
        }
        if (at == 0) {
            ck_assert(cJSON_IsNull(cJSON_GetObjectItem(token, "logprob")));
        } else {
            nats -= number(token, "logprob");
        }
    }
    ck_assert(nats == number(root, "nll_sum"));
    ck_assert_double_lt(fabs(number(root, "nll") - nats / 14), 1e-12);
    ck_assert_double_lt(fabs(log(number(root, "perplexity")) - nats / 14), 1e-6);
    ck_assert_double_lt(fabs(number(root, "bits_per_byte") - nats / log(2) / 14), 1e-9);
    ck_assert_double_eq(number(root, "scored"), 14);
    ck_assert_double_eq(number(root, "windows"), 3);
    ck_assert_double_gt(number(root, "tokens_per_second"), 0);
    ck_assert_ptr_nonnull(cJSON_GetObjectItem(root, "settings"));
    cJSON_Delete(root);
}
END_TEST

START_TEST(ids_standard_input_and_a_report_in_place_of_the_line_will_do)
{
    k3ring("score %s --ids 3,141,59,26 --quiet", tiny.dir);
    expect(0, NULL);
    ck_assert_str_eq(process.err, "");
    ck_assert_ptr_nonnull(strstr(process.out, "(3 tokens scored)"));
    ck_assert_ptr_null(strstr(process.out, "byte"));
    static char line[PROCESS_TEXT_BYTES];
    memcpy(line, process.out, sizeof line);
    k3ring("score %s --ids 3,141,59,26 --threads 1 --chunk 1 --ram 40M", tiny.dir);
    expect(0, NULL);
    ck_assert_str_eq(process.out, line);
    k3ring("score %s --ids 3,141,59,26 --json -", tiny.dir);
    expect(0, NULL);
    cJSON *root = json_parse(process.out, strlen(process.out), "output", false);
    ck_assert_msg(root != NULL, "%s", err_message());
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(root, "bits_per_byte")));
    ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(root, "tokens")), 4);
    cJSON_Delete(root);
    tiny_put(&folder, "in", "abcd", 4);
    k3ring("score %s - --tokenizer %s", tiny.dir, vocabulary);
    expect(0, NULL);
    ck_assert_ptr_nonnull(strstr(process.out, "(3 tokens scored)"));
}
END_TEST

START_TEST(the_ceiling_holds_all_logits)
{
    k3ring("score %s --ids 3,141,59,26,53,58,97,93,3,141,59,26,53,58,97,93 --ram 22M --json %s",
           tiny.dir, report_path);
    expect(0, NULL);
    cJSON *root = report();
    double peak = number(root, "peak_rss_bytes");
    ck_assert_double_gt(peak, 0);
#ifndef K3RING_SANITIZED
    ck_assert_double_le(peak, 22.0 * 1024 * 1024);
#else
    printf("note: a sanitizer's memory is not the program's: the ceiling not looked at\n");
#endif
    cJSON_Delete(root);
}
END_TEST

static const struct {
    int status;
    const char *arguments, *part;
} refused[] = {
    {2, "", "give a text, FILE or - for standard input, or --ids"},
    {2, "some.txt --ids 1,2", "not both"},
    {2, "a b", "what is 'b'"},
    {2, "--ids 1", "single token"},
    {2, "--ids 1,x", "--ids: '1,x'"},
    {2, "--ids 1,256", "text: id 256 (number 2)"},
    {1, "/nonexistent/text", "score: /nonexistent/text cannot be opened"},
    {1, "/", "cannot be read"},
    {2, "/dev/null", "the text is empty"},
    {2, "--ids 1,2,3 --stride 0", "--stride: '0'"},
    {2, "--ids 1,2,3,4 --context 2 --stride 3", "--stride: 3 is more than the 2 tokens"},
    {4, "--ids 1,2,3 --ram 1M", "--ram"},
    {1, "--ids 1,2,3 --json /nonexistent/report", "/nonexistent/report"},
};

START_TEST(what_cannot_be_scored_is_refused)
{
    k3ring("score %s %s --tokenizer %s", tiny.dir, refused[_i].arguments, vocabulary);
    expect_refusal(refused[_i].status, refused[_i].part);
}
END_TEST

START_TEST(a_logit_that_is_not_finite_ends_it_with_a_report)
{
    struct tiny broken;
    static const unsigned char nan_bytes[2] = {0xFF, 0xFF};
    tiny_copy(&broken, &tiny, TINY_MEMORY);
    tiny_poke(&broken, "language_model.lm_head.weight", 0, nan_bytes, sizeof nan_bytes);
    k3ring("score %s --ids 3,141,59,26 --json %s", broken.dir, report_path);
    expect(1, "a logit after token 0 of the text is not finite");
    ck_assert_str_eq(process.out, "");
    cJSON *root = report();
    ck_assert_double_eq(number(root, "scored"), 0);
    ck_assert(cJSON_IsNull(cJSON_GetObjectItem(root, "perplexity")));
    ck_assert_ptr_nonnull(cJSON_GetStringValue(cJSON_GetObjectItem(root, "error")));
    cJSON_Delete(root);
    tiny_remove(&broken);
}
END_TEST

static void setup_once(void)
{
    struct rng rng = rng_seed(8);
    for (uint32_t i = 0; i < TEXT; i++) {
        text[i] = (uint32_t)rng_below(&rng, REF_VOCAB);
    }
    weights = ref_weights_open();
    tiny_need(weights != NULL, "weights of the second opinion");
    tiny_make(&tiny, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "tiktoken.model", vocabulary);
    vocabulary_write(vocabulary, NULL, 0);
    tiny_path(&folder, "text.txt", text_path);
    tiny_path(&folder, "report.json", report_path);
}

int main(void)
{
    Suite *suite = suite_create("score");
    TCase *tests = tcase_create("score");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, scores_are_those_of_the_second_opinion, 0, SHAPES_TRIED);
    tcase_add_test(tests, scores_are_the_same_bits_in_any_setting);
    tcase_add_test(tests, the_hash_is_that_of_generating_the_same_tokens);
    tcase_add_test(tests, each_weight_is_read_once_for_a_chunk);
    tcase_add_test(tests, passes_without_a_score_read_no_head);
    tcase_add_test(tests, a_budget_that_has_no_room_for_all_logits_takes_smaller_chunks);
    tcase_add_test(tests, the_command_prints_a_line_and_reports_every_token);
    tcase_add_test(tests, ids_standard_input_and_a_report_in_place_of_the_line_will_do);
    tcase_add_test(tests, the_ceiling_holds_all_logits);
    tcase_add_loop_test(tests, what_cannot_be_scored_is_refused, 0, (int)countof(refused));
    tcase_add_test(tests, a_logit_that_is_not_finite_ends_it_with_a_report);
    suite_add_tcase(suite, tests);
    setup_once();
    int failed = suite_run(suite);
    ref_weights_close(weights);
    tiny_remove(&tiny);
    tiny_remove(&folder);
    return failed == 0 ? 0 : 1;
}
