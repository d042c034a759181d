/* SPDX-License-Identifier: Apache-2.0 */
/* With a path to a recorded trace of 92 layers as its argument, also checks Belady's hits that are
 * published for it. */
#include "cache/opt.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "tests/support/suite.h"
#include "tests/support/trace_model.h"

#define KEYS_MAX 128U

static const char *recorded_path;

/* ---- Belady's rule again, by looking ahead through the whole trace for every question ---- */

static uint64_t batch_end(const struct trace *trace, uint64_t group, uint32_t chunk)
{
    return group + trace_run(trace, group, chunk);
}

static bool asks(const struct trace *trace, uint64_t group, uint64_t end, uint32_t experts,
                 uint32_t key)
{
    for (; group < end; group++) {
        for (uint32_t i = 0; i < trace->top_k; i++) {
            if (trace->layer[group] * experts + trace_ids(trace, group)[i] == key) {
                return true;
            }
        }
    }
    return false;
}

/* First group of the next batch that asks for the key; the trace's end when none does. */
static uint64_t next_use(const struct trace *trace, uint64_t group, uint32_t experts,
                         uint32_t chunk, uint32_t key)
{
    while (group < trace->group_count) {
        uint64_t end = batch_end(trace, group, chunk);
        if (asks(trace, group, end, experts, key)) {
            return group;
        }
        group = end;
    }
    return group;
}

static struct replay_count plain_opt(const struct trace *trace, uint32_t experts, uint32_t slots,
                                     uint32_t chunk)
{
    bool resident[KEYS_MAX] = {false};
    struct replay_count count = {0};
    for (uint64_t group = 0; group < trace->group_count;) {
        uint64_t end = batch_end(trace, group, chunk);
        uint32_t held = 0;
        bool before[KEYS_MAX];
        memcpy(before, resident, sizeof before);
        for (uint32_t key = 0; key < trace->layers * experts; key++) {
            bool asked = asks(trace, group, end, experts, key);
            count.demands += asked;
            count.hits += asked && resident[key];
            resident[key] = resident[key] || asked;
            held += resident[key];
        }
        while (held > slots) { /* strangers first, then the batch's own */
            uint64_t farthest = 0;
            uint32_t victim = KEYS_MAX;
            for (uint32_t key = 0; key < trace->layers * experts; key++) {
                uint64_t next = next_use(trace, end, experts, chunk, key) + 1;
                next += asks(trace, group, end, experts, key) ? 0 : trace->group_count + 1;
                if (resident[key] && next > farthest) {
                    farthest = next;
                    victim = key;
                }
            }
            resident[victim] = false;
            held--;
        }
        for (uint32_t key = 0; key < KEYS_MAX; key++) {
            count.evictions += before[key] && !resident[key];
        }
        group = end;
    }
    return count;
}

START_TEST(belady_equals_its_plain_form_on_made_traces)
{
    uint32_t compared = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct rng rng = rng_seed(100 * (uint64_t)_i + seed);
        struct trace_model model = {.seed = seed, .layers = 1 + (uint32_t)rng_below(&rng, 5),
                                    .experts = 8 + (uint32_t)rng_below(&rng, 17), .tokens = 20};
        model.top_k = 1 + (uint32_t)rng_below(&rng, 6);
        uint32_t chunk = 1 + (uint32_t)rng_below(&rng, 4);
        struct trace trace;
        struct replay_count count;
        ck_assert_int_eq(trace_model_make(&trace, &model), 0);
        uint32_t slots = (uint32_t)rng_below(&rng, model.layers * model.experts + 2);
        ck_assert_int_eq(replay_opt(&trace, model.experts, slots, chunk, &count), 0);
        struct replay_count plain = plain_opt(&trace, model.experts, slots, chunk);
        ck_assert_uint_eq(count.demands, plain.demands);
        ck_assert_uint_eq(count.hits, plain.hits);
        if (slots >= chunk * model.top_k) { /* else equals may leave as hits or as misses */
            ck_assert_uint_eq(count.evictions, plain.evictions);
            compared++;
        }
        trace_fini(&trace);
    }
    ck_assert_uint_gt(compared, 0);
}
END_TEST

