/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/trace_model.h"

#include <string.h>

#include "core/base/nondet.h"

#define TOP_K_MAX 16
#define EXPERTS_MAX 256

const struct trace_model trace_model_small = {
    .seed = 20240607, .layers = 8, .experts = 56, .top_k = 4, .tokens = 150};

/* Percent chance that the expert of a rank is asked for again: from 72 down to 20. */
static uint64_t again_percent(uint32_t rank, uint32_t top_k)
{
    return top_k > 1 ? 72 - 52 * (uint64_t)rank / (top_k - 1) : 72;
}

static bool contains(const uint16_t *ids, uint32_t count, uint16_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* The lesser of two draws, so that low numbers are popular; each layer has its own numbering. */
static uint16_t draw(struct rng *rng, const struct trace_model *model, uint32_t layer)
{
    uint64_t a = rng_below(rng, model->experts), b = rng_below(rng, model->experts);
    return (uint16_t)((min_u64(a, b) + 7 * layer) % model->experts);
}

static void next_token(struct rng *rng, const struct trace_model *model, uint32_t layer,
                       uint16_t *ids)
{
    uint16_t next[TOP_K_MAX];
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < model->top_k; rank++) {
        if (rng_below(rng, 100) < again_percent(rank, model->top_k)) {
            next[count++] = ids[rank];
        }
    }
    while (count < model->top_k) {
        uint16_t id = draw(rng, model, layer);
        if (contains(next, count, id)) {
            continue;
        }
        uint64_t place = rng_below(rng, count + 1);
        memmove(next + place + 1, next + place, (count - place) * sizeof *next);
        next[place] = id;
        count++;
    }
    memcpy(ids, next, count * sizeof *ids);
}

int trace_model_make(struct trace *trace, const struct trace_model *model)
{
    uint16_t ids[EXPERTS_MAX][TOP_K_MAX];
    struct rng rng = rng_seed(model->seed);
    assert(model->top_k <= TOP_K_MAX && model->top_k < model->experts);
    assert(model->layers <= EXPERTS_MAX && model->experts <= EXPERTS_MAX);
    int rc = trace_init(trace, model->layers, model->top_k,
                        (uint64_t)model->layers * model->tokens);
    if (rc < 0) {
        return rc;
    }
    for (uint32_t layer = 0; layer < model->layers; layer++) {
        for (uint32_t rank = 0; rank < model->top_k; rank++) {
            ids[layer][rank] = (uint16_t)rank;
        }
    }
    for (uint32_t token = 0; token < model->tokens; token++) {
        for (uint32_t layer = 0; layer < model->layers; layer++) {
            next_token(&rng, model, layer, ids[layer]);
            trace_add(trace, layer, ids[layer], 1);
        }
    }
    return 0;
}
