/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CACHE_CACHE_H
#define CACHE_CACHE_H

/* Which slot holds which expert. Asks a policy once per batch and turns its answer into work:
 * what to read, what stays, what leaves. Owned by one thread; allocates only at open. */

#include <stdio.h>

#include "cache/policy.h"

#define CACHE_NO_SLOT UINT32_MAX

/* One distinct expert of a batch, in order of first demand (token 0 rank 1 first). */
struct cache_demand {
    uint32_t expert;
    uint32_t slot;      /* its slot when it is a hit, else CACHE_NO_SLOT */
    bool keep;          /* resident after the batch */
};

struct cache_batch {
    struct cache_demand *demand; /* capacity min(experts, tokens * k) */
    uint32_t demand_count;
    uint32_t hit_count;
    uint32_t *free_slot;  /* slots of leavers that this batch does not use: free at once */
    uint32_t free_count;
};

struct cache_stats {
    uint64_t demands, hits, misses, evictions;
};

struct cache;

/* chunk_tokens: most tokens a batch may have. ERR_MEMORY when memory is refused. */
int cache_open(struct cache **out, const struct policy_ops *ops, const struct policy_shape *shape,
               uint32_t chunk_tokens);
void cache_close(struct cache *cache);

/* Feeds one batch; the result lives in the cache until the next call. A hit that leaves has
 * keep = false and its slot: the caller frees it after use. A miss that stays is bound later. */
const struct cache_batch *cache_demand(struct cache *cache, uint32_t layer, const uint16_t *ids,
                                       uint32_t tokens);

/* A miss with keep has been read and used: slot now holds it. */
void cache_bind(struct cache *cache, uint32_t layer, uint32_t expert, uint32_t slot);

const struct cache_stats *cache_stats(const struct cache *cache);

/* What the policy has learned, from and to a file: see cache/heat.h. Before the first batch, and
 * after the last. Both ERR_USAGE when it learns nothing; a write that failed is the stream's. */
int cache_heat_load(struct cache *cache, const char *path);
int cache_heat_write(struct cache *cache, FILE *file);

/* Bytes a cache of this shape keeps; for the plan's account. */
uint64_t cache_bytes(const struct policy_shape *shape, uint32_t chunk_tokens);

#endif
