/* SPDX-License-Identifier: Apache-2.0 */

/* The trained model of tests/model/ against what PyTorch made of it in float64, another program
 * from another hand (tests/reference/): logits, perplexity, greedy ids, ids of the text. And its
 * routing, which is that of a model which learned something. */

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/opt.h"
#include "core/base/err.h"
#include "core/base/json.h"
#include "core/model/tokenizer.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define MODEL "tests/model"
#define GOLDEN "trained.json"
#define TRACE "tests/data/trained.k3rt"
#define TRACED "run " MODEL " --prompt-file %s --gen 128" /* how that file was made */
#define TRACED_PROMPT "There once was"
#define IDS_MAX 1024
#define LOGIT_TOLERANCE 1e-3
#define LOGPROB_TOLERANCE 1e-3

static cJSON *golden;
static uint32_t ids[IDS_MAX];
static uint32_t id_count;

static const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    tiny_need(item != NULL, name);
    return item;
}

static double number(const cJSON *item)
{
    tiny_need(cJSON_IsNumber(item), "a number of " GOLDEN);
    return cJSON_GetNumberValue(item);
}

static uint32_t read_ids(const cJSON *list, uint32_t *out)
{
    uint32_t count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        tiny_need(count < IDS_MAX, "ids of " GOLDEN);
        out[count++] = (uint32_t)number(item);
    }
    return count;
}

/* ---- against PyTorch ---- */

/* log of the share of one id. */
static double log_share(const float *logits, uint32_t vocab, uint32_t id)
{
    double largest = logits[0], sum = 0;
    for (uint32_t i = 1; i < vocab; i++) {
        largest = fmax(largest, (double)logits[i]);
    }
    for (uint32_t i = 0; i < vocab; i++) {
        sum += exp((double)logits[i] - largest);
    }
    return (double)logits[id] - largest - log(sum);
}

/* The largest distance found so far from what PyTorch says. */
struct distance {
    double logit, logprob, sum; /* sum: of the log-probabilities themselves */
    uint32_t compared;
};

static void compare_logit(struct distance *d, float found, const cJSON *wanted)
{
    double off = fabs((double)found - number(wanted));
    ck_assert(isfinite(off));
    d->logit = fmax(d->logit, off);
    d->compared++;
}

static void compare_position(struct distance *d, const float *logits, uint32_t vocab, uint32_t at)
{
    const cJSON *top = cJSON_GetArrayItem(member(golden, "top"), (int)at), *row;
    const cJSON *value = member(top, "logits")->child;
    for (const cJSON *id = member(top, "ids")->child; id != NULL; id = id->next) {
        compare_logit(d, logits[(uint32_t)number(id)], value);
        value = value->next;
    }
    cJSON_ArrayForEach(row, member(golden, "rows"))
    {
        if ((uint32_t)number(member(row, "position")) == at) {
            uint32_t i = 0;
            cJSON_ArrayForEach(value, member(row, "logits"))
            {
                compare_logit(d, logits[i++], value);
            }
            ck_assert_uint_eq(i, vocab);
        }
    }
    if (at + 1 < id_count) {
        double logprob = log_share(logits, vocab, ids[at + 1]);
        const cJSON *wanted = cJSON_GetArrayItem(member(golden, "logprobs"), (int)at);
        d->logprob = fmax(d->logprob, fabs(logprob - number(wanted)));
        d->sum += logprob;
    }
}

/* The whole text, a position a pass. */
static struct distance follow(const struct engine_options *options)
{
    struct distance d = {.compared = 0};
    struct engine *e = NULL;
    const float *logits = NULL;
    err_clear();
    ck_assert_msg(engine_open(&e, MODEL, options) == 0, "%s", err_message());
    uint32_t vocab = engine_model(e)->config.vocab;
    ck_assert_int_eq(engine_begin(e, 1, id_count - 1), 0);
    for (uint32_t at = 0; at < id_count; at++) {
        ck_assert_msg(engine_pass(e, &ids[at], 1, &logits) == 0, "%s", err_message());
        compare_position(&d, logits, vocab, at);
    }
    ck_assert_int_eq(engine_end(e), 0);
    engine_close(e);
    return d;
}

static struct engine_options trained_options(uint32_t positions)
{
    struct engine_options options = tiny_options(0);
    options.context = positions;
    options.prompt_tokens = 1;
    return options;
}

START_TEST(logits_and_perplexity_are_those_of_pytorch)
{
    struct engine_options options = trained_options(id_count);
    struct distance d = follow(&options);
    double perplexity = exp(-d.sum / (id_count - 1));
    double wanted = number(member(golden, "perplexity"));
    printf("note: %u logits of %u positions off by at most %.2g, log-probabilities by %.2g; "
           "perplexity %.6f, PyTorch %.6f\n", d.compared, id_count, d.logit, d.logprob, perplexity,
           wanted);
    fflush(stdout);
    ck_assert_uint_gt(d.compared, 8 * id_count);
    ck_assert(d.logit <= LOGIT_TOLERANCE && d.logprob <= LOGPROB_TOLERANCE);
    ck_assert(fabs(perplexity / wanted - 1) < 5e-5);
    /* It learned: an untrained model of this vocabulary would be in doubt among all ids. */
    ck_assert(perplexity < 10);
}
END_TEST

