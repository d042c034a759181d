/* SPDX-License-Identifier: Apache-2.0 */
/* Least frequently used with perfect memory: uses are counted for all experts, resident or not.
 * Of equal counts the least recently used leaves. A token's experts are served best first and
 * never push each other out. The residents form a binary heap, the next victim on top. */

#include "cache/cache_priv.h"

struct policy {
    struct policy_head head;
    uint32_t *uses;      /* per key, of the whole run */
    uint64_t *last_use;  /* per key, the clock of its latest request */
    uint32_t *heap;      /* keys of the residents, except members while a token is served */
    uint32_t *place;     /* per key, its index in the heap plus one; 0 outside it */
    uint32_t heap_count;
    uint64_t clock;      /* requests seen */
};

static void lay_out(struct policy *policy, uint32_t keys)
{
    struct block *block = &policy->head.block;
    policy->uses = block_take(block, keys, sizeof *policy->uses);
    policy->last_use = block_take(block, keys, sizeof *policy->last_use);
    policy->heap = block_take(block, keys, sizeof *policy->heap);
    policy->place = block_take(block, keys, sizeof *policy->place);
}

static struct policy *lfu_open(const struct policy_shape *shape)
{
    return policy_make(sizeof(struct policy), shape, lay_out);
}

static bool leaves_before(const struct policy *policy, policy_key a, policy_key b)
{
    if (policy->uses[a] != policy->uses[b]) {
        return policy->uses[a] < policy->uses[b];
    }
    return policy->last_use[a] < policy->last_use[b];
}

static void put(struct policy *policy, uint32_t index, policy_key key)
{
    policy->heap[index] = key;
    policy->place[key] = index + 1;
}

/* Puts key where it belongs on the way from index to the top. */
static void sift_up(struct policy *policy, uint32_t index, policy_key key)
{
    while (index > 0) {
        uint32_t parent = (index - 1) / 2;
        if (!leaves_before(policy, key, policy->heap[parent])) {
            break;
        }
        put(policy, index, policy->heap[parent]);
        index = parent;
    }
    put(policy, index, key);
}

static void sift_down(struct policy *policy, uint32_t index, policy_key key)
{
    const uint32_t *heap = policy->heap;
    for (uint32_t child = 2 * index + 1; child < policy->heap_count; child = 2 * index + 1) {
        if (child + 1 < policy->heap_count && leaves_before(policy, heap[child + 1], heap[child])) {
            child++;
        }
        if (!leaves_before(policy, heap[child], key)) {
            break;
        }
        put(policy, index, heap[child]);
        index = child;
    }
    put(policy, index, key);
}

static void heap_remove(struct policy *policy, policy_key key)
{
    uint32_t index = policy->place[key] - 1;
    policy_key last = policy->heap[--policy->heap_count];
    policy->place[key] = 0;
    if (last == key) {
        return;
    }
    if (index > 0 && leaves_before(policy, last, policy->heap[(index - 1) / 2])) {
        sift_up(policy, index, last);
    } else {
        sift_down(policy, index, last);
    }
}

static void serve_token(struct policy *policy, policy_key first, const uint16_t *ids,
                        struct policy_evictions *evictions)
{
    uint32_t kept = (uint32_t)min_u64(policy->head.shape.per_token, policy->head.shape.slots);
    for (uint32_t rank = 0; rank < policy->head.shape.per_token; rank++) {
        policy_key key = first + ids[rank];
        assert(ids[rank] < policy->head.shape.experts);
        if (policy->place[key] != 0) {
            heap_remove(policy, key);
            if (rank >= kept) {
                policy_evicted(evictions, key);
            }
        }
        policy->uses[key]++;
        policy->last_use[key] = ++policy->clock;
    }
    while ((uint64_t)policy->heap_count + kept > policy->head.shape.slots) {
        policy_key victim = policy->heap[0];
        heap_remove(policy, victim);
        policy_evicted(evictions, victim);
    }
    for (uint32_t rank = 0; rank < kept; rank++) {
        sift_up(policy, policy->heap_count++, first + ids[rank]);
    }
}

static void lfu_batch(struct policy *policy, uint32_t layer, const uint16_t *ids, uint32_t tokens,
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

static bool lfu_resident(const struct policy *policy, policy_key key)
{
    return policy->place[key] != 0;
}

static uint32_t lfu_learned(struct policy *policy, struct policy_field *field)
{
    uint32_t keys = policy->head.shape.layers * policy->head.shape.experts;
    field[0] = (struct policy_field){policy->uses, keys, sizeof *policy->uses};
    field[1] = (struct policy_field){policy->last_use, keys, sizeof *policy->last_use};
    field[2] = (struct policy_field){&policy->clock, 1, sizeof policy->clock};
    return 3;
}

static bool lfu_sound(const struct policy *policy)
{
    uint32_t keys = policy->head.shape.layers * policy->head.shape.experts;
    for (policy_key key = 0; key < keys; key++) {
        if (policy->last_use[key] > policy->clock || policy->uses[key] > policy->last_use[key]) {
            return false;
        }
    }
    return policy->clock <= UINT64_MAX / 2;
}

const struct policy_ops policy_lfu = {
    .name = "lfu",
    .open = lfu_open,
    .close = policy_free,
    .batch = lfu_batch,
    .resident = lfu_resident,
    .learned = lfu_learned,
    .sound = lfu_sound,
};
