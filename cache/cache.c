/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/cache.h"

#include <stdlib.h>

#include "cache/cache_priv.h"
#include "cache/heat.h"
#include "core/base/err.h"

struct cache {
    const struct policy_ops *ops;
    struct policy *policy;
    struct policy_shape shape;
    uint32_t chunk_tokens;
    uint32_t *slot;                    /* per key; CACHE_NO_SLOT unless bound */
    bool *demanded;                    /* [experts], of the present batch; else all false */
    struct policy_evictions evictions; /* room for the largest batch */
    struct cache_batch batch;
    struct cache_stats stats;
};

static uint64_t demand_capacity(const struct policy_shape *shape, uint32_t chunk_tokens)
{
    return min_u64(shape->experts, (uint64_t)chunk_tokens * shape->per_token);
}

static uint64_t eviction_capacity(const struct policy_shape *shape, uint32_t chunk_tokens)
{
    uint64_t most = (uint64_t)chunk_tokens * shape->per_token;
    assert(most <= UINT32_MAX);
    return most;
}

uint64_t cache_bytes(const struct policy_shape *shape, uint32_t chunk_tokens)
{
    const uint64_t blocks_bytes = 6 * PAGE_BYTES; /* the allocator's rounding of each array */
    return sizeof(struct cache) + blocks_bytes + policy_bytes_max(shape) +
           policy_key_count(shape) * sizeof(uint32_t) + shape->experts * sizeof(bool) +
           eviction_capacity(shape, chunk_tokens) * (sizeof(policy_key) + sizeof(uint32_t)) +
           demand_capacity(shape, chunk_tokens) * sizeof(struct cache_demand);
}

static bool take_memory(struct cache *cache)
{
    uint32_t keys = policy_key_count(&cache->shape);
    size_t evictions = (size_t)eviction_capacity(&cache->shape, cache->chunk_tokens);
    size_t demands = (size_t)demand_capacity(&cache->shape, cache->chunk_tokens);
    cache->policy = cache->ops->open(&cache->shape);
    cache->slot = malloc(keys * sizeof *cache->slot);
    cache->demanded = calloc(cache->shape.experts, sizeof *cache->demanded);
    cache->evictions.key = malloc(evictions * sizeof *cache->evictions.key);
    cache->evictions.capacity = (uint32_t)evictions;
    cache->batch.free_slot = malloc(evictions * sizeof *cache->batch.free_slot);
    cache->batch.demand = malloc(demands * sizeof *cache->batch.demand);
    if (cache->policy == NULL || cache->slot == NULL || cache->demanded == NULL ||
        cache->evictions.key == NULL || cache->batch.free_slot == NULL ||
        cache->batch.demand == NULL) {
        return false;
    }
    for (uint32_t key = 0; key < keys; key++) {
        cache->slot[key] = CACHE_NO_SLOT;
    }
    return true;
}

int cache_open(struct cache **out, const struct policy_ops *ops, const struct policy_shape *shape,
               uint32_t chunk_tokens)
{
    assert(chunk_tokens > 0);
    *out = NULL;
    struct cache *cache = calloc(1, sizeof *cache);
    if (cache != NULL) {
        cache->ops = ops;
        cache->shape = *shape;
        cache->chunk_tokens = chunk_tokens;
    }
    if (cache == NULL || !take_memory(cache)) {
        cache_close(cache);
        return err_set(ERR_MEMORY, "no memory for the expert cache's tables (%llu bytes); lower "
                       "--ram or the chunk",
                       (unsigned long long)cache_bytes(shape, chunk_tokens));
    }
    *out = cache;
    return 0;
}

void cache_close(struct cache *cache)
{
    if (cache == NULL) {
        return;
    }
    if (cache->policy != NULL) {
        cache->ops->close(cache->policy);
    }
    free(cache->slot);
    free(cache->demanded);
    free(cache->evictions.key);
    free(cache->batch.free_slot);
    free(cache->batch.demand);
    free(cache);
}

/* The distinct experts of the batch and, for now in keep, which are resident: before the policy
 * learns of it. */
