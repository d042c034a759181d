/* SPDX-License-Identifier: Apache-2.0 */
/* LAR, layer-cyclic aged rank (see scored.h for what it is made of):
 *
 *     worth = (fast 0.3^age + 0.06 slow 0.97^age) * (layers / distance)^(1/4) */

#include "cache/scored.h"

#include <math.h>

#define FAST_DECAY 0.3
#define SLOW_DECAY 0.97
#define SLOW_WEIGHT 0.06
#define RANK_SLOPE 0.5 /* the last rank weighs 1 - slope */

struct policy {
    struct scored scored;
};

static void lay_out(struct policy *policy, uint32_t keys)
{
    scored_lay_out(&policy->scored, keys);
}

static double value(const struct policy *policy, policy_key key, uint32_t visit)
{
    return scored_sum(&policy->scored, key, visit, SLOW_WEIGHT);
}

static struct policy *lar_open(const struct policy_shape *shape)
{
    struct policy *policy = policy_make(sizeof *policy, shape, lay_out);
    if (policy == NULL) {
        return NULL;
    }
    scored_init(&policy->scored, FAST_DECAY, SLOW_DECAY, value);
    for (uint32_t distance = 1; distance <= shape->layers; distance++) {
        policy->scored.bonus[distance] = sqrt(sqrt((double)shape->layers / distance));
    }
    return policy;
}

static void lar_batch(struct policy *policy, uint32_t layer, const uint16_t *ids, uint32_t tokens,
                      struct policy_evictions *evictions)
{
    struct scored *scored = &policy->scored;
    assert(layer < scored->head.shape.layers);
    for (uint32_t token = 0; token < tokens && scored->head.shape.slots > 0; token++) {
        scored_mark(scored, layer, ids);
        scored_credit(scored, layer, ids, RANK_SLOPE);
        scored_settle(policy, layer, ids, evictions);
        ids += scored->head.shape.per_token;
    }
}

static uint32_t lar_learned(struct policy *policy, struct policy_field *field)
{
    return scored_learned(&policy->scored, field);
}

static bool lar_sound(const struct policy *policy)
{
    return scored_sound(&policy->scored);
}

const struct policy_ops policy_lar = {
    .name = "lar",
    .open = lar_open,
    .close = policy_free,
    .batch = lar_batch,
    .resident = scored_resident,
    .learned = lar_learned,
    .sound = lar_sound,
};