START_TEST(the_text_becomes_the_ids_it_was_trained_on)
{
    struct tokenizer *t;
    struct token_list list = {.count = 0};
    const char *text = cJSON_GetStringValue(member(golden, "text"));
    uint32_t count = (uint32_t)number(member(golden, "text_ids"));
    ck_assert_msg(tokenizer_open(MODEL, &t) == 0, "%s", err_message());
    ck_assert_int_eq(tokenizer_encode(t, text, strlen(text), 0, &list), 0);
    ck_assert_uint_eq(list.count, count);
    ck_assert_mem_eq(list.ids, ids, count * sizeof *ids);
    free(list.ids);
    tokenizer_close(t);
}
END_TEST

START_TEST(score_finds_the_text_as_likely_as_pytorch_does)
{
    char path[TINY_PATH_BYTES];
    const char *text = cJSON_GetStringValue(member(golden, "text"));
    tiny_put(&folder, "text.txt", text, strlen(text));
    tiny_path(&folder, "text.txt", path);
    k3ring("score " MODEL " %s --quiet --json -", path);
    expect(0, NULL);
    cJSON *report = json_parse(process.out, strlen(process.out), "report", false);
    ck_assert_msg(report != NULL, "%s", err_message());
    double wanted = number(member(golden, "text_perplexity"));
    ck_assert(fabs(number(member(report, "perplexity")) / wanted - 1) < 5e-5);
    cJSON_Delete(report);
}
END_TEST

START_TEST(the_story_of_the_quick_start_is_told)
{
    struct tiny model = {.dir = MODEL};
    size_t size;
    char prompt[TINY_PATH_BYTES];
    char *story = (char *)tiny_read(&model, "story.txt", &size);
    tiny_put(&folder, "prompt.txt", TRACED_PROMPT, strlen(TRACED_PROMPT));
    tiny_path(&folder, "prompt.txt", prompt);
    k3ring("run " MODEL " --prompt-file %s --gen 200 --stop 1281 --quiet", prompt);
    expect(0, NULL);
    ck_assert_str_eq(process.out, story);
    free(story);
}
END_TEST

/* ---- the same at every budget ---- */

static void make(const struct engine_options *options, const uint32_t *prompt, uint32_t count,
                 uint32_t gen, struct tiny_run *run)
{
    struct engine *e = NULL;
    struct generate_request request = {.ids = prompt, .id_count = count, .gen = gen};
    struct generate_result result = {.ids = run->ids};
    err_clear();
    ck_assert_msg(engine_open(&e, MODEL, options) == 0, "%s", err_message());
    ck_assert_msg(generate(e, &request, &result) == 0, "%s", err_message());
    engine_stats(e, &run->stats);
    engine_close(e);
    run->count = result.count;
    generate_hash_text(result.hash, run->hash);
}

/* Everything resident; nothing resident, in small tiles; something in between, one worker. */
static struct engine_options budget(int which, uint32_t positions)
{
    struct engine_options options = trained_options(positions);
    if (which == 1) {
        options.pin_bytes = options.expert_slots = 0;
        options.tile_bytes = 4 * KIB;
    } else if (which == 2) {
        options.pin_percent = 40;
        options.expert_slots = 60;
        options.policy = "lhr";
        options.threads = 1;
        options.chunk = 3;
    }
    return options;
}

START_TEST(greedy_ids_are_those_of_pytorch_at_every_budget)
{
    static struct tiny_run runs[3];
    uint32_t prompt[IDS_MAX];
    uint32_t wanted[IDS_MAX];
    const cJSON *one = cJSON_GetArrayItem(member(golden, "greedy"), _i);
    uint32_t count = read_ids(member(one, "prompt"), prompt);
    uint32_t gen = read_ids(member(one, "ids"), wanted);
    for (int i = 0; i < 3; i++) {
        struct engine_options options = budget(i, count + gen);
        options.prompt_tokens = count;
        make(&options, prompt, count, gen, &runs[i]);
        ck_assert_uint_eq(runs[i].count, gen);
        ck_assert_mem_eq(runs[i].ids, wanted, gen * sizeof *wanted);
        ck_assert_str_eq(runs[i].hash, runs[0].hash);
    }
    ck_assert_uint_gt(runs[1].stats.class[READ_TRUNK].bytes,
                      4 * runs[0].stats.class[READ_TRUNK].bytes);
}
END_TEST

/* ---- its routing ---- */

static struct trace routing;

