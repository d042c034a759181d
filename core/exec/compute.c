/* SPDX-License-Identifier: Apache-2.0 */
/* From a task to a kernel call: matrix tiles, and the steps between layers. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/exec/exec_priv.h"
#include "kernels/packed.h"

/* Which activations a matrix reads and writes. */
struct route {
    enum buffer_id x, y;
};

static struct route route_of(const struct engine *e, const struct plan_step *step)
{
    bool mla = e->model->config.is_mla[step->layer];
    switch (step->tensor) {
    case T_Q:
        return (struct route){B_NORMED, B_Q};
    case T_K:
        return (struct route){B_NORMED, B_K};
    case T_V:
        return (struct route){B_NORMED, B_V};
    case T_G:
        return (struct route){B_NORMED, mla ? B_MLA_G : B_G};
    case T_F_A:
        return (struct route){B_NORMED, B_F_A};
    case T_F_B:
        return (struct route){B_F_A, B_Z};
    case T_B:
        return (struct route){B_NORMED, B_BETA};
    case T_O:
        return (struct route){mla ? B_MLA_O : B_O, B_ATTN_OUT};
    case T_Q_A:
        return (struct route){B_NORMED, B_Q_A};
    case T_KV_A:
        return (struct route){B_NORMED, B_KV_A};
    case T_Q_B:
        return (struct route){B_Q_A, B_MLA_Q};
    case T_DENSE_GATE:
        return (struct route){B_NORMED, B_DENSE_GATE};
    case T_DENSE_UP:
        return (struct route){B_NORMED, B_DENSE_UP};
    case T_DENSE_DOWN:
        return (struct route){B_DENSE_GATE, B_MLP_OUT};
    case T_ROUTER:
        return (struct route){B_NORMED, B_ROUTER};
    case T_LATENT_DOWN:
        return (struct route){B_NORMED, B_LATENT};
    case T_LATENT_UP:
        return (struct route){B_EXPERT_SUM, B_MLP_OUT};
    case T_SHARED_GATE:
        return (struct route){B_NORMED, B_SHARED_GATE};
    case T_SHARED_UP:
        return (struct route){B_NORMED, B_SHARED_UP};
    case T_SHARED_DOWN:
        return (struct route){B_SHARED_GATE, B_SHARED_OUT};
    default:
        assert(false && "a tensor without a route");
        return (struct route){B_NORMED, B_NORMED};
    }
}

static uint32_t cols_of(const struct engine *e, const struct plan_step *step)
{
    uint32_t owner = step->tensor >= T_LAYER_COUNT ? TENSOR_MODEL_LEVEL : step->layer;
    return model_tensor(e->model, owner, step->tensor)->cols;
}

/* A coded tile's counts and escapes come from a file: they are looked at in each use, before
 * anything is placed by them. */
static bool open_coded(struct engine *e, uint32_t index, struct matmul *m)
{
    const struct plan_tile *tile = &e->plan->tiles[index];
    struct packed_tile parts;
    if (!packed_open(&parts, m->w, tile->payload_bytes, m->rows, m->cols)) {
        char text[ERR_MESSAGE_BYTES];
        snprintf(text, sizeof text, "%s: the coded tile at byte %llu is damaged: prove it with "
                 "k3ring pack --verify, and pack again", e->files.file[tile->file].path,
                 (unsigned long long)(tile->offset_bytes + tile->skip_bytes));
        engine_fail(e, ERR_IO, text);
        return false;
    }
    m->escape_first = parts.first;
    m->escape = parts.escape;
    return true;
}

static void compute_rows(struct engine *e, uint32_t index, struct matmul *m)
{
    if (!e->plan->tiles[index].coded) {
        e->kernels->bf16(m);
    } else if (open_coded(e, index, m)) {
        e->kernels->bf16_packed(m);
    }
}

