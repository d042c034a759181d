/* SPDX-License-Identifier: Apache-2.0 */

/* Memory is taken at open and never again: no heap allocation between two tokens, and no peak
 * above --ram. */

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "tests/support/process.h"
#include "kernels/kernels.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define STEPS 60 /* so that the latent cache grows by a block of positions on the way */

static struct tiny tiny;
static struct tiny folder;

static void skip(const char *reason)
{
    printf("skip: %s\n", reason);
    fflush(stdout);
}

/* ---- allocations ---- */

static void *volatile taken;

static bool counter_works(const struct engine *e)
{
    int64_t before = engine_allocated_bytes(e);
    if (before < 0) {
        return false;
    }
    taken = malloc(12345);
    int64_t after = engine_allocated_bytes(e);
    free(taken);
    ck_assert_msg(after - before >= 12345, "a malloc of 12345 bytes moved the counter by %" PRId64,
                  after - before);
    return true;
}

/* At the borders: [0] after the prompt, then after each token. No call of Check in between. */
static int follow(struct engine *e, uint32_t steps, int64_t *border)
{
    uint32_t ids[GOLDEN_PROMPT];
    const float *logits;
    for (int i = 0; i < GOLDEN_PROMPT; i++) {
        ids[i] = (uint32_t)golden_prompt[i];
    }
    TRY(engine_begin(e, GOLDEN_PROMPT, steps));
    uint32_t chunk = engine_plan_of(e)->chunk;
    for (uint32_t at = 0; at < GOLDEN_PROMPT; at += chunk) {
        uint32_t count = (uint32_t)min_u64(chunk, GOLDEN_PROMPT - at);
        TRY(engine_pass(e, ids + at, count, &logits));
    }
    border[0] = engine_allocated_bytes(e);
    for (uint32_t i = 1; i <= steps; i++) {
        uint32_t id = argmax(logits, engine_model(e)->config.vocab);
        uint32_t drafted[3] = {id, 1, 2}; /* most likely wrong: none is accepted */
        uint32_t drafts = (uint32_t)min_u64(engine_plan_of(e)->request.drafts, steps - i);
        TRY(engine_try(e, drafted, 1 + drafts));
        logits = engine_logits(e, 0);
        border[i] = engine_allocated_bytes(e);
    }
    return engine_end(e);
}

static void watch(const struct engine_options *options)
{
    static int64_t border[STEPS + 1];
    struct engine *e = NULL;
    ck_assert_msg(engine_open(&e, tiny.dir, options) == 0, "%s", err_message());
    if (!counter_works(e)) {
        skip("this build's allocator has no counter per thread (sanitizers bring their own)");
        engine_close(e);
        return;
    }
    ck_assert_msg(follow(e, STEPS, border) == 0, "%s", err_message());
    for (int i = 3; i <= STEPS; i++) {
        ck_assert_msg(border[i] == border[2], "token %d allocated %" PRId64 " bytes", i,
                      border[i] - border[i - 1]);
    }
    /* A second sequence on the same engine takes nothing at all. Check itself may allocate. */
    int64_t before = engine_allocated_bytes(e);
    int rc = follow(e, STEPS, border);
    int64_t after = engine_allocated_bytes(e);
    ck_assert_msg(rc == 0, "%s", err_message());
    ck_assert_int_eq(after, before);
    engine_close(e);
}

START_TEST(tokens_allocate_nothing_while_everything_streams)
{
    static const enum io_engine engines[] = {IO_URING, IO_PREAD, IO_SIM};
    struct engine_options options = tiny_options(STEPS + 1);
    options.io = engines[_i];
    options.sim.threads = true;
    options.pin_bytes = 0;
    options.expert_slots = 5;
    options.tile_bytes = 16 * KIB;
    watch(&options);
}
END_TEST

START_TEST(drafted_tokens_allocate_nothing_either)
{
    struct engine_options options = tiny_options(STEPS + 1);
    options.drafts = 2;
    options.pin_bytes = 0;
    options.routing = ROUTING_SCORES;
    watch(&options);
}
END_TEST

START_TEST(tokens_allocate_nothing_while_everything_is_resident)
{
    struct engine_options options = tiny_options(STEPS + 1);
    options.pin_bytes = options.expert_slots = PLAN_ALL;
    watch(&options);
}
END_TEST

