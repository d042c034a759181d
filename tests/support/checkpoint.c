/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"

/* A condition without which no test can go on. */
static void need(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "checkpoint for a test: %s failed\n", what);
        abort();
    }
}

void fake_config_k3(struct model_config *c)
{
    *c = (struct model_config){
        .hidden = 7168, .layers = 93, .vocab = 163840, .rms_eps = 1e-5F, .mla_lora_eps = 1e-5F,
        .situ_beta = 4, .situ_linear_beta = 25, .attnres_block = 12, .mla_heads = 96,
        .q_lora = 1536, .kv_lora = 512, .qk_nope = 128, .qk_rope = 64, .v_head = 128,
        .kda_heads = 96, .kda_dim = 128, .conv_taps = 4, .gate_lower_bound = -5,
        .first_dense = 1, .dense_width = 33792, .experts = 896, .experts_per_token = 16,
        .shared_experts = 2, .expert_width = 3072, .latent = 3584, .latent_norm = true,
        .renormalize = true, .routed_scaling = 1, .context_max = 1048576,
        .bos = 163584, .eos = 163586, .pad = 163839};
    for (uint32_t layer = 3; layer < 93; layer += 4) {
        c->is_mla[layer] = true;
    }
    c->is_mla[92] = true;
}

void fake_config_tiny(struct model_config *c)
{
    *c = (struct model_config){
        .hidden = 128, .layers = 13, .vocab = 256, .rms_eps = 1e-5F, .mla_lora_eps = 1e-5F,
        .situ_beta = 4, .situ_linear_beta = 25, .attnres_block = 3, .mla_heads = 6,
        .q_lora = 64, .kv_lora = 32, .qk_nope = 24, .qk_rope = 8, .v_head = 16,
        .kda_heads = 4, .kda_dim = 16, .conv_taps = 4, .gate_lower_bound = -5,
        .first_dense = 1, .dense_width = 96, .experts = 16, .experts_per_token = 4,
        .shared_experts = 2, .expert_width = 64, .latent = 64, .latent_norm = true,
        .renormalize = true, .routed_scaling = 1, .context_max = 1048576,
        .bos = 0, .eos = 2, .pad = 255};
    c->is_mla[3] = c->is_mla[7] = c->is_mla[11] = c->is_mla[12] = true;
}

static void print_layers(FILE *out, const struct model_config *c, bool mla)
{
    const char *comma = "";
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        if (c->is_mla[layer] == mla) {
            fprintf(out, "%s%u", comma, layer + 1);
            comma = ",";
        }
    }
}

static void print_linear(FILE *out, const struct model_config *c)
{
    fprintf(out, "\"linear_attn_config\":{\"full_attn_layers\":[");
    print_layers(out, c, true);
    fprintf(out, "],\"kda_layers\":[");
    print_layers(out, c, false);
    fprintf(out, "],\"num_heads\":%u,\"head_dim\":%u,\"short_conv_kernel_size\":%u,"
            "\"gate_lower_bound\":%.1f,\"use_full_rank_gate\":true},",
            c->kda_heads, c->kda_dim, c->conv_taps, (double)c->gate_lower_bound);
}

static void print_quantization(FILE *out)
{
    fprintf(out, "\"quantization_config\":{\"quant_method\":\"compressed-tensors\","
            "\"format\":\"mxfp4-pack-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{"
            "\"num_bits\":4,\"group_size\":32,\"type\":\"float\",\"symmetric\":true,"
            "\"strategy\":\"group\",\"scale_dtype\":\"torch.uint8\"}}}}");
}

