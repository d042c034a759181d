/* SPDX-License-Identifier: Apache-2.0 */

/* Drafted tokens must be invisible: whatever is tried, in whatever setting, the logits of every
 * step are those of plain decoding, bit for bit, and what was tried in vain leaves no trace. */

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "core/base/nondet.h"
#include "tests/support/amount.h"
#include "tests/support/grid.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define POINTS AMOUNT(24, 12, 4)
#define GEN 24U
#define DRAFTS 6U
#define LOOP_GEN 200U

static struct tiny tiny;

struct truth {
    uint32_t ids[GEN];
    uint64_t step[GEN];
};

static void note_step(void *ctx, uint32_t step, const float *logits)
{
    struct truth *truth = ctx;
    truth->step[step] = tiny_digest(logits);
}

static void prompt_ids(uint32_t ids[GOLDEN_PROMPT])
{
    for (uint32_t i = 0; i < GOLDEN_PROMPT; i++) {
        ids[i] = (uint32_t)golden_prompt[i];
    }
}

static void find_truth(struct truth *truth)
{
    struct engine_options options = tiny_options(GEN);
    struct engine *e = NULL;
    uint32_t prompt[GOLDEN_PROMPT];
    prompt_ids(prompt);
    struct generate_request request = {.ids = prompt, .id_count = GOLDEN_PROMPT, .gen = GEN,
                                       .on_logits = note_step, .ctx = truth};
    struct generate_result result = {.ids = truth->ids};
    ck_assert_msg(engine_open(&e, tiny.dir, &options) == 0, "%s", err_message());
    ck_assert_int_eq(generate(e, &request, &result), 0);
    engine_close(e);
    for (uint32_t i = 0; i < GOLDEN_STEPS; i++) {
        ck_assert_uint_eq(truth->ids[i], (uint32_t)golden_ids[i]);
    }
}

static void run_prompt(struct engine *e, const float **logits)
{
    uint32_t prompt[GOLDEN_PROMPT];
    uint32_t chunk = engine_plan_of(e)->chunk;
    prompt_ids(prompt);
    ck_assert_int_eq(engine_begin(e, GOLDEN_PROMPT, GEN - 1), 0);
    for (uint32_t at = 0; at < GOLDEN_PROMPT; at += chunk) {
        uint32_t count = (uint32_t)min_u64(chunk, GOLDEN_PROMPT - at);
        ck_assert_msg(engine_pass(e, prompt + at, count, logits) == 0, "%s", err_message());
    }
}

/* Drafts of which a random number are right. Returns the count of right ones. */
static uint32_t make_draft(const struct truth *truth, struct rng *rng, uint32_t made,
                           uint32_t width, uint32_t *ids)
{
    uint32_t right = (uint32_t)rng_below(rng, width + 1);
    ids[0] = truth->ids[made - 1];
    for (uint32_t i = 0; i < width; i++) {
        uint32_t other = (uint32_t)rng_below(rng, REF_VOCAB);
        uint32_t next = truth->ids[made + i];
        ids[1 + i] = i < right ? next : other != next ? other : (next + 1) % REF_VOCAB;
    }
    return right;
}

static void follow(struct engine *e, const struct truth *truth, struct rng *rng)
{
    const float *logits = NULL;
    uint32_t ids[1 + DRAFTS];
    uint32_t made = 1;
    run_prompt(e, &logits);
    ck_assert_uint_eq(tiny_digest(logits), truth->step[0]);
    while (made < GEN) {
        uint32_t width = (uint32_t)min_u64(rng_below(rng, DRAFTS + 1), GEN - made - 1);
        uint32_t right = make_draft(truth, rng, made, width, ids);
        ck_assert_msg(engine_try(e, ids, 1 + width) == 0, "%s", err_message());
        for (uint32_t row = 0; row <= right; row++) {
            ck_assert_msg(tiny_digest(engine_logits(e, row)) == truth->step[made + row],
                          "step %u, row %u of a draft of %u with %u right", made, row, width,
                          right);
        }
        engine_accept(e, right);
        made += 1 + right;
    }
    ck_assert_msg(engine_end(e) == 0, "%s", err_message());
}

static struct engine_options point_options(const struct grid_point *point)
{
    struct engine_options options;
    grid_options(point, GOLDEN_PROMPT, GEN, &options);
    options.drafts = DRAFTS;
    grid_floor(tiny.dir, &options);
    return options;
}

START_TEST(any_draft_in_any_setting_leaves_the_bits_of_plain_decoding)
{
    struct truth truth;
    find_truth(&truth);
    for (uint64_t i = 0; i < POINTS; i++) {
        struct grid_point point = grid_random(7000 + i);
        struct engine_options options = point_options(&point);
        struct engine *e = NULL;
        struct rng rng = rng_seed(i);
        char command[512];
        grid_command(&point, options.ram_bytes, GEN, command, sizeof command);
        ck_assert_msg(engine_open(&e, tiny.dir, &options) == 0, "%s: %s", command, err_message());
        follow(e, &truth, &rng);
        follow(e, &truth, &rng); /* a used engine serves the next sequence as a new one would */
        engine_close(e);
    }
}
END_TEST

