/* SPDX-License-Identifier: Apache-2.0 */

/* What keeps drive and cores busy: reading across token borders, no page fault in steady state,
 * any number of workers, and an account of time that adds up. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "kernels/kernels.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define STEPS 40 /* with the prompt less than a block of positions of the latent cache */
#define GEN 16
#define SEEDS 24

static struct tiny tiny;

static void golden_ids_of(uint32_t ids[GOLDEN_PROMPT])
{
    for (int i = 0; i < GOLDEN_PROMPT; i++) {
        ids[i] = (uint32_t)golden_prompt[i];
    }
}

static uint64_t tile_bytes_read(struct engine *e)
{
    struct engine_stats s;
    engine_stats(e, &s);
    return s.class[READ_TRUNK].bytes + s.class[READ_HEAD].bytes;
}

/* ---- token borders ---- */

/* Tiles are read in the order of the walk and lm_head's are its last. So bytes beyond whole passes,
 * at the moment lm_head has been computed, were read while it was. */
static void follow_borders(struct engine *e, uint64_t pass_bytes)
{
    uint32_t ids[GOLDEN_PROMPT];
    const float *logits;
    golden_ids_of(ids);
    ck_assert_int_eq(engine_begin(e, GOLDEN_PROMPT, 3), 0);
    for (uint32_t pass = 1; pass <= 4; pass++) {
        uint32_t id = pass == 1 ? 0 : argmax(logits, REF_VOCAB);
        int rc = engine_pass(e, pass == 1 ? ids : &id, pass == 1 ? GOLDEN_PROMPT : 1, &logits);
        ck_assert_msg(rc == 0, "%s", err_message());
        uint64_t ahead = tile_bytes_read(e) - pass * pass_bytes;
        if (pass < 4) {
            ck_assert_msg(ahead > 0 && ahead < pass_bytes, "%llu bytes ahead at border %u",
                          (unsigned long long)ahead, pass);
        } else {
            ck_assert_msg(ahead == 0, "%llu bytes of a pass that will not come",
                          (unsigned long long)ahead);
        }
    }
    ck_assert_int_eq(engine_end(e), 0);
}

START_TEST(the_next_token_is_read_while_lm_head_computes)
{
    struct engine_options options = tiny_options(4);
    struct engine *e = NULL;
    uint64_t bytes;
    uint64_t requests;
    options.io = IO_SIM;
    options.stepped = true;
    options.sim.seed = (uint64_t)_i;
    options.pin_bytes = options.expert_slots = 0;
    options.tile_bytes = 16 * KIB;
    options.chunk = GOLDEN_PROMPT;
    ck_assert_msg(engine_open(&e, tiny.dir, &options) == 0, "%s", err_message());
    plan_pass_reads(engine_plan_of(e), false, false, true, &bytes, &requests);
    follow_borders(e, bytes);
    engine_close(e);
}
END_TEST

/* ---- page faults ---- */

#ifndef K3RING_SANITIZED
static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

/* Faults of the process from the second token on. */
static long steady_faults(struct engine *e)
{
    uint32_t ids[GOLDEN_PROMPT];
    const float *logits;
    long before = 0;
    golden_ids_of(ids);
    ck_assert_int_eq(engine_begin(e, GOLDEN_PROMPT, STEPS), 0);
    int rc = engine_pass(e, ids, GOLDEN_PROMPT, &logits);
    for (uint32_t i = 0; i < STEPS && rc == 0; i++) {
        uint32_t id = argmax(logits, REF_VOCAB);
        rc = engine_pass(e, &id, 1, &logits);
        before = i == 1 ? faults() : before;
    }
    long after = faults();
    ck_assert_msg(rc == 0, "%s", err_message());
    ck_assert_int_eq(engine_end(e), 0);
    return after - before;
}
#endif

START_TEST(later_tokens_fault_no_page_in)
{
#ifdef K3RING_SANITIZED
    (void)_i;
    printf("skip: a sanitizer's shadow memory faults as it is first used\n");
    fflush(stdout);
#else
    static const enum io_engine engines[] = {IO_URING, IO_PREAD};
    struct engine_options options = tiny_options(STEPS + 1);
    struct engine *e = NULL;
    options.io = engines[_i % 2];
    options.pin_bytes = options.expert_slots = _i / 2 == 0 ? 0 : PLAN_ALL;
    options.chunk = GOLDEN_PROMPT;
    ck_assert_msg(engine_open(&e, tiny.dir, &options) == 0, "%s", err_message());
    /* The first sequence may meet a first: a stack's page, an expert's slot. The second not; and
     * a fault per token would be STEPS of them. */
    long first = steady_faults(e);
    long second = steady_faults(e);
    engine_close(e);
    printf("note: %ld page faults in %d tokens, then %ld\n", first, STEPS, second);
    fflush(stdout);
    ck_assert_msg(second < STEPS / 8, "%ld page faults in %d tokens, %ld before", second, STEPS,
                  first);
#endif
}
END_TEST

