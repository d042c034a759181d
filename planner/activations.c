/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/activations.h"

/* Recurrent matrix and convolution history of one head. */
static uint64_t kda_head_floats(const struct model_config *c)
{
    return (uint64_t)c->kda_dim * c->kda_dim + 3 * (uint64_t)(c->conv_taps - 1) * c->kda_dim;
}

static void set_widths(const struct model_config *c, struct activations *a)
{
    uint64_t kda = config_kda_width(c);
    uint64_t *w = a->width;
    w[B_PREFIX] = w[B_NORMED] = w[B_ATTN_OUT] = w[B_MLP_OUT] = w[B_SHARED_OUT] = c->hidden;
    w[B_SNAPSHOTS] = (uint64_t)a->blocks * c->hidden;
    w[B_Q] = w[B_K] = w[B_V] = w[B_G] = w[B_Z] = w[B_O] = kda;
    w[B_F_A] = c->kda_dim;
    w[B_BETA] = c->kda_heads;
    w[B_Q_A] = c->q_lora;
    w[B_KV_A] = c->kv_lora + c->qk_rope;
    w[B_MLA_G] = w[B_MLA_O] = (uint64_t)c->mla_heads * c->v_head;
    w[B_MLA_Q] = (uint64_t)c->mla_heads * (c->qk_nope + c->qk_rope);
    w[B_DENSE_GATE] = w[B_DENSE_UP] = c->dense_width;
    w[B_ROUTER] = c->experts;
    w[B_ROUTE_WEIGHT] = c->experts_per_token;
    w[B_LATENT] = w[B_LATENT_SPLIT] = w[B_EXPERT_SUM] = c->latent;
    w[B_SHARED_GATE] = w[B_SHARED_UP] = config_shared_width(c);
    w[B_EXPERT_OUT] = (uint64_t)c->experts_per_token * c->latent;
    w[B_EXPERT_HIDDEN] = (uint64_t)c->experts_per_token * c->expert_width;
}

/* Places buffers first..last one after the other from start; returns the end. */
static uint64_t place(struct activations *a, int first, int last, uint64_t start)
{
    for (int b = first; b <= last; b++) {
        a->offset_bytes[b] = start;
        uint64_t tokens = b == B_EXPERT_HIDDEN ? 1 : a->chunk;
        start = align_up(start + a->width[b] * tokens * sizeof(float), 64);
    }
    return start;
}

void activations_layout(const struct model_config *c, uint32_t chunk, struct activations *out)
{
    *out = (struct activations){.chunk = chunk};
    out->blocks = (uint32_t)div_ceil(c->layers, c->attnres_block);
    set_widths(c, out);
    uint64_t common = place(out, B_PREFIX, B_ALWAYS_LAST, 0);
    uint64_t end = place(out, B_ALWAYS_LAST + 1, B_KDA_LAST, common);
    end = max_u64(end, place(out, B_KDA_LAST + 1, B_MLA_LAST, common));
    end = max_u64(end, place(out, B_MLA_LAST + 1, B_DENSE_LAST, common));
    end = max_u64(end, place(out, B_DENSE_LAST + 1, B_MOE_LAST, common));
    out->size_bytes = end;
}

void scratch_layout(const struct model_config *c, uint32_t chunk, uint32_t context, bool drafts,
                    struct scratch *out)
{
    const uint64_t line = 16; /* floats of a cache line */
    uint64_t at = 0;
    out->expert_tokens = (uint32_t)min_u64(chunk, 32);
    out->scores = at;
    at += align_up(context, line);
    out->absorbed = at;
    at += align_up((uint64_t)c->kv_lora + c->qk_rope, line);
    out->context = at;
    at += align_up(c->kv_lora, line);
    out->hidden_gate = at;
    at += align_up((uint64_t)out->expert_tokens * c->expert_width, line);
    out->hidden_up = at;
    at += align_up((uint64_t)out->expert_tokens * c->expert_width, line);
    out->gather = at;
    at += align_up((uint64_t)out->expert_tokens * c->latent, line);
    out->result = at;
    at += align_up((uint64_t)out->expert_tokens * c->latent, line);
    out->kda = at;
    at += align_up((uint64_t)8 * c->kda_dim, line);
    out->kda_trial = at;
    at += drafts ? align_up(kda_head_floats(c), line) : 0;
    out->size_bytes = at * sizeof(float);
}

static uint64_t kda_layers(const struct model_config *c)
{
    uint64_t layers = 0;
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        layers += !c->is_mla[layer];
    }
    return layers;
}

uint64_t state_bytes(const struct model_config *c)
{
    return kda_layers(c) * c->kda_heads * kda_head_floats(c) * sizeof(float);
}

uint64_t draft_layer_floats(const struct model_config *c)
{
    return align_up(4 * config_kda_width(c) + c->kda_heads, 16);
}

uint64_t draft_bytes(const struct model_config *c)
{
    return kda_layers(c) * draft_layer_floats(c) * sizeof(float);
}

uint64_t kv_bytes(const struct model_config *c, uint32_t context)
{
    uint64_t layers = 0;
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        layers += c->is_mla[layer];
    }
    return layers * context * (c->kv_lora + c->qk_rope) * sizeof(float);
}
