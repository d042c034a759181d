/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/synth_layout.h"

#include "core/base/err.h"

/* What both presets have in common stands here; the widths follow. */
static const struct model_config common_config = {
    .rms_eps = 1e-5F, .mla_lora_eps = 1e-5F, .situ_beta = 4.0F, .situ_linear_beta = 25.0F,
    .conv_taps = 4, .gate_lower_bound = -5.0F, .first_dense = 1, .shared_experts = 2,
    .latent_norm = true, .renormalize = true, .routed_scaling = 1.0F,
};

static void set_tiny(struct model_config *c)
{
    *c = common_config;
    c->hidden = 128;
    c->layers = 13;
    c->vocab = 256;
    c->attnres_block = 3;
    c->mla_heads = 6;
    c->q_lora = 64;
    c->kv_lora = 32;
    c->qk_nope = 24;
    c->qk_rope = 8;
    c->v_head = 16;
    c->kda_heads = 4;
    c->kda_dim = 16;
    c->dense_width = 96;
    c->experts = 16;
    c->experts_per_token = 4;
    c->expert_width = 64;
    c->latent = 64;
    c->context_max = 4096;
}

static void set_k3(struct model_config *c)
{
    *c = common_config;
    c->hidden = 7168;
    c->layers = 93;
    c->vocab = 163840;
    c->attnres_block = 12;
    c->mla_heads = 96;
    c->q_lora = 1536;
    c->kv_lora = 512;
    c->qk_nope = 128;
    c->qk_rope = 64;
    c->v_head = 128;
    c->kda_heads = 96;
    c->kda_dim = 128;
    c->dense_width = 33792;
    c->experts = 896;
    c->experts_per_token = 16;
    c->expert_width = 3072;
    c->latent = 3584;
    c->context_max = 1048576;
}

/* Every fourth layer is MLA, and so is the last of the uncut model. The special ids stand at the
 * same distance from the end of any vocabulary. */
static void derive(struct model_config *c, uint32_t uncut_layers)
{
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        c->is_mla[layer] = layer % 4 == 3 || layer + 1 == uncut_layers;
    }
    c->bos = (int64_t)c->vocab - 256;
    c->eos = (int64_t)c->vocab - 254;
    c->pad = (int64_t)c->vocab - 1;
}

static int refuse(const char *name, uint32_t value, uint32_t min, uint32_t max)
{
    return err_set(ERR_USAGE, "synth: %u is no number of %s that fits; from %u to %u do", value,
                   name, min, max);
}

static int cut(uint32_t value, const char *name, uint32_t min, uint32_t *field)
{
    if (value == 0) {
        return 0;
    }
    if (value < min || value > *field) {
        return refuse(name, value, min, *field);
    }
    *field = value;
    return 0;
}

int synth_geometry_init(const struct synth_options *options, struct synth_geometry *geometry)
{
    struct model_config *c = &geometry->config;
    geometry->preset = options->preset;
    if (options->preset == SYNTH_TINY) {
        if (options->layers != 0 || options->experts != 0 || options->vocab != 0 ||
            options->sparse || options->seed > 1) {
            return err_set(ERR_USAGE, "synth: the tiny model is one fixed set of bytes; layers, "
                           "experts, vocab, seed and sparse need --preset k3");
        }
        set_tiny(c);
        derive(c, c->layers);
        geometry->shard_count = 3;
        return 0;
    }
    set_k3(c);
    const uint32_t uncut_layers = c->layers;
    TRY(cut(options->layers, "layers", 4, &c->layers));
    TRY(cut(options->experts, "experts", 1, &c->experts));
    TRY(cut(options->vocab, "vocabulary rows", 256, &c->vocab));
    c->experts_per_token = (uint32_t)min_u64(c->experts_per_token, c->experts);
    derive(c, uncut_layers);
    geometry->shard_count = c->layers + 1;
    return 0;
}
