/* SPDX-License-Identifier: Apache-2.0 */
/* ARC, one instance per layer. A single instance over all layers sees a cyclic scan longer than
 * itself and keeps nothing of use; one per layer sees the reuse from token to token. The slots
 * are divided evenly, the remainder goes to the first layers. A token is fed worst score first,
 * so that its best experts end most recent. */

#include "cache/arc_core.h"

struct policy {
    struct block block;
    struct policy_shape shape;
    struct arc_core *core; /* [layers] */
};

static void lay_out(struct policy *policy)
{
    struct block *block = &policy->block;
    struct arc_core measured;
    policy->core = block_take(block, policy->shape.layers, sizeof *policy->core);
    for (uint32_t layer = 0; layer < policy->shape.layers; layer++) {
        struct arc_core *core = block->base == NULL ? &measured : &policy->core[layer];
        arc_core_take(core, block, policy->shape.experts);
    }
}

static void arc_close(struct policy *policy)
{
    if (policy != NULL) {
        block_free(&policy->block);
        free(policy);
    }
}

static struct policy *arc_open(const struct policy_shape *shape)
{
    struct policy *policy = calloc(1, sizeof *policy);
    if (policy == NULL) {
        return NULL;
    }
    policy->shape = *shape;
    lay_out(policy);
    if (!block_alloc(&policy->block, shape)) {
        arc_close(policy);
        return NULL;
    }
    lay_out(policy);
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        uint32_t share = shape->slots / shape->layers + (layer < shape->slots % shape->layers);
        arc_core_init(&policy->core[layer], share);
    }
    return policy;
}

static void arc_batch(struct policy *policy, uint32_t layer, const uint16_t *ids, uint32_t tokens,
                      struct policy_evictions *evictions)
{
    uint32_t k = policy->shape.per_token, experts = policy->shape.experts;
    assert(layer < policy->shape.layers);
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
    uint32_t experts = policy->shape.experts;
    return arc_core_resident(&policy->core[key / experts], key % experts);
}

const struct policy_ops policy_arc = {
    .name = "arc",
    .open = arc_open,
    .close = arc_close,
    .batch = arc_batch,
    .resident = arc_resident,
};