char *fake_config_json(const struct model_config *c)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    need(out != NULL, "open_memstream");
    fprintf(out, "{\"model_type\":\"kimi_k3\",\"bos_token_id\":%lld,\"eos_token_id\":%lld,"
            "\"pad_token_id\":%lld,\"tie_word_embeddings\":false,"
            "\"text_config\":{\"model_type\":\"kimi_linear\",", (long long)c->bos,
            (long long)c->eos, (long long)c->pad);
    fprintf(out, "\"hidden_size\":%u,\"num_hidden_layers\":%u,\"vocab_size\":%u,"
            "\"rms_norm_eps\":1e-05,\"hidden_act\":\"situ\",\"activation_situ_beta\":%.1f,"
            "\"activation_situ_linear_beta\":%.1f,\"attn_res_block_size\":%u,",
            c->hidden, c->layers, c->vocab, (double)c->situ_beta, (double)c->situ_linear_beta,
            c->attnres_block);
    fprintf(out, "\"num_attention_heads\":%u,\"num_key_value_heads\":%u,\"q_lora_rank\":%u,"
            "\"kv_lora_rank\":%u,\"qk_nope_head_dim\":%u,\"qk_rope_head_dim\":%u,"
            "\"v_head_dim\":%u,\"mla_use_nope\":true,\"mla_use_output_gate\":true,",
            c->mla_heads, c->mla_heads, c->q_lora, c->kv_lora, c->qk_nope, c->qk_rope,
            c->v_head);
    print_linear(out, c);
    fprintf(out, "\"first_k_dense_replace\":%u,\"moe_layer_freq\":1,\"intermediate_size\":%u,"
            "\"num_experts\":%u,\"num_experts_per_token\":%u,\"num_shared_experts\":%u,"
            "\"moe_intermediate_size\":%u,\"routed_expert_hidden_size\":%u,",
            c->first_dense, c->dense_width, c->experts, c->experts_per_token,
            c->shared_experts, c->expert_width, c->latent);
    fprintf(out, "\"latent_moe_use_norm\":%s,\"moe_renormalize\":%s,"
            "\"moe_router_activation_func\":\"sigmoid\",\"routed_scaling_factor\":%.1f,"
            "\"num_expert_group\":1,\"topk_group\":1,\"topk_method\":\"noaux_tc\","
            "\"num_nextn_predict_layers\":0,\"max_position_embeddings\":%u,"
            "\"tie_word_embeddings\":false,\"eos_token_id\":%lld,",
            c->latent_norm ? "true" : "false", c->renormalize ? "true" : "false",
            (double)c->routed_scaling, c->context_max, (long long)c->eos);
    print_quantization(out);
    fprintf(out, "}}");
    fclose(out);
    return text;
}

void fake_add(struct fake_model *fake, const char *name, const char *dtype, const char *shape,
              uint64_t size_bytes, uint32_t shard)
{
    if (fake->count == fake->capacity) {
        fake->capacity = fake->capacity == 0 ? 256 : fake->capacity * 2;
        fake->tensors = realloc(fake->tensors, fake->capacity * sizeof *fake->tensors);
        need(fake->tensors != NULL, "realloc");
    }
    struct fake_tensor *tensor = &fake->tensors[fake->count++];
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    snprintf(tensor->dtype, sizeof tensor->dtype, "%s", dtype);
    snprintf(tensor->shape, sizeof tensor->shape, "%s", shape);
    tensor->offsets[0] = '\0';
    tensor->size_bytes = size_bytes;
    tensor->shard = shard;
}

static void add_spec(struct fake_model *fake, const struct tensor_spec *spec, uint32_t shard)
{
    char shape[80];
    size_t used = 0;
    for (uint32_t i = 0; i < spec->rank; i++) {
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%c%llu", i == 0 ? '[' : ',',
                                 (unsigned long long)spec->shape[i]);
    }
    snprintf(shape + used, sizeof shape - used, "]");
    fake_add(fake, spec->name, dtype_name(spec->dtype), shape, tensor_spec_bytes(spec), shard);
}

void fake_add_layer(struct fake_model *fake, uint32_t layer, uint32_t shard)
{
    const struct model_config *c = &fake->config;
    struct tensor_spec spec;
    for (enum tensor_id id = 0; id < T_LAYER_COUNT; id++) {
        if (inventory_layer_has(c, layer, id)) {
            inventory_tensor(c, layer, id, &spec);
            add_spec(fake, &spec, shard);
        }
    }
    for (uint32_t expert = 0; config_is_moe(c, layer) && expert < c->experts; expert++) {
        for (enum expert_part part = W1_PACKED; part < EXPERT_PARTS; part++) {
            inventory_expert(c, layer, expert, part, &spec);
            add_spec(fake, &spec, shard);
        }
    }
}

