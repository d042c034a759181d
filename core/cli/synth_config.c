/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/synth_config.h"

#include <cjson/cJSON.h>

#include "core/base/err.h"

static void add_count(cJSON *object, const char *key, uint64_t value)
{
    cJSON_AddNumberToObject(object, key, (double)value);
}

static void add_ids(cJSON *object, const struct model_config *c)
{
    add_count(object, "bos_token_id", (uint64_t)c->bos);
    add_count(object, "eos_token_id", (uint64_t)c->eos);
    add_count(object, "pad_token_id", (uint64_t)c->pad);
}

static void add_word_list(cJSON *object, const char *key, const char *const *words,
                          uint32_t count)
{
    cJSON_AddItemToObject(object, key, cJSON_CreateStringArray(words, (int)count));
}

/* One-based numbers of the layers of one kind. */
static void add_layer_list(cJSON *object, const char *key, const struct model_config *c, bool mla)
{
    cJSON *list = cJSON_AddArrayToObject(object, key);
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        if (c->is_mla[layer] == mla) {
            cJSON_AddItemToArray(list, cJSON_CreateNumber(layer + 1));
        }
    }
}

static void add_kda(cJSON *text, const struct model_config *c)
{
    cJSON *kda = cJSON_AddObjectToObject(text, "linear_attn_config");
    add_layer_list(kda, "full_attn_layers", c, true);
    add_layer_list(kda, "kda_layers", c, false);
    add_count(kda, "num_heads", c->kda_heads);
    add_count(kda, "head_dim", c->kda_dim);
    add_count(kda, "short_conv_kernel_size", c->conv_taps);
    cJSON_AddRawToObject(kda, "gate_lower_bound", "-5.0");
    cJSON_AddTrueToObject(kda, "use_full_rank_gate");
}

static void add_attention(cJSON *text, const struct model_config *c)
{
    add_count(text, "num_attention_heads", c->mla_heads);
    add_count(text, "num_key_value_heads", c->mla_heads);
    add_count(text, "q_lora_rank", c->q_lora);
    add_count(text, "kv_lora_rank", c->kv_lora);
    add_count(text, "qk_nope_head_dim", c->qk_nope);
    add_count(text, "qk_rope_head_dim", c->qk_rope);
    add_count(text, "v_head_dim", c->v_head);
    cJSON_AddTrueToObject(text, "mla_use_nope");
    cJSON_AddTrueToObject(text, "mla_use_output_gate");
    add_kda(text, c);
}

static void add_mlp(cJSON *text, const struct model_config *c)
{
    add_count(text, "first_k_dense_replace", c->first_dense);
    add_count(text, "moe_layer_freq", 1);
    add_count(text, "intermediate_size", c->dense_width);
    add_count(text, "num_experts", c->experts);
    add_count(text, "num_experts_per_token", c->experts_per_token);
    add_count(text, "num_shared_experts", c->shared_experts);
    add_count(text, "moe_intermediate_size", c->expert_width);
    add_count(text, "routed_expert_hidden_size", c->latent);
    cJSON_AddBoolToObject(text, "latent_moe_use_norm", c->latent_norm);
    cJSON_AddBoolToObject(text, "moe_renormalize", c->renormalize);
    cJSON_AddStringToObject(text, "moe_router_activation_func", "sigmoid");
    cJSON_AddRawToObject(text, "routed_scaling_factor", "1.0");
    add_count(text, "num_expert_group", 1);
    add_count(text, "topk_group", 1);
    cJSON_AddTrueToObject(text, "use_grouped_topk");
    cJSON_AddStringToObject(text, "topk_method", "noaux_tc");
    add_count(text, "num_nextn_predict_layers", 0);
}

static void add_quantised_weights(cJSON *quantisation, bool released)
{
    static const char *const targets[] = {"Linear"};
    cJSON *groups = cJSON_AddObjectToObject(quantisation, "config_groups");
    cJSON *group = cJSON_AddObjectToObject(groups, "group_0");
    cJSON_AddStringToObject(group, "format", "mxfp4-pack-quantized");
    add_word_list(group, "targets", targets, countof(targets));
    cJSON_AddNullToObject(group, "input_activations");
    cJSON_AddNullToObject(group, "output_activations");
    cJSON *weights = cJSON_AddObjectToObject(group, "weights");
    add_count(weights, "num_bits", 4);
    add_count(weights, "group_size", 32);
    cJSON_AddStringToObject(weights, "type", "float");
    cJSON_AddTrueToObject(weights, "symmetric");
    cJSON_AddStringToObject(weights, "strategy", "group");
    cJSON_AddFalseToObject(weights, "dynamic");
    cJSON_AddStringToObject(weights, "scale_dtype", "torch.uint8");
    if (released) {
        cJSON_AddStringToObject(weights, "observer", "minmax");
        cJSON_AddNullToObject(weights, "actorder");
        cJSON_AddNullToObject(weights, "zp_dtype");
    }
}

