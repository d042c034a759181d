/* SPDX-License-Identifier: Apache-2.0 */
/* Least recently used, over all layers. A token's experts are served best first and never push
 * each other out. */

#include "cache/cache_priv.h"

struct policy {
    struct policy_head head;
    struct key_links links;
    struct key_list recency; /* the residents, except the members while a token is served */
    bool *resident;          /* per key */
};

static void lay_out(struct policy *policy, uint32_t keys)
{
    struct block *block = &policy->head.block;
    policy->links.older = block_take(block, keys, sizeof *policy->links.older);
    policy->links.newer = block_take(block, keys, sizeof *policy->links.newer);
    policy->resident = block_take(block, keys, sizeof *policy->resident);
}

static struct policy *lru_open(const struct policy_shape *shape)
{
    struct policy *policy = policy_make(sizeof *policy, shape, lay_out);
    if (policy == NULL) {
        return NULL;
    }
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
    uint32_t kept = (uint32_t)min_u64(policy->head.shape.per_token, policy->head.shape.slots);
    for (uint32_t rank = 0; rank < policy->head.shape.per_token; rank++) {
        policy_key key = first + ids[rank];
        assert(ids[rank] < policy->head.shape.experts);
        if (policy->resident[key]) {
            key_list_remove(&policy->recency, &policy->links, key);
            if (rank >= kept) {
                leave(policy, key, evictions);
            }
        }
    }
    while ((uint64_t)policy->recency.count + kept > policy->head.shape.slots) {
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
    assert(layer < policy->head.shape.layers);
    if (policy->head.shape.slots == 0) {
        return;
    }
    for (uint32_t token = 0; token < tokens; token++) {
        serve_token(policy, layer * policy->head.shape.experts,
                    ids + (size_t)token * policy->head.shape.per_token, evictions);
    }
}

static bool lru_resident(const struct policy *policy, policy_key key)
{
    return policy->resident[key];
}

const struct policy_ops policy_lru = {
    .name = "lru",
    .open = lru_open,
    .close = policy_free,
    .batch = lru_batch,
    .resident = lru_resident,
};
