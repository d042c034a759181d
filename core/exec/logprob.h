/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_LOGPROB_H
#define EXEC_LOGPROB_H

/* Logits -> natural logarithms of probabilities: of the model as it is, before any bias, penalty,
 * temperature or limit. Pure functions with the same result on every machine: docs/NUMERICS.md has
 * the steps. */

#include "core/base/base.h"

struct kernels;

#define LOGPROB_TOP_MAX 100U
#define LOGPROB_TOKEN_BYTES 4U /* of working space for each token of the vocabulary */

/* What a logit is compared with to become a logarithm of a probability. */
struct logprob_norm {
    float largest;    /* of all logits */
    double log_total; /* log of the sum of exp(logit - largest) */
};

/* logits[vocab] are finite; scratch [vocab] is overwritten. */
struct logprob_norm logprob_norm(const struct kernels *kernels, const float *logits,
                                 uint32_t vocab, float *scratch);

static inline double logprob_of(const struct logprob_norm *norm, float logit)
{
    return (double)logit - (double)norm->largest - norm->log_total;
}

/* The count (<= LOGPROB_TOP_MAX) likeliest ids, best first, equals by lower id. Returns how many
 * there are: count, or vocab if that is less. */
uint32_t logprob_top(const float *logits, uint32_t vocab, uint32_t count, uint32_t *ids);

/* exp(nats), nats >= 0, and nats in units of ln 2, by the functions of the contract. */
double logprob_exp(double nats);
double logprob_bits(double nats);

#endif
