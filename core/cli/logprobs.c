/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/logprobs.h"

#include <stdlib.h>

#include "core/base/err.h"

#define ENTRY_JSON_BYTES 480U /* of an id with its figure: nodes of a tree, then their text */

uint64_t logprobs_bytes(uint32_t top, uint64_t gen)
{
    uint64_t kept = sizeof(double) + top * (sizeof(uint32_t) + sizeof(double));
    return gen * (kept + (top + 1ULL) * ENTRY_JSON_BYTES);
}

int logprobs_open(struct logprobs *l, const struct engine *e, uint32_t top, uint32_t gen)
{
    uint32_t vocab = engine_model(e)->config.vocab;
    *l = (struct logprobs){.kernels = engine_kernels(e), .vocab = vocab, .capacity = gen,
                           .top = top < vocab ? top : vocab};
    size_t tops = (size_t)gen * l->top + 1;
    l->scratch = malloc(vocab * sizeof *l->scratch);
    l->chosen = malloc(gen * sizeof *l->chosen);
    l->ids = malloc(tops * sizeof *l->ids);
    l->logprob = malloc(tops * sizeof *l->logprob);
    if (l->scratch == NULL || l->chosen == NULL || l->ids == NULL || l->logprob == NULL) {
        return err_set(ERR_MEMORY, "--logprobs: no memory for %u tokens", gen);
    }
    return 0;
}

void logprobs_close(struct logprobs *l)
{
    free(l->scratch);
    free(l->chosen);
    free(l->ids);
    free(l->logprob);
    *l = (struct logprobs){.count = 0};
}

void logprobs_note(struct logprobs *l, const float *logits, uint32_t id)
{
    assert(l->count < l->capacity);
    struct logprob_norm norm = logprob_norm(l->kernels, logits, l->vocab, l->scratch);
    uint32_t *ids = l->ids + (size_t)l->count * l->top;
    double *logprob = l->logprob + (size_t)l->count * l->top;
    logprob_top(logits, l->vocab, l->top, ids);
    for (uint32_t i = 0; i < l->top; i++) {
        logprob[i] = logprob_of(&norm, logits[ids[i]]);
    }
    l->chosen[l->count++] = logprob_of(&norm, logits[id]);
}

static cJSON *entry(uint32_t id, double logprob)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "id", id);
    cJSON_AddNumberToObject(object, "logprob", logprob);
    return object;
}

void logprobs_json(const struct logprobs *l, const uint32_t *ids, cJSON *parent)
{
    cJSON *list = cJSON_AddArrayToObject(parent, "logprobs");
    for (uint32_t step = 0; step < l->count; step++) {
        cJSON *token = entry(ids[step], l->chosen[step]);
        cJSON *top = cJSON_AddArrayToObject(token, "top");
        for (uint32_t i = 0; i < l->top; i++) {
            size_t at = (size_t)step * l->top + i;
            cJSON_AddItemToArray(top, entry(l->ids[at], l->logprob[at]));
        }
        cJSON_AddItemToArray(list, token);
    }
}