/* ---- many workers ---- */

START_TEST(sixty_four_workers_make_the_same_tokens)
{
    static const uint64_t pins[] = {0, PLAN_AUTO, PLAN_ALL};
    struct engine_options options = tiny_options(GEN);
    static struct tiny_run run;
    options.threads = 64;
    options.tile_bytes = 4 * KIB;
    options.pin_bytes = pins[_i];
    options.ram_bytes = 256 * MIB;
    tiny_generate(&tiny, &options, GEN, NULL, &run);
    ck_assert_msg(run.rc == 0, "%s", run.message);
    ck_assert_str_eq(run.hash, TINY_HASH);
}
END_TEST

/* ---- the account of time ---- */

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static uint64_t stalls(const struct engine_stats *s)
{
    uint64_t sum = 0;
    for (int i = 0; i < STALL_CAUSES; i++) {
        sum += s->stall_ns[i];
    }
    return sum;
}

static void run_once(struct engine *e, uint64_t *time_ns)
{
    uint32_t ids[GOLDEN_PROMPT];
    uint32_t made[GEN];
    struct generate_request r = {.ids = ids, .id_count = GOLDEN_PROMPT, .gen = GEN};
    struct generate_result out = {.ids = made};
    golden_ids_of(ids);
    ck_assert_msg(generate(e, &r, &out) == 0, "%s", err_message());
    *time_ns = out.first_ns + out.rest_ns;
}

/* Work and waiting are all a worker does. Between passes it does neither. */
START_TEST(waiting_and_work_add_up_to_the_time_of_the_passes)
{
    struct engine_options options = tiny_options(GEN);
    struct engine *e = NULL;
    struct engine_stats s;
    uint64_t time_ns;
    options.threads = 1 + (uint32_t)_i;
    options.io = IO_SIM;
    options.sim.threads = true;
    options.pin_bytes = options.expert_slots = 0;
    options.tile_bytes = 16 * KIB;
    ck_assert_msg(engine_open(&e, tiny.dir, &options) == 0, "%s", err_message());
    run_once(e, &time_ns);
    engine_stats(e, &s);
    engine_close(e);
    double told = seconds(stalls(&s) + s.busy_ns);
    ck_assert_msg(told > 0.9 * seconds(time_ns) - 0.05 && told < 1.1 * seconds(time_ns) + 0.05,
                  "%.3f s of waiting and work in %.3f s", told, seconds(time_ns));
    ck_assert_uint_gt(s.busy_ns, 0);
#ifndef K3RING_SANITIZED /* sanitized workers are so slow that the drive may never be waited for */
    ck_assert_uint_gt(s.stall_ns[STALL_TRUNK] + s.stall_ns[STALL_EXPERTS], 0);
#endif
}
END_TEST

START_TEST(nothing_waits_for_weights_that_are_resident)
{
    struct engine_options options = tiny_options(GEN);
    struct engine *e = NULL;
    struct engine_stats before;
    struct engine_stats after;
    uint64_t time_ns;
    options.pin_bytes = options.expert_slots = PLAN_ALL;
    ck_assert_msg(engine_open(&e, tiny.dir, &options) == 0, "%s", err_message());
    run_once(e, &time_ns);
    engine_stats(e, &before);
    run_once(e, &time_ns);
    engine_stats(e, &after);
    engine_close(e);
    ck_assert_uint_gt(stalls(&after), stalls(&before));
    ck_assert_uint_eq(after.stall_ns[STALL_TRUNK], before.stall_ns[STALL_TRUNK]);
    ck_assert_uint_eq(after.stall_ns[STALL_HEAD], before.stall_ns[STALL_HEAD]);
    ck_assert_uint_eq(after.stall_ns[STALL_PAGES], before.stall_ns[STALL_PAGES]);
}
END_TEST

static Suite *pipeline_suite(void)
{
    Suite *suite = suite_create("pipeline");
    TCase *tcase = tcase_create("pipeline");
    tcase_set_timeout(tcase, 300);
    tcase_add_loop_test(tcase, the_next_token_is_read_while_lm_head_computes, 0, SEEDS);
    tcase_add_loop_test(tcase, later_tokens_fault_no_page_in, 0, 4);
    tcase_add_loop_test(tcase, sixty_four_workers_make_the_same_tokens, 0, 3);
    tcase_add_loop_test(tcase, waiting_and_work_add_up_to_the_time_of_the_passes, 0, 3);
    tcase_add_test(tcase, nothing_waits_for_weights_that_are_resident);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    tiny_make(&tiny, TINY_MEMORY);
    int failed = suite_run(pipeline_suite());
    tiny_remove(&tiny);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