static void collect(struct cache *cache, policy_key first, const uint16_t *ids, size_t requests)
{
    struct cache_batch *batch = &cache->batch;
    batch->demand_count = batch->hit_count = 0;
    for (size_t i = 0; i < requests; i++) {
        assert(ids[i] < cache->shape.experts);
        if (cache->demanded[ids[i]]) {
            continue;
        }
        cache->demanded[ids[i]] = true;
        policy_key key = first + ids[i];
        bool hit = cache->ops->resident(cache->policy, key);
        batch->hit_count += hit;
        batch->demand[batch->demand_count++] =
            (struct cache_demand){.expert = ids[i], .slot = cache->slot[key], .keep = hit};
    }
}

/* What the policy decided about the demanded experts. Returns how many residents left. */
static uint32_t settle_demands(struct cache *cache, policy_key first)
{
    struct cache_batch *batch = &cache->batch;
    uint32_t kept = 0, left = 0;
    for (uint32_t i = 0; i < batch->demand_count; i++) {
        struct cache_demand *demand = &batch->demand[i];
        bool hit = demand->keep;
        demand->keep = cache->ops->resident(cache->policy, first + demand->expert);
        left += hit && !demand->keep;
        kept += demand->keep;
        if (!demand->keep) {
            cache->slot[first + demand->expert] = CACHE_NO_SLOT;
        }
    }
    assert(kept <= cache->shape.slots);
    return left;
}

/* Residents that left and that nobody asked for: their slots are free at once. Such a key cannot
 * have come back, so each is listed once. Returns how many there were. */
static uint32_t settle_leavers(struct cache *cache, policy_key first)
{
    struct cache_batch *batch = &cache->batch;
    uint32_t left = 0;
    batch->free_count = 0;
    for (uint32_t i = 0; i < cache->evictions.count; i++) {
        policy_key key = cache->evictions.key[i];
        if (key >= first && key - first < cache->shape.experts && cache->demanded[key - first]) {
            continue;
        }
        left++;
        if (cache->slot[key] != CACHE_NO_SLOT) {
            batch->free_slot[batch->free_count++] = cache->slot[key];
            cache->slot[key] = CACHE_NO_SLOT;
        }
    }
    return left;
}

const struct cache_batch *cache_demand(struct cache *cache, uint32_t layer, const uint16_t *ids,
                                       uint32_t tokens)
{
    struct cache_batch *batch = &cache->batch;
    policy_key first = layer * cache->shape.experts;
    assert(layer < cache->shape.layers && tokens <= cache->chunk_tokens);
    collect(cache, first, ids, (size_t)tokens * cache->shape.per_token);
    cache->evictions.count = 0;
    cache->ops->batch(cache->policy, layer, ids, tokens, &cache->evictions);
    uint32_t left = settle_demands(cache, first);
    left += settle_leavers(cache, first);
    for (uint32_t i = 0; i < batch->demand_count; i++) {
        cache->demanded[batch->demand[i].expert] = false;
    }
    cache->stats.demands += batch->demand_count;
    cache->stats.hits += batch->hit_count;
    cache->stats.misses += batch->demand_count - batch->hit_count;
    cache->stats.evictions += left;
    return batch;
}

void cache_bind(struct cache *cache, uint32_t layer, uint32_t expert, uint32_t slot)
{
    policy_key key = layer * cache->shape.experts + expert;
    assert(layer < cache->shape.layers && expert < cache->shape.experts);
    assert(slot != CACHE_NO_SLOT);
    assert(cache->slot[key] == CACHE_NO_SLOT);
    assert(cache->ops->resident(cache->policy, key));
    cache->slot[key] = slot;
}

const struct cache_stats *cache_stats(const struct cache *cache)
{
    return &cache->stats;
}

int cache_heat_load(struct cache *cache, const char *path)
{
    assert(cache->stats.demands == 0);
    TRY(heat_check_policy(cache->ops));
    return heat_load(path, cache->ops, &cache->shape, cache->policy);
}

int cache_heat_write(struct cache *cache, FILE *file)
{
    TRY(heat_check_policy(cache->ops));
    heat_write(file, cache->ops, &cache->shape, cache->policy);
    return 0;
}
