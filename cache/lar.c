/* SPDX-License-Identifier: Apache-2.0 */
/* LAR, layer-cyclic aged rank. Every expert, resident or not, has a score of two decaying sums of
 * its ranks, one fast and one slow; time is counted in visits to its layer. The resident of least
 * score leaves, and layers soon to be visited get a mild bonus:
 *
 *     score = (fast 0.3^age + 0.06 slow 0.97^age) * (layers / distance)^(1/4)
 *
 * The sum in brackets changes only when its own layer is visited. So each layer keeps its
 * residents in a heap of that sum, made anew at its visit, and a victim is the least of the
 * layers' tops, each times its layer's bonus: a batch costs one pass over one layer's residents
 * and one over the tops per victim, however many slots there are. */

#include "cache/cache_priv.h"

#include <math.h>

#define FAST_DECAY 0.3
#define SLOW_DECAY 0.97
#define SLOW_WEIGHT 0.06
#define RANK_SLOPE 0.5 /* the last rank weighs 1 - slope */

#define DECAY_STEPS 256

/* Powers of one base without libm, so that they are the same everywhere. */
struct decay {
    double low[DECAY_STEPS], high[DECAY_STEPS]; /* base^i, base^(256 i) */
};

struct lar_entry {
    double sum;
    uint32_t expert;
};

struct policy {
    struct policy_head head;
    float *fast, *slow;       /* per key, as of its latest use */
    uint32_t *last_visit;     /* per key, visit number of its latest use */
    uint32_t *visits;         /* per layer */
    struct lar_entry *heap;   /* [layers][experts]: residents, least sum first; no members */
    uint32_t *heap_count;     /* per layer */
    double *bonus;            /* [layers + 1], by distance 1 .. layers */
    bool *resident;           /* per key */
    bool *member;             /* [experts], of the token being served; else all false */
    uint32_t resident_count;  /* entries of all heaps */
    struct decay *fast_decay, *slow_decay;
};

static void decay_init(struct decay *decay, double base)
{
    decay->low[0] = decay->high[0] = 1;
    for (int i = 1; i < DECAY_STEPS; i++) {
        decay->low[i] = decay->low[i - 1] * base;
    }
    double step = decay->low[DECAY_STEPS - 1] * base;
    for (int i = 1; i < DECAY_STEPS; i++) {
        decay->high[i] = decay->high[i - 1] * step;
    }
}

/* base^age; 0 from 65,536 on, where the true value is below the least double. */
static double decay_at(const struct decay *decay, uint32_t age)
{
    if (age < DECAY_STEPS) {
        return decay->low[age];
    }
    if (age >= DECAY_STEPS * DECAY_STEPS) {
        return 0;
    }
    return decay->high[age / DECAY_STEPS] * decay->low[age % DECAY_STEPS];
}

static void lay_out(struct policy *policy, uint32_t keys)
{
    struct block *block = &policy->head.block;
    uint32_t layers = policy->head.shape.layers;
    policy->fast = block_take(block, keys, sizeof *policy->fast);
    policy->slow = block_take(block, keys, sizeof *policy->slow);
    policy->last_visit = block_take(block, keys, sizeof *policy->last_visit);
    policy->visits = block_take(block, layers, sizeof *policy->visits);
    policy->heap = block_take(block, keys, sizeof *policy->heap);
    policy->heap_count = block_take(block, layers, sizeof *policy->heap_count);
    policy->bonus = block_take(block, (size_t)layers + 1, sizeof *policy->bonus);
    policy->resident = block_take(block, keys, sizeof *policy->resident);
    policy->member = block_take(block, policy->head.shape.experts, sizeof *policy->member);
    policy->fast_decay = block_take(block, 1, sizeof *policy->fast_decay);
    policy->slow_decay = block_take(block, 1, sizeof *policy->slow_decay);
}

static struct policy *lar_open(const struct policy_shape *shape)
{
    struct policy *policy = policy_make(sizeof *policy, shape, lay_out);
    if (policy == NULL) {
        return NULL;
    }
    decay_init(policy->fast_decay, FAST_DECAY);
    decay_init(policy->slow_decay, SLOW_DECAY);
    for (uint32_t distance = 1; distance <= shape->layers; distance++) {
        policy->bonus[distance] = sqrt(sqrt((double)shape->layers / distance));
    }
    return policy;
}

static double sum_of(const struct policy *policy, policy_key key, uint32_t visit)
{
    uint32_t age = visit - policy->last_visit[key];
    return policy->fast[key] * decay_at(policy->fast_decay, age) +
           SLOW_WEIGHT * policy->slow[key] * decay_at(policy->slow_decay, age);
}

/* One more use at the layer's present visit. */
static void credit(struct policy *policy, policy_key key, uint32_t visit, double weight)
{
    uint32_t age = visit - policy->last_visit[key];
    double fast = policy->fast[key] * decay_at(policy->fast_decay, age) + weight;
    double slow = policy->slow[key] * decay_at(policy->slow_decay, age) + weight;
    policy->fast[key] = (float)fast;
    policy->slow[key] = (float)slow;
    policy->last_visit[key] = visit;
}

static bool leaves_before(const struct lar_entry *a, const struct lar_entry *b)
{
    return a->sum < b->sum || (!(b->sum < a->sum) && a->expert < b->expert);
}

