/* SPDX-License-Identifier: Apache-2.0 */
/* MLA, always in the latent form: by tiles of whole heads against the cache. */
#include <math.h>
#include <string.h>

#include "core/exec/exec_priv.h"

void compute_mla_latent(struct engine *e, uint32_t layer, uint32_t token)
{
    const struct model_config *c = config_of(e);
    const struct layer_small *s = &e->small[layer];
    float *q_a = buffer(e, B_Q_A, token);
    const float *kv_a = buffer(e, B_KV_A, token);
    const struct engine_token *t = &e->token[token];
    float *cached = state_kv(e, t->sequence, layer, t->position);
    e->kernels->rmsnorm(q_a, q_a, s->q_a_norm, c->q_lora, c->mla_lora_eps);
    e->kernels->rmsnorm(cached, kv_a, s->kv_a_norm, c->kv_lora, c->mla_lora_eps);
    memcpy(cached + c->kv_lora, kv_a + c->kv_lora, c->qk_rope * sizeof *cached);
}

/* One head, one token, against the latent cache: weights are used where they lie. */
static void mla_head(struct engine *e, struct worker *w, uint32_t layer, uint32_t head,
                     const unsigned char *weights, uint32_t token)
{
    const struct model_config *c = config_of(e);
    const struct kernels *k = e->kernels;
    size_t stride = (size_t)c->kv_lora + c->qk_rope;
    const struct engine_token *t = &e->token[token];
    uint32_t positions = t->position + 1;
    float *scores = w->scratch + e->plan->scratch.scores;
    float *absorbed = w->scratch + e->plan->scratch.absorbed;
    float *context = w->scratch + e->plan->scratch.context;
    const float *q = buffer(e, B_MLA_Q, token) + (size_t)head * (c->qk_nope + c->qk_rope);
    const float *cache = state_kv(e, t->sequence, layer, 0);
    float *o = buffer(e, B_MLA_O, token) + (size_t)head * c->v_head;
    float scale = (float)(1.0 / sqrt((double)(c->qk_nope + c->qk_rope)));
    k->bf16_transposed(absorbed, weights, q, c->qk_nope, c->kv_lora);
    memcpy(absorbed + c->kv_lora, q + c->qk_nope, c->qk_rope * sizeof *q);
    k->f32_dots(scores, cache, stride, positions, absorbed, (uint32_t)stride, scale);
    k->softmax(scores, positions);
    k->f32_mix(context, scores, cache, stride, positions, c->kv_lora);
    struct matmul value = {.y = o, .y_stride = c->v_head, .x = context, .x_stride = c->kv_lora,
                           .w = weights + (size_t)c->qk_nope * c->kv_lora * 2,
                           .rows = c->v_head, .cols = c->kv_lora, .tokens = 1};
    k->bf16(&value);
    k->gate(o, o, buffer(e, B_MLA_G, token) + (size_t)head * c->v_head, c->v_head);
}

void compute_kv_b(struct engine *e, struct worker *w, uint32_t index)
{
    const struct model_config *c = config_of(e);
    const struct plan_tile *tile = &e->plan->tiles[index];
    uint32_t unit = c->qk_nope + c->v_head;
    uint32_t layer = e->plan->steps[tile->step].layer;
    for (uint32_t i = 0; i < tile->row_count / unit; i++) {
        const unsigned char *weights = e->tile[index].data + (size_t)i * unit * c->kv_lora * 2;
        for (uint32_t token = 0; token < e->tokens; token++) {
            mla_head(e, w, layer, tile->row_first / unit + i, weights, token);
        }
    }
}
