/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/scored.h"

#include <math.h>

#define SUM_MAX 1e6F /* far above any sum of weights up to 1 */
#define VISITS_MAX ((uint32_t)1 << 30)

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

void scored_lay_out(struct scored *scored, uint32_t keys)
{
    struct block *block = &scored->head.block;
    uint32_t layers = scored->head.shape.layers;
    scored->fast = block_take(block, keys, sizeof *scored->fast);
    scored->slow = block_take(block, keys, sizeof *scored->slow);
    scored->last_visit = block_take(block, keys, sizeof *scored->last_visit);
    scored->visits = block_take(block, layers, sizeof *scored->visits);
    scored->heap = block_take(block, keys, sizeof *scored->heap);
    scored->heap_count = block_take(block, layers, sizeof *scored->heap_count);
    scored->bonus = block_take(block, (size_t)layers + 1, sizeof *scored->bonus);
    scored->resident = block_take(block, keys, sizeof *scored->resident);
    scored->member = block_take(block, scored->head.shape.experts, sizeof *scored->member);
    scored->fast_decay = block_take(block, 1, sizeof *scored->fast_decay);
    scored->slow_decay = block_take(block, 1, sizeof *scored->slow_decay);
}

void scored_init(struct scored *scored, double fast_decay, double slow_decay,
                 double (*value)(const struct policy *policy, policy_key key, uint32_t visit))
{
    decay_init(scored->fast_decay, fast_decay);
    decay_init(scored->slow_decay, slow_decay);
    scored->value = value;
}

double scored_sum(const struct scored *scored, policy_key key, uint32_t visit, double slow_weight)
{
    uint32_t age = visit - scored->last_visit[key];
    return scored->fast[key] * decay_at(scored->fast_decay, age) +
           slow_weight * scored->slow[key] * decay_at(scored->slow_decay, age);
}

void scored_mark(struct scored *scored, uint32_t layer, const uint16_t *ids)
{
    scored->visits[layer]++;
    for (uint32_t rank = 0; rank < scored->head.shape.per_token; rank++) {
        assert(ids[rank] < scored->head.shape.experts);
        scored->member[ids[rank]] = true;
    }
}

void scored_credit(struct scored *scored, uint32_t layer, const uint16_t *ids, double rank_slope)
{
    uint32_t k = scored->head.shape.per_token, visit = scored->visits[layer];
    double step = k > 1 ? rank_slope / (k - 1) : 0;
    for (uint32_t rank = 0; rank < k; rank++) {
        policy_key key = layer * scored->head.shape.experts + ids[rank];
        uint32_t age = visit - scored->last_visit[key];
        double weight = 1 - step * rank;
        double fast = scored->fast[key] * decay_at(scored->fast_decay, age) + weight;
        double slow = scored->slow[key] * decay_at(scored->slow_decay, age) + weight;
        scored->fast[key] = (float)fast;
        scored->slow[key] = (float)slow;
        scored->last_visit[key] = visit;
    }
}

static bool leaves_before(const struct scored_entry *a, const struct scored_entry *b)
{
    return a->value < b->value || (!(b->value < a->value) && a->expert < b->expert);
}

