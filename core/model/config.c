/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/model/model_priv.h"

#define CONFIG_FILE_CAP_BYTES (4 * MIB)

/* Bound of one dimension and of the products that become rows of a matrix. */
#define WIDTH_MAX ((uint64_t)1 << 24)

/* Where a parse stands: the objects fields are looked up in, and what was found wrong. */
struct reader {
    const cJSON *root, *text, *linear; /* linear may be NULL: then only aliases are there */
    struct model_config *out;
    char problems[ERR_MESSAGE_BYTES - 224]; /* joined by "; " */
    size_t used_bytes;
    uint32_t unlisted; /* problems that found no room */
    uint32_t count;
};

static void problem(struct reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void problem(struct reader *r, const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const size_t left = sizeof r->problems - r->used_bytes;
    const char *joint = r->count == 0 ? "" : "; ";
    r->count++;
    /* Once one is left out all later ones are, so that "and N more" is true. */
    if (r->unlisted > 0 || strlen(joint) + strlen(line) >= left) {
        r->unlisted++;
        return;
    }
    r->used_bytes += (size_t)snprintf(r->problems + r->used_bytes, left, "%s%s", joint, line);
}

/* Which object owns a field. */
enum owner { IN_TEXT, IN_LINEAR };

enum kind {
    WHOLE,    /* uint32_t within [least, most], a multiple of step */
    REAL,     /* float strictly between least and most */
    FLAG,     /* bool, free choice */
    ONLY_TRUE, ONLY_FALSE, ONLY_WHOLE, ONLY_TEXT /* a switch with one supported value */
};

struct field {
    const char *name, *alias; /* alias: the flat spelling, in the text object; may be NULL */
    enum owner owner;
    enum kind kind;
    bool required;
    double least, most;
    uint32_t step;
    size_t at;                /* of the value in struct model_config; unused by switches */
    const char *only;         /* ONLY_TEXT: the value; ONLY_WHOLE: unused, least is it */
};

#define AT(member) offsetof(struct model_config, member)
#define WHOLE_ROW(name, least, most, step, member) \
    {name, NULL, IN_TEXT, WHOLE, true, least, most, step, AT(member), NULL}
#define WIDTH_ROW(name, member) WHOLE_ROW(name, 1, (double)WIDTH_MAX, 1, member)
#define LINEAR_ROW(name, alias, kind, least, most, member) \
    {name, alias, IN_LINEAR, kind, true, least, most, 1, AT(member), NULL}
#define REAL_ROW(name, alias, required, least, most, member) \
    {name, alias, IN_TEXT, REAL, required, least, most, 1, AT(member), NULL}
#define SWITCH_ROW(name, alias, owner, kind, value, only) \
    {name, alias, owner, kind, false, value, value, 1, 0, only}

static const struct field fields[] = {
    WHOLE_ROW("hidden_size", 32, (double)WIDTH_MAX, 32, hidden),
    WHOLE_ROW("num_hidden_layers", 1, CONFIG_LAYERS_MAX, 1, layers),
    WIDTH_ROW("vocab_size", vocab),
    REAL_ROW("rms_norm_eps", NULL, true, 0, 1e-2, rms_eps),
    REAL_ROW("activation_situ_beta", "situ_beta", true, 0, 3e38, situ_beta),
    REAL_ROW("activation_situ_linear_beta", "situ_linear_beta", true, 0, 3e38, situ_linear_beta),
    WHOLE_ROW("attn_res_block_size", 1, UINT32_MAX, 1, attnres_block),
    WHOLE_ROW("num_attention_heads", 1, 65536, 1, mla_heads),
    WIDTH_ROW("q_lora_rank", q_lora),
    WIDTH_ROW("kv_lora_rank", kv_lora),
    WHOLE_ROW("qk_nope_head_dim", 1, 65536, 1, qk_nope),
    WHOLE_ROW("qk_rope_head_dim", 0, 65536, 1, qk_rope),
    WHOLE_ROW("v_head_dim", 1, 65536, 1, v_head),
    LINEAR_ROW("num_heads", "kda_num_heads", WHOLE, 1, 65536, kda_heads),
    LINEAR_ROW("head_dim", "kda_head_dim", WHOLE, 1, 65536, kda_dim),
    LINEAR_ROW("short_conv_kernel_size", "short_conv_kernel_size", WHOLE, 1, 16, conv_taps),
    LINEAR_ROW("gate_lower_bound", "gate_lower_bound", REAL, -3e38, 0, gate_lower_bound),
    WHOLE_ROW("first_k_dense_replace", 0, CONFIG_LAYERS_MAX, 1, first_dense),
    WIDTH_ROW("intermediate_size", dense_width),
    WHOLE_ROW("num_experts", 1, 65536, 1, experts),
    WHOLE_ROW("num_experts_per_token", 1, 65536, 1, experts_per_token),
    WHOLE_ROW("num_shared_experts", 1, 65536, 1, shared_experts),
    WHOLE_ROW("moe_intermediate_size", 32, (double)WIDTH_MAX, 32, expert_width),
    WHOLE_ROW("routed_expert_hidden_size", 32, (double)WIDTH_MAX, 32, latent),
    {"max_position_embeddings", NULL, IN_TEXT, WHOLE, false, 1, INT32_MAX, 1, AT(context_max),
     NULL},
    REAL_ROW("routed_scaling_factor", NULL, false, 0, 3e38, routed_scaling),
    {"latent_moe_use_norm", NULL, IN_TEXT, FLAG, false, 0, 0, 1, AT(latent_norm), NULL},
    {"moe_renormalize", NULL, IN_TEXT, FLAG, false, 0, 0, 1, AT(renormalize), NULL},
    SWITCH_ROW("hidden_act", NULL, IN_TEXT, ONLY_TEXT, 0, "situ"),
    SWITCH_ROW("mla_use_nope", NULL, IN_TEXT, ONLY_TRUE, 0, NULL),
    SWITCH_ROW("mla_use_output_gate", NULL, IN_TEXT, ONLY_TRUE, 0, NULL),
    SWITCH_ROW("use_full_rank_gate", "use_full_rank_gate", IN_LINEAR, ONLY_TRUE, 0, NULL),
    SWITCH_ROW("moe_layer_freq", NULL, IN_TEXT, ONLY_WHOLE, 1, NULL),
    SWITCH_ROW("moe_router_activation_func", NULL, IN_TEXT, ONLY_TEXT, 0, "sigmoid"),
    SWITCH_ROW("num_expert_group", NULL, IN_TEXT, ONLY_WHOLE, 1, NULL),
    SWITCH_ROW("topk_group", NULL, IN_TEXT, ONLY_WHOLE, 1, NULL),
    SWITCH_ROW("topk_method", NULL, IN_TEXT, ONLY_TEXT, 0, "noaux_tc"),
    SWITCH_ROW("num_nextn_predict_layers", NULL, IN_TEXT, ONLY_WHOLE, 0, NULL),
    SWITCH_ROW("tie_word_embeddings", NULL, IN_TEXT, ONLY_FALSE, 0, NULL),
};

static const cJSON *member(const cJSON *object, const char *name)
{
    return object == NULL ? NULL : cJSON_GetObjectItemCaseSensitive(object, name);
}

/* A field in its owner or under its alias; both at once must agree. NULL when absent. */
static const cJSON *look_up(struct reader *r, enum owner owner, const char *name,
                            const char *alias)
{
    const cJSON *item = member(owner == IN_LINEAR ? r->linear : r->text, name);
    const cJSON *other = alias == NULL ? NULL : member(r->text, alias);
    if (item != NULL && other != NULL && !cJSON_Compare(item, other, true)) {
        problem(r, "%s and its other spelling differ", name);
    }
    return item != NULL ? item : other;
}

static void read_whole(struct reader *r, const struct field *f, const char *name,
                       const cJSON *item)
{
    uint64_t value = 0;
    if (!json_u64(item, &value)) {
        problem(r, "%s must be a whole number", name);
    } else if ((double)value < f->least || (double)value > f->most) {
        problem(r, "%s is %llu but must lie in %.0f..%.0f", name, (unsigned long long)value,
                f->least, f->most);
    } else if (value % f->step != 0) {
        problem(r, "%s is %llu but must be a multiple of %u", name, (unsigned long long)value,
                f->step);
    } else {
        const uint32_t narrow = (uint32_t)value;
        memcpy((char *)r->out + f->at, &narrow, sizeof narrow);
    }
}

static void read_real(struct reader *r, const struct field *f, const char *name,
                      const cJSON *item)
{
    if (!cJSON_IsNumber(item)) {
        problem(r, "%s must be a number", name);
        return;
    }
    /* All bounds lie within the floats, but a small value may vanish on the way to one. */
    const double exact = item->valuedouble;
    const bool inside = exact > f->least && exact < f->most;
    const float value = inside ? (float)exact : 0;
    if (!inside || (value == 0 && exact != 0)) {
        problem(r, "%s is %g but must lie strictly between %g and %g", name, exact, f->least,
                f->most);
        return;
    }
    memcpy((char *)r->out + f->at, &value, sizeof value);
}

static void read_flag(struct reader *r, const struct field *f, const char *name,
                      const cJSON *item)
{
    if (!cJSON_IsBool(item)) {
        problem(r, "%s must be true or false", name);
        return;
    }
    const bool value = cJSON_IsTrue(item);
    if (f->kind == FLAG) {
        memcpy((char *)r->out + f->at, &value, sizeof value);
    } else if (value != (f->kind == ONLY_TRUE)) {
        problem(r, "%s is %s, which is not supported", name, value ? "true" : "false");
    }
}

static void read_only_whole(struct reader *r, const struct field *f, const char *name,
                            const cJSON *item)
{
    uint64_t value = 0;
    if (!json_u64(item, &value)) {
        problem(r, "%s must be a whole number", name);
    } else if ((double)value < f->least || (double)value > f->most) {
        problem(r, "%s is %llu, only %.0f is supported", name, (unsigned long long)value,
                f->least);
    }
}

static void read_only_text(struct reader *r, const char *only, const char *name,
                           const cJSON *item)
{
    if (!cJSON_IsString(item)) {
        problem(r, "%s must be a string", name);
    } else if (strcmp(item->valuestring, only) != 0) {
        problem(r, "%s is '%.40s', only '%s' is supported", name, item->valuestring, only);
    }
}

static void read_field(struct reader *r, const struct field *f)
{
    char name[80];
    const bool flat = r->linear == NULL && r->text == r->root; /* then the alias is the name */
    snprintf(name, sizeof name, "%s%s",
             f->owner == IN_LINEAR && !flat ? "linear_attn_config." : "",
             f->owner == IN_LINEAR && flat ? f->alias : f->name);
    const cJSON *item = look_up(r, f->owner, f->name, f->alias);
    if (item == NULL) {
        if (f->required) {
            problem(r, "%s is missing", name);
        }
        return;
    }
    if (cJSON_IsNull(item)) {
        if (f->required) {
            problem(r, "%s is null, which is not supported", name);
        }
        return;
    }
    switch (f->kind) {
    case WHOLE:
        read_whole(r, f, name, item);
        break;
    case REAL:
        read_real(r, f, name, item);
        break;
    case ONLY_WHOLE:
        read_only_whole(r, f, name, item);
        break;
    case ONLY_TEXT:
        read_only_text(r, f->only, name, item);
        break;
    default:
        read_flag(r, f, name, item);
    }
}

/* Marks the layers of a one-based list in seen. False, with a problem, when it is no such list. */
static bool read_layers(struct reader *r, const cJSON *list, const char *name,
                        bool seen[CONFIG_LAYERS_MAX])
{
    uint64_t before = 0;
    if (!cJSON_IsArray(list)) {
        problem(r, "%s must be a list of layer numbers", name);
        return false;
    }
    for (const cJSON *item = list->child; item != NULL; item = item->next) {
        uint64_t layer = 0;
        if (!json_u64(item, &layer)) {
            problem(r, "%s must hold whole numbers only", name);
            return false;
        }
        if (layer < 1 || layer > r->out->layers) {
            problem(r, "%s holds %llu but counts layers from 1 to %u", name,
                    (unsigned long long)layer, r->out->layers);
            return false;
        }
        if (layer <= before) {
            problem(r, "%s must increase strictly, %llu follows %llu", name,
                    (unsigned long long)layer, (unsigned long long)before);
            return false;
        }
        seen[layer - 1] = true;
        before = layer;
    }
    return true;
}

static void read_layer_map(struct reader *r)
{
    bool kda[CONFIG_LAYERS_MAX] = {false};
    const cJSON *mla_list = look_up(r, IN_LINEAR, "full_attn_layers", "full_attn_layers");
    const cJSON *kda_list = look_up(r, IN_LINEAR, "kda_layers", "kda_layers");
    if (mla_list == NULL || cJSON_IsNull(mla_list)) {
        problem(r, "full_attn_layers is missing");
        return;
    }
    if (cJSON_IsArray(mla_list) && mla_list->child == NULL) {
        problem(r, "full_attn_layers is empty");
        return;
    }
    /* Without a count of layers there is nothing to hold the lists against. */
    if (r->out->layers == 0 || !read_layers(r, mla_list, "full_attn_layers", r->out->is_mla) ||
        kda_list == NULL || cJSON_IsNull(kda_list) ||
        !read_layers(r, kda_list, "kda_layers", kda)) {
        return;
    }
    for (uint32_t layer = 0; layer < r->out->layers; layer++) {
        if (kda[layer] == r->out->is_mla[layer]) {
            problem(r, "layer %u is in %s of full_attn_layers and kda_layers", layer + 1,
                    kda[layer] ? "both" : "neither");
            return;
        }
    }
}

/* One token id: a whole number, a list that begins with one, null or absent (-1). */
static int64_t read_token(struct reader *r, const cJSON *item, const char *name)
{
    uint64_t value = 0;
    if (cJSON_IsArray(item) && item->child != NULL) {
        item = item->child;
    }
    if (item == NULL || cJSON_IsNull(item)) {
        return -1;
    }
    if (!json_u64(item, &value) || value > INT32_MAX) {
        problem(r, "%s must be a token id", name);
        return -1;
    }
    return (int64_t)value;
}

static void read_tokens(struct reader *r)
{
    const struct {
        const char *name;
        int64_t *out;
    } tokens[] = {{"bos_token_id", &r->out->bos},
                  {"eos_token_id", &r->out->eos},
                  {"pad_token_id", &r->out->pad}};
    for (size_t i = 0; i < countof(tokens); i++) {
        const char *name = tokens[i].name;
        const int64_t inner = read_token(r, member(r->text, name), name);
        if (r->root == r->text) {
            *tokens[i].out = inner;
            continue;
        }
        const int64_t outer = read_token(r, member(r->root, name), name);
        if (inner >= 0 && outer >= 0 && inner != outer) {
            problem(r, "%s is %lld at the root but %lld in text_config", name, (long long)outer,
                    (long long)inner);
        }
        *tokens[i].out = inner >= 0 ? inner : outer;
    }
}

/* The fields a quantization scheme must state, those it may leave out, and their one value. */
static void check_weights(struct reader *r, const cJSON *weights)
{
    static const struct field rows[] = {
        SWITCH_ROW("num_bits", NULL, IN_TEXT, ONLY_WHOLE, 4, NULL),
        SWITCH_ROW("group_size", NULL, IN_TEXT, ONLY_WHOLE, 32, NULL),
        SWITCH_ROW("type", NULL, IN_TEXT, ONLY_TEXT, 0, "float"),
        SWITCH_ROW("symmetric", NULL, IN_TEXT, ONLY_TRUE, 0, NULL),
        SWITCH_ROW("strategy", NULL, IN_TEXT, ONLY_TEXT, 0, "group"),
        SWITCH_ROW("scale_dtype", NULL, IN_TEXT, ONLY_TEXT, 0, "torch.uint8"),
    };
    for (size_t i = 0; i < countof(rows); i++) {
        char name[80];
        const struct field *f = &rows[i];
        const cJSON *item = member(weights, f->name);
        snprintf(name, sizeof name, "quantization_config weights.%s", f->name);
        if (item == NULL || cJSON_IsNull(item)) {
            if (i < 2) {
                problem(r, "%s is missing", name);
            }
        } else if (f->kind == ONLY_WHOLE) {
            read_only_whole(r, f, name, item);
        } else if (f->kind == ONLY_TEXT) {
            read_only_text(r, f->only, name, item);
        } else {
            read_flag(r, f, name, item);
        }
    }
}

static void check_quantization(struct reader *r, const cJSON *block)
{
    if (block == NULL || cJSON_IsNull(block)) {
        return;
    }
    if (!cJSON_IsObject(block)) {
        problem(r, "quantization_config must be an object");
        return;
    }
    static const char *const texts[][2] = {{"quant_method", "compressed-tensors"},
                                           {"format", "mxfp4-pack-quantized"}};
    for (size_t i = 0; i < countof(texts); i++) {
        char name[80];
        const cJSON *item = member(block, texts[i][0]);
        snprintf(name, sizeof name, "quantization_config.%s", texts[i][0]);
        if (item == NULL) {
            problem(r, "%s is missing", name);
        } else {
            read_only_text(r, texts[i][1], name, item);
        }
    }
    const cJSON *groups = member(block, "config_groups");
    const cJSON *weights = member(member(groups, "group_0"), "weights");
    if (!cJSON_IsObject(weights)) {
        problem(r, "quantization_config.config_groups.group_0.weights is missing");
    } else {
        check_weights(r, weights);
    }
    if (groups != NULL && groups->child != NULL && groups->child->next != NULL) {
        problem(r, "quantization_config.config_groups has more than one group");
    }
}

static void check_model_type(struct reader *r, const cJSON *object, const char *where)
{
    const cJSON *item = member(object, "model_type");
    if (item == NULL) {
        return;
    }
    if (!cJSON_IsString(item)) {
        problem(r, "%smodel_type must be a string", where);
    } else if (strcmp(item->valuestring, "kimi_k3") != 0 &&
               strcmp(item->valuestring, "kimi_linear") != 0) {
        problem(r, "%smodel_type is '%.40s', only 'kimi_k3' and 'kimi_linear' are supported",
                where, item->valuestring);
    }
}

/* What several fields say together. Runs only over fields that were read. */
static void check_together(struct reader *r)
{
    const struct model_config *c = r->out;
    const struct {
        const char *what;
        uint64_t value;
    } products[] = {
        {"linear_attn_config.num_heads * head_dim", (uint64_t)c->kda_heads * c->kda_dim},
        {"num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)",
         (uint64_t)c->mla_heads * (c->qk_nope + c->qk_rope)},
        {"num_attention_heads * (qk_nope_head_dim + v_head_dim)",
         (uint64_t)c->mla_heads * (c->qk_nope + c->v_head)},
        {"num_shared_experts * moe_intermediate_size",
         (uint64_t)c->shared_experts * c->expert_width},
    };
    for (size_t i = 0; i < countof(products); i++) {
        if (products[i].value > WIDTH_MAX) {
            problem(r, "%s is %llu, more than %llu", products[i].what,
                    (unsigned long long)products[i].value, (unsigned long long)WIDTH_MAX);
        }
    }
    if (c->experts > 0 && c->experts_per_token > c->experts) {
        problem(r, "num_experts_per_token is %u, more than num_experts, %u",
                c->experts_per_token, c->experts);
    }
    if (c->layers > 0 && c->first_dense > c->layers) {
        problem(r, "first_k_dense_replace is %u, more than num_hidden_layers, %u",
                c->first_dense, c->layers);
    }
    uint64_t kv_heads = 0;
    const cJSON *item = member(r->text, "num_key_value_heads");
    if (item != NULL && !cJSON_IsNull(item) &&
        (!json_u64(item, &kv_heads) || kv_heads != c->mla_heads)) {
        problem(r, "num_key_value_heads must equal num_attention_heads");
    }
}

static void read_config(struct reader *r)
{
    const cJSON *linear = member(r->text, "linear_attn_config");
    if (linear != NULL && !cJSON_IsNull(linear) && !cJSON_IsObject(linear)) {
        problem(r, "linear_attn_config must be an object");
    }
    r->linear = cJSON_IsObject(linear) ? linear : NULL;
    check_model_type(r, r->root, "");
    check_quantization(r, member(r->text, "quantization_config"));
    for (size_t i = 0; i < countof(fields); i++) {
        read_field(r, &fields[i]);
    }
    read_layer_map(r);
    read_tokens(r);
    check_together(r);
    if (r->text != r->root) {
        check_model_type(r, r->text, "text_config.");
        check_quantization(r, member(r->root, "quantization_config"));
        const cJSON *tie = member(r->root, "tie_word_embeddings");
        if (tie != NULL && !cJSON_IsFalse(tie)) {
            problem(r, "tie_word_embeddings at the root must be false");
        }
    }
    r->out->mla_lora_eps = r->out->rms_eps;
}

static int parse_tree(const cJSON *root, const char *name, struct model_config *out)
{
    const cJSON *text = member(root, "text_config");
    if (!cJSON_IsObject(root) || (text != NULL && !cJSON_IsObject(text))) {
        return err_set(ERR_MODEL, "%s: %s must be an object", name,
                       text == NULL ? "the whole" : "text_config");
    }
    struct reader *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory to read it", name);
    }
    memset(out, 0, sizeof *out); /* what lies between its members, too: packs compare the bytes */
    out->latent_norm = out->renormalize = true;
    out->routed_scaling = 1.0F;
    out->context_max = 1048576;
    out->bos = out->eos = out->pad = -1;
    r->root = root;
    r->text = text != NULL ? text : root;
    r->out = out;
    read_config(r);
    int rc = 0;
    if (r->unlisted > 0) {
        rc = err_set(ERR_MODEL, "%.120s: %s; and %u more", name, r->problems, r->unlisted);
    } else if (r->count > 0) {
        rc = err_set(ERR_MODEL, "%.120s: %s", name, r->problems);
    }
    free(r);
    return rc;
}

int config_parse(const char *text, size_t size_bytes, const char *name, struct model_config *out)
{
    cJSON *root = json_parse(text, size_bytes, name, false);
    if (root == NULL) {
        return err_code();
    }
    const int rc = parse_tree(root, name, out);
    cJSON_Delete(root);
    return rc;
}

int config_load(const char *dir, struct model_config *out)
{
    struct file_text file;
    char *path = path_join(dir, "config.json");
    int rc = path == NULL ? ERR_MEMORY : file_read(path, CONFIG_FILE_CAP_BYTES, &file);
    if (rc == 0) {
        rc = foreign_check(path, file.text, file.size_bytes, file.size_bytes);
        rc = rc < 0 ? rc : config_parse(file.text, file.size_bytes, path, out);
        file_text_free(&file);
    }
    free(path);
    return rc;
}
