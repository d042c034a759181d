/* SPDX-License-Identifier: Apache-2.0 */
/* The MLP kinds: gated activations, the router, experts as they arrive, and their sum. */
#include <math.h>
#include <string.h>

#include "core/exec/exec_priv.h"

#define MXFP4_GROUP 32U /* weights of a scale, and of a block of the split layout */

void compute_situ(struct engine *e, uint32_t layer, uint32_t token)
{
    const struct model_config *c = config_of(e);
    bool moe = config_is_moe(c, layer);
    float *gate = buffer(e, moe ? B_SHARED_GATE : B_DENSE_GATE, token);
    const float *up = buffer(e, moe ? B_SHARED_UP : B_DENSE_UP, token);
    e->kernels->situ(gate, gate, up, moe ? config_shared_width(c) : c->dense_width, c->situ_beta,
                     c->situ_linear_beta);
}

/* For whoever records routing: every token of the pass has its own place. */
static void note_route(struct engine *e, uint32_t layer, uint32_t token, const float *score)
{
    const struct model_config *c = config_of(e);
    size_t row = (size_t)token * (c->layers - c->first_dense) + (layer - c->first_dense);
    uint16_t *ids = e->noted_ids + row * e->noted_width;
    if (e->noted_scores != NULL) {
        router_order(ids, e->noted_scores + row * e->noted_width, score,
                     e->small[layer].router_bias, c->experts, e->noted_width);
    } else {
        memcpy(ids, e->route_ids + (size_t)token * e->noted_width, e->noted_width * sizeof *ids);
    }
}

void compute_route(struct engine *e, uint32_t layer, uint32_t token)
{
    const struct model_config *c = config_of(e);
    uint32_t k = c->experts_per_token;
    float *score = buffer(e, B_ROUTER, token);
    float *weight = buffer(e, B_ROUTE_WEIGHT, token);
    uint16_t *ids = e->route_ids + (size_t)token * k;
    if (!isfinite(e->kernels->max_abs(score, c->experts))) {
        engine_token_fault(e, token, FAULT_ROUTER, layer);
        memset(score, 0, c->experts * sizeof *score); /* any experts: this token is lost */
    }
    e->kernels->sigmoid(score, score, c->experts);
    router_top_k(ids, weight, score, e->small[layer].router_bias, c->experts, k, c->renormalize,
                 c->routed_scaling);
    if (e->noted_width > 0) {
        note_route(e, layer, token, score);
    }
    if (token + 1 == e->tokens) {
        memcpy(e->trace_ids + (size_t)layer * k, ids, k * sizeof *ids);
        memcpy(e->trace_weights + (size_t)layer * k, weight, k * sizeof *weight);
    }
}

/* y rows of count tokens from x in split layout, for one of the three matrices. */
static void expert_matrix(struct engine *e, const struct expert_run *run, enum expert_part packed,
                          const float *x, float *y, uint32_t rows, uint32_t cols, uint32_t count)
{
    struct matmul m = {.y = y, .y_stride = rows, .x = x, .x_stride = cols,
                       .w = run->part[packed], .scale = run->part[packed + 1], .rows = rows,
                       .cols = cols, .tokens = count};
    e->kernels->mxfp4(&m);
}

/* A few rows of one of the three matrices for one token; y receives just those. */
struct rows {
    uint32_t first, count, cols;
};

static void expert_rows(struct engine *e, const struct expert_run *run, enum expert_part packed,
                        const float *x, float *y, struct rows r)
{
    struct matmul m = {.y = y, .y_stride = r.count, .x = x, .x_stride = r.cols,
                       .w = run->part[packed] + (size_t)r.first * (r.cols / 2),
                       .scale = run->part[packed + 1] + (size_t)r.first * (r.cols / MXFP4_GROUP),
                       .rows = r.count, .cols = r.cols, .tokens = 1};
    e->kernels->mxfp4(&m);
}

/* w2(situ(w1 x, w3 x)) for a few tokens, then to each token's own place. */
static void expert_block(struct engine *e, struct worker *w, const struct expert_run *run,
                         const struct expert_use *use, uint32_t count)
{
    const struct model_config *c = config_of(e);
    const struct scratch *s = &e->plan->scratch;
    float *gate = w->scratch + s->hidden_gate;
    float *up = w->scratch + s->hidden_up;
    float *x = w->scratch + s->gather;
    float *result = w->scratch + s->result;
    size_t width = c->expert_width;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(x + i * (size_t)c->latent, buffer(e, B_LATENT_SPLIT, use[i].token),
               c->latent * sizeof *x);
    }
    expert_matrix(e, run, W1_PACKED, x, gate, c->expert_width, c->latent, count);
    expert_matrix(e, run, W3_PACKED, x, up, c->expert_width, c->latent, count);
    for (uint32_t i = 0; i < count; i++) {
        e->kernels->situ(gate + i * width, gate + i * width, up + i * width, width, c->situ_beta,
                         c->situ_linear_beta);
        e->kernels->mxfp4_split(up + i * width, gate + i * width, c->expert_width);
    }
    expert_matrix(e, run, W2_PACKED, up, result, c->latent, c->expert_width, count);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(buffer(e, B_EXPERT_OUT, use[i].token) + use[i].rank * (size_t)c->latent,
               result + i * (size_t)c->latent, c->latent * sizeof *result);
    }
}