static void sift_down(struct scored_entry *heap, uint32_t count, uint32_t index)
{
    struct scored_entry entry = heap[index];
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

static struct scored_entry *layer_heap(const struct scored *scored, uint32_t layer)
{
    return scored->heap + (size_t)layer * scored->head.shape.experts;
}

/* Removes the members from the heap of the visited layer and renews the values of the others. */
static void renew(struct policy *policy, uint32_t layer)
{
    struct scored *scored = (struct scored *)(void *)policy;
    struct scored_entry *heap = layer_heap(scored, layer);
    policy_key first = layer * scored->head.shape.experts;
    uint32_t count = 0;
    for (uint32_t i = 0; i < scored->heap_count[layer]; i++) {
        uint32_t expert = heap[i].expert;
        if (!scored->member[expert]) {
            heap[count].expert = expert;
            heap[count].value = scored->value(policy, first + expert, scored->visits[layer]);
            count++;
        }
    }
    scored->resident_count -= scored->heap_count[layer] - count;
    scored->heap_count[layer] = count;
    for (uint32_t i = count / 2; i-- > 0;) {
        sift_down(heap, count, i);
    }
}

/* Members are pushed after the victims are gone; the next visit orders the heap anew, and until
 * then only tops are looked at, so this must keep heap order. */
static void push(struct policy *policy, uint32_t layer, uint32_t expert)
{
    struct scored *scored = (struct scored *)(void *)policy;
    struct scored_entry *heap = layer_heap(scored, layer);
    policy_key key = layer * scored->head.shape.experts + expert;
    struct scored_entry entry = {.value = scored->value(policy, key, scored->visits[layer]),
                                 .expert = expert};
    uint32_t index = scored->heap_count[layer]++;
    while (index > 0 && leaves_before(&entry, &heap[(index - 1) / 2])) {
        heap[index] = heap[(index - 1) / 2];
        index = (index - 1) / 2;
    }
    heap[index] = entry;
    scored->resident[key] = true;
    scored->resident_count++;
}

/* The layer whose top has the least worth while `now` is served; of equals the lowest. */
static uint32_t victim_layer(const struct scored *scored, uint32_t now)
{
    uint32_t layers = scored->head.shape.layers, best = UINT32_MAX;
    double least = INFINITY;
    for (uint32_t layer = 0; layer < layers; layer++) {
        if (scored->heap_count[layer] == 0) {
            continue;
        }
        uint32_t distance = layer > now ? layer - now : layer + layers - now;
        double worth = layer_heap(scored, layer)->value * scored->bonus[distance];
        if (worth < least) {
            least = worth;
            best = layer;
        }
    }
    assert(best != UINT32_MAX);
    return best;
}

static void leave(struct scored *scored, policy_key key, struct policy_evictions *evictions)
{
    scored->resident[key] = false;
    policy_evicted(evictions, key);
}

static void evict_least(struct scored *scored, uint32_t now, struct policy_evictions *evictions)
{
    uint32_t layer = victim_layer(scored, now);
    struct scored_entry *heap = layer_heap(scored, layer);
    policy_key victim = layer * scored->head.shape.experts + heap[0].expert;
    uint32_t count = --scored->heap_count[layer];
    if (count > 0) {
        heap[0] = heap[count];
        sift_down(heap, count, 0);
    }
    scored->resident_count--;
    leave(scored, victim, evictions);
}

void scored_settle(struct policy *policy, uint32_t layer, const uint16_t *ids,
                   struct policy_evictions *evictions)
{
    struct scored *scored = (struct scored *)(void *)policy;
    const struct policy_shape *shape = &scored->head.shape;
    uint32_t kept = (uint32_t)min_u64(shape->per_token, shape->slots);
    for (uint32_t rank = kept; rank < shape->per_token; rank++) {
        policy_key key = layer * shape->experts + ids[rank];
        if (scored->resident[key]) {
            leave(scored, key, evictions);
        }
    }
    renew(policy, layer);
    while ((uint64_t)scored->resident_count + kept > shape->slots) {
        evict_least(scored, layer, evictions);
    }
    for (uint32_t rank = 0; rank < kept; rank++) {
        push(policy, layer, ids[rank]);
    }
    for (uint32_t rank = 0; rank < shape->per_token; rank++) {
        scored->member[ids[rank]] = false;
    }
}

bool scored_resident(const struct policy *policy, policy_key key)
{
    return ((const struct scored *)(const void *)policy)->resident[key];
}

uint32_t scored_learned(struct scored *scored, struct policy_field *field)
{
    uint32_t layers = scored->head.shape.layers, keys = layers * scored->head.shape.experts;
    field[0] = (struct policy_field){scored->fast, keys, sizeof *scored->fast};
    field[1] = (struct policy_field){scored->slow, keys, sizeof *scored->slow};
    field[2] = (struct policy_field){scored->last_visit, keys, sizeof *scored->last_visit};
    field[3] = (struct policy_field){scored->visits, layers, sizeof *scored->visits};
    return 4;
}

bool scored_sound(const struct scored *scored)
{
    const struct policy_shape *shape = &scored->head.shape;
    for (policy_key key = 0; key < shape->layers * shape->experts; key++) {
        uint32_t last = scored->last_visit[key];
        float most = last > 0 ? SUM_MAX : 0;
        /* Written so that a value that is no number fails. */
        if (!(scored->fast[key] >= 0 && scored->fast[key] <= most && scored->slow[key] >= 0 &&
              scored->slow[key] <= most) || last > scored->visits[key / shape->experts]) {
            return false;
        }
    }
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        if (scored->visits[layer] > VISITS_MAX) {
            return false;
        }
    }
    return true;
}