static void sift_down(struct lar_entry *heap, uint32_t count, uint32_t index)
{
    struct lar_entry entry = heap[index];
    for (uint32_t child = 2 * index + 1; child < count; child = 2 * index + 1) {
        if (child + 1 < count && leaves_before(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!leaves_before(&heap[child], &entry)) {
            break;
        }
        heap[index] = heap[child];
        index = child;
    }
    heap[index] = entry;
}

static struct lar_entry *layer_heap(const struct policy *policy, uint32_t layer)
{
    return policy->heap + (size_t)layer * policy->head.shape.experts;
}

/* Removes the members from the heap of the visited layer and renews the sums of the others. */
static void renew(struct policy *policy, uint32_t layer)
{
    struct lar_entry *heap = layer_heap(policy, layer);
    policy_key first = layer * policy->head.shape.experts;
    uint32_t count = 0;
    for (uint32_t i = 0; i < policy->heap_count[layer]; i++) {
        uint32_t expert = heap[i].expert;
        if (!policy->member[expert]) {
            heap[count].expert = expert;
            heap[count].sum = sum_of(policy, first + expert, policy->visits[layer]);
            count++;
        }
    }
    policy->resident_count -= policy->heap_count[layer] - count;
    policy->heap_count[layer] = count;
    for (uint32_t i = count / 2; i-- > 0;) {
        sift_down(heap, count, i);
    }
}

/* Members are pushed after the victims are gone; the next visit orders the heap anew, and until
 * then only tops are looked at, so this must keep heap order. */
static void push(struct policy *policy, uint32_t layer, uint32_t expert)
{
    struct lar_entry *heap = layer_heap(policy, layer);
    policy_key key = layer * policy->head.shape.experts + expert;
    struct lar_entry entry = {.sum = sum_of(policy, key, policy->visits[layer]), .expert = expert};
    uint32_t index = policy->heap_count[layer]++;
    while (index > 0 && leaves_before(&entry, &heap[(index - 1) / 2])) {
        heap[index] = heap[(index - 1) / 2];
        index = (index - 1) / 2;
    }
    heap[index] = entry;
    policy->resident[key] = true;
    policy->resident_count++;
}

/* The layer whose top has the least score while `now` is served; of equals the lowest. */
static uint32_t victim_layer(const struct policy *policy, uint32_t now)
{
    uint32_t layers = policy->head.shape.layers, best = UINT32_MAX;
    double least = INFINITY;
    for (uint32_t layer = 0; layer < layers; layer++) {
        if (policy->heap_count[layer] == 0) {
            continue;
        }
        uint32_t distance = layer > now ? layer - now : layer + layers - now;
        double score = layer_heap(policy, layer)->sum * policy->bonus[distance];
        if (score < least) {
            least = score;
            best = layer;
        }
    }
    assert(best != UINT32_MAX);
    return best;
}

static void leave(struct policy *policy, policy_key key, struct policy_evictions *evictions)
{
    policy->resident[key] = false;
    policy_evicted(evictions, key);
}

static void evict_least(struct policy *policy, uint32_t now, struct policy_evictions *evictions)
{
    uint32_t layer = victim_layer(policy, now);
    struct lar_entry *heap = layer_heap(policy, layer);
    policy_key victim = layer * policy->head.shape.experts + heap[0].expert;
    uint32_t count = --policy->heap_count[layer];
    if (count > 0) {
        heap[0] = heap[count];
        sift_down(heap, count, 0);
    }
    policy->resident_count--;
    leave(policy, victim, evictions);
}

/* Counts the uses and marks the members; the worse ranks beyond all slots leave. */
static void note_members(struct policy *policy, uint32_t layer, const uint16_t *ids, uint32_t kept,
                         struct policy_evictions *evictions)
{
    uint32_t k = policy->head.shape.per_token, visit = ++policy->visits[layer];
    double step = k > 1 ? RANK_SLOPE / (k - 1) : 0;
    for (uint32_t rank = 0; rank < k; rank++) {
        policy_key key = layer * policy->head.shape.experts + ids[rank];
        assert(ids[rank] < policy->head.shape.experts);
        credit(policy, key, visit, 1 - step * rank);
        policy->member[ids[rank]] = true;
        if (rank >= kept && policy->resident[key]) {
            leave(policy, key, evictions);
        }
    }
}

static void serve_token(struct policy *policy, uint32_t layer, const uint16_t *ids,
                        struct policy_evictions *evictions)
{
    uint32_t kept = (uint32_t)min_u64(policy->head.shape.per_token, policy->head.shape.slots);
    note_members(policy, layer, ids, kept, evictions);
    renew(policy, layer);
    while ((uint64_t)policy->resident_count + kept > policy->head.shape.slots) {
        evict_least(policy, layer, evictions);
    }
    for (uint32_t rank = 0; rank < kept; rank++) {
        push(policy, layer, ids[rank]);
    }
    for (uint32_t rank = 0; rank < policy->head.shape.per_token; rank++) {
        policy->member[ids[rank]] = false;
    }
}

static void lar_batch(struct policy *policy, uint32_t layer, const uint16_t *ids, uint32_t tokens,
                      struct policy_evictions *evictions)
{
    assert(layer < policy->head.shape.layers);
    if (policy->head.shape.slots == 0) {
        return;
    }
    for (uint32_t token = 0; token < tokens; token++) {
        serve_token(policy, layer, ids + (size_t)token * policy->head.shape.per_token, evictions);
    }
}

static bool lar_resident(const struct policy *policy, policy_key key)
{
    return policy->resident[key];
}

const struct policy_ops policy_lar = {
    .name = "lar",
    .open = lar_open,
    .close = policy_free,
    .batch = lar_batch,
    .resident = lar_resident,
};
