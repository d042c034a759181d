/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/inventory.h"

#include <stdio.h>
#include <string.h>

#include "core/model/model_priv.h"

#define TEXT_PREFIX "language_model."
#define LAYER_PREFIX "language_model.model.layers."
#define EXPERT_INFIX "block_sparse_moe.experts."

/* Which layers (or the model level) hold a tensor. */
enum holder {
    EVERY_LAYER, KDA_LAYERS, MLA_LAYERS, DENSE_LAYERS, MOE_LAYERS, LATENT_NORM, NO_LAYER
};

/* One extent of a shape, named by what it is made of in the config. */
enum dim {
    DIM_UNUSED, DIM_ONE, DIM_HIDDEN, DIM_VOCAB, DIM_ATTENTION, DIM_KDA_WIDTH, DIM_KDA_DIM,
    DIM_KDA_HEADS, DIM_A_LOG, DIM_CONV, DIM_Q_LORA, DIM_Q_ROWS, DIM_KV_LORA, DIM_KV_A_ROWS,
    DIM_KV_B_ROWS, DIM_DENSE, DIM_EXPERTS, DIM_LATENT, DIM_SHARED, DIM_EXPERT, DIM_LATENT_PACKED,
    DIM_LATENT_GROUPS, DIM_EXPERT_PACKED, DIM_EXPERT_GROUPS
};

struct row {
    const char *suffix; /* what follows the layer's prefix, or the text prefix at NO_LAYER */
    enum holder holder;
    enum dtype dtype;
    enum dim dims[3];
};

#define ATTN "self_attn."
#define MLP "mlp."
#define MOE "block_sparse_moe."