/* The embedding row of an id as NaN: what drafting it computes is not finite. */
static void poison_id(const struct tiny *model, uint32_t id)
{
    unsigned char row[REF_HIDDEN * 2];
    memset(row, 0xFF, sizeof row);
    tiny_poke(model, "language_model.model.embed_tokens.weight", (uint64_t)id * sizeof row, row,
              sizeof row);
}

static uint32_t id_never_made(const struct truth *truth)
{
    for (uint32_t id = 0; id < REF_VOCAB; id++) {
        bool used = false;
        for (uint32_t i = 0; i < GEN; i++) {
            used = used || truth->ids[i] == id;
        }
        for (uint32_t i = 0; i < GOLDEN_PROMPT; i++) {
            used = used || (uint32_t)golden_prompt[i] == id;
        }
        if (!used) {
            return id;
        }
    }
    ck_abort_msg("every id is used");
    return 0;
}

START_TEST(a_draft_that_is_not_finite_is_a_wrong_draft_and_no_failure)
{
    struct truth truth;
    struct tiny poisoned;
    struct engine *e = NULL;
    const float *logits = NULL;
    char text[ERR_MESSAGE_BYTES];
    find_truth(&truth);
    tiny_copy(&poisoned, &tiny, TINY_MEMORY);
    uint32_t bad = id_never_made(&truth);
    poison_id(&poisoned, bad);
    struct engine_options options = tiny_options(GEN);
    options.drafts = 2;
    ck_assert_int_eq(engine_open(&e, poisoned.dir, &options), 0);
    run_prompt(e, &logits);
    for (uint32_t made = 1; made + 2 < GEN; made++) {
        uint32_t ids[3] = {truth.ids[made - 1], bad, bad};
        ck_assert_msg(engine_try(e, ids, 3) == 0, "%s", err_message());
        ck_assert(!engine_fault(e, 0, text));
        ck_assert(engine_fault(e, 1, text));
        ck_assert_ptr_nonnull(strstr(text, "layer 0"));
        ck_assert_uint_eq(tiny_digest(engine_logits(e, 0)), truth.step[made]);
        engine_accept(e, 0);
    }
    ck_assert_int_eq(engine_end(e), 0);
    /* The same id where it is no draft ends the run. */
    ck_assert_int_eq(engine_begin(e, 1, 0), 0);
    ck_assert_int_eq(engine_pass(e, &bad, 1, &logits), ERR_NUMERIC);
    engine_end(e);
    engine_close(e);
    tiny_remove(&poisoned);
}
END_TEST

struct looped {
    uint32_t ids[LOOP_GEN];
    struct generate_result result;
};

static void generate_loop(const struct tiny *model, uint32_t drafts, struct looped *out)
{
    struct engine_options options = tiny_options(LOOP_GEN);
    struct engine *e = NULL;
    uint32_t prompt[GOLDEN_PROMPT];
    prompt_ids(prompt);
    options.drafts = drafts;
    struct generate_request request = {.ids = prompt, .id_count = GOLDEN_PROMPT, .gen = LOOP_GEN,
                                       .drafts = drafts, .drafts_fixed = true};
    out->result = (struct generate_result){.ids = out->ids};
    ck_assert_msg(engine_open(&e, model->dir, &options) == 0, "%s", err_message());
    ck_assert_msg(generate(e, &request, &out->result) == 0, "%s", err_message());
    engine_close(e);
}

START_TEST(repeating_text_takes_fewer_passes_and_the_same_bits)
{
    struct tiny forgetful;
    struct looped plain;
    struct looped drafted;
    tiny_forgetful(&forgetful, &tiny);
    generate_loop(&forgetful, 0, &plain);
    generate_loop(&forgetful, DRAFTS, &drafted);
    ck_assert_uint_eq(plain.result.steps, LOOP_GEN - 1);
    ck_assert_uint_eq(drafted.result.steps + drafted.result.accepted, LOOP_GEN - 1);
    ck_assert_uint_lt(drafted.result.steps * 2, LOOP_GEN);
    ck_assert_mem_eq(plain.ids, drafted.ids, sizeof plain.ids);
    ck_assert_mem_eq(plain.result.hash, drafted.result.hash, LOGITS_HASH_BYTES);
    tiny_remove(&forgetful);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("draft");
    TCase *tests = tcase_create("drafts");
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, any_draft_in_any_setting_leaves_the_bits_of_plain_decoding);
    tcase_add_test(tests, a_draft_that_is_not_finite_is_a_wrong_draft_and_no_failure);
    tcase_add_test(tests, repeating_text_takes_fewer_passes_and_the_same_bits);
    suite_add_tcase(suite, tests);
    tiny_make(&tiny, TINY_MEMORY);
    int failed = suite_run(suite);
    tiny_remove(&tiny);
    return failed == 0 ? 0 : 1;
}
