/* SPDX-License-Identifier: Apache-2.0 */
/* The MLP kinds: gated activations, the router, experts as they arrive, and their sum. */
#include <math.h>
#include <string.h>

#include "core/exec/exec_priv.h"

void compute_situ(struct engine *e, uint32_t layer, uint32_t token)
{
    const struct model_config *c = config_of(e);
    bool moe = config_is_moe(c, layer);
    float *gate = buffer(e, moe ? B_SHARED_GATE : B_DENSE_GATE, token);
    const float *up = buffer(e, moe ? B_SHARED_UP : B_DENSE_UP, token);
    e->kernels->situ(gate, gate, up, moe ? config_shared_width(c) : c->dense_width, c->situ_beta,
                     c->situ_linear_beta);
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