static const struct row tensor_rows[T_COUNT] = {
    [T_INPUT_NORM] = {"input_layernorm.weight", EVERY_LAYER, DTYPE_BF16, {DIM_HIDDEN}},
    [T_POST_NORM] = {"post_attention_layernorm.weight", EVERY_LAYER, DTYPE_BF16, {DIM_HIDDEN}},
    [T_ATTN_RES_NORM] = {"self_attention_res_norm.weight", EVERY_LAYER, DTYPE_BF16, {DIM_HIDDEN}},
    [T_ATTN_RES_PROJ] = {"self_attention_res_proj.weight", EVERY_LAYER, DTYPE_BF16,
                         {DIM_ONE, DIM_HIDDEN}},
    [T_MLP_RES_NORM] = {"mlp_res_norm.weight", EVERY_LAYER, DTYPE_BF16, {DIM_HIDDEN}},
    [T_MLP_RES_PROJ] = {"mlp_res_proj.weight", EVERY_LAYER, DTYPE_BF16, {DIM_ONE, DIM_HIDDEN}},
    [T_G] = {ATTN "g_proj.weight", EVERY_LAYER, DTYPE_BF16, {DIM_ATTENTION, DIM_HIDDEN}},
    [T_O] = {ATTN "o_proj.weight", EVERY_LAYER, DTYPE_BF16, {DIM_HIDDEN, DIM_ATTENTION}},
    [T_Q] = {ATTN "q_proj.weight", KDA_LAYERS, DTYPE_BF16, {DIM_KDA_WIDTH, DIM_HIDDEN}},
    [T_K] = {ATTN "k_proj.weight", KDA_LAYERS, DTYPE_BF16, {DIM_KDA_WIDTH, DIM_HIDDEN}},
    [T_V] = {ATTN "v_proj.weight", KDA_LAYERS, DTYPE_BF16, {DIM_KDA_WIDTH, DIM_HIDDEN}},
    [T_CONV_Q] = {ATTN "q_conv1d.weight", KDA_LAYERS, DTYPE_F32,
                  {DIM_KDA_WIDTH, DIM_ONE, DIM_CONV}},
    [T_CONV_K] = {ATTN "k_conv1d.weight", KDA_LAYERS, DTYPE_F32,
                  {DIM_KDA_WIDTH, DIM_ONE, DIM_CONV}},
    [T_CONV_V] = {ATTN "v_conv1d.weight", KDA_LAYERS, DTYPE_F32,
                  {DIM_KDA_WIDTH, DIM_ONE, DIM_CONV}},
    [T_F_A] = {ATTN "f_a_proj.weight", KDA_LAYERS, DTYPE_BF16, {DIM_KDA_DIM, DIM_HIDDEN}},
    [T_F_B] = {ATTN "f_b_proj.weight", KDA_LAYERS, DTYPE_BF16, {DIM_KDA_WIDTH, DIM_KDA_DIM}},
    [T_B] = {ATTN "b_proj.weight", KDA_LAYERS, DTYPE_BF16, {DIM_KDA_HEADS, DIM_HIDDEN}},
    [T_A_LOG] = {ATTN "A_log", KDA_LAYERS, DTYPE_F32, {DIM_A_LOG}},
    [T_DT_BIAS] = {ATTN "dt_bias", KDA_LAYERS, DTYPE_F32, {DIM_KDA_WIDTH}},
    [T_O_NORM] = {ATTN "o_norm.weight", KDA_LAYERS, DTYPE_F32, {DIM_KDA_DIM}},
    [T_Q_A] = {ATTN "q_a_proj.weight", MLA_LAYERS, DTYPE_BF16, {DIM_Q_LORA, DIM_HIDDEN}},
    [T_Q_A_NORM] = {ATTN "q_a_layernorm.weight", MLA_LAYERS, DTYPE_BF16, {DIM_Q_LORA}},
    [T_Q_B] = {ATTN "q_b_proj.weight", MLA_LAYERS, DTYPE_BF16, {DIM_Q_ROWS, DIM_Q_LORA}},
    [T_KV_A] = {ATTN "kv_a_proj_with_mqa.weight", MLA_LAYERS, DTYPE_BF16,
                {DIM_KV_A_ROWS, DIM_HIDDEN}},
    [T_KV_A_NORM] = {ATTN "kv_a_layernorm.weight", MLA_LAYERS, DTYPE_BF16, {DIM_KV_LORA}},
    [T_KV_B] = {ATTN "kv_b_proj.weight", MLA_LAYERS, DTYPE_BF16, {DIM_KV_B_ROWS, DIM_KV_LORA}},
    [T_DENSE_GATE] = {MLP "gate_proj.weight", DENSE_LAYERS, DTYPE_BF16, {DIM_DENSE, DIM_HIDDEN}},
    [T_DENSE_UP] = {MLP "up_proj.weight", DENSE_LAYERS, DTYPE_BF16, {DIM_DENSE, DIM_HIDDEN}},
    [T_DENSE_DOWN] = {MLP "down_proj.weight", DENSE_LAYERS, DTYPE_BF16, {DIM_HIDDEN, DIM_DENSE}},
    [T_ROUTER] = {MOE "gate.weight", MOE_LAYERS, DTYPE_BF16, {DIM_EXPERTS, DIM_HIDDEN}},
    [T_ROUTER_BIAS] = {MOE "gate.e_score_correction_bias", MOE_LAYERS, DTYPE_F32, {DIM_EXPERTS}},
    [T_LATENT_DOWN] = {MOE "routed_expert_down_proj.weight", MOE_LAYERS, DTYPE_BF16,
                       {DIM_LATENT, DIM_HIDDEN}},
    [T_LATENT_NORM] = {MOE "routed_expert_norm.weight", LATENT_NORM, DTYPE_BF16, {DIM_LATENT}},
    [T_LATENT_UP] = {MOE "routed_expert_up_proj.weight", MOE_LAYERS, DTYPE_BF16,
                     {DIM_HIDDEN, DIM_LATENT}},
    [T_SHARED_GATE] = {MOE "shared_experts.gate_proj.weight", MOE_LAYERS, DTYPE_BF16,
                       {DIM_SHARED, DIM_HIDDEN}},
    [T_SHARED_UP] = {MOE "shared_experts.up_proj.weight", MOE_LAYERS, DTYPE_BF16,
                     {DIM_SHARED, DIM_HIDDEN}},
    [T_SHARED_DOWN] = {MOE "shared_experts.down_proj.weight", MOE_LAYERS, DTYPE_BF16,
                       {DIM_HIDDEN, DIM_SHARED}},
    [T_EMBED] = {"model.embed_tokens.weight", NO_LAYER, DTYPE_BF16, {DIM_VOCAB, DIM_HIDDEN}},
    [T_LM_HEAD] = {"lm_head.weight", NO_LAYER, DTYPE_BF16, {DIM_VOCAB, DIM_HIDDEN}},
    [T_NORM] = {"model.norm.weight", NO_LAYER, DTYPE_BF16, {DIM_HIDDEN}},
    [T_OUT_RES_NORM] = {"model.output_attn_res_norm.weight", NO_LAYER, DTYPE_BF16, {DIM_HIDDEN}},
    [T_OUT_RES_PROJ] = {"model.output_attn_res_proj.weight", NO_LAYER, DTYPE_BF16,
                        {DIM_ONE, DIM_HIDDEN}},
};