void compute_tile(struct engine *e, struct worker *w, uint32_t index)
{
    const struct plan_tile *tile = &e->plan->tiles[index];
    const struct plan_step *step = &e->plan->steps[tile->step];
    if (step->kind == STEP_KV_B) {
        compute_kv_b(e, w, index);
        return;
    }
    struct matmul m = {.w = e->tile[index].data, .rows = tile->row_count,
                       .cols = cols_of(e, step), .tokens = e->tokens};
    if (step->kind == STEP_HEAD) {
        m.x = e->head_x;
        m.y = e->logits + tile->row_first;
        m.tokens = e->logits_count;
        m.x_stride = m.cols;
        m.y_stride = config_of(e)->vocab;
        if (m.tokens > 0) {
            compute_rows(e, index, &m);
        }
        return;
    }
    struct route route = route_of(e, step);
    m.x = buffer(e, route.x, 0);
    m.y = buffer(e, route.y, 0) + tile->row_first;
    m.x_stride = e->plan->activations.width[route.x];
    m.y_stride = e->plan->activations.width[route.y];
    if (step->tensor == T_ROUTER) {
        e->kernels->bf16_router(&m);
    } else {
        compute_rows(e, index, &m);
    }
}

uint32_t compute_parts(const struct engine *e, uint32_t index)
{
    const struct plan_step *step = &e->plan->steps[index];
    switch (step->kind) {
    case STEP_KDA:
        return (uint32_t)min_u64(KDA_PARTS, config_of(e)->kda_heads);
    case STEP_EXPERTS:
        return 1; /* until the demand is known */
    default:
        return e->tokens;
    }
}

void compute_part(struct engine *e, struct worker *w, uint32_t index, uint32_t part)
{
    const struct plan_step *step = &e->plan->steps[index];
    switch (step->kind) {
    case STEP_EMBED:
        compute_embed(e, part);
        break;
    case STEP_ATTN_IN:
        compute_attn_in(e, step->layer, part);
        break;
    case STEP_KDA:
        compute_kda(e, w, step->layer, part);
        break;
    case STEP_MLA_LATENT:
        compute_mla_latent(e, step->layer, part);
        break;
    case STEP_MLP_IN:
        compute_mlp_in(e, step->layer, part);
        break;
    case STEP_SITU:
        compute_situ(e, step->layer, part);
        break;
    case STEP_ROUTE:
        compute_route(e, step->layer, part);
        break;
    case STEP_SPLIT:
        e->kernels->mxfp4_split(buffer(e, B_LATENT_SPLIT, part), buffer(e, B_LATENT, part),
                                config_of(e)->latent);
        break;
    case STEP_EXPERT_SUM:
        compute_expert_sum(e, step->layer, part);
        break;
    case STEP_HEAD_IN:
        compute_head_in(e, part);
        break;
    default:
        assert(false && "a step without parts");
    }
}

/* bf16 row -> prefix; no scaling, no position. */
void compute_embed(struct engine *e, uint32_t token)
{
    const struct tensor_ref *embed = model_tensor(e->model, TENSOR_MODEL_LEVEL, T_EMBED);
    uint64_t row_bytes = embed->cols * dtype_bytes(embed->dtype);
    uint64_t skip = (embed->offset_bytes + e->token[token].id * row_bytes) % PAGE_BYTES;
    const unsigned char *row = slab_rows(e->slab) + token * e->plan->row_window_bytes + skip;
    struct extent place = {.file = embed->file, .size_bytes = row_bytes,
                           .offset_bytes = embed->offset_bytes + e->token[token].id * row_bytes};
    if (!checks_row(e, place, token, row)) {
        return;
    }
    float *prefix = buffer(e, B_PREFIX, token);
    for (uint32_t i = 0; i < embed->cols; i++) {
        uint32_t bits = (uint32_t)row[2 * i] << 16 | (uint32_t)row[2 * i + 1] << 24;
        memcpy(&prefix[i], &bits, sizeof bits);
    }
}