void fake_add_level(struct fake_model *fake, uint32_t shard)
{
    struct tensor_spec spec;
    for (enum tensor_id id = T_EMBED; id < T_COUNT; id++) {
        inventory_tensor(&fake->config, TENSOR_MODEL_LEVEL, id, &spec);
        add_spec(fake, &spec, shard);
    }
}

void fake_init(struct fake_model *fake, const struct model_config *c, uint32_t shards)
{
    *fake = (struct fake_model){.config = *c, .shards = shards};
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        const uint64_t runs = shards > 1 ? shards - 1 : 1;
        fake_add_layer(fake, layer, (uint32_t)(layer * runs / c->layers));
    }
    fake_add_level(fake, shards - 1);
    fake_add(fake, "vision_tower.patch_embed.proj.weight", "BF16", "[4,3,2,2]", 96, shards - 1);
}

struct fake_tensor *fake_find(struct fake_model *fake, const char *name)
{
    for (size_t i = 0; i < fake->count; i++) {
        if (strcmp(fake->tensors[i].name, name) == 0) {
            return &fake->tensors[i];
        }
    }
    need(false, name);
    return NULL;
}

void fake_remove(struct fake_model *fake, const char *name)
{
    *fake_find(fake, name) = fake->tensors[--fake->count];
}

/* By shard, then by size of the element, largest first, then by name. */
static int compare_tensors(const void *a, const void *b)
{
    const struct fake_tensor *left = a;
    const struct fake_tensor *right = b;
    const int left_rank = left->dtype[0] == 'F' ? 0 : left->dtype[0] == 'U' ? 2 : 1;
    const int right_rank = right->dtype[0] == 'F' ? 0 : right->dtype[0] == 'U' ? 2 : 1;
    if (left->shard != right->shard) {
        return left->shard < right->shard ? -1 : 1;
    }
    return left_rank != right_rank ? left_rank - right_rank : strcmp(left->name, right->name);
}

/* Moving large entries about is slow under sanitizers, and mostly they are in order already. */
static void sort_tensors(struct fake_model *fake)
{
    bool sorted = true;
    for (size_t i = 1; i < fake->count && sorted; i++) {
        sorted = compare_tensors(&fake->tensors[i - 1], &fake->tensors[i]) <= 0;
    }
    if (!sorted) {
        qsort(fake->tensors, fake->count, sizeof *fake->tensors, compare_tensors);
    }
}

char *fake_header(struct fake_model *fake, uint32_t shard, size_t *size_bytes,
                  uint64_t *data_bytes)
{
    char *text = NULL;
    uint64_t at = 0;
    bool first = true;
    FILE *out = open_memstream(&text, size_bytes);
    need(out != NULL, "open_memstream");
    sort_tensors(fake);
    for (size_t i = 0; i < fake->count; i++) {
        const struct fake_tensor *tensor = &fake->tensors[i];
        char offsets[64];
        if (tensor->shard != shard) {
            continue;
        }
        snprintf(offsets, sizeof offsets, "[%llu,%llu]", (unsigned long long)at,
                 (unsigned long long)(at + tensor->size_bytes));
        fprintf(out, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":%s}",
                first ? "{" : ",", tensor->name, tensor->dtype, tensor->shape,
                tensor->offsets[0] != '\0' ? tensor->offsets : offsets);
        at += tensor->size_bytes;
        first = false;
    }
    fprintf(out, first ? "{}" : "}");
    fflush(out);
    const int rounding = (int)(align_up(*size_bytes, 8) - *size_bytes);
    fprintf(out, "%*s", rounding + (int)fake->pad_bytes, "");
    fclose(out);
    *data_bytes = at;
    return text;
}

char *fake_path(const struct fake_model *fake, const char *name)
{
    char *path = NULL;
    need(asprintf(&path, "%s/%s", fake->dir, name) > 0, "asprintf");
    return path;
}

static void shard_name(const struct fake_model *fake, uint32_t shard, char name[80])
{
    snprintf(name, 80, "model-%05u-of-%06u.safetensors", shard + 1, fake->shards);
}

char *fake_shard_path(const struct fake_model *fake, uint32_t shard)
{
    char name[80];
    shard_name(fake, shard, name);
    return fake_path(fake, name);
}

