/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/cache.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nondet.h"
#include "tests/support/suite.h"

/* ---- a policy that does what the test says ---- */

#define SCRIPT_KEYS 32

struct policy {
    bool resident[SCRIPT_KEYS], next[SCRIPT_KEYS];
    policy_key evicted[8];
    uint32_t evicted_count;
};

static struct policy script;

static struct policy *script_open(const struct policy_shape *shape)
{
    script = (struct policy){0};
    return shape->slots > 100 ? NULL : &script;
}

static void script_close(struct policy *policy)
{
    (void)policy;
}

static void script_batch(struct policy *policy, uint32_t layer, const uint16_t *ids,
                         uint32_t tokens, struct policy_evictions *evictions)
{
    (void)layer;
    (void)ids;
    (void)tokens;
    memcpy(policy->resident, policy->next, sizeof policy->resident);
    for (uint32_t i = 0; i < policy->evicted_count; i++) {
        evictions->key[evictions->count++] = policy->evicted[i];
    }
}

static bool script_resident(const struct policy *policy, policy_key key)
{
    return policy->resident[key];
}

static const struct policy_ops script_ops = {
    .name = "script",
    .open = script_open,
    .close = script_close,
    .batch = script_batch,
    .resident = script_resident,
};

static const struct policy_shape script_shape = {
    .layers = 4, .experts = 8, .per_token = 3, .slots = 6};

static struct cache *script_cache(uint32_t chunk_tokens)
{
    struct cache *cache;
    ck_assert_int_eq(cache_open(&cache, &script_ops, &script_shape, chunk_tokens), 0);
    return cache;
}

/* ids 1, 2, 3 of layer 1 become resident in slots 10, 20, 30. */
static void fill_layer_1(struct cache *cache)
{
    const uint16_t ids[] = {1, 2, 3};
    for (uint32_t i = 0; i < 3; i++) {
        script.next[8 + ids[i]] = true;
    }
    cache_demand(cache, 1, ids, 1);
    for (uint32_t i = 0; i < 3; i++) {
        cache_bind(cache, 1, ids[i], 10 * (i + 1));
    }
}

START_TEST(a_miss_has_no_slot_and_its_fate_is_the_policys)
{
    const uint16_t ids[] = {5, 2, 7};
    struct cache *cache = script_cache(1);
    script.next[2 * 8 + 5] = true;
    const struct cache_batch *batch = cache_demand(cache, 2, ids, 1);
    ck_assert_uint_eq(batch->demand_count, 3);
    ck_assert_uint_eq(batch->hit_count, 0);
    ck_assert_uint_eq(batch->free_count, 0);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(batch->demand[i].expert, ids[i]);
        ck_assert_uint_eq(batch->demand[i].slot, CACHE_NO_SLOT);
        ck_assert_int_eq(batch->demand[i].keep, i == 0);
    }
    cache_close(cache);
}
END_TEST

START_TEST(demands_are_distinct_and_in_order_of_first_demand)
{
    const uint16_t ids[] = {5, 2, 7, 7, 1, 5, 0, 2, 1};
    const uint32_t order[] = {5, 2, 7, 1, 0};
    struct cache *cache = script_cache(3);
    for (int turn = 0; turn < 2; turn++) {
        const struct cache_batch *batch = cache_demand(cache, 0, ids, 3);
        ck_assert_uint_eq(batch->demand_count, countof(order));
        for (uint32_t i = 0; i < countof(order); i++) {
            ck_assert_uint_eq(batch->demand[i].expert, order[i]);
        }
    }
    ck_assert_uint_eq(cache_stats(cache)->demands, 10);
    ck_assert_uint_eq(cache_stats(cache)->misses, 10);
    cache_close(cache);
}
END_TEST

START_TEST(a_hit_comes_with_the_slot_it_was_bound_to)
{
    const uint16_t ids[] = {3, 4, 1};
    struct cache *cache = script_cache(1);
    fill_layer_1(cache);
    const struct cache_batch *batch = cache_demand(cache, 1, ids, 1);
    ck_assert_uint_eq(batch->hit_count, 2);
    ck_assert_uint_eq(batch->demand[0].slot, 30);
    ck_assert_uint_eq(batch->demand[1].slot, CACHE_NO_SLOT);
    ck_assert_uint_eq(batch->demand[2].slot, 10);
    ck_assert(batch->demand[0].keep && !batch->demand[1].keep && batch->demand[2].keep);
    cache_close(cache);
}
END_TEST

START_TEST(a_hit_that_leaves_keeps_its_slot_for_this_batch_only)
{
    const uint16_t ids[] = {3, 4, 1};
    struct cache *cache = script_cache(1);
    fill_layer_1(cache);
    script.next[8 + 3] = false;
    script.evicted[script.evicted_count++] = 8 + 3;
    const struct cache_batch *batch = cache_demand(cache, 1, ids, 1);
    ck_assert_uint_eq(batch->demand[0].slot, 30);
    ck_assert(!batch->demand[0].keep);
    ck_assert_uint_eq(batch->free_count, 0);
    script.evicted_count = 0;
    batch = cache_demand(cache, 1, ids, 1);
    ck_assert_uint_eq(batch->demand[0].slot, CACHE_NO_SLOT);
    ck_assert_uint_eq(cache_stats(cache)->evictions, 1);
    cache_close(cache);
}
END_TEST

