/* SPDX-License-Identifier: Apache-2.0 */

/* Sequences that advance together must each make the very bits they make alone, whoever joins and
 * leaves beside them; one that fails takes nobody with it. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nondet.h"
#include "core/exec/batch.h"
#include "tests/support/amount.h"
#include "tests/support/grid.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define BATCHES AMOUNT(12, 6, 3)
#define LINES 12U
#define PROMPT_MAX 20U
#define GEN_MAX 12U

static struct tiny tiny;

struct line {
    uint32_t ids[PROMPT_MAX], stop;
    uint32_t id_count, gen;
    bool stops, samples;
    struct sample_options sample;
};

struct made {
    uint32_t ids[GEN_MAX];
    uint32_t count;
    unsigned char hash[LOGITS_HASH_BYTES];
    enum finish_reason finish;
    char error[ERR_MESSAGE_BYTES];
};

static struct line lines[LINES];
static struct made alone[LINES];

static void draw_lines(struct rng *rng)
{
    for (uint32_t i = 0; i < LINES; i++) {
        struct line *line = &lines[i];
        line->id_count = 1 + (uint32_t)rng_below(rng, PROMPT_MAX);
        line->gen = 1 + (uint32_t)rng_below(rng, GEN_MAX);
        for (uint32_t t = 0; t < line->id_count; t++) {
            line->ids[t] = (uint32_t)rng_below(rng, REF_VOCAB);
        }
        line->samples = i % 2 == 1; /* each by options and a seed of its own */
        line->sample = sample_greedy();
        line->sample.temperature = (float)(1 + i);
        line->sample.top_k = i % 4 == 1 ? 20 + i : 0;
        line->sample.repetition_penalty = i % 4 == 3 ? 1.2f : 1;
        line->sample.seed = i;
    }
}

static void run_alone(struct engine *e, const struct line *line, struct made *out)
{
    struct generate_request request = {.ids = line->ids, .id_count = line->id_count,
                                       .gen = line->gen, .stop = &line->stop,
                                       .stop_count = line->stops,
                                       .sample = line->samples ? &line->sample : NULL};
    struct generate_result result = {.ids = out->ids};
    ck_assert_msg(generate(e, &request, &result) == 0, "%s", err_message());
    out->count = result.count;
    out->finish = result.finish;
    memcpy(out->hash, result.hash, sizeof out->hash);
}

static struct engine_options base_options(void)
{
    struct engine_options options = tiny_options(PROMPT_MAX + GEN_MAX);
    options.prompt_tokens = PROMPT_MAX;
    return options;
}

/* Every third line is made to stop at a token it is known to make. */
static void find_alone(void)
{
    struct engine_options options = base_options();
    struct engine *e = NULL;
    struct rng rng = rng_seed(77);
    draw_lines(&rng);
    ck_assert_msg(engine_open(&e, tiny.dir, &options) == 0, "%s", err_message());
    for (uint32_t i = 0; i < LINES; i++) {
        run_alone(e, &lines[i], &alone[i]);
        if (i % 3 == 0) {
            lines[i].stops = true;
            lines[i].stop = alone[i].ids[alone[i].count / 2];
            run_alone(e, &lines[i], &alone[i]);
            ck_assert_int_eq(alone[i].finish, FINISH_STOP);
        }
    }
    engine_close(e);
}

struct audience {
    uint32_t next, limit;
    const struct tiny *spoil; /* the model to write to after the first result */
    struct made made[LINES];
    uint32_t results;
};

static bool next_line(void *ctx, struct batch_request *out)
{
    struct audience *a = ctx;
    if (a->next == a->limit) {
        return false;
    }
    const struct line *line = &lines[a->next];
    *out = (struct batch_request){.ids = line->ids, .id_count = line->id_count, .gen = line->gen,
                                  .stop = &line->stop, .stop_count = line->stops,
                                  .sample = line->samples ? &line->sample : NULL,
                                  .tag = a->next++};
    return true;
}

static int take(void *ctx, const struct batch_result *result)
{
    struct audience *a = ctx;
    struct made *made = &a->made[result->tag];
    made->count = result->count;
    made->finish = result->finish;
    memcpy(made->ids, result->ids, result->count * sizeof *result->ids);
    memcpy(made->hash, result->hash, sizeof made->hash);
    snprintf(made->error, sizeof made->error, "%s", result->error != NULL ? result->error : "");
    a->results++;
    if (a->spoil != NULL && a->results == 1) {
        static const unsigned char byte = 1;
        tiny_poke(a->spoil, "language_model.model.norm.weight", 0, &byte, 1);
    }
    return 0;
}