/* A new file in the place of any old one. Writing over the old one instead would make some file
 * systems wait for the drive. */
static FILE *create(const char *path)
{
    (void)unlink(path);
    FILE *out = fopen(path, "wb");
    need(out != NULL, path);
    return out;
}

void fake_put(const struct fake_model *fake, const char *name, const void *bytes, size_t size)
{
    char *path = fake_path(fake, name);
    FILE *out = create(path);
    need(fwrite(bytes, 1, size, out) == size && fclose(out) == 0, path);
    free(path);
}

static void write_shard(struct fake_model *fake, uint32_t shard)
{
    static const char zeros[65536];
    size_t header_bytes = 0;
    uint64_t data_bytes = 0;
    char *header = fake_header(fake, shard, &header_bytes, &data_bytes);
    char *path = fake_shard_path(fake, shard);
    FILE *out = create(path);
    unsigned char length[8];
    for (int i = 0; i < 8; i++) {
        length[i] = (unsigned char)((uint64_t)header_bytes >> (8 * i));
    }
    need(fwrite(length, 1, 8, out) == 8, path);
    need(fwrite(header, 1, header_bytes, out) == header_bytes, path);
    if (fake->sparse) {
        fflush(out);
        need(ftruncate(fileno(out), (off_t)(8 + header_bytes + data_bytes)) == 0, path);
    }
    for (uint64_t left = fake->sparse ? 0 : data_bytes; left > 0;) {
        const size_t now = (size_t)min_u64(left, sizeof zeros);
        need(fwrite(zeros, 1, now, out) == now, path);
        left -= now;
    }
    need(fclose(out) == 0, path);
    free(path);
    free(header);
}

void fake_write_index(const struct fake_model *fake)
{
    char *path = fake_path(fake, "model.safetensors.index.json");
    FILE *out = create(path);
    fprintf(out, "{\"metadata\":{\"total_size\":0},\"weight_map\":{");
    for (size_t i = 0; i < fake->count; i++) {
        char name[80];
        shard_name(fake, fake->tensors[i].shard, name);
        fprintf(out, "%s\"%s\":\"%s\"", i == 0 ? "" : ",", fake->tensors[i].name, name);
    }
    fprintf(out, "}}");
    need(fclose(out) == 0, path);
    free(path);
}

void fake_write(struct fake_model *fake)
{
    if (fake->dir[0] == '\0') {
        snprintf(fake->dir, sizeof fake->dir, "%s/k3ring-test-XXXXXX", P_tmpdir);
        need(mkdtemp(fake->dir) != NULL, fake->dir);
    }
    char *config = fake_config_json(&fake->config);
    fake_put(fake, "config.json", config, strlen(config));
    free(config);
    for (uint32_t shard = 0; shard < fake->shards; shard++) {
        write_shard(fake, shard);
    }
    if (!fake->no_index) {
        fake_write_index(fake);
    }
}

void fake_free(struct fake_model *fake)
{
    DIR *folder = fake->dir[0] == '\0' ? NULL : opendir(fake->dir);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder != NULL) {
        closedir(folder);
        rmdir(fake->dir);
    }
    free(fake->tensors);
    *fake = (struct fake_model){.tensors = NULL};
}

bool fake_refused(const struct fake_model *fake, const char *part)
{
    static const uint32_t threads[] = {1, 2, 7};
    char first[ERR_MESSAGE_BYTES] = "";
    for (size_t i = 0; i < countof(threads); i++) {
        const struct model_options options = {.threads = threads[i]};
        struct model *model = NULL;
        err_clear();
        const int rc = model_open(fake->dir, &options, &model);
        const char *message = err_message();
        if (i == 0) {
            snprintf(first, sizeof first, "%s", message);
        }
        if (rc != ERR_MODEL || model != NULL || strstr(message, part) == NULL ||
            strchr(message, '\n') != NULL || strcmp(first, message) != 0) {
            fprintf(stderr, "%u threads: code %d, expected '%s' in '%s'\n", threads[i], rc, part,
                    message);
            model_close(model);
            return false;
        }
    }
    return true;
}
