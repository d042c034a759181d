/* SPDX-License-Identifier: Apache-2.0 */
/* With a path to a recorded trace of 92 layers as its argument, also checks the hit counts that
 * are published for that trace. */

#include "cache/policy.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/trace.h"
#include "core/base/err.h"
#include "core/base/nondet.h"
#include "tests/support/policy_model.h"
#include "tests/support/suite.h"
#include "tests/support/trace_model.h"

#define POLICIES 7
#define KEYS_MAX 256
#define TOKENS_MAX 5
#define RANKS_MAX 8

static const char *recorded_path;

/* One policy with room for what it evicts. */
struct subject {
    const struct policy_ops *ops;
    struct policy *policy;
    struct policy_evictions evictions;
    policy_key evicted[TOKENS_MAX * RANKS_MAX * 4];
};

static void subject_open(struct subject *subject, const char *name,
                         const struct policy_shape *shape)
{
    *subject = (struct subject){.ops = policy_find(name)};
    ck_assert_ptr_nonnull(subject->ops);
    subject->policy = subject->ops->open(shape);
    ck_assert_ptr_nonnull(subject->policy);
    subject->evictions.key = subject->evicted;
    subject->evictions.capacity = countof(subject->evicted);
}

static void subject_feed(struct subject *subject, uint32_t layer, const uint16_t *ids,
                         uint32_t tokens)
{
    subject->evictions.count = 0;
    subject->ops->batch(subject->policy, layer, ids, tokens, &subject->evictions);
}

static bool subject_has(const struct subject *subject, policy_key key)
{
    return subject->ops->resident(subject->policy, key);
}

static void subject_close(struct subject *subject)
{
    subject->ops->close(subject->policy);
}

START_TEST(the_table_names_seven_policies_and_arc_is_the_default)
{
    const char *names[POLICIES] = {"arc", "lar", "arc-global", "lru", "lfu", "none", "lhr"};
    for (int i = 0; i < POLICIES; i++) {
        ck_assert_str_eq(policy_table[i]->name, names[i]);
        ck_assert_ptr_eq(policy_find(names[i]), policy_table[i]);
    }
    ck_assert_ptr_null(policy_table[POLICIES]);
    ck_assert_ptr_null(policy_find("ARC"));
    ck_assert_ptr_null(policy_find(""));
}
END_TEST

/* Distinct ids; about half of them those of the layer's last token. */
static void draw_token(struct rng *rng, const struct policy_shape *shape, const uint16_t *last,
                       uint16_t *ids)
{
    bool used[KEYS_MAX] = {false};
    for (uint32_t rank = 0; rank < shape->per_token; rank++) {
        uint16_t id = last[rng_below(rng, shape->per_token)];
        if (rng_below(rng, 2) == 0) {
            id = (uint16_t)rng_below(rng, shape->experts);
        }
        while (used[id]) {
            id = (uint16_t)((id + 1U) % shape->experts);
        }
        used[id] = true;
        ids[rank] = id;
    }
}

static struct policy_shape draw_shape(struct rng *rng)
{
    struct policy_shape shape = {.layers = 1 + (uint32_t)rng_below(rng, 7)};
    shape.experts = 1 + (uint32_t)rng_below(rng, 30);
    shape.per_token = 1 + (uint32_t)rng_below(rng, min_u64(RANKS_MAX, shape.experts));
    uint64_t keys = (uint64_t)shape.layers * shape.experts;
    uint64_t bound = rng_below(rng, 3) == 0 ? 2 * shape.per_token + 1 : keys + 4;
    shape.slots = (uint32_t)rng_below(rng, bound);
    return shape;
}

static bool logged(const struct subject *subject, policy_key key)
{
    for (uint32_t i = 0; i < subject->evictions.count; i++) {
        if (subject->evictions.key[i] == key) {
            return true;
        }
    }
    return false;
}