static void add_quantisation(cJSON *text, bool released)
{
    static const char *const ignored[] = {
        "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
        "re:.*lm_head.*", "re:.*vision_tower.*", "re:.*mm_projector.*"};
    cJSON *quantisation = cJSON_AddObjectToObject(text, "quantization_config");
    cJSON_AddStringToObject(quantisation, "quant_method", "compressed-tensors");
    cJSON_AddStringToObject(quantisation, "format", "mxfp4-pack-quantized");
    cJSON_AddStringToObject(quantisation, "quantization_status", "compressed");
    add_quantised_weights(quantisation, released);
    add_word_list(quantisation, "ignore", ignored, released ? countof(ignored) : 4);
    if (released) {
        cJSON_AddNullToObject(quantisation, "kv_cache_scheme");
    }
}

static void add_text(cJSON *root, const struct synth_geometry *geometry)
{
    static const char *const architectures[] = {"KimiLinearForCausalLM"};
    const struct model_config *c = &geometry->config;
    const bool released = geometry->preset == SYNTH_K3;
    cJSON *text = cJSON_AddObjectToObject(root, "text_config");
    add_word_list(text, "architectures", architectures, 1);
    cJSON_AddStringToObject(text, "model_type", "kimi_linear");
    cJSON_AddStringToObject(text, "dtype", "bfloat16");
    add_count(text, "hidden_size", c->hidden);
    add_count(text, "num_hidden_layers", c->layers);
    add_count(text, "vocab_size", c->vocab);
    cJSON_AddRawToObject(text, "rms_norm_eps", "1e-05");
    cJSON_AddStringToObject(text, "hidden_act", "situ");
    cJSON_AddRawToObject(text, "activation_situ_beta", "4.0");
    cJSON_AddRawToObject(text, "activation_situ_linear_beta", "25.0");
    add_count(text, "attn_res_block_size", c->attnres_block);
    add_attention(text, c);
    add_mlp(text, c);
    add_count(text, "max_position_embeddings", c->context_max);
    cJSON_AddFalseToObject(text, "tie_word_embeddings");
    if (released) {
        cJSON_AddRawToObject(text, "initializer_range", "0.02");
        cJSON_AddTrueToObject(text, "use_cache");
    }
    add_ids(text, c);
    add_quantisation(text, released);
}

static void add_vision(cJSON *root, const struct model_config *c)
{
    cJSON *vision = cJSON_AddObjectToObject(root, "vision_config");
    add_count(vision, "patch_size", 14);
    add_count(vision, "vt_num_hidden_layers", 27);
    add_count(vision, "vt_hidden_size", 1024);
    add_count(vision, "vt_intermediate_size", 4096);
    add_count(vision, "vt_num_attention_heads", 12);
    add_count(vision, "qkv_hidden_size", 1536);
    cJSON_AddItemToObject(vision, "merge_kernel_size", cJSON_CreateIntArray((int[]){2, 2}, 2));
    cJSON_AddStringToObject(vision, "merge_type", "sd2_tpool");
    cJSON_AddStringToObject(vision, "mm_projector_type", "patchmergerv2");
    add_count(vision, "mm_hidden_size", 1024);
    add_count(vision, "text_hidden_size", c->hidden);
    cJSON_AddStringToObject(vision, "norm_type", "rmsnorm");
    cJSON_AddRawToObject(vision, "projector_ln_eps", "1e-05");
}

/* Deletes the tree. Memory that ran short on the way shows as a missing field, which the parser
 * of the caller finds. */
static char *print_tree(cJSON *root)
{
    char *text = cJSON_Print(root);
    cJSON_Delete(root);
    return text;
}

char *synth_config_text(const struct synth_geometry *geometry)
{
    static const char *const architectures[] = {"KimiK3ForConditionalGeneration"};
    const struct model_config *c = &geometry->config;
    cJSON *root = cJSON_CreateObject();
    add_word_list(root, "architectures", architectures, 1);
    cJSON_AddStringToObject(root, "model_type", "kimi_k3");
    cJSON_AddStringToObject(root, "dtype", "bfloat16");
    add_ids(root, c);
    if (geometry->preset == SYNTH_K3) {
        cJSON_AddNumberToObject(root, "ignore_index", -100);
        cJSON_AddStringToObject(root, "image_placeholder", "<|kimi_image_placeholder|>");
        add_count(root, "media_placeholder_token_id", (uint64_t)c->vocab - 235);
    }
    cJSON_AddFalseToObject(root, "tie_word_embeddings");
    add_text(root, geometry);
    if (geometry->preset == SYNTH_K3) {
        add_vision(root, c);
    }
    return print_tree(root);
}

char *synth_generation_text(const struct synth_geometry *geometry)
{
    cJSON *root = cJSON_CreateObject();
    add_ids(root, &geometry->config);
    return print_tree(root);
}

int synth_index_print(const struct synth_geometry *geometry, uint64_t tensor_bytes, FILE *out)
{
    const char *separator = "";
    fprintf(out, "{\"metadata\":{\"total_size\":%llu},\"weight_map\":{",
            (unsigned long long)tensor_bytes);
    for (uint32_t i = 0; i < geometry->shard_count; i++) {
        struct synth_shard shard;
        TRY(synth_shard_init(geometry, i, &shard));
        for (uint32_t k = 0; k < shard.tensor_count; k++) {
            fprintf(out, "%s\n\"%s\":\"%s\"", separator, shard.tensors[k].name, shard.file_name);
            separator = ",";
        }
        synth_shard_fini(&shard);
    }
    fprintf(out, "\n}}\n");
    return 0;
}