static const struct engine_forecast forecast = {.prompt_passes = 1, .steps = 1,
                                                .prompt_tokens = 1, .step_tokens = 1};

static void expect_alone(const struct audience *a, uint32_t line, const char *setting)
{
    ck_assert_msg(a->made[line].count == alone[line].count, "line %u: %u tokens, alone %u; %s",
                  line, a->made[line].count, alone[line].count, setting);
    ck_assert_int_eq(a->made[line].finish, alone[line].finish);
    ck_assert_mem_eq(a->made[line].ids, alone[line].ids, alone[line].count * sizeof(uint32_t));
    ck_assert_msg(memcmp(a->made[line].hash, alone[line].hash, LOGITS_HASH_BYTES) == 0,
                  "line %u has other bits; %s", line, setting);
}

/* The floor of a request, where a point asks for it. */
static uint64_t floor_of(struct engine_options options)
{
    struct model *model = NULL;
    struct plan *plan = NULL;
    options.ram_bytes = 512 * MIB;
    ck_assert_msg(engine_plan(tiny.dir, &options, &model, &plan) == 0, "%s", err_message());
    uint64_t floor = plan->floor_bytes;
    plan_free(plan);
    model_close(model);
    return floor;
}

START_TEST(sequences_together_make_the_bits_they_make_alone)
{
    static const uint32_t lanes[] = {1, 2, 3, 5, 8, 16};
    find_alone();
    for (uint32_t i = 0; i < BATCHES; i++) {
        struct grid_point point = grid_random(9000 + i);
        struct engine_options options;
        struct engine *e = NULL;
        struct audience a = {.limit = LINES};
        struct batch_source source = {next_line, take, &a};
        struct batch_totals totals;
        char command[512];
        grid_options(&point, PROMPT_MAX, GEN_MAX, &options);
        options.sequences = lanes[i % countof(lanes)];
        options.ram_bytes = options.ram_bytes > 0 ? options.ram_bytes : floor_of(options);
        grid_command(&point, options.ram_bytes, GEN_MAX, command, sizeof command);
        ck_assert_msg(engine_open(&e, tiny.dir, &options) == 0, "%s: %s", command, err_message());
        ck_assert_msg(batch_run(e, &source, &forecast, &totals) == 0, "%s: %s", command,
                      err_message());
        ck_assert_uint_eq(a.results, LINES);
        ck_assert_uint_eq(totals.sequences, LINES);
        ck_assert_uint_eq(totals.failed, 0);
        for (uint32_t line = 0; line < LINES; line++) {
            expect_alone(&a, line, command);
        }
        engine_close(e);
    }
}
END_TEST

/* Eight equal sequences take the passes, and the trunk bytes, of one. */
START_TEST(weights_pass_by_once_for_all_sequences)
{
    struct engine_options options = base_options();
    struct engine_stats stats[2];
    struct batch_totals totals[2];
    find_alone();
    for (uint32_t i = 0; i < LINES; i++) {
        lines[i] = lines[0];
        lines[i].stops = false;
    }
    for (int many = 0; many < 2; many++) {
        struct audience a = {.limit = many ? 8 : 1};
        struct batch_source source = {next_line, take, &a};
        struct engine *e = NULL;
        options.sequences = many ? 8 : 1;
        options.pin_bytes = 0;
        options.prompt_tokens = 8 * PROMPT_MAX;
        ck_assert_int_eq(engine_open(&e, tiny.dir, &options), 0);
        ck_assert_int_eq(batch_run(e, &source, &forecast, &totals[many]), 0);
        engine_stats(e, &stats[many]);
        engine_close(e);
    }
    ck_assert_uint_eq(totals[1].made_tokens, 8 * totals[0].made_tokens);
    ck_assert_uint_eq(totals[1].passes, totals[0].passes);
    for (int class = 0; class < READ_CLASSES; class++) {
        if (class != READ_EMBED) {
            ck_assert_uint_eq(stats[1].class[class].bytes, stats[0].class[class].bytes);
        }
    }
    ck_assert_uint_gt(stats[0].class[READ_TRUNK].bytes, 0);
    ck_assert_uint_eq(stats[1].class[READ_EMBED].requests,
                      8 * stats[0].class[READ_EMBED].requests);
}
END_TEST

