/* SPDX-License-Identifier: Apache-2.0 */
/* ARC, one instance per layer. A single instance over all layers sees a cyclic scan longer than
 * itself and keeps nothing of use; one per layer sees the reuse from token to token. The slots
 * are divided evenly, the remainder goes to the first layers. A token is fed worst score first,
 * so that its best experts end most recent. */

#include "cache/arc_core.h"

struct policy {
    struct policy_head head;
    struct arc_core *core; /* [layers] */
};

static void lay_out(struct policy *policy, uint32_t keys)
{
    (void)keys;
    struct block *block = &policy->head.block;
    struct arc_core measured = {0};
    policy->core = block_take(block, policy->head.shape.layers, sizeof *policy->core);
    for (uint32_t layer = 0; layer < policy->head.shape.layers; layer++) {
        struct arc_core *core = block->base == NULL ? &measured : &policy->core[layer];
        arc_core_take(core, block, policy->head.shape.experts);
    }
}

static struct policy *arc_open(const struct policy_shape *shape)
{
    struct policy *policy = policy_make(sizeof *policy, shape, lay_out);
    if (policy == NULL) {
        return NULL;
    }
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        uint32_t share = shape->slots / shape->layers + (layer < shape->slots % shape->layers);
        arc_core_init(&policy->core[layer], share);
    }
    return policy;
}

static void arc_batch(struct policy *policy, uint32_t layer, const uint16_t *ids, uint32_t tokens,
                      struct policy_evictions *evictions)
{
    uint32_t k = policy->head.shape.per_token, experts = policy->head.shape.experts;
    assert(layer < policy->head.shape.layers);
    struct arc_core *core = &policy->core[layer];
    if (core->capacity == 0) {
        return;
    }
    for (uint32_t token = 0; token < tokens; token++) {
        for (uint32_t rank = k; rank-- > 0;) {
            uint32_t expert = ids[(size_t)token * k + rank];
            assert(expert < experts);
            uint32_t victim = arc_core_request(core, expert, NULL);
            if (victim != KEY_NONE) {
                policy_evicted(evictions, layer * experts + victim);
            }
        }
    }
}

static bool arc_resident(const struct policy *policy, policy_key key)
{
    uint32_t experts = policy->head.shape.experts;
    return arc_core_resident(&policy->core[key / experts], key % experts);
}

const struct policy_ops policy_arc = {
    .name = "arc",
    .token_beside = true,
    .open = arc_open,
    .close = policy_free,
    .batch = arc_batch,
    .resident = arc_resident,
};