START_TEST(leavers_nobody_asked_for_are_free_at_once)
{
    const uint16_t ids[] = {1, 2, 3};
    struct cache *cache = script_cache(1);
    fill_layer_1(cache);
    script.next[8 + 1] = script.next[8 + 3] = false;
    script.evicted[0] = 8 + 3;
    script.evicted[1] = 8 + 1;
    script.evicted_count = 2;
    const struct cache_batch *batch = cache_demand(cache, 2, ids, 1); /* same ids, other layer */
    ck_assert_uint_eq(batch->free_count, 2);
    ck_assert_uint_eq(batch->free_slot[0], 30);
    ck_assert_uint_eq(batch->free_slot[1], 10);
    ck_assert_uint_eq(batch->hit_count, 0);
    ck_assert_uint_eq(cache_stats(cache)->evictions, 2);
    cache_close(cache);
}
END_TEST

START_TEST(a_hit_that_left_and_came_back_stays_in_its_slot)
{
    const uint16_t ids[] = {3, 4, 1};
    struct cache *cache = script_cache(1);
    fill_layer_1(cache);
    script.evicted[0] = script.evicted[1] = 8 + 3;
    script.evicted_count = 2;
    for (int turn = 0; turn < 2; turn++) {
        const struct cache_batch *batch = cache_demand(cache, 1, ids, 1);
        ck_assert_uint_eq(batch->demand[0].slot, 30);
        ck_assert(batch->demand[0].keep);
        ck_assert_uint_eq(batch->free_count, 0);
    }
    ck_assert_uint_eq(cache_stats(cache)->evictions, 0);
    cache_close(cache);
}
END_TEST

START_TEST(a_miss_that_was_admitted_and_left_is_no_eviction)
{
    const uint16_t ids[] = {3, 4, 1};
    struct cache *cache = script_cache(1);
    script.evicted[script.evicted_count++] = 8 + 4;
    const struct cache_batch *batch = cache_demand(cache, 1, ids, 1);
    ck_assert(!batch->demand[1].keep);
    ck_assert_uint_eq(batch->free_count, 0);
    ck_assert_uint_eq(cache_stats(cache)->evictions, 0);
    cache_close(cache);
}
END_TEST

START_TEST(an_open_that_is_refused_memory_says_so)
{
    struct policy_shape shape = script_shape;
    struct cache *cache = NULL;
    shape.slots = 101;
    ck_assert_int_lt(cache_open(&cache, &script_ops, &shape, 1), 0);
    ck_assert_ptr_null(cache);
}
END_TEST

#ifndef K3RING_SANITIZED
START_TEST(binding_an_expert_that_does_not_stay_is_a_mistake)
{
    const uint16_t ids[] = {5, 2, 7};
    struct cache *cache = script_cache(1);
    cache_demand(cache, 2, ids, 1);
    cache_bind(cache, 2, 5, 1);
}
END_TEST

START_TEST(binding_twice_is_a_mistake)
{
    struct cache *cache = script_cache(1);
    fill_layer_1(cache);
    cache_bind(cache, 1, 1, 40);
}
END_TEST
#endif

/* ---- real policies, and slots that really hold something ---- */

#define POOL_SLOTS 128
#define EMPTY UINT32_MAX

struct pool {
    uint32_t holds[POOL_SLOTS]; /* key, or EMPTY */
};

static uint32_t pool_take(struct pool *pool, uint32_t key)
{
    for (uint32_t slot = 0; slot < POOL_SLOTS; slot++) {
        if (pool->holds[slot] == EMPTY) {
            pool->holds[slot] = key;
            return slot;
        }
    }
    ck_abort_msg("no slot is free");
    return EMPTY;
}

static uint32_t pool_used(const struct pool *pool)
{
    uint32_t used = 0;
    for (uint32_t slot = 0; slot < POOL_SLOTS; slot++) {
        used += pool->holds[slot] != EMPTY;
    }
    return used;
}

static void pool_free(struct pool *pool, uint32_t slot)
{
    ck_assert_uint_ne(pool->holds[slot], EMPTY);
    pool->holds[slot] = EMPTY;
}

/* What an executor does with a batch: the hits, then the misses with one working slot. */
static void carry_out(struct cache *cache, struct pool *pool, const struct policy_shape *shape,
                      uint32_t layer, const struct cache_batch *batch)
{
    uint32_t hits = 0;
    for (uint32_t i = 0; i < batch->free_count; i++) {
        pool_free(pool, batch->free_slot[i]);
    }
    for (uint32_t i = 0; i < batch->demand_count; i++) {
        const struct cache_demand *demand = &batch->demand[i];
        uint32_t key = layer * shape->experts + demand->expert;
        if (demand->slot != CACHE_NO_SLOT) {
            hits++;
            ck_assert_uint_eq(pool->holds[demand->slot], key);
            if (!demand->keep) {
                pool_free(pool, demand->slot);
            }
        }
    }
    for (uint32_t i = 0; i < batch->demand_count; i++) {
        const struct cache_demand *demand = &batch->demand[i];
        if (demand->slot == CACHE_NO_SLOT) {
            uint32_t slot = pool_take(pool, layer * shape->experts + demand->expert);
            ck_assert_uint_le(pool_used(pool), shape->slots + 1);
            if (demand->keep) {
                cache_bind(cache, layer, demand->expert, slot);
            } else {
                pool_free(pool, slot);
            }
        }
    }
    ck_assert_uint_eq(hits, batch->hit_count);
    ck_assert_uint_le(pool_used(pool), shape->slots);
}

