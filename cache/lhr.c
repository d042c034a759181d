/* SPDX-License-Identifier: Apache-2.0 */
/* LHR, learned hazard of ranks: lar's two sums as a first guess of the chance that an expert is
 * asked for when its layer is visited next, times what the run has shown that guess to be worth
 * (see scored.h for the rest):
 *
 *     value = 0.4 (fast 0.25^age + 0.08 slow 0.97^age) * class[age][rank] * layer[l]
 *     worth = value * (layers / distance)^(1/8)
 *
 * age is counted in visits since the latest use, rank is that of the latest use. class and layer
 * are factors learned at every visit from all experts of the layer that were ever used, resident
 * or not, so that what is kept does not bias what is learned:
 *
 *     factor = (uses + prior) / (uses the other factors expected + prior)
 *
 * They begin at 1. The priors, in uses, say how much evidence moves them: 128 for a class, since
 * a token of the full model brings about 1,500 to all, and 32 for a layer. A token may be on new
 * ground altogether, which would pass for a property of whatever ages there are by then: a trend,
 * the same ratio over about 100 visits and all experts, is divided out. It says nothing of one
 * expert against another and is in no value. At 4,096 expected uses a factor's past is halved.
 *
 * Parameters, all below. Sums, factors, trend use + - * / alone: the same bits everywhere. */

#include "cache/scored.h"

#include <math.h>
#include <string.h>

#define FAST_DECAY 0.25
#define SLOW_DECAY 0.97
#define SLOW_WEIGHT 0.08
#define RANK_SLOPE 0.5   /* the last rank weighs 1 - slope */
#define CHANCE 0.4       /* of a sum of 1; only where learning starts */
#define CLASS_PRIOR 128.0
#define LAYER_PRIOR 32.0
#define TREND_PRIOR 8.0
#define TREND_DECAY 0.99 /* per visit */
#define EXPECTED_MAX 4096.0

#define RANKS 16U /* classes of rank; more ranks than that share them evenly */

/* Visits to the next chance, 1 for an expert just used: upper ends of the classes. */
static const uint32_t age_end[] = {1, 2, 3, 4, 6, 9, 14, 22, 36, 64, 128, UINT32_MAX};

#define AGES ((uint32_t)countof(age_end))

struct factor {
    double used, expected; /* expected: of all factors but this */
    double now;            /* in force */
};

struct policy {
    struct scored scored;
    uint8_t *rank;         /* per key, class of rank of its latest use */
    struct factor *class;  /* [AGES][RANKS] */
    struct factor *layer;  /* per layer */
    double *guess;         /* [AGES * RANKS]: of the visit being learned from */
    double *trend;         /* used, expected */
};

static void lay_out(struct policy *policy, uint32_t keys)
{
    struct block *block = &policy->scored.head.block;
    scored_lay_out(&policy->scored, keys);
    policy->rank = block_take(block, keys, sizeof *policy->rank);
    policy->class = block_take(block, AGES * RANKS, sizeof *policy->class);
    policy->layer = block_take(block, policy->scored.head.shape.layers, sizeof *policy->layer);
    policy->guess = block_take(block, AGES * RANKS, sizeof *policy->guess);
    policy->trend = block_take(block, 2, sizeof *policy->trend);
}

/* Of a key that was used, when its layer has been visited `visit` times. */
static uint32_t class_of(const struct policy *policy, policy_key key, uint32_t visit)
{
    uint32_t next = visit - policy->scored.last_visit[key] + 1, age = 0;
    while (next > age_end[age]) {
        age++;
    }
    return age * RANKS + policy->rank[key];
}

/* The chance that it is asked for at the visit after this one, without the trend. */
static double value(const struct policy *policy, policy_key key, uint32_t visit)
{
    uint32_t layer = key / policy->scored.head.shape.experts;
    return CHANCE * scored_sum(&policy->scored, key, visit, SLOW_WEIGHT) *
           policy->class[class_of(policy, key, visit)].now * policy->layer[layer].now;
}

static struct policy *lhr_open(const struct policy_shape *shape)
{
    struct policy *policy = policy_make(sizeof *policy, shape, lay_out);
    if (policy == NULL) {
        return NULL;
    }
    scored_init(&policy->scored, FAST_DECAY, SLOW_DECAY, value);
    for (uint32_t distance = 1; distance <= shape->layers; distance++) {
        policy->scored.bonus[distance] = sqrt(sqrt(sqrt((double)shape->layers / distance)));
    }
    for (uint32_t i = 0; i < AGES * RANKS; i++) {
        policy->class[i].now = 1;
    }
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        policy->layer[layer].now = 1;
    }
    return policy;
}

