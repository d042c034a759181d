/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/reference_priv.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every element of the tiny model, scales aside. The build must end exactly here: a shape that
 * is wrong shows at once. */
#define POOL_FLOATS 3924512

#define MODEL "language_model.model."
#define NAME_BYTES 160

enum dtype { BF16, F32 };

uint64_t ref_name_hash(const char *name)
{
    uint64_t hash = 14695981039346656037ULL;
    for (; *name != '\0'; name++) {
        hash = (hash ^ (unsigned char)*name) * 1099511628211ULL;
    }
    return hash;
}

uint64_t ref_word(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

bool ref_is_mla(int layer)
{
    return layer == 3 || layer == 7 || layer == 11 || layer == 12;
}

static bool ends(const char *name, const char *tail)
{
    size_t n = strlen(name), t = strlen(tail);
    return n >= t && strcmp(name + n - t, tail) == 0;
}

static bool holds(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

/* Amplitude of an ordinary projection with the given input width. */
static double projection_amplitude(const char *name, int in)
{
    int log2_in = 0;
    while (in >> (log2_in + 1) != 0) {
        log2_in++;
    }
    double amplitude = ldexp(1.0, -(log2_in >> 1));
    if (holds(name, "mlp.") || holds(name, "shared_experts.")) {
        amplitude *= holds(name, "down_proj") ? 0.0625 : 8.0;
    }
    if (ends(name, "self_attn.o_proj.weight")) {
        amplitude *= 8.0;
    }
    if (ends(name, "q_b_proj.weight")) {
        amplitude *= 4.0;
    }
    return amplitude;
}

/* The first rule that fits the name decides. */
static double amplitude_of(const char *name, int in)
{
    static const struct {
        const char *tail;
        double amplitude;
    } rule[] = {
        {"norm.weight", 0.25},
        {"_res_proj.weight", 0.25},
        {"embed_tokens.weight", 1.0},
        {"A_log", 1.0},
        {"dt_bias", 1.0},
        {"_conv1d.weight", 0.5},
        {"score_correction_bias", 0.125},
        {".gate.weight", 0.25},
        {"lm_head.weight", 0.25},
    };
    for (size_t i = 0; i < sizeof rule / sizeof rule[0]; i++) {
        if (ends(name, rule[i].tail)) {
            return rule[i].amplitude;
        }
    }
    return projection_amplitude(name, in);
}

static float to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000U;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

static float *take(struct ref_weights *w, size_t floats)
{
    assert(w->used + floats <= w->capacity);
    float *start = w->pool + w->used;
    w->used += floats;
    return start;
}

/* One bf16 or f32 tensor of rows x in elements. */
static const float *tensor(struct ref_weights *w, const char *name, enum dtype dtype, int rows,
                           int in)
{
    size_t count = (size_t)rows * (size_t)in;
    uint64_t seed = ref_name_hash(name);
    double amplitude = amplitude_of(name, in);
    double offset = ends(name, "norm.weight") ? 1.0 : 0.0;
    bool padded = ends(name, "A_log");
    float *out = take(w, count);
    for (size_t i = 0; i < count; i++) {
        double r = 2.0 * ((double)(ref_word(seed, i) >> 40) / 16777216.0) - 1.0;
        float value = (float)(offset + amplitude * r);
        out[i] = dtype == BF16 ? to_bf16(value) : value;
        if (padded && i >= REF_KDA_HEADS) {
            out[i] = 0.0F;
        }
    }
    w->tensors++;
    w->size_bytes += count * (dtype == BF16 ? 2 : 4);
    return out;
}

/* One MXFP4 matrix from its two byte tensors: low nibble first, a scale per 32 inputs. */
static const float *packed(struct ref_weights *w, const char *prefix, int expert, const char *leaf,
                           int rows, int in)
{
    static const double magnitude[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%sexperts.%d.%s.weight_packed", prefix, expert, leaf);
    uint64_t codes = ref_name_hash(name);
    snprintf(name, sizeof name, "%sexperts.%d.%s.weight_scale", prefix, expert, leaf);
    uint64_t scales = ref_name_hash(name);
    size_t count = (size_t)rows * (size_t)in;
    float *out = take(w, count);
    for (size_t i = 0; i < count; i++) {
        unsigned byte = (unsigned)(ref_word(codes, i / 2) >> 56);
        unsigned code = i % 2 == 0 ? byte & 15U : byte >> 4;
        int scale = 122 + (int)(ref_word(scales, i / 32) >> 62);
        double value = ldexp(magnitude[code & 7U], scale - 127);
        out[i] = (float)(code >= 8 ? -value : value);
    }
    w->tensors += 2;
    w->size_bytes += count / 2 + count / 32;
    return out;
}

/* A tensor below a prefix. */
static const float *under(struct ref_weights *w, const char *prefix, const char *leaf,
                          enum dtype dtype, int rows, int in)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", prefix, leaf);
    return tensor(w, name, dtype, rows, in);
}

static void build_kda(struct ref_weights *w, struct ref_layer *l, const char *attn)
{
    static const char letter[REF_QKV] = {'q', 'k', 'v'};
    for (int i = 0; i < REF_QKV; i++) {
        char leaf[32];
        snprintf(leaf, sizeof leaf, "%c_proj.weight", letter[i]);
        l->kda.proj[i] = under(w, attn, leaf, BF16, REF_KDA_WIDTH, REF_HIDDEN);
        snprintf(leaf, sizeof leaf, "%c_conv1d.weight", letter[i]);
        l->kda.conv[i] = under(w, attn, leaf, F32, REF_KDA_WIDTH, REF_TAPS);
    }
    l->g = under(w, attn, "g_proj.weight", BF16, REF_KDA_WIDTH, REF_HIDDEN);
    l->o = under(w, attn, "o_proj.weight", BF16, REF_HIDDEN, REF_KDA_WIDTH);
    l->kda.f_a = under(w, attn, "f_a_proj.weight", BF16, REF_KDA_DIM, REF_HIDDEN);
    l->kda.f_b = under(w, attn, "f_b_proj.weight", BF16, REF_KDA_WIDTH, REF_KDA_DIM);
    l->kda.b = under(w, attn, "b_proj.weight", BF16, REF_KDA_HEADS, REF_HIDDEN);
    l->kda.a_log = under(w, attn, "A_log", F32, 1, REF_KDA_DIM);
    l->kda.dt_bias = under(w, attn, "dt_bias", F32, 1, REF_KDA_WIDTH);
    l->kda.o_norm = under(w, attn, "o_norm.weight", F32, 1, REF_KDA_DIM);
}

static void build_mla(struct ref_weights *w, struct ref_layer *l, const char *attn)
{
    struct ref_mla *m = &l->mla;
    m->q_a = under(w, attn, "q_a_proj.weight", BF16, REF_Q_LORA, REF_HIDDEN);
    m->q_a_norm = under(w, attn, "q_a_layernorm.weight", BF16, 1, REF_Q_LORA);
    m->q_b = under(w, attn, "q_b_proj.weight", BF16, REF_Q_WIDTH, REF_Q_LORA);
    m->kv_a = under(w, attn, "kv_a_proj_with_mqa.weight", BF16, REF_KV_LORA + REF_ROPE, REF_HIDDEN);
    m->kv_a_norm = under(w, attn, "kv_a_layernorm.weight", BF16, 1, REF_KV_LORA);
    m->kv_b = under(w, attn, "kv_b_proj.weight", BF16, REF_KV_WIDTH, REF_KV_LORA);
    l->g = under(w, attn, "g_proj.weight", BF16, REF_O_WIDTH, REF_HIDDEN);
    l->o = under(w, attn, "o_proj.weight", BF16, REF_HIDDEN, REF_O_WIDTH);
}

static void build_moe(struct ref_weights *w, struct ref_moe *m, const char *moe)
{
    m->gate = under(w, moe, "gate.weight", BF16, REF_EXPERTS, REF_HIDDEN);
    m->bias = under(w, moe, "gate.e_score_correction_bias", F32, 1, REF_EXPERTS);
    m->down = under(w, moe, "routed_expert_down_proj.weight", BF16, REF_LATENT, REF_HIDDEN);
    m->norm = under(w, moe, "routed_expert_norm.weight", BF16, 1, REF_LATENT);
    m->up = under(w, moe, "routed_expert_up_proj.weight", BF16, REF_HIDDEN, REF_LATENT);
    m->shared_gate = under(w, moe, "shared_experts.gate_proj.weight", BF16, REF_SHARED, REF_HIDDEN);
    m->shared_up = under(w, moe, "shared_experts.up_proj.weight", BF16, REF_SHARED, REF_HIDDEN);
    m->shared_down = under(w, moe, "shared_experts.down_proj.weight", BF16, REF_HIDDEN, REF_SHARED);
    for (int e = 0; e < REF_EXPERTS; e++) {
        m->expert[e].w1 = packed(w, moe, e, "w1", REF_INTER, REF_LATENT);
        m->expert[e].w2 = packed(w, moe, e, "w2", REF_LATENT, REF_INTER);
        m->expert[e].w3 = packed(w, moe, e, "w3", REF_INTER, REF_LATENT);
    }
}

static void build_mlp(struct ref_weights *w, struct ref_layer *l, int layer, const char *prefix)
{
    if (layer > 0) {
        char moe[NAME_BYTES / 2];
        snprintf(moe, sizeof moe, MODEL "layers.%d.block_sparse_moe.", layer);
        build_moe(w, &l->moe, moe);
        return;
    }
    l->dense.gate = under(w, prefix, "mlp.gate_proj.weight", BF16, REF_DENSE, REF_HIDDEN);
    l->dense.up = under(w, prefix, "mlp.up_proj.weight", BF16, REF_DENSE, REF_HIDDEN);
    l->dense.down = under(w, prefix, "mlp.down_proj.weight", BF16, REF_HIDDEN, REF_DENSE);
}

static void build_layer(struct ref_weights *w, int layer)
{
    struct ref_layer *l = &w->layer[layer];
    char p[NAME_BYTES / 2], attn[NAME_BYTES / 2];
    snprintf(p, sizeof p, MODEL "layers.%d.", layer);
    snprintf(attn, sizeof attn, MODEL "layers.%d.self_attn.", layer);
    l->input_norm = under(w, p, "input_layernorm.weight", BF16, 1, REF_HIDDEN);
    l->post_norm = under(w, p, "post_attention_layernorm.weight", BF16, 1, REF_HIDDEN);
    l->attn_res_norm = under(w, p, "self_attention_res_norm.weight", BF16, 1, REF_HIDDEN);
    l->attn_res_proj = under(w, p, "self_attention_res_proj.weight", BF16, 1, REF_HIDDEN);
    l->mlp_res_norm = under(w, p, "mlp_res_norm.weight", BF16, 1, REF_HIDDEN);
    l->mlp_res_proj = under(w, p, "mlp_res_proj.weight", BF16, 1, REF_HIDDEN);
    if (ref_is_mla(layer)) {
        build_mla(w, l, attn);
    } else {
        build_kda(w, l, attn);
    }
    build_mlp(w, l, layer, p);
}

struct ref_weights *ref_weights_open(void)
{
    struct ref_weights *w = calloc(1, sizeof *w + POOL_FLOATS * sizeof(float));
    if (w == NULL) {
        return NULL;
    }
    w->capacity = POOL_FLOATS;
    for (int layer = 0; layer < REF_LAYERS; layer++) {
        build_layer(w, layer);
    }
    w->embed = tensor(w, MODEL "embed_tokens.weight", BF16, REF_VOCAB, REF_HIDDEN);
    w->lm_head = tensor(w, "language_model.lm_head.weight", BF16, REF_VOCAB, REF_HIDDEN);
    w->norm = tensor(w, MODEL "norm.weight", BF16, 1, REF_HIDDEN);
    w->out_res_norm = tensor(w, MODEL "output_attn_res_norm.weight", BF16, 1, REF_HIDDEN);
    w->out_res_proj = tensor(w, MODEL "output_attn_res_proj.weight", BF16, 1, REF_HIDDEN);
    assert(w->used == w->capacity);
    return w;
}

void ref_weights_close(struct ref_weights *weights)
{
    free(weights);
}

int ref_weights_tensors(const struct ref_weights *weights)
{
    return weights->tensors;
}

uint64_t ref_weights_size_bytes(const struct ref_weights *weights)
{
    return weights->size_bytes;
}

const float *ref_weights_embedding(const struct ref_weights *weights, int token)
{
    return weights->embed + token * REF_HIDDEN;
}
