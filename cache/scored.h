/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CACHE_SCORED_H
#define CACHE_SCORED_H

/* What lar and lhr share. Every expert, resident or not, has two decaying sums of its ranks, one
 * fast and one slow; time is counted in visits to its layer. The resident of least worth leaves:
 *
 *     worth = value * (layers / distance)^p,   distance = layers until its own is served next
 *
 * The value, which is the policy's, changes only when its own layer is visited. So each layer
 * keeps its residents in a heap of values, made anew at its visit, and a victim is the least of
 * the layers' tops, each times its layer's bonus: a batch costs one pass over one layer's
 * residents and one over the tops per victim, however many slots there are.
 *
 * A token is scored_mark(), then what the policy learns of it, scored_credit(), scored_settle(). */

#include "cache/cache_priv.h"

#define DECAY_STEPS 256

/* Powers of one base without libm, so that they are the same everywhere. */
struct decay {
    double low[DECAY_STEPS], high[DECAY_STEPS]; /* base^i, base^(256 i) */
};

struct scored_entry {
    double value;
    uint32_t expert;
};

struct scored {
    struct policy_head head;  /* first: see policy_make() */
    float *fast, *slow;       /* per key, as of its latest use */
    uint32_t *last_visit;     /* per key, visit number of its latest use; 0 when never used */
    uint32_t *visits;         /* per layer */
    struct scored_entry *heap; /* [layers][experts]: residents, least value first; no members */
    uint32_t *heap_count;     /* per layer */
    double *bonus;            /* [layers + 1], by distance 1 .. layers; the policy fills it */
    bool *resident;           /* per key */
    bool *member;             /* [experts], of the token being served; else all false */
    uint32_t resident_count;  /* entries of all heaps */
    struct decay *fast_decay, *slow_decay;
    /* Value of a key at a visit of its layer, not before that of its latest use. */
    double (*value)(const struct policy *policy, policy_key key, uint32_t visit);
};

void scored_lay_out(struct scored *scored, uint32_t keys);
void scored_init(struct scored *scored, double fast_decay, double slow_decay,
                 double (*value)(const struct policy *policy, policy_key key, uint32_t visit));

/* fast base_fast^age + slow_weight slow base_slow^age at that visit. */
double scored_sum(const struct scored *scored, policy_key key, uint32_t visit,
                  double slow_weight);

/* Begins a token: one more visit, its experts are members. */
void scored_mark(struct scored *scored, uint32_t layer, const uint16_t *ids);
/* Adds the token's uses; the first rank weighs 1, the last 1 - rank_slope. */
void scored_credit(struct scored *scored, uint32_t layer, const uint16_t *ids, double rank_slope);
/* Who leaves and who stays; members never push each other out, the worse ranks beyond all slots
 * leave. Ends the token. */
void scored_settle(struct policy *policy, uint32_t layer, const uint16_t *ids,
                   struct policy_evictions *evictions);

bool scored_resident(const struct policy *policy, policy_key key);

/* For the policy's learned() and sound(): the sums, and whether they can be any. */
uint32_t scored_learned(struct scored *scored, struct policy_field *field);
bool scored_sound(const struct scored *scored);

#endif