START_TEST(a_sequence_that_is_not_finite_fails_alone)
{
    struct tiny poisoned;
    struct engine_options options = base_options();
    struct engine *e = NULL;
    unsigned char row[REF_HIDDEN * 2];
    const uint32_t bad_line = 4;
    uint32_t bad_id = 0;
    struct audience a = {.limit = LINES};
    struct batch_source source = {next_line, take, &a};
    struct batch_totals totals;
    find_alone();
    /* An id that no other line reads. */
    for (bool used = true; used; bad_id += used) {
        used = false;
        for (uint32_t i = 0; i < LINES; i++) {
            for (uint32_t t = 0; t < lines[i].id_count; t++) {
                used = used || lines[i].ids[t] == bad_id;
            }
            for (uint32_t t = 0; t < alone[i].count; t++) {
                used = used || alone[i].ids[t] == bad_id;
            }
        }
    }
    lines[bad_line].ids[lines[bad_line].id_count - 1] = bad_id;
    memset(row, 0xFF, sizeof row);
    tiny_copy(&poisoned, &tiny, TINY_MEMORY);
    tiny_poke(&poisoned, "language_model.model.embed_tokens.weight",
              (uint64_t)bad_id * sizeof row, row, sizeof row);
    options.sequences = 5;
    ck_assert_int_eq(engine_open(&e, poisoned.dir, &options), 0);
    ck_assert_msg(batch_run(e, &source, &forecast, &totals) == 0, "%s", err_message());
    ck_assert_uint_eq(totals.failed, 1);
    for (uint32_t i = 0; i < LINES; i++) {
        if (i != bad_line) {
            expect_alone(&a, i, "beside a failure");
        }
    }
    ck_assert_int_eq(a.made[bad_line].finish, FINISH_FAILED);
    ck_assert_ptr_nonnull(strstr(a.made[bad_line].error, "not finite"));
    engine_close(e);
    tiny_remove(&poisoned);
}
END_TEST

START_TEST(nothing_is_handed_over_after_a_file_was_written_to)
{
    struct tiny spoilt;
    struct engine_options options = base_options();
    struct engine *e = NULL;
    struct batch_totals totals;
    find_alone();
    tiny_copy(&spoilt, &tiny, TINY_MEMORY);
    struct audience a = {.limit = LINES, .spoil = &spoilt};
    struct batch_source source = {next_line, take, &a};
    options.sequences = 2;
    ck_assert_int_eq(engine_open(&e, spoilt.dir, &options), 0);
    ck_assert_int_eq(batch_run(e, &source, &forecast, &totals), ERR_IO);
    ck_assert_uint_eq(a.results, 1);
    engine_close(e);
    tiny_remove(&spoilt);
}
END_TEST

START_TEST(states_that_do_not_fit_are_fewer_when_the_engine_may_choose)
{
    struct engine_options options = base_options();
    struct model *model = NULL;
    struct plan *plan = NULL;
    options.sequences = 1000;
    options.ram_bytes = 64 * MIB;
    ck_assert_int_eq(engine_plan(tiny.dir, &options, &model, &plan), ERR_FIT);
    err_clear();
    options.sequences_most = true;
    ck_assert_int_eq(engine_plan(tiny.dir, &options, &model, &plan), 0);
    ck_assert_uint_lt(plan->request.sequences, 1000);
    ck_assert_uint_gt(plan->request.sequences, 1);
    ck_assert_uint_le(plan->account.state + plan->account.kv, 32 * MIB);
    plan_free(plan);
    model_close(model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch");
    TCase *tests = tcase_create("sequences");
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, sequences_together_make_the_bits_they_make_alone);
    tcase_add_test(tests, weights_pass_by_once_for_all_sequences);
    tcase_add_test(tests, a_sequence_that_is_not_finite_fails_alone);
    tcase_add_test(tests, nothing_is_handed_over_after_a_file_was_written_to);
    tcase_add_test(tests, states_that_do_not_fit_are_fewer_when_the_engine_may_choose);
    suite_add_tcase(suite, tests);
    tiny_make(&tiny, TINY_MEMORY);
    int failed = suite_run(suite);
    tiny_remove(&tiny);
    return failed == 0 ? 0 : 1;
}