/* One visit's evidence; guess: the uses that the values expected. */
static void learn_factor(struct factor *factor, double guess, double prior)
{
    factor->expected += guess / factor->now;
    if (factor->expected > EXPECTED_MAX) {
        factor->expected /= 2;
        factor->used /= 2;
    }
    factor->now = (factor->used + prior) / (factor->expected + prior);
}

/* Compares what this visit asks for with what the values before it expected. */
static void learn(struct policy *policy, uint32_t layer)
{
    const struct scored *scored = &policy->scored;
    policy_key first = layer * scored->head.shape.experts;
    uint32_t before = scored->visits[layer] - 1;
    double total = 0, used = 0;
    memset(policy->guess, 0, AGES * RANKS * sizeof *policy->guess);
    for (uint32_t expert = 0; expert < scored->head.shape.experts; expert++) {
        policy_key key = first + expert;
        if (scored->last_visit[key] > 0) {
            uint32_t class = class_of(policy, key, before);
            double chance = value(policy, key, before);
            policy->guess[class] += chance;
            policy->class[class].used += scored->member[expert];
            total += chance;
            used += scored->member[expert];
        }
    }
    policy->trend[0] = policy->trend[0] * TREND_DECAY + used;
    policy->trend[1] = policy->trend[1] * TREND_DECAY + total;
    double trend = (policy->trend[0] + TREND_PRIOR) / (policy->trend[1] + TREND_PRIOR);
    for (uint32_t i = 0; i < AGES * RANKS; i++) {
        if (policy->guess[i] > 0) {
            learn_factor(&policy->class[i], policy->guess[i] * trend, CLASS_PRIOR);
        }
    }
    policy->layer[layer].used += used;
    learn_factor(&policy->layer[layer], total * trend, LAYER_PRIOR);
}

static void serve_token(struct policy *policy, uint32_t layer, const uint16_t *ids,
                        struct policy_evictions *evictions)
{
    struct scored *scored = &policy->scored;
    uint32_t k = scored->head.shape.per_token;
    scored_mark(scored, layer, ids);
    learn(policy, layer);
    scored_credit(scored, layer, ids, RANK_SLOPE);
    for (uint32_t rank = 0; rank < k; rank++) {
        policy->rank[layer * scored->head.shape.experts + ids[rank]] =
            (uint8_t)(rank * RANKS / max_u64(k, RANKS));
    }
    scored_settle(policy, layer, ids, evictions);
}

static void lhr_batch(struct policy *policy, uint32_t layer, const uint16_t *ids, uint32_t tokens,
                      struct policy_evictions *evictions)
{
    const struct policy_shape *shape = &policy->scored.head.shape;
    assert(layer < shape->layers);
    for (uint32_t token = 0; token < tokens && shape->slots > 0; token++) {
        serve_token(policy, layer, ids + (size_t)token * shape->per_token, evictions);
    }
}

static uint32_t lhr_learned(struct policy *policy, struct policy_field *field)
{
    const struct policy_shape *shape = &policy->scored.head.shape;
    uint32_t count = scored_learned(&policy->scored, field);
    field[count++] = (struct policy_field){policy->rank, shape->layers * shape->experts, 1};
    field[count++] = (struct policy_field){policy->class, 3 * AGES * RANKS, sizeof(double)};
    field[count++] = (struct policy_field){policy->layer, 3 * shape->layers, sizeof(double)};
    field[count++] = (struct policy_field){policy->trend, 2, sizeof(double)};
    return count;
}

static bool factors_sound(const struct factor *factor, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        /* Written so that a value that is no number fails. */
        if (!(factor[i].used >= 0 && factor[i].used <= 1e9 && factor[i].expected >= 0 &&
              factor[i].expected <= 1e9 && factor[i].now > 1e-9 && factor[i].now <= 1e9)) {
            return false;
        }
    }
    return true;
}

static bool lhr_sound(const struct policy *policy)
{
    const struct policy_shape *shape = &policy->scored.head.shape;
    for (policy_key key = 0; key < shape->layers * shape->experts; key++) {
        if (policy->rank[key] >= RANKS) {
            return false;
        }
    }
    return scored_sound(&policy->scored) && factors_sound(policy->class, AGES * RANKS) &&
           factors_sound(policy->layer, shape->layers) && policy->trend[0] >= 0 &&
           policy->trend[0] <= 1e9 && policy->trend[1] >= 0 && policy->trend[1] <= 1e9;
}

const struct policy_ops policy_lhr = {
    .name = "lhr",
    .open = lhr_open,
    .close = policy_free,
    .batch = lhr_batch,
    .resident = scored_resident,
    .learned = lhr_learned,
    .sound = lhr_sound,
};
