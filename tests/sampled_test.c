/* SPDX-License-Identifier: Apache-2.0 */

/* Tokens by chance are as certain as greedy ones: whatever is drafted, in whatever setting, and
 * whether a sequence is made in one go or gone on with, the same seed makes the same tokens. */

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/exec/logprob.h"
#include "tests/support/amount.h"
#include "tests/support/grid.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define POINTS AMOUNT(20, 8, 2)
#define GEN 40U
#define DRAFTS 6U
#define LEFT 17U /* tokens made before a sequence is left */

static struct tiny tiny, forgetful;

struct made {
    uint32_t ids[GEN];
    struct generate_result result;
};

static void prompt_ids(uint32_t ids[GOLDEN_PROMPT])
{
    for (uint32_t i = 0; i < GOLDEN_PROMPT; i++) {
        ids[i] = (uint32_t)golden_prompt[i];
    }
}

static struct sample_options hot(uint64_t seed)
{
    struct sample_options o = sample_greedy();
    o.temperature = 3; /* the tiny model is very sure of itself */
    o.top_p = 0.98f;
    o.seed = seed;
    return o;
}

/* Chance enough for different texts, and little enough for drafts to come true. */
static struct sample_options warm(uint64_t seed)
{
    struct sample_options o = sample_greedy();
    o.temperature = 0.6f;
    o.seed = seed;
    return o;
}

static void make(struct engine *e, const struct generate_request *request, struct made *out)
{
    out->result = (struct generate_result){.ids = out->ids};
    ck_assert_msg(generate(e, request, &out->result) == 0, "%s", err_message());
    ck_assert_uint_eq(out->result.count, request->gen);
}

static struct engine *open_engine(const struct tiny *model, const struct engine_options *options)
{
    struct engine *e = NULL;
    ck_assert_msg(engine_open(&e, model->dir, options) == 0, "%s", err_message());
    return e;
}

/* One run from the golden prompt in an engine of its own. */
static void make_plain(const struct tiny *model, const struct sample_options *sample,
                       struct made *out)
{
    uint32_t prompt[GOLDEN_PROMPT];
    struct engine_options options = tiny_options(GEN);
    struct engine *e = open_engine(model, &options);
    struct generate_request r = {.ids = prompt, .id_count = GOLDEN_PROMPT, .gen = GEN,
                                 .sample = sample};
    prompt_ids(prompt);
    make(e, &r, out);
    engine_close(e);
}

static void expect_same(const struct made *a, const struct made *b, const char *what)
{
    for (uint32_t i = 0; i < GEN; i++) {
        ck_assert_msg(a->ids[i] == b->ids[i], "%s: token %u is %u, not %u", what, i, b->ids[i],
                      a->ids[i]);
    }
    ck_assert_mem_eq(a->result.hash, b->result.hash, LOGITS_HASH_BYTES);
}

static struct engine_options point_options(const struct grid_point *point, uint32_t drafts)
{
    struct engine_options options;
    grid_options(point, GOLDEN_PROMPT, GEN, &options);
    options.drafts = drafts;
    grid_floor(tiny.dir, &options);
    return options;
}

START_TEST(chance_is_the_same_in_any_setting_and_with_any_drafts)
{
    static struct made truth[2], got;
    uint32_t prompt[GOLDEN_PROMPT];
    uint32_t accepted = 0;
    struct sample_options sample[2] = {hot(5), warm(6)};
    const struct tiny *model[2] = {&tiny, &forgetful};
    prompt_ids(prompt);
    make_plain(model[0], &sample[0], &truth[0]);
    make_plain(model[1], &sample[1], &truth[1]);
    for (uint64_t i = 0; i < POINTS; i++) {
        struct grid_point point = grid_random(9100 + i);
        uint32_t drafts = i % 3 == 0 ? 0 : DRAFTS;
        struct engine_options options = point_options(&point, drafts);
        char command[512];
        grid_command(&point, options.ram_bytes, GEN, command, sizeof command);
        for (int k = 0; k < 2; k++) {
            struct engine *e = open_engine(model[k], &options);
            struct generate_request r = {.ids = prompt, .id_count = GOLDEN_PROMPT, .gen = GEN,
                                         .sample = &sample[k], .drafts = drafts,
                                         .drafts_fixed = i % 3 == 1};
            make(e, &r, &got);
            expect_same(&truth[k], &got, command);
            accepted += got.result.accepted;
            engine_close(e);
        }
    }
    ck_assert_uint_gt(accepted, 0); /* else drafts were not looked at */
}
END_TEST