static const struct row part_rows[EXPERT_PARTS] = {
    [W1_PACKED] = {"w1.weight_packed", MOE_LAYERS, DTYPE_U8, {DIM_EXPERT, DIM_LATENT_PACKED}},
    [W1_SCALE] = {"w1.weight_scale", MOE_LAYERS, DTYPE_U8, {DIM_EXPERT, DIM_LATENT_GROUPS}},
    [W2_PACKED] = {"w2.weight_packed", MOE_LAYERS, DTYPE_U8, {DIM_LATENT, DIM_EXPERT_PACKED}},
    [W2_SCALE] = {"w2.weight_scale", MOE_LAYERS, DTYPE_U8, {DIM_LATENT, DIM_EXPERT_GROUPS}},
    [W3_PACKED] = {"w3.weight_packed", MOE_LAYERS, DTYPE_U8, {DIM_EXPERT, DIM_LATENT_PACKED}},
    [W3_SCALE] = {"w3.weight_scale", MOE_LAYERS, DTYPE_U8, {DIM_EXPERT, DIM_LATENT_GROUPS}},
};

static uint64_t attention_dim(const struct model_config *c, uint32_t layer, enum dim dim)
{
    switch (dim) {
    case DIM_ATTENTION:
        return layer < c->layers && c->is_mla[layer] ? (uint64_t)c->mla_heads * c->v_head
                                                     : config_kda_width(c);
    case DIM_KDA_WIDTH:
        return config_kda_width(c);
    case DIM_KDA_DIM:
        return c->kda_dim;
    case DIM_KDA_HEADS:
        return c->kda_heads;
    case DIM_A_LOG: /* one per head, padded with zeros to head_dim where that is larger */
        return max_u64(c->kda_dim, c->kda_heads);
    case DIM_CONV:
        return c->conv_taps;
    case DIM_Q_LORA:
        return c->q_lora;
    case DIM_Q_ROWS:
        return (uint64_t)c->mla_heads * (c->qk_nope + c->qk_rope);
    case DIM_KV_LORA:
        return c->kv_lora;
    case DIM_KV_A_ROWS:
        return (uint64_t)c->kv_lora + c->qk_rope;
    case DIM_KV_B_ROWS:
        return (uint64_t)c->mla_heads * (c->qk_nope + c->v_head);
    default:
        return 1;
    }
}

static uint64_t dim_value(const struct model_config *c, uint32_t layer, enum dim dim)
{
    switch (dim) {
    case DIM_HIDDEN:
        return c->hidden;
    case DIM_VOCAB:
        return c->vocab;
    case DIM_DENSE:
        return c->dense_width;
    case DIM_EXPERTS:
        return c->experts;
    case DIM_LATENT:
        return c->latent;
    case DIM_LATENT_PACKED:
        return c->latent / 2;
    case DIM_LATENT_GROUPS:
        return c->latent / 32;
    case DIM_SHARED:
        return config_shared_width(c);
    case DIM_EXPERT:
        return c->expert_width;
    case DIM_EXPERT_PACKED:
        return c->expert_width / 2;
    case DIM_EXPERT_GROUPS:
        return c->expert_width / 32;
    default:
        return attention_dim(c, layer, dim);
    }
}

const char *dtype_name(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? "F32" : dtype == DTYPE_BF16 ? "BF16" : "U8";
}

