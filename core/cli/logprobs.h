/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_LOGPROBS_H
#define CLI_LOGPROBS_H

/* Natural logarithms of the probabilities a run's tokens had, and the likeliest ones beside each,
 * kept for its report. */

#include <cjson/cJSON.h>

#include "core/exec/engine.h"
#include "core/exec/logprob.h"

struct logprobs {
    const struct kernels *kernels;
    uint32_t vocab, top, capacity, count;
    float *scratch;  /* [vocab] */
    double *chosen;  /* [capacity] */
    uint32_t *ids;   /* [capacity][top] the likeliest, best first */
    double *logprob; /* [capacity][top] theirs */
};

/* Memory beside the scratch, which takes LOGPROB_TOKEN_BYTES for each token of the vocabulary; that
 * of the report while it is written is part of it. */
uint64_t logprobs_bytes(uint32_t top, uint64_t gen);

/* top: how many beside the chosen one, <= LOGPROB_TOP_MAX. ERR_MEMORY. */
int logprobs_open(struct logprobs *l, const struct engine *e, uint32_t top, uint32_t gen);
void logprobs_close(struct logprobs *l);

/* Of the next token: id was chosen from these logits. */
void logprobs_note(struct logprobs *l, const float *logits, uint32_t id);

/* Adds an array "logprobs", one object for each of ids[l->count]. */
void logprobs_json(const struct logprobs *l, const uint32_t *ids, cJSON *parent);

#endif