void compute_expert(struct engine *e, struct worker *w, uint32_t index)
{
    const struct expert_run *run = &e->batch.run[index];
    const struct expert_use *use = e->batch.use + run->use_first;
    uint32_t most = e->plan->scratch.expert_tokens;
    for (uint32_t at = 0; at < run->use_count; at += most) {
        uint32_t count = (uint32_t)min_u64(most, run->use_count - at);
        expert_block(e, w, run, use + at, count);
    }
}

/* Experts are cut so that all workers have their share of the last ones to arrive. Only when a
 * single token is computed: with more there are enough experts, and their rows are reused. */
uint32_t compute_expert_parts(const struct engine *e, uint32_t tokens)
{
    const struct model_config *c = config_of(e);
    if (tokens > 1 || e->worker_count == 1) {
        return 1;
    }
    uint32_t parts = (uint32_t)div_ceil(4ULL * e->worker_count, c->experts_per_token);
    parts = parts < 4 ? 4 : parts;
    parts = parts > EXPERT_PARTS_MAX ? EXPERT_PARTS_MAX : parts;
    return (uint32_t)min_u64(parts, c->expert_width / MXFP4_GROUP);
}

/* Rows of gate and up; their activation goes to the expert's place in the layout down wants. */
void compute_expert_hidden(struct engine *e, struct worker *w, uint32_t index, uint32_t part)
{
    const struct model_config *c = config_of(e);
    const struct expert_run *run = &e->batch.run[index];
    uint32_t groups = c->expert_width / MXFP4_GROUP;
    uint32_t first = groups * part / e->batch.parts * MXFP4_GROUP;
    uint32_t rows = groups * (part + 1) / e->batch.parts * MXFP4_GROUP - first;
    uint32_t rank = e->batch.use[run->use_first].rank;
    float *hidden = buffer(e, B_EXPERT_HIDDEN, 0) + (size_t)rank * c->expert_width + first;
    float *gate = w->scratch + e->plan->scratch.hidden_gate;
    float *up = w->scratch + e->plan->scratch.hidden_up;
    const float *x = buffer(e, B_LATENT_SPLIT, 0);
    expert_rows(e, run, W1_PACKED, x, gate, (struct rows){first, rows, c->latent});
    expert_rows(e, run, W3_PACKED, x, up, (struct rows){first, rows, c->latent});
    e->kernels->situ(gate, gate, up, rows, c->situ_beta, c->situ_linear_beta);
    e->kernels->mxfp4_split(hidden, gate, rows);
}

/* Rows of down, to the token's own place. */
void compute_expert_down(struct engine *e, uint32_t index, uint32_t part)
{
    const struct model_config *c = config_of(e);
    const struct expert_run *run = &e->batch.run[index];
    uint32_t first = c->latent * part / e->batch.parts;
    uint32_t rows = c->latent * (part + 1) / e->batch.parts - first;
    uint32_t rank = e->batch.use[run->use_first].rank;
    const float *hidden = buffer(e, B_EXPERT_HIDDEN, 0) + (size_t)rank * c->expert_width;
    float *y = buffer(e, B_EXPERT_OUT, 0) + (size_t)rank * c->latent + first;
    expert_rows(e, run, W2_PACKED, hidden, y, (struct rows){first, rows, c->expert_width});
}

/* Router order, one fma per expert from +0; the norm is once, on the aggregate. */
void compute_expert_sum(struct engine *e, uint32_t layer, uint32_t token)
{
    const struct model_config *c = config_of(e);
    float *sum = buffer(e, B_EXPERT_SUM, token);
    e->kernels->f32_mix(sum, buffer(e, B_ROUTE_WEIGHT, token), buffer(e, B_EXPERT_OUT, token),
                        c->latent, c->experts_per_token, c->latent);
    if (c->latent_norm) {
        e->kernels->rmsnorm(sum, sum, e->small[layer].latent_norm, c->latent, c->rms_eps);
    }
}