/* ---- the peak ---- */

#ifndef K3RING_SANITIZED
static struct process process;

/* A figure of the report, by the names that lead to it. */
static uint64_t figure(const cJSON *report, const char *const names[])
{
    uint64_t value = 0;
    const cJSON *item = report;
    for (int i = 0; names[i] != NULL; i++) {
        item = cJSON_GetObjectItem(item, names[i]);
    }
    ck_assert_msg(json_u64(item, &value), "%s is no number", names[0]);
    return value;
}
#endif

static const char *const peak_arguments[] = {
    "--ram 32M",
    "--ram 32M --pin 0 --expert-slots 0 --tile 4K --io pread --io-depth 64",
    "--ram 32M --pin all --expert-slots all --tile 4K --threads 4",
    "--ram 32M --io sim --chunk 1",
    "--ram 20M --gen 64",
    "--ram 32M --draft ngram-fixed --draft-tokens 64 --gen 40",
    "--ram 32M --gen 40 --trace /dev/null --trace-scores",
};

#ifndef K3RING_SANITIZED
/* Compares what the report of the process that just ended says. */
static void expect_peak(const char *arguments)
{
    ck_assert_msg(process.status == 0, "%s", process.err);
    cJSON *report = json_parse(process.out, strlen(process.out), "report", false);
    ck_assert_msg(report != NULL, "%s", err_message());
    uint64_t peak = figure(report, (const char *const[]){"peak_rss_bytes", NULL});
    uint64_t ram = figure(report, (const char *const[]){"settings", "ram_bytes", NULL});
    uint64_t total = figure(report, (const char *const[]){"plan", "account", "total", NULL});
    cJSON_Delete(report);
    printf("note: %s: peak %.2f of %.2f MiB, %.2f planned\n", arguments,
           (double)peak / (double)MIB, (double)ram / (double)MIB, (double)total / (double)MIB);
    fflush(stdout);
    ck_assert_uint_gt(peak, MIB);
    ck_assert_uint_le(peak, ram);
    ck_assert_uint_le(peak, total);
}
#endif

START_TEST(the_peak_stays_below_the_ram_given)
{
#ifdef K3RING_SANITIZED
    (void)_i;
    skip("a sanitizer's shadow memory is in no account");
#else
    const char *program = process_binary();
    ck_assert_msg(program != NULL, "no k3ring beside this test's folder; build it first");
    process_start(&process, folder.dir, program, "run %s --ids 3,141,59,26,53,58,97,93 --json - "
                  "%s", tiny.dir, peak_arguments[_i]);
    process_wait(&process);
    expect_peak(peak_arguments[_i]);
#endif
}
END_TEST

START_TEST(the_peak_of_many_sequences_stays_below_the_ram_given)
{
#ifdef K3RING_SANITIZED
    skip("a sanitizer's shadow memory is in no account");
#else
    char lines[2048];
    size_t at = 0;
    for (int i = 0; i < 24; i++) {
        at += (size_t)snprintf(lines + at, sizeof lines - at,
                               "{\"ids\": [%d,2,3,4,5,6,7,8,9], \"gen\": 40}\n", i);
    }
    tiny_put(&folder, "in.jsonl", lines, at);
    process_start(&process, folder.dir, process_binary(), "batch %s %s/in.jsonl --out %s/out.jsonl "
                  "--sequences 16 --pin 0 --ram 32M --json -", tiny.dir, folder.dir, folder.dir);
    process_wait(&process);
    expect_peak("batch --sequences 16 --ram 32M");
#endif
}
END_TEST

static Suite *memory_suite(void)
{
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("memory");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, tokens_allocate_nothing_while_everything_streams, 0, 3);
    tcase_add_test(tcase, tokens_allocate_nothing_while_everything_is_resident);
    tcase_add_test(tcase, drafted_tokens_allocate_nothing_either);
    tcase_add_test(tcase, the_peak_of_many_sequences_stays_below_the_ram_given);
    tcase_add_loop_test(tcase, the_peak_stays_below_the_ram_given, 0,
                        (int)countof(peak_arguments));
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    tiny_make(&tiny, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    int failed = suite_run(memory_suite());
    tiny_remove(&tiny);
    tiny_remove(&folder);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
