/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps nothing: every expert is read for every batch. The yardstick for the others. */

#include "cache/cache_priv.h"

struct policy {
    struct policy_shape shape;
};

static struct policy *none_open(const struct policy_shape *shape)
{
    struct policy *policy = calloc(1, sizeof *policy);
    if (policy != NULL) {
        policy->shape = *shape;
    }
    return policy;
}

static void none_close(struct policy *policy)
{
    free(policy);
}

static void none_batch(struct policy *policy, uint32_t layer, const uint16_t *ids, uint32_t tokens,
                       struct policy_evictions *evictions)
{
    assert(layer < policy->shape.layers);
    (void)ids;
    (void)tokens;
    (void)evictions;
}

static bool none_resident(const struct policy *policy, policy_key key)
{
    (void)policy;
    (void)key;
    return false;
}

const struct policy_ops policy_none = {
    .name = "none",
    .open = none_open,
    .close = none_close,
    .batch = none_batch,
    .resident = none_resident,
};