START_TEST(seeds_make_different_texts_and_temperature_zero_the_greedy_one)
{
    static struct made a, b, greedy;
    struct sample_options one = hot(1), two = hot(2), cold = sample_greedy();
    make_plain(&tiny, &one, &a);
    make_plain(&tiny, &two, &b);
    ck_assert_mem_ne(a.ids, b.ids, sizeof a.ids);
    make_plain(&tiny, &one, &b);
    expect_same(&a, &b, "again");
    make_plain(&tiny, NULL, &greedy);
    make_plain(&tiny, &cold, &b);
    expect_same(&greedy, &b, "temperature 0");
    ck_assert_mem_ne(a.ids, greedy.ids, sizeof a.ids);
    for (uint32_t i = 0; i < GOLDEN_STEPS; i++) {
        ck_assert_uint_eq(greedy.ids[i], (uint32_t)golden_ids[i]);
    }
}
END_TEST

/* The ids of a whole sequence: prompt, then what was made. */
static void whole(const struct made *made, uint32_t ids[GOLDEN_PROMPT + GEN])
{
    prompt_ids(ids);
    memcpy(ids + GOLDEN_PROMPT, made->ids, sizeof made->ids);
}

START_TEST(a_sequence_gone_on_with_is_the_one_made_in_one_go)
{
    static struct made all, part;
    uint32_t ids[GOLDEN_PROMPT + GEN];
    struct sample_options sample = hot(7);
    struct engine_options options = tiny_options(GEN);
    sample.repetition_penalty = 1.3f; /* so that what was there before counts, too */
    make_plain(&tiny, &sample, &all);
    whole(&all, ids);
    options.drafts = DRAFTS;
    struct engine *e = open_engine(&tiny, &options);
    for (uint32_t drafts = 0; drafts <= DRAFTS; drafts += DRAFTS) {
        struct generate_request r = {.ids = ids, .id_count = GOLDEN_PROMPT, .gen = LEFT,
                                     .sample = &sample, .drafts = drafts, .drafts_fixed = true};
        make(e, &r, &part);
        ck_assert_mem_eq(part.ids, all.ids, LEFT * sizeof *all.ids);
        /* The state holds all but the last token made. */
        ck_assert_uint_eq(engine_position(e), GOLDEN_PROMPT + LEFT - 1);
        r.resume = true;
        r.past = ids;
        r.past_count = engine_position(e);
        r.ids = ids + r.past_count;
        r.id_count = 1;
        r.gen = GEN - LEFT;
        make(e, &r, &part);
        ck_assert_mem_eq(part.ids, all.ids + LEFT, (GEN - LEFT) * sizeof *all.ids);
    }
    /* And from nothing, with what was made as its prompt. */
    struct generate_request r = {.ids = ids, .id_count = GOLDEN_PROMPT + LEFT, .gen = GEN - LEFT,
                                 .sample = &sample};
    make(e, &r, &part);
    ck_assert_mem_eq(part.ids, all.ids + LEFT, (GEN - LEFT) * sizeof *all.ids);
    engine_close(e);
}
END_TEST

/* ---- who is told, and who is asked ---- */

struct watch {
    const struct kernels *kernels;
    uint32_t ids[GEN], choices, tokens;
    uint32_t end_at; /* the step after which it says stop */
    float scratch[REF_VOCAB];
    double logprob[GEN];
};

static void on_choice(void *ctx, uint32_t step, const float *logits, uint32_t id)
{
    struct watch *w = ctx;
    struct logprob_norm norm = logprob_norm(w->kernels, logits, REF_VOCAB, w->scratch);
    w->logprob[step] = logprob_of(&norm, logits[id]);
    w->ids[step] = id;
    w->choices++;
}

static void on_token(void *ctx, uint32_t step, uint32_t id)
{
    struct watch *w = ctx;
    w->tokens += w->choices == step + 1 && w->ids[step] == id;
}

static bool stops(void *ctx, uint32_t step, uint32_t id)
{
    const struct watch *w = ctx;
    (void)id;
    return step == w->end_at;
}

