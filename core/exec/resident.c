/* SPDX-License-Identifier: Apache-2.0 */
/* The small tensors: norms, AttnRes projections, convolution taps, decay and router biases of
 * every layer, read once at open and kept as f32. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/exec/exec_priv.h"

#define BOUNCE_BYTES (1 * MIB)

struct loader {
    struct engine *e;
    float *at, *end;        /* free part of the block */
    unsigned char *bounce, *raw;
    uint64_t raw_bytes;
};

static void widen(float *out, const unsigned char *raw, uint64_t count, enum dtype dtype)
{
    if (dtype == DTYPE_F32) {
        memcpy(out, raw, count * sizeof *out);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)raw[2 * i] << 16 | (uint32_t)raw[2 * i + 1] << 24;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* Reads one tensor to the end of the block; *out stays NULL when the layer has none. */
static int load(struct loader *l, uint32_t layer, enum tensor_id id, float **out)
{
    const struct tensor_ref *ref = model_tensor(l->e->model, layer, id);
    if (ref->size_bytes == 0) {
        return 0;
    }
    uint64_t count = (uint64_t)ref->rows * ref->cols;
    assert(l->at + align_up(count, 16) <= l->end && ref->size_bytes <= l->raw_bytes);
    unsigned char *raw;
    TRY(checks_read_small(l->e, layer, id, l->raw, &raw, l->bounce, BOUNCE_BYTES));
    widen(l->at, raw, count, ref->dtype);
    *out = l->at;
    l->at += align_up(count, 16);
    return 0;
}

/* norm * proj, the vector AttnRes scores with; takes the place of the norm. */
static int load_fold(struct loader *l, uint32_t layer, enum tensor_id norm, enum tensor_id proj,
                     float **out)
{
    float *p = NULL;
    TRY(load(l, layer, norm, out));
    TRY(load(l, layer, proj, &p));
    assert(*out != NULL && p != NULL);
    for (uint32_t i = 0; i < config_of(l->e)->hidden; i++) {
        (*out)[i] *= p[i];
    }
    l->at = p;
    return 0;
}

/* exp(A_log) per head; what lies past the heads must be zero padding. */
static int load_decay(struct loader *l, uint32_t layer, struct layer_small *s)
{
    const struct model_config *c = config_of(l->e);
    TRY(load(l, layer, T_A_LOG, &s->exp_a));
    if (s->exp_a == NULL) {
        return 0;
    }
    for (uint32_t i = c->kda_heads; i < model_tensor(l->e->model, layer, T_A_LOG)->cols; i++) {
        if (s->exp_a[i] != 0.0f) {
            const struct tensor_ref *ref = model_tensor(l->e->model, layer, T_A_LOG);
            return err_set(ERR_MODEL, "%s: A_log of layer %u is not zero at %u, past its last "
                           "head: the file is damaged (fetch it again) or of another layout",
                           l->e->files.file[ref->file].path, layer, i);
        }
    }
    l->e->kernels->exp(s->exp_a, s->exp_a, c->kda_heads);
    return 0;
}

/* A bias only chooses experts: a bad one would never reach the residual, where others show. */
static int load_router_bias(struct loader *l, uint32_t layer, struct layer_small *s)
{
    TRY(load(l, layer, T_ROUTER_BIAS, &s->router_bias));
    uint32_t experts = config_of(l->e)->experts;
    if (s->router_bias != NULL && !isfinite(l->e->kernels->max_abs(s->router_bias, experts))) {
        const struct tensor_ref *ref = model_tensor(l->e->model, layer, T_ROUTER_BIAS);
        return err_set(ERR_NUMERIC, "%s: the router's score correction bias of layer %u holds NaN "
                       "or Inf: fetch the file again", l->e->files.file[ref->file].path, layer);
    }
    return 0;
}

static int load_layer(struct loader *l, uint32_t layer)
{
    struct layer_small *s = &l->e->small[layer];
    TRY(load(l, layer, T_INPUT_NORM, &s->input_norm));
    TRY(load(l, layer, T_POST_NORM, &s->post_norm));
    TRY(load_fold(l, layer, T_ATTN_RES_NORM, T_ATTN_RES_PROJ, &s->attn_fold));
    TRY(load_fold(l, layer, T_MLP_RES_NORM, T_MLP_RES_PROJ, &s->mlp_fold));
    TRY(load(l, layer, T_CONV_Q, &s->conv[0]));
    TRY(load(l, layer, T_CONV_K, &s->conv[1]));
    TRY(load(l, layer, T_CONV_V, &s->conv[2]));
    TRY(load_decay(l, layer, s));
    TRY(load(l, layer, T_DT_BIAS, &s->dt_bias));
    TRY(load(l, layer, T_O_NORM, &s->o_norm));
    TRY(load(l, layer, T_Q_A_NORM, &s->q_a_norm));
    TRY(load(l, layer, T_KV_A_NORM, &s->kv_a_norm));
    TRY(load_router_bias(l, layer, s));
    return load(l, layer, T_LATENT_NORM, &s->latent_norm);
}

static int load_all(struct loader *l)
{
    struct engine *e = l->e;
    for (uint32_t layer = 0; layer < config_of(e)->layers; layer++) {
        TRY(load_layer(l, layer));
    }
    TRY(load(l, TENSOR_MODEL_LEVEL, T_NORM, &e->final_norm));
    return load_fold(l, TENSOR_MODEL_LEVEL, T_OUT_RES_NORM, T_OUT_RES_PROJ, &e->final_fold);
}

uint64_t resident_fingerprint(const struct engine *e)
{
    return XXH3_64bits(e->small_block, e->small_floats * sizeof *e->small_block);
}

int resident_load(struct engine *e)
{
    const struct model_config *c = config_of(e);
    struct loader l = {.e = e};
    uint64_t widest = max_u64((uint64_t)config_kda_width(c) * c->conv_taps,
                              max_u64(c->hidden, c->experts));
    l.raw_bytes = widest * sizeof(float);
    l.raw = malloc(l.raw_bytes + 2 * PAGE_BYTES);
    l.bounce = aligned_alloc(PAGE_BYTES, BOUNCE_BYTES);
    e->small = calloc(c->layers, sizeof *e->small);
    e->small_block = calloc(1, e->plan->account.small); /* gaps are part of the fingerprint */
    int rc = 0;
    if (l.raw == NULL || l.bounce == NULL || e->small == NULL || e->small_block == NULL) {
        rc = err_set(ERR_MEMORY, "no memory for %llu bytes of small tensors",
                     (unsigned long long)e->plan->account.small);
    } else {
        l.at = e->small_block;
        l.end = e->small_block + e->plan->account.small / sizeof(float);
        rc = load_all(&l);
        e->small_floats = (uint64_t)(l.at - e->small_block);
    }
    free(l.raw);
    free(l.bounce);
    return rc;
}