static uint64_t hits_of(const char *policy, uint32_t slots)
{
    struct replay_count count;
    int rc = policy != NULL
                 ? replay_policy(&routing, policy_find(policy), routing.experts, slots, 1, &count)
                 : replay_opt(&routing, routing.experts, slots, 1, &count);
    ck_assert_int_eq(rc, 0);
    return count.hits;
}

START_TEST(a_run_records_the_routing_that_is_kept)
{
    char prompt[TINY_PATH_BYTES];
    char path[TINY_PATH_BYTES];
    struct trace fresh;
    tiny_put(&folder, "prompt.txt", TRACED_PROMPT, strlen(TRACED_PROMPT));
    tiny_path(&folder, "prompt.txt", prompt);
    tiny_path(&folder, "fresh.k3rt", path);
    k3ring(TRACED " --trace %s", prompt, path);
    expect(0, NULL);
    ck_assert_msg(trace_load(&fresh, path) == 0, "%s", err_message());
    ck_assert_uint_eq(fresh.group_count, routing.group_count);
    ck_assert_mem_eq(fresh.ids, routing.ids,
                     routing.group_count * routing.top_k * sizeof *routing.ids);
    trace_fini(&fresh);
}
END_TEST

START_TEST(every_expert_is_of_use)
{
    uint64_t first = 0;
    ck_assert_int_eq(replay_first_touches(&routing, routing.experts, 1, &first), 0);
    uint64_t all = (uint64_t)routing.layers * routing.experts;
    printf("note: %llu of %llu experts asked for in %llu positions\n", (unsigned long long)first,
           (unsigned long long)all, (unsigned long long)(routing.group_count / routing.layers));
    fflush(stdout);
    ck_assert_uint_gt(first * 10, all * 9);
}
END_TEST

/* A balanced router leaves little to recency: neighbours share hardly more experts than by chance.
 * Counting use and scores pays all the same. */
START_TEST(policies_that_learn_use_beat_recency)
{
    static const char *const learning[] = {"lhr", "lar", "lfu"};
    uint32_t all = routing.layers * routing.experts;
    for (uint32_t part = 1; part <= 2; part++) {
        uint64_t recency = hits_of("lru", all * part / 4);
        for (size_t i = 0; i < countof(learning); i++) {
            ck_assert_uint_gt(hits_of(learning[i], all * part / 4), recency);
        }
        ck_assert_uint_gt(hits_of("arc", all * part / 4), recency);
        ck_assert_uint_gt(recency, 0);
    }
}
END_TEST

START_TEST(no_policy_beats_the_one_that_knows_the_future)
{
    uint32_t all = routing.layers * routing.experts;
    uint64_t first = 0, demands = routing.group_count * routing.top_k;
    ck_assert_int_eq(replay_first_touches(&routing, routing.experts, 1, &first), 0);
    for (uint32_t part = 1; part <= 4; part++) {
        uint64_t best = hits_of(NULL, all * part / 4);
        for (int i = 0; policy_table[i] != NULL; i++) {
            uint64_t hits = hits_of(policy_table[i]->name, all * part / 4);
            ck_assert_uint_le(hits, best);
            /* With room for all experts, all that is asked for again is there. */
            bool whole = part == 4 && strcmp(policy_table[i]->name, "none") != 0;
            ck_assert(!whole || hits == demands - first);
        }
    }
}
END_TEST

static Suite *trained_suite(void)
{
    Suite *suite = suite_create("trained");
    TCase *tcase = tcase_create("trained");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, logits_and_perplexity_are_those_of_pytorch);
    tcase_add_test(tcase, score_finds_the_text_as_likely_as_pytorch_does);
    tcase_add_test(tcase, the_story_of_the_quick_start_is_told);
    tcase_add_test(tcase, the_text_becomes_the_ids_it_was_trained_on);
    tcase_add_loop_test(tcase, greedy_ids_are_those_of_pytorch_at_every_budget, 0, 2);
    tcase_add_test(tcase, a_run_records_the_routing_that_is_kept);
    tcase_add_test(tcase, every_expert_is_of_use);
    tcase_add_test(tcase, policies_that_learn_use_beat_recency);
    tcase_add_test(tcase, no_policy_beats_the_one_that_knows_the_future);
    suite_add_tcase(suite, tcase);
    return suite;
}

static void load_golden(void)
{
    struct tiny data = {.dir = "tests/data"};
    size_t size;
    char *text = (char *)tiny_read(&data, GOLDEN, &size);
    golden = json_parse(text, size, GOLDEN, false);
    tiny_need(golden != NULL, GOLDEN);
    free(text);
    id_count = read_ids(member(golden, "ids"), ids);
    tiny_need(trace_load(&routing, TRACE) == 0, TRACE);
}

int main(void)
{
    load_golden();
    tiny_folder(&folder, TINY_MEMORY);
    int failed = suite_run(trained_suite());
    tiny_remove(&folder);
    trace_fini(&routing);
    cJSON_Delete(golden);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