static void draw_distinct(struct rng *rng, uint16_t *ids, uint32_t count, uint32_t bound)
{
    for (uint32_t i = 0; i < count; i++) {
        bool again = true;
        while (again) {
            ids[i] = (uint16_t)min_u64(rng_below(rng, bound), rng_below(rng, bound));
            again = false;
            for (uint32_t j = 0; j < i; j++) {
                again = again || ids[j] == ids[i];
            }
        }
    }
}

static void walk(const struct policy_ops *ops, uint32_t slots, uint64_t seed)
{
    struct policy_shape shape = {.layers = 5, .experts = 20, .per_token = 4, .slots = slots};
    struct pool pool;
    struct cache *cache;
    struct rng rng = rng_seed(seed);
    memset(pool.holds, 0xff, sizeof pool.holds);
    ck_assert_int_eq(cache_open(&cache, ops, &shape, 6), 0);
    for (uint32_t step = 0; step < 300; step++) {
        uint16_t ids[6 * 4];
        uint32_t tokens = step < 10 ? 6 : 1 + (uint32_t)rng_below(&rng, 3);
        for (uint32_t token = 0; token < tokens; token++) {
            draw_distinct(&rng, ids + 4 * (size_t)token, 4, shape.experts);
        }
        const struct cache_batch *batch = cache_demand(cache, step % 5, ids, tokens);
        carry_out(cache, &pool, &shape, step % 5, batch);
    }
    const struct cache_stats *stats = cache_stats(cache);
    ck_assert_uint_eq(stats->demands, stats->hits + stats->misses);
    ck_assert(slots < 50 || ops == policy_find("none") || stats->hits > 0);
    cache_close(cache);
}

START_TEST(slots_always_hold_what_the_cache_says_with_any_policy)
{
    const uint32_t slots[] = {0, 1, 3, 4, 7, 20, 50, 99, 100, 120};
    for (size_t i = 0; i < countof(slots); i++) {
        walk(policy_table[_i], slots[i], i);
    }
}
END_TEST

START_TEST(the_account_covers_every_policy_and_grows_with_the_chunk)
{
    struct policy_shape full = {.layers = 92, .experts = 896, .per_token = 16, .slots = 3000};
    uint64_t bytes = cache_bytes(&full, 1);
    ck_assert_uint_gt(bytes, 92 * 896 * 30);
    ck_assert_uint_lt(bytes, 4 * MIB);
    ck_assert_uint_gt(cache_bytes(&full, 512), bytes);
    for (size_t i = 0; policy_table[i] != NULL; i++) {
        struct cache *cache; /* opening asserts that the policy stays inside the account */
        struct policy_shape tiny = {.layers = 1, .experts = 1, .per_token = 1, .slots = 1};
        ck_assert_int_eq(cache_open(&cache, policy_table[i], &full, 4), 0);
        cache_close(cache);
        ck_assert_int_eq(cache_open(&cache, policy_table[i], &tiny, 1), 0);
        cache_close(cache);
    }
}
END_TEST

static Suite *cache_suite(void)
{
    Suite *suite = suite_create("cache");
    TCase *tcase = tcase_create("cache");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_miss_has_no_slot_and_its_fate_is_the_policys);
    tcase_add_test(tcase, demands_are_distinct_and_in_order_of_first_demand);
    tcase_add_test(tcase, a_hit_comes_with_the_slot_it_was_bound_to);
    tcase_add_test(tcase, a_hit_that_leaves_keeps_its_slot_for_this_batch_only);
    tcase_add_test(tcase, leavers_nobody_asked_for_are_free_at_once);
    tcase_add_test(tcase, a_hit_that_left_and_came_back_stays_in_its_slot);
    tcase_add_test(tcase, a_miss_that_was_admitted_and_left_is_no_eviction);
    tcase_add_test(tcase, an_open_that_is_refused_memory_says_so);
#ifndef K3RING_SANITIZED
    tcase_add_test_raise_signal(tcase, binding_an_expert_that_does_not_stay_is_a_mistake, SIGABRT);
    tcase_add_test_raise_signal(tcase, binding_twice_is_a_mistake, SIGABRT);
#endif
    tcase_add_loop_test(tcase, slots_always_hold_what_the_cache_says_with_any_policy, 0, 6);
    tcase_add_test(tcase, the_account_covers_every_policy_and_grows_with_the_chunk);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return suite_run(cache_suite()) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
