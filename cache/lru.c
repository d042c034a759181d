/* SPDX-License-Identifier: Apache-2.0 */
/* Least recently used, over all layers. A token's experts are served best first and never push
 * each other out. */

#include "cache/cache_priv.h"

struct policy {
    struct block block;
    struct policy_shape shape;
    struct key_links links;
    struct key_list recency; /* the residents, except the members while a token is served */
    bool *resident;          /* per key */
};

static void lay_out(struct policy *policy, uint32_t keys)
{
    struct block *block = &policy->block;
    policy->links.older = block_take(block, keys, sizeof *policy->links.older);
    policy->links.newer = block_take(block, keys, sizeof *policy->links.newer);
    policy->resident = block_take(block, keys, sizeof *policy->resident);
}

static void lru_close(struct policy *policy)
{
    if (policy != NULL) {
        block_free(&policy->block);
        free(policy);
    }
}

static struct policy *lru_open(const struct policy_shape *shape)
{
    struct policy *policy = calloc(1, sizeof *policy);
    if (policy == NULL) {
        return NULL;
    }
    uint32_t keys = policy_key_count(shape);
    policy->shape = *shape;
    lay_out(policy, keys);
    if (!block_alloc(&policy->block, shape)) {
        lru_close(policy);
        return NULL;
    }
    lay_out(policy, keys);
    key_list_init(&policy->recency);
    return policy;
}

static void leave(struct policy *policy, policy_key key, struct policy_evictions *evictions)
{
    policy->resident[key] = false;
    policy_evicted(evictions, key);
}

static void serve_token(struct policy *policy, policy_key first, const uint16_t *ids,
                        struct policy_evictions *evictions)
{
    uint32_t kept = (uint32_t)min_u64(policy->shape.per_token, policy->shape.slots);
    for (uint32_t rank = 0; rank < policy->shape.per_token; rank++) {
        policy_key key = first + ids[rank];
        assert(ids[rank] < policy->shape.experts);
        if (policy->resident[key]) {
            key_list_remove(&policy->recency, &policy->links, key);
            if (rank >= kept) {
                leave(policy, key, evictions);
            }
        }
    }
    while ((uint64_t)policy->recency.count + kept > policy->shape.slots) {
        policy_key victim = policy->recency.oldest;
        key_list_remove(&policy->recency, &policy->links, victim);
        leave(policy, victim, evictions);
    }
    for (uint32_t rank = 0; rank < kept; rank++) {
        key_list_push(&policy->recency, &policy->links, first + ids[rank]);
        policy->resident[first + ids[rank]] = true;
    }
}

static void lru_batch(struct policy *policy, uint32_t layer, const uint16_t *ids, uint32_t tokens,
                      struct policy_evictions *evictions)
{
    assert(layer < policy->shape.layers);
    if (policy->shape.slots == 0) {
        return;
    }
    for (uint32_t token = 0; token < tokens; token++) {
        serve_token(policy, layer * policy->shape.experts,
                    ids + (size_t)token * policy->shape.per_token, evictions);
    }
}

static bool lru_resident(const struct policy *policy, policy_key key)
{
    return policy->resident[key];
}

const struct policy_ops policy_lru = {
    .name = "lru",
    .open = lru_open,
    .close = lru_close,
    .batch = lru_batch,
    .resident = lru_resident,
};