START_TEST(who_asks_is_told_of_every_choice_and_may_end_the_sequence)
{
    static struct watch watch;
    static struct made made;
    static const uint32_t ends[] = {0, 11, GEN - 1, GEN};
    struct sample_options sample = hot(3);
    struct engine_options options = tiny_options(GEN);
    uint32_t prompt[GOLDEN_PROMPT];
    options.drafts = DRAFTS;
    struct engine *e = open_engine(&tiny, &options);
    prompt_ids(prompt);
    for (size_t i = 0; i < countof(ends); i++) {
        uint32_t count = ends[i] < GEN ? ends[i] + 1 : GEN;
        watch = (struct watch){.kernels = engine_kernels(e), .end_at = ends[i]};
        struct generate_request r = {.ids = prompt, .id_count = GOLDEN_PROMPT, .gen = GEN,
                                     .sample = &sample, .drafts = i % 2 ? DRAFTS : 0,
                                     .drafts_fixed = true, .on_choice = on_choice,
                                     .on_token = on_token, .stops = stops, .ctx = &watch};
        made.result = (struct generate_result){.ids = made.ids};
        ck_assert_int_eq(generate(e, &r, &made.result), 0);
        ck_assert_uint_eq(made.result.count, count);
        ck_assert_uint_eq(watch.choices, count);
        ck_assert_uint_eq(watch.tokens, count);
        ck_assert_int_eq(made.result.finish, ends[i] < GEN ? FINISH_STOP : FINISH_LENGTH);
        ck_assert_mem_eq(watch.ids, made.ids, count * sizeof *made.ids);
        for (uint32_t step = 0; step < count; step++) {
            ck_assert(watch.logprob[step] <= 0 && watch.logprob[step] > -1000);
        }
    }
    engine_close(e);
}
END_TEST

START_TEST(what_cannot_be_sampled_is_refused_and_the_engine_goes_on)
{
    static struct made made;
    uint32_t prompt[GOLDEN_PROMPT];
    struct sample_bias outside = {.id = REF_VOCAB, .value = 1};
    struct sample_bias all[REF_VOCAB];
    struct sample_options sample = hot(1);
    struct engine_options options = tiny_options(GEN);
    struct engine *e = open_engine(&tiny, &options);
    struct generate_request r = {.ids = prompt, .id_count = GOLDEN_PROMPT, .gen = GEN,
                                 .sample = &sample};
    prompt_ids(prompt);
    sample.biases = &outside;
    sample.bias_count = 1;
    made.result = (struct generate_result){.ids = made.ids};
    ck_assert_int_eq(generate(e, &r, &made.result), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err_message(), "--logit-bias: id 256"));
    err_clear();
    for (uint32_t i = 0; i < REF_VOCAB; i++) {
        all[i] = (struct sample_bias){.id = i, .value = -INFINITY};
    }
    sample.biases = all;
    sample.bias_count = REF_VOCAB;
    ck_assert_int_eq(generate(e, &r, &made.result), ERR_RUN);
    ck_assert_ptr_nonnull(strstr(err_message(), "bans every token"));
    ck_assert_int_eq(made.result.finish, FINISH_FAILED);
    err_clear();
    sample.bias_count = REF_VOCAB - 1; /* the last one alone is left */
    make(e, &r, &made);
    for (uint32_t i = 0; i < GEN; i++) {
        ck_assert_uint_eq(made.ids[i], REF_VOCAB - 1);
    }
    engine_close(e);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sampled");
    TCase *tests = tcase_create("sampled");
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, chance_is_the_same_in_any_setting_and_with_any_drafts);
    tcase_add_test(tests, seeds_make_different_texts_and_temperature_zero_the_greedy_one);
    tcase_add_test(tests, a_sequence_gone_on_with_is_the_one_made_in_one_go);
    tcase_add_test(tests, who_asks_is_told_of_every_choice_and_may_end_the_sequence);
    tcase_add_test(tests, what_cannot_be_sampled_is_refused_and_the_engine_goes_on);
    suite_add_tcase(suite, tests);
    tiny_make(&tiny, TINY_MEMORY);
    tiny_forgetful(&forgetful, &tiny);
    int failed = suite_run(suite);
    tiny_remove(&forgetful);
    tiny_remove(&tiny);
    return failed == 0 ? 0 : 1;
}