uint64_t tensor_spec_bytes(const struct tensor_spec *spec)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < spec->rank; i++) {
        count *= spec->shape[i];
    }
    return count * dtype_bytes(spec->dtype);
}

bool inventory_layer_has(const struct model_config *c, uint32_t layer, enum tensor_id id)
{
    if (layer >= c->layers || id >= T_LAYER_COUNT) {
        return false;
    }
    switch (tensor_rows[id].holder) {
    case EVERY_LAYER:
        return true;
    case KDA_LAYERS:
        return !c->is_mla[layer];
    case MLA_LAYERS:
        return c->is_mla[layer];
    case DENSE_LAYERS:
        return !config_is_moe(c, layer);
    case MOE_LAYERS:
        return config_is_moe(c, layer);
    case LATENT_NORM:
        return config_is_moe(c, layer) && c->latent_norm;
    default:
        return false;
    }
}

void inventory_shape(const struct model_config *c, const struct tensor_place *place,
                     struct tensor_spec *spec)
{
    const struct row *row =
        place->id == T_COUNT ? &part_rows[place->part] : &tensor_rows[place->id];
    spec->name[0] = '\0';
    spec->dtype = row->dtype;
    spec->rank = 0;
    for (uint32_t i = 0; i < countof(row->dims); i++) {
        spec->rank += row->dims[i] != DIM_UNUSED;
        spec->shape[i] = dim_value(c, place->layer, row->dims[i]);
    }
    spec->layer = place->layer;
    spec->id = place->id;
    spec->expert = place->expert;
    spec->part = place->part;
}

void inventory_spec(const struct model_config *c, const struct tensor_place *place,
                    struct tensor_spec *spec)
{
    inventory_shape(c, place, spec);
    if (place->id == T_COUNT) {
        snprintf(spec->name, sizeof spec->name, LAYER_PREFIX "%u." EXPERT_INFIX "%u.%s",
                 place->layer, place->expert, part_rows[place->part].suffix);
    } else if (place->layer == TENSOR_MODEL_LEVEL) {
        snprintf(spec->name, sizeof spec->name, TEXT_PREFIX "%s", tensor_rows[place->id].suffix);
    } else {
        snprintf(spec->name, sizeof spec->name, LAYER_PREFIX "%u.%s", place->layer,
                 tensor_rows[place->id].suffix);
    }
}

void inventory_tensor(const struct model_config *c, uint32_t layer, enum tensor_id id,
                      struct tensor_spec *spec)
{
    assert(id < T_COUNT);
    assert((id >= T_EMBED) == (layer == TENSOR_MODEL_LEVEL));
    assert(id >= T_EMBED || inventory_layer_has(c, layer, id));
    inventory_spec(c, &(struct tensor_place){.layer = layer, .id = id}, spec);
}

void inventory_expert(const struct model_config *c, uint32_t layer, uint32_t expert,
                      enum expert_part part, struct tensor_spec *spec)
{
    assert(layer < c->layers && config_is_moe(c, layer));
    assert(expert < c->experts && part < EXPERT_PARTS);
    inventory_spec(c, &(struct tensor_place){layer, T_COUNT, expert, part}, spec);
}

/* If *text begins with prefix, moves *text past it. */
static bool skip_prefix(const char **text, const char *prefix)
{
    const size_t length = strlen(prefix);
    if (strncmp(*text, prefix, length) != 0) {
        return false;
    }
    *text += length;
    return true;
}

/* Reads a decimal below limit, written the one canonical way, and the dot after it. */
static bool skip_number(const char **text, uint32_t limit, uint32_t *number)
{
    const char *at = *text;
    uint64_t value = 0;
    while (*at >= '0' && *at <= '9' && value < limit) {
        value = value * 10 + (uint64_t)(*at - '0');
        at++;
    }
    const size_t digits = (size_t)(at - *text);
    if (digits == 0 || (digits > 1 && **text == '0') || value >= limit || *at != '.') {
        return false;
    }
    *text = at + 1;
    *number = (uint32_t)value;
    return true;
}