/* Feeds both and compares every key; before[] is brought up to date. */
static void compare_batch(struct subject *subject, struct policy_model *model,
                          const struct policy_shape *shape, uint32_t layer, const uint16_t *ids,
                          uint32_t tokens, bool *before)
{
    uint32_t residents = 0;
    subject_feed(subject, layer, ids, tokens);
    policy_model_batch(model, layer, ids, tokens);
    ck_assert_uint_le(subject->evictions.count, tokens * shape->per_token);
    for (policy_key key = 0; key < shape->layers * shape->experts; key++) {
        bool now = subject_has(subject, key);
        if (now != policy_model_resident(model, key)) { /* an assertion per key would be slow */
            ck_abort_msg("%s: key %u of %ux%u k=%u N=%u", subject->ops->name, key, shape->layers,
                         shape->experts, shape->per_token, shape->slots);
        }
        if (before[key] && !now && !logged(subject, key)) {
            ck_abort_msg("%s: key %u left unlogged", subject->ops->name, key);
        }
        residents += now;
        before[key] = now;
    }
    ck_assert_uint_le(residents, shape->slots);
}

static void compare_walk(const char *name, struct rng *rng)
{
    struct policy_shape shape = draw_shape(rng);
    uint16_t last[8][RANKS_MAX] = {{0}};
    bool before[KEYS_MAX] = {false};
    struct subject subject;
    subject_open(&subject, name, &shape);
    struct policy_model *model = policy_model_open(name, &shape);
    for (uint32_t step = 0; step < 120; step++) {
        uint16_t ids[TOKENS_MAX * RANKS_MAX];
        uint32_t tokens = rng_below(rng, 4) > 0 ? 1 : 1 + (uint32_t)rng_below(rng, TOKENS_MAX);
        bool stray = rng_below(rng, 10) == 0;
        uint32_t layer = (stray ? (uint32_t)rng_below(rng, 7) : step) % shape.layers;
        for (uint32_t token = 0; token < tokens; token++) {
            uint16_t *own = ids + token * shape.per_token;
            draw_token(rng, &shape, last[layer], own);
            memcpy(last[layer], own, shape.per_token * sizeof *own);
        }
        compare_batch(&subject, model, &shape, layer, ids, tokens, before);
    }
    policy_model_close(model);
    subject_close(&subject);
}

START_TEST(every_policy_equals_its_plain_model_on_random_batches)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct rng rng = rng_seed(1000 * seed + (uint64_t)_i);
        compare_walk(policy_table[_i]->name, &rng);
    }
}
END_TEST

START_TEST(a_chunk_is_fed_as_its_tokens_in_order)
{
    struct policy_shape shape = {.layers = 3, .experts = 20, .per_token = 3, .slots = 13};
    struct subject whole, single;
    struct rng rng = rng_seed((uint64_t)_i);
    uint16_t ids[TOKENS_MAX * 3] = {0, 1, 2};
    subject_open(&whole, policy_table[_i]->name, &shape);
    subject_open(&single, policy_table[_i]->name, &shape);
    for (uint32_t step = 0; step < 200; step++) {
        for (uint32_t token = 0; token < TOKENS_MAX; token++) {
            draw_token(&rng, &shape, ids, ids + 3 * (size_t)token);
            subject_feed(&single, step % 3, ids + 3 * (size_t)token, 1);
        }
        subject_feed(&whole, step % 3, ids, TOKENS_MAX);
        for (policy_key key = 0; key < 60; key++) {
            ck_assert_int_eq(subject_has(&whole, key), subject_has(&single, key));
        }
    }
    subject_close(&whole);
    subject_close(&single);
}
END_TEST