/* Bits of floats that are not negative sort as the floats do. */
static void note_peak(_Atomic uint32_t *peak, float largest)
{
    uint32_t bits;
    uint32_t before = atomic_load(peak);
    memcpy(&bits, &largest, sizeof bits);
    while (before < bits && !atomic_compare_exchange_weak(peak, &before, bits)) {
    }
}

/* Adds the MLP's output of a finished layer to the residual and looks whether it is finite. */
static void close_layer(struct engine *e, uint32_t layer, uint32_t token)
{
    const struct model_config *c = config_of(e);
    float *prefix = buffer(e, B_PREFIX, token);
    float *out = buffer(e, B_MLP_OUT, token);
    if (config_is_moe(c, layer)) {
        e->kernels->add(out, out, buffer(e, B_SHARED_OUT, token), c->hidden);
    }
    e->kernels->add(prefix, prefix, out, c->hidden);
    float largest = e->kernels->max_abs(prefix, c->hidden);
    if (!isfinite(largest)) {
        engine_token_fault(e, token, FAULT_RESIDUAL, layer);
    }
    note_peak(&e->layer_peaks[layer], largest);
    if (token + 1 == e->tokens) {
        e->layer_max[layer] = largest;
    }
}

/* h = AttnRes over `count` snapshots and the prefix. With no snapshot it is the prefix. */
static void mix(struct engine *e, uint32_t token, uint32_t count, const float *fold, float *h)
{
    const struct model_config *c = config_of(e);
    const float *source[KERNEL_SOURCES_MAX];
    float *prefix = buffer(e, B_PREFIX, token);
    if (count == 0) {
        memcpy(h, prefix, c->hidden * sizeof *h);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        source[i] = buffer(e, B_SNAPSHOTS, token) + (size_t)i * c->hidden;
    }
    source[count] = prefix;
    e->kernels->attnres(h, source, count + 1, fold, c->hidden, c->rms_eps);
}

void compute_attn_in(struct engine *e, uint32_t layer, uint32_t token)
{
    const struct model_config *c = config_of(e);
    const struct layer_small *s = &e->small[layer];
    float *h = buffer(e, B_NORMED, token);
    uint32_t snapshots = (uint32_t)div_ceil(layer, c->attnres_block);
    if (layer > 0) {
        close_layer(e, layer - 1, token);
    }
    mix(e, token, snapshots, s->attn_fold, h);
    if (layer % c->attnres_block == 0) {
        memcpy(buffer(e, B_SNAPSHOTS, token) + (size_t)snapshots * c->hidden,
               buffer(e, B_PREFIX, token), c->hidden * sizeof *h);
    }
    e->kernels->rmsnorm(h, h, s->input_norm, c->hidden, c->rms_eps);
}

void compute_mlp_in(struct engine *e, uint32_t layer, uint32_t token)
{
    const struct model_config *c = config_of(e);
    const struct layer_small *s = &e->small[layer];
    float *prefix = buffer(e, B_PREFIX, token);
    float *h = buffer(e, B_NORMED, token);
    const float *attention = buffer(e, B_ATTN_OUT, token);
    if (layer % c->attnres_block == 0) {
        memcpy(prefix, attention, c->hidden * sizeof *prefix);
    } else {
        e->kernels->add(prefix, prefix, attention, c->hidden);
    }
    mix(e, token, layer / c->attnres_block + 1, s->mlp_fold, h);
    e->kernels->rmsnorm(h, h, s->post_norm, c->hidden, c->rms_eps);
}

void compute_head_in(struct engine *e, uint32_t token)
{
    const struct model_config *c = config_of(e);
    close_layer(e, c->layers - 1, token);
    for (uint32_t row = 0; row < e->logits_count; row++) {
        if (e->logits_of[row] == token) {
            float *x = e->head_x + (size_t)row * c->hidden;
            uint32_t snapshots = (uint32_t)div_ceil(c->layers, c->attnres_block);
            mix(e, token, snapshots, e->final_fold, x);
            e->kernels->rmsnorm(x, x, e->final_norm, c->hidden, c->rms_eps);
        }
    }
}
