/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

/* config.json -> struct model_config. Both spellings (nested as released, flat as exported) are
 * read; every field is looked up only in the object that owns it or under its alias. What is
 * missing, of the wrong type or unsupported is collected and refused in one message. */

#include "core/base/base.h"

#define CONFIG_LAYERS_MAX 1024

struct model_config {
    uint32_t hidden;         /* width of the residual stream */
    uint32_t layers;         /* decoder layers */
    uint32_t vocab;          /* rows of embed_tokens and of lm_head */
    float rms_eps;
    float mla_lora_eps;      /* eps of q_a and kv_a norms; equals rms_eps */
    float situ_beta;         /* cap of the gate branch */
    float situ_linear_beta;  /* cap of the up branch */
    uint32_t attnres_block;  /* layers per AttnRes block */

    uint32_t mla_heads;
    uint32_t q_lora, kv_lora;
    uint32_t qk_nope, qk_rope, v_head; /* head dimensions */

    uint32_t kda_heads, kda_dim;
    uint32_t conv_taps;      /* short convolution kernel size, 1..16 */
    float gate_lower_bound;  /* < 0 */

    uint32_t first_dense;    /* layers below this one have a dense MLP */
    uint32_t dense_width;
    uint32_t experts, experts_per_token, shared_experts;
    uint32_t expert_width;   /* moe_intermediate_size, multiple of 32 */
    uint32_t latent;         /* routed_expert_hidden_size, multiple of 32 */
    bool latent_norm, renormalize;
    float routed_scaling;

    uint32_t context_max;    /* max_position_embeddings */
    int64_t bos, eos, pad;   /* token ids, -1 when absent */
    bool is_mla[CONFIG_LAYERS_MAX]; /* zero-based: true = MLA layer, false = KDA layer */
};

static inline uint32_t config_kda_width(const struct model_config *c)
{
    return c->kda_heads * c->kda_dim;
}

static inline uint32_t config_is_moe(const struct model_config *c, uint32_t layer)
{
    return layer >= c->first_dense;
}

static inline uint32_t config_shared_width(const struct model_config *c)
{
    return c->shared_experts * c->expert_width;
}

/* Parses size_bytes of JSON text. name appears in messages.
 * Returns 0, or ERR_MODEL with one message that lists every missing or unsupported field. */
int config_parse(const char *text, size_t size_bytes, const char *name, struct model_config *out);

/* Reads DIR/config.json and parses it. ERR_MODEL when it is absent or refused. */
int config_load(const char *dir, struct model_config *out);

#endif