START_TEST(without_slots_nothing_is_kept)
{
    struct policy_shape shape = {.layers = 2, .experts = 8, .per_token = 4, .slots = 0};
    const uint16_t ids[] = {1, 2, 3, 4, 1, 2, 3, 4};
    struct subject subject;
    subject_open(&subject, policy_table[_i]->name, &shape);
    subject_feed(&subject, 0, ids, 2);
    subject_feed(&subject, 1, ids, 1);
    subject_feed(&subject, 0, ids, 2);
    ck_assert_uint_eq(subject.evictions.count, 0);
    for (policy_key key = 0; key < 16; key++) {
        ck_assert(!subject_has(&subject, key));
    }
    subject_close(&subject);
}
END_TEST

START_TEST(the_best_ranked_stay_when_slots_are_fewer_than_a_token_asks)
{
    const char *names[] = {"lar", "arc-global", "lru", "lfu", "lhr"};
    struct policy_shape shape = {.layers = 2, .experts = 8, .per_token = 4, .slots = 3};
    const uint16_t first[] = {7, 6, 5, 4}, second[] = {4, 3, 7, 6};
    struct subject subject;
    subject_open(&subject, names[_i], &shape);
    subject_feed(&subject, 0, first, 1);
    ck_assert(subject_has(&subject, 7) && subject_has(&subject, 6) && subject_has(&subject, 5));
    subject_feed(&subject, 0, second, 1);
    ck_assert(subject_has(&subject, 4) && subject_has(&subject, 3) && subject_has(&subject, 7));
    ck_assert(!subject_has(&subject, 6) && !subject_has(&subject, 5));
    ck_assert(logged(&subject, 6) && logged(&subject, 5));
    ck_assert_uint_eq(subject.evictions.count, 2);
    subject_close(&subject);
}
END_TEST

START_TEST(arc_gives_the_remainder_to_the_first_layers)
{
    struct policy_shape shape = {.layers = 4, .experts = 8, .per_token = 3, .slots = 6};
    const uint16_t ids[] = {0, 1, 2};
    const uint32_t share[] = {2, 2, 1, 1};
    struct subject subject;
    subject_open(&subject, "arc", &shape);
    for (uint32_t layer = 0; layer < 4; layer++) {
        subject_feed(&subject, layer, ids, 1);
        for (uint32_t rank = 0; rank < 3; rank++) {
            ck_assert_int_eq(subject_has(&subject, layer * 8 + rank), rank < share[layer]);
        }
    }
    subject_close(&subject);
}
END_TEST

START_TEST(arc_layers_without_a_share_keep_nothing)
{
    struct policy_shape shape = {.layers = 4, .experts = 8, .per_token = 3, .slots = 2};
    const uint16_t ids[] = {5, 1, 2};
    struct subject subject;
    subject_open(&subject, "arc", &shape);
    for (uint32_t layer = 0; layer < 4; layer++) {
        subject_feed(&subject, layer, ids, 1);
        ck_assert_int_eq(subject_has(&subject, layer * 8 + 5), layer < 2);
        ck_assert_uint_eq(subject.evictions.count, layer < 2 ? 2 : 0);
    }
    subject_close(&subject);
}
END_TEST

/* A key that leaves and returns inside one batch is logged and resident. */
START_TEST(an_evicted_key_may_be_back_at_the_end_of_the_batch)
{
    struct policy_shape shape = {.layers = 1, .experts = 8, .per_token = 2, .slots = 2};
    const uint16_t first[] = {0, 1}, chunk[] = {2, 3, 0, 1};
    struct subject subject;
    subject_open(&subject, "lru", &shape);
    subject_feed(&subject, 0, first, 1);
    subject_feed(&subject, 0, chunk, 2);
    ck_assert_uint_eq(subject.evictions.count, 4);
    ck_assert(logged(&subject, 0) && subject_has(&subject, 0));
    ck_assert(logged(&subject, 2) && !subject_has(&subject, 2));
    subject_close(&subject);
}
END_TEST