START_TEST(no_policy_that_holds_a_batch_beats_belady)
{
    struct trace trace;
    ck_assert_int_eq(trace_load(&trace, TRACE_MODEL_SMALL_PATH), 0);
    for (uint32_t slots = 8; slots <= 448; slots += 40) {
        struct replay_count opt, policy;
        ck_assert_int_eq(replay_opt(&trace, trace.experts, slots, 1, &opt), 0);
        for (uint32_t p = 0; policy_table[p] != NULL; p++) {
            ck_assert_int_eq(replay_policy(&trace, policy_table[p], trace.experts, slots, 1,
                                           &policy), 0);
            ck_assert_uint_eq(policy.demands, opt.demands);
            /* arc lets a token's experts push each other out, which saves it slots. */
            if (strcmp(policy_table[p]->name, "arc") != 0) {
                ck_assert_msg(policy.hits <= opt.hits, "%s, %u slots", policy_table[p]->name,
                              slots);
            }
        }
    }
    trace_fini(&trace);
}
END_TEST

START_TEST(an_expert_asked_for_twice_in_a_chunk_counts_once)
{
    const uint16_t ids[] = {0, 1, 1, 2, 0, 2};
    struct trace trace;
    struct replay_count count;
    ck_assert_int_eq(trace_init(&trace, 1, 2, 3), 0);
    trace_add(&trace, 0, ids, 3);
    ck_assert_int_eq(replay_opt(&trace, 3, 3, 2, &count), 0);
    ck_assert_uint_eq(count.demands, 3 + 2);
    ck_assert_uint_eq(count.hits, 2);
    ck_assert_int_eq(replay_policy(&trace, policy_find("lru"), 3, 3, 2, &count), 0);
    ck_assert_uint_eq(count.demands, 5);
    ck_assert_uint_eq(count.hits, 2);
    trace_fini(&trace);
}
END_TEST

START_TEST(first_touches_are_the_distinct_keys)
{
    struct trace trace;
    uint64_t first = 0;
    ck_assert_int_eq(trace_load(&trace, TRACE_MODEL_SMALL_PATH), 0);
    for (uint32_t chunk = 1; chunk <= 3; chunk++) {
        ck_assert_int_eq(replay_first_touches(&trace, trace.experts, chunk, &first), 0);
        ck_assert_uint_eq(first, 400);
    }
    trace_fini(&trace);
}
END_TEST

START_TEST(belady_on_the_recorded_trace_is_as_published)
{
    static const uint32_t slots[] = {455, 911, 1344, 1823, 3647};
    static const uint64_t hundredths[] = {2478, 3572, 3962, 4233, 4333}; /* of a percent */
    struct trace trace;
    ck_assert_msg(trace_load(&trace, recorded_path) == 0, "%s", err_message());
    for (size_t i = 0; i < countof(slots); i++) {
        struct replay_count count;
        ck_assert_int_eq(replay_opt(&trace, 896, slots[i], 1, &count), 0);
        ck_assert_uint_eq((count.hits * 20000 / count.demands + 1) / 2, hundredths[i]);
    }
    trace_fini(&trace);
}
END_TEST

static Suite *opt_suite(void)
{
    Suite *suite = suite_create("opt");
    TCase *tcase = tcase_create("opt");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, belady_equals_its_plain_form_on_made_traces, 0, 5);
    tcase_add_test(tcase, no_policy_that_holds_a_batch_beats_belady);
    tcase_add_test(tcase, an_expert_asked_for_twice_in_a_chunk_counts_once);
    tcase_add_test(tcase, first_touches_are_the_distinct_keys);
    if (recorded_path != NULL) {
        tcase_add_test(tcase, belady_on_the_recorded_trace_is_as_published);
    }
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    recorded_path = argc > 1 ? argv[1] : NULL;
    return suite_run(opt_suite()) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
