/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_SAMPLE_H
#define EXEC_SAMPLE_H

/* Logits -> token. A pure function of logits, options, the ids so far and the token's number, with
 * the same result on every machine: docs/NUMERICS.md has the steps. A token's number is its
 * position in the sequence, the prompt counted. Its chance is the output of that number of a
 * generator and hangs on nothing else, so that drafts, batches and continued runs draw what plain
 * decoding draws. */

#include "core/base/base.h"

struct kernels;

/* Added to a logit; -INFINITY bans the token. */
struct sample_bias {
    uint32_t id;
    float value; /* from -1e6 to 1e6, or -INFINITY */
};

struct sample_options {
    float temperature;         /* 0: the largest logit, without chance */
    uint32_t top_k;            /* the k likeliest only; 0: all */
    float top_p;               /* the fewest likeliest that have this chance together; 1: all */
    float min_p;               /* those with at least this share of the likeliest's; 0: all */
    float repetition_penalty;  /* > 0; 1: none */
    const struct sample_bias *biases; /* the caller's, while the sampler is open; ids differ */
    uint32_t bias_count;
    uint64_t seed;
};

/* Neither chance nor limits: the largest logit. */
struct sample_options sample_greedy(void);

/* ERR_USAGE names the option that is out of range, or an id not below vocab. */
int sample_check(const struct sample_options *options, uint32_t vocab);

#define SAMPLE_TOKEN_BYTES 13U /* of working space for each token of the vocabulary */

/* Working space for one vocabulary. One thread. Everything is taken at open. */
struct sampler {
    struct sample_options options;
    const struct kernels *kernels;
    uint32_t vocab;
    float *logit;    /* [vocab] as biased, penalised and divided by the temperature */
    float *weight;   /* [vocab] chance in proportion to the likeliest's 1 */
    uint32_t *order; /* [vocab] a heap, the likeliest first; behind it what was taken out */
    bool *seen;      /* [vocab] false between calls */
};

/* options have passed sample_check(). ERR_MEMORY. */
int sampler_open(struct sampler *s, const struct sample_options *options,
                 const struct kernels *kernels, uint32_t vocab);
void sampler_close(struct sampler *s);

/* Chooses token number `number` of a sequence, which is its position. logits[vocab] are finite;
 * ids[count] are those before it, the prompt's included. ERR_RUN when every token is banned. */
int sampler_choose(struct sampler *s, const float *logits, const uint32_t *ids, uint32_t count,
                   uint64_t number, uint32_t *id);

/* Uniform in [0, 1): the upper 53 bits of output `number` of SplitMix64 begun with seed. */
double sample_chance(uint64_t seed, uint64_t number);

#endif