START_TEST(lfu_remembers_the_uses_of_experts_that_left)
{
    struct policy_shape shape = {.layers = 1, .experts = 8, .per_token = 1, .slots = 2};
    const uint16_t ids[] = {0, 0, 0, 1, 1, 2, 2, 2, 2, 1, 3, 4};
    struct subject subject;
    subject_open(&subject, "lfu", &shape);
    for (size_t i = 0; i < countof(ids); i++) {
        subject_feed(&subject, 0, ids + i, 1);
    }
    /* 1 was out while 2 was used, came back with its count, then 3 and 4 took turns. */
    ck_assert(subject_has(&subject, 2) && subject_has(&subject, 4));
    ck_assert(!subject_has(&subject, 0) && !subject_has(&subject, 3));
    subject_close(&subject);
}
END_TEST

/* A layer asks for two sets of four experts in turn: what was just used is what will not be asked
 * for. lar keeps the latest and hits nothing; lhr finds out. */
START_TEST(lhr_learns_a_routing_that_its_first_guess_has_upside_down)
{
    struct policy_shape shape = {.layers = 12, .experts = 32, .per_token = 4, .slots = 48};
    const char *names[] = {"lar", "lhr"};
    uint32_t hits[2] = {0};
    for (int i = 0; i < 2; i++) {
        struct subject subject;
        subject_open(&subject, names[i], &shape);
        for (uint32_t token = 0; token < 200; token++) {
            for (uint32_t layer = 0; layer < shape.layers; layer++) {
                uint16_t ids[4];
                for (uint32_t rank = 0; rank < 4; rank++) {
                    ids[rank] = (uint16_t)((token % 2) * 4 + (rank + token) % 4);
                    hits[i] += token >= 150 && subject_has(&subject, layer * 32 + ids[rank]);
                }
                subject_feed(&subject, layer, ids, 1);
            }
        }
        subject_close(&subject);
    }
    ck_assert_uint_eq(hits[0], 0);
    ck_assert_uint_gt(hits[1], 1000); /* of 2400; no policy could have more than half */
}
END_TEST

/* Hits of a trace, one token at a time, from residency before each. */
static uint64_t replay(const char *name, const struct trace *trace, uint32_t experts,
                       uint32_t slots)
{
    struct policy_shape shape = {trace->layers, experts, trace->top_k, slots};
    struct subject subject;
    uint64_t hits = 0;
    subject_open(&subject, name, &shape);
    for (uint64_t group = 0; group < trace->group_count; group++) {
        const uint16_t *ids = trace_ids(trace, group);
        uint32_t layer = trace->layer[group];
        for (uint32_t rank = 0; rank < trace->top_k; rank++) {
            hits += subject_has(&subject, layer * experts + ids[rank]);
        }
        subject_feed(&subject, layer, ids, 1);
    }
    subject_close(&subject);
    return hits;
}

/* Counted by the plain models; 4,800 requests, 400 of them the first of their expert. */
static const uint32_t small_slots[] = {3, 12, 33, 60, 120, 250, 448};
static const uint64_t small_hits[POLICIES][countof(small_slots)] = {
    {334, 1134, 2233, 2541, 3015, 3920, 4400}, /* arc */
    {0, 826, 2326, 2576, 3071, 3919, 4400}, /* lar */
    {0, 0, 1859, 2460, 2923, 3890, 4400}, /* arc-global */
    {0, 0, 2356, 2494, 2971, 3894, 4400}, /* lru */
    {0, 224, 728, 1220, 2237, 3733, 4400}, /* lfu */
    {0, 0, 0, 0, 0, 0, 0}, /* none */
    {0, 849, 2307, 2581, 3085, 3920, 4400}, /* lhr */
};

START_TEST(hits_on_the_small_trace_are_what_they_were)
{
    struct trace trace;
    ck_assert_int_eq(trace_load(&trace, TRACE_MODEL_SMALL_PATH), 0);
    for (size_t i = 0; i < countof(small_slots); i++) {
        uint64_t hits = replay(policy_table[_i]->name, &trace, 56, small_slots[i]);
        ck_assert_msg(hits == small_hits[_i][i], "%s: %llu hits with %u slots, not %llu",
                      policy_table[_i]->name, (unsigned long long)hits, small_slots[i],
                      (unsigned long long)small_hits[_i][i]);
    }
    trace_fini(&trace);
}
END_TEST

