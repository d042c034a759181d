/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CACHE_POLICY_H
#define CACHE_POLICY_H

/* Which experts stay resident: pure code over keys, never reading a byte, so that the same policy
 * serves the run and the replay of a trace. A policy is fed batches: the routing of one MoE layer
 * for one or more tokens. Hits are what was resident when the batch began. */

#include "core/base/base.h"

struct policy_shape {
    uint32_t layers;   /* MoE layers */
    uint32_t experts;  /* per layer */
    uint32_t per_token; /* k: experts a token asks of a layer */
    uint32_t slots;    /* N: residents beyond the working slots */
};

/* layer * experts + expert */
typedef uint32_t policy_key;

/* Keys that were resident and left during a batch; a key may have come back since, so the reader
 * asks resident() again. */
struct policy_evictions {
    policy_key *key;
    uint32_t count, capacity; /* capacity >= tokens * per_token of any batch */
};

struct policy; /* each policy's own state */

/* An array of what a policy has learned: numbers of 1, 4 or 8 bytes. */
struct policy_field {
    void *data;
    uint32_t count, unit_bytes;
};

#define POLICY_FIELDS_MAX 8

struct policy_ops {
    const char *name;
    /* A token's experts push each other out, so those in use need working slots beside. The others
     * hold a token in their slots. Where capacities are compared, these slots count as well. */
    bool token_beside;
    /* NULL when memory is refused. All memory is taken here. */
    struct policy *(*open)(const struct policy_shape *shape);
    void (*close)(struct policy *policy);
    /* ids [tokens][per_token], best router score first within a token. */
    void (*batch)(struct policy *policy, uint32_t layer, const uint16_t *ids, uint32_t tokens,
                  struct policy_evictions *evictions);
    bool (*resident)(const struct policy *policy, policy_key key);
    /* The arrays a heat file keeps from run to run, at most POLICY_FIELDS_MAX; returns how many.
     * NULL for a policy that remembers nothing beyond its residents. */
    uint32_t (*learned)(struct policy *policy, struct policy_field *field);
    /* After these were filled from a file: whether the policy may go on from them. */
    bool (*sound)(const struct policy *policy);
};

/* arc, lar, arc-global, lru, lfu, none, lhr; the first is the default. NULL-terminated. */
extern const struct policy_ops *const policy_table[];

const struct policy_ops *policy_find(const char *name); /* NULL when unknown */

#endif