static bool locate_part(const struct model_config *c, const char *rest, struct tensor_place *place)
{
    if (!config_is_moe(c, place->layer) || !skip_number(&rest, c->experts, &place->expert)) {
        return false;
    }
    for (enum expert_part part = W1_PACKED; part < EXPERT_PARTS; part++) {
        if (strcmp(rest, part_rows[part].suffix) == 0) {
            place->id = T_COUNT;
            place->part = part;
            return true;
        }
    }
    return false;
}

static bool locate_row(const struct model_config *c, const char *rest, enum tensor_id begin,
                       enum tensor_id end, struct tensor_place *place)
{
    for (enum tensor_id id = begin; id < end; id++) {
        if (strcmp(rest, tensor_rows[id].suffix) == 0) {
            place->id = id;
            return id >= T_EMBED || inventory_layer_has(c, place->layer, id);
        }
    }
    return false;
}

bool inventory_locate(const struct model_config *c, const char *name, struct tensor_place *place)
{
    const char *rest = name;
    *place = (struct tensor_place){.layer = TENSOR_MODEL_LEVEL};
    if (skip_prefix(&rest, LAYER_PREFIX)) {
        if (!skip_number(&rest, c->layers, &place->layer)) {
            return false;
        }
        return skip_prefix(&rest, EXPERT_INFIX) ? locate_part(c, rest, place)
                                                : locate_row(c, rest, 0, T_LAYER_COUNT, place);
    }
    return skip_prefix(&rest, TEXT_PREFIX) && locate_row(c, rest, T_EMBED, T_COUNT, place);
}

bool inventory_find(const struct model_config *c, const char *name, struct tensor_spec *spec)
{
    struct tensor_place place;
    if (!inventory_locate(c, name, &place)) {
        return false;
    }
    inventory_spec(c, &place, spec);
    return true;
}

bool inventory_dtype_fits(enum tensor_id id, const char *dtype, enum dtype *out)
{
    const char *suffix = id == T_COUNT ? "" : tensor_rows[id].suffix;
    const size_t length = strlen(suffix);
    const bool is_vector = strstr(suffix, "norm.weight") != NULL ||
                           (length > 15 && strcmp(suffix + length - 15, "res_proj.weight") == 0);
    const enum dtype normal = id == T_COUNT ? DTYPE_U8 : tensor_rows[id].dtype;
    if (strcmp(dtype, dtype_name(normal)) == 0) {
        *out = normal;
        return true;
    }
    *out = normal == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;
    return is_vector && strcmp(dtype, dtype_name(*out)) == 0;
}

/* True when rest names a tensor of the row, or another tensor of the row's module: a bias, or
 * weights in a form this model does not have. */
static bool row_disturbed(const struct row *row, const char *rest)
{
    if (strcmp(rest, row->suffix) == 0) {
        return true;
    }
    const char *dot = strrchr(row->suffix, '.');
    const size_t module = dot == NULL ? 0 : (size_t)(dot - row->suffix) + 1;
    if (module == 0 || strncmp(dot, ".weight", 7) != 0 ||
        strncmp(rest, row->suffix, module) != 0) {
        return false;
    }
    const char *leaf = rest + module;
    return strncmp(leaf, "weight", 6) == 0 && strcmp(leaf, "weight_shape") != 0;
}

bool inventory_disturbed(const char *name)
{
    const char *rest = name;
    uint32_t number;
    if (skip_prefix(&rest, LAYER_PREFIX)) {
        if (!skip_number(&rest, UINT32_MAX, &number)) {
            return false;
        }
    } else if (!skip_prefix(&rest, TEXT_PREFIX)) {
        return false;
    }
    const struct row *rows = tensor_rows;
    size_t count = T_COUNT;
    if (skip_prefix(&rest, EXPERT_INFIX) && skip_number(&rest, UINT32_MAX, &number)) {
        rows = part_rows;
        count = EXPERT_PARTS;
    }
    for (size_t i = 0; i < count; i++) {
        if (row_disturbed(&rows[i], rest)) {
            return true;
        }
    }
    const char *leaf = strrchr(rest, '.');
    return leaf != NULL && strcmp(leaf, ".bias") == 0;
}