struct published {
    const char *policy;
    uint32_t slots;
    uint64_t hits;
};

/* Of 17,664 requests, 16 of 896 experts at each of 92 layers. arc's capacity counts the 16
 * working slots it does not divide. */
static const struct published recorded_hits[] = {
    {"arc", 28 - 16, 70}, {"arc", 455 - 16, 2348}, {"arc", 911 - 16, 3718},
    {"arc", 1344 - 16, 4936}, {"arc", 1823 - 16, 5747}, {"arc", 3647 - 16, 7005},
    {"lar", 455, 2492}, {"lar", 911, 4181}, {"lar", 1344, 5271}, {"lar", 1823, 5988},
    {"lar", 3647, 7024}, {"lfu", 455, 1371}, {"lfu", 911, 2391}, {"lfu", 1344, 3117},
    {"lfu", 1823, 4436}, {"lfu", 3647, 6833}, {"lru", 455, 0}, {"lru", 911, 0},
    {"lru", 1344, 0}, {"lru", 1823, 5559}, {"lru", 3647, 6885}, {"arc-global", 455, 0},
    {"arc-global", 911, 0}, {"arc-global", 1344, 0}, {"arc-global", 1823, 4896},
    {"arc-global", 3647, 6831}, {"none", 3647, 0}, {"lhr", 455, 2626}, {"lhr", 911, 4267},
    {"lhr", 1344, 5297}, {"lhr", 1823, 6022}, {"lhr", 3647, 7029},
};

START_TEST(hits_on_the_recorded_trace_are_the_published_ones)
{
    const struct published *row = &recorded_hits[_i];
    struct trace trace;
    ck_assert_msg(trace_load(&trace, recorded_path) == 0, "%s", err_message());
    uint64_t hits = replay(row->policy, &trace, 896, row->slots);
    printf("%-10s %4u slots: %llu hits\n", row->policy, row->slots, (unsigned long long)hits);
    fflush(stdout);
    ck_assert_uint_eq(hits, row->hits);
    trace_fini(&trace);
}
END_TEST

static Suite *policy_suite(void)
{
    Suite *suite = suite_create("policy");
    TCase *tcase = tcase_create("policy");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, the_table_names_seven_policies_and_arc_is_the_default);
    tcase_add_loop_test(tcase, every_policy_equals_its_plain_model_on_random_batches, 0, POLICIES);
    tcase_add_loop_test(tcase, a_chunk_is_fed_as_its_tokens_in_order, 0, POLICIES);
    tcase_add_loop_test(tcase, without_slots_nothing_is_kept, 0, POLICIES);
    tcase_add_loop_test(tcase, the_best_ranked_stay_when_slots_are_fewer_than_a_token_asks, 0, 5);
    tcase_add_test(tcase, arc_gives_the_remainder_to_the_first_layers);
    tcase_add_test(tcase, arc_layers_without_a_share_keep_nothing);
    tcase_add_test(tcase, an_evicted_key_may_be_back_at_the_end_of_the_batch);
    tcase_add_test(tcase, lhr_learns_a_routing_that_its_first_guess_has_upside_down);
    tcase_add_test(tcase, lfu_remembers_the_uses_of_experts_that_left);
    tcase_add_loop_test(tcase, hits_on_the_small_trace_are_what_they_were, 0, POLICIES);
    if (recorded_path != NULL) {
        tcase_add_loop_test(tcase, hits_on_the_recorded_trace_are_the_published_ones, 0,
                            (int)countof(recorded_hits));
    }
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    recorded_path = argc > 1 ? argv[1] : NULL;
    return suite_run(policy_suite()) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
