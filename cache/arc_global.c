/* SPDX-License-Identifier: Apache-2.0 */
/* ARC as published: one instance over the experts of all layers. Kept for comparison. The experts
 * of a token are held: they never push each other out. */

#include "cache/arc_core.h"

struct policy {
    struct policy_head head;
    struct arc_core core;
    bool *held; /* per key; all false between tokens */
    bool *hit;  /* [per_token]: resident when the token began */
};

static void lay_out(struct policy *policy, uint32_t keys)
{
    arc_core_take(&policy->core, &policy->head.block, keys);
    policy->held = block_take(&policy->head.block, keys, sizeof *policy->held);
    policy->hit = block_take(&policy->head.block, policy->head.shape.per_token,
                             sizeof *policy->hit);
}

static struct policy *arc_global_open(const struct policy_shape *shape)
{
    struct policy *policy = policy_make(sizeof *policy, shape, lay_out);
    if (policy == NULL) {
        return NULL;
    }
    arc_core_init(&policy->core, shape->slots);
    return policy;
}

/* Requests the members whose residency at the token's start was `hits`. */
static void feed(struct policy *policy, policy_key first, const uint16_t *ids, uint32_t members,
                 bool hits, struct policy_evictions *evictions)
{
    for (uint32_t rank = 0; rank < members; rank++) {
        if (policy->hit[rank] != hits) {
            continue;
        }
        uint32_t victim = arc_core_request(&policy->core, first + ids[rank], policy->held);
        if (victim != KEY_NONE) {
            policy_evicted(evictions, victim);
        }
    }
}

/* Hits come first: from then on every member that is resident is among the most recent. */
static void serve_token(struct policy *policy, policy_key first, const uint16_t *ids,
                        struct policy_evictions *evictions)
{
    uint32_t members = (uint32_t)min_u64(policy->head.shape.per_token, policy->head.shape.slots);
    for (uint32_t rank = 0; rank < members; rank++) {
        assert(ids[rank] < policy->head.shape.experts);
        policy->hit[rank] = arc_core_resident(&policy->core, first + ids[rank]);
        policy->held[first + ids[rank]] = true;
    }
    feed(policy, first, ids, members, true, evictions);
    feed(policy, first, ids, members, false, evictions);
    for (uint32_t rank = 0; rank < members; rank++) {
        policy->held[first + ids[rank]] = false;
    }
}

static void arc_global_batch(struct policy *policy, uint32_t layer, const uint16_t *ids,
                             uint32_t tokens, struct policy_evictions *evictions)
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

static bool arc_global_resident(const struct policy *policy, policy_key key)
{
    return arc_core_resident(&policy->core, key);
}

const struct policy_ops policy_arc_global = {
    .name = "arc-global",
    .open = arc_global_open,
    .close = policy_free,
    .batch = arc_global_batch,
    .resident = arc_global_resident,
};
