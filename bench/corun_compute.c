/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel calls of one token, as a list of tasks over the co-run's memory. */
#include <stdlib.h>

#include "bench/corun_priv.h"
#include "core/base/err.h"

#define KDA_GROUPS 16U

struct lister {
    struct corun *c;
    uint64_t ring_at, pins_at;
    uint32_t capacity, slot;
};

static void add(struct lister *l, struct item item)
{
    struct corun *c = l->c;
    if (c->item_count < l->capacity) {
        c->item[c->item_count] = item;
    }
    c->item_count++;
}

/* Where a tile's weights stand: streamed ones in the ring, pinned ones in the block of pins. */
static const unsigned char *tile_place(struct lister *l, const struct plan_tile *tile)
{
    struct corun *c = l->c;
    if (!tile->pinned) {
        return corun_ring_take(c, &l->ring_at, tile->window_bytes) + tile->skip_bytes;
    }
    if (l->pins_at + tile->window_bytes > c->pins_bytes) {
        l->pins_at = 0;
    }
    const unsigned char *place = c->pins + l->pins_at;
    l->pins_at += tile->window_bytes;
    return place + tile->skip_bytes;
}

static const unsigned char *expert_place(struct lister *l)
{
    struct corun *c = l->c;
    uint64_t bytes = c->plan->slot_bytes;
    if (!c->cached_experts) {
        return c->slots + l->slot++ % c->slot_count * bytes;
    }
    if (l->pins_at + bytes > c->pins_bytes) {
        l->pins_at = 0;
    }
    const unsigned char *place = c->pins + l->pins_at;
    l->pins_at += bytes;
    return place;
}

static void list_tiles(struct lister *l, const struct plan_step *step)
{
    const struct model_config *m = &l->c->model->config;
    uint32_t owner = step->tensor >= T_LAYER_COUNT ? TENSOR_MODEL_LEVEL : step->layer;
    uint32_t cols = model_tensor(l->c->model, owner, step->tensor)->cols;
    uint32_t unit = step->kind == STEP_KV_B ? m->qk_nope + m->v_head : 1;
    enum item_kind kind = step->kind == STEP_KV_B        ? ITEM_KV_B
                          : step->tensor == T_ROUTER ? ITEM_ROUTER
                                                         : ITEM_BF16;
    for (uint32_t i = 0; i < step->tile_count; i++) {
        const struct plan_tile *tile = &l->c->plan->tiles[step->tile_first + i];
        add(l, (struct item){.kind = kind, .rows = tile->row_count / unit, .cols = cols,
                             .w = tile_place(l, tile)});
    }
}

static void list_kda(struct lister *l, uint32_t layer_of_kind)
{
    const struct model_config *m = &l->c->model->config;
    size_t state = (size_t)m->kda_dim * m->kda_dim;
    for (uint32_t g = 0; g < KDA_GROUPS; g++) {
        uint32_t first = m->kda_heads * g / KDA_GROUPS;
        uint32_t heads = m->kda_heads * (g + 1) / KDA_GROUPS - first;
        add(l, (struct item){.kind = ITEM_KDA, .rows = heads, .state = l->c->kda +
                             ((size_t)layer_of_kind * m->kda_heads + first) * state});
    }
}

static void list_all(struct lister *l)
{
    const struct plan *p = l->c->plan;
    uint32_t kda = 0;
    l->c->item_count = 0;
    for (uint32_t s = 0; s < p->step_count; s++) {
        const struct plan_step *step = &p->steps[s];
        if (step->tile_count > 0) {
            list_tiles(l, step);
        }
        if (step->kind == STEP_KDA) {
            list_kda(l, kda++);
        }
        for (uint32_t i = 0; step->kind == STEP_EXPERTS &&
                             i < l->c->model->config.experts_per_token; i++) {
            add(l, (struct item){.kind = ITEM_EXPERT, .w = expert_place(l)});
        }
    }
}

int corun_list(struct corun *c)
{
    struct lister l = {.c = c};
    list_all(&l); /* counts */
    c->item = calloc(c->item_count, sizeof *c->item);
    if (c->item == NULL) {
        return err_set(ERR_MEMORY, "no memory for a list of %u tasks", c->item_count);
    }
    l = (struct lister){.c = c, .capacity = c->item_count};
    list_all(&l);
    return 0;
}

uint64_t corun_y_floats(const struct corun *c)
{
    const struct model_config *m = &c->model->config;
    uint64_t most = 4ULL * m->expert_width + 2ULL * m->latent;
    for (uint32_t i = 0; i < c->plan->tile_count; i++) {
        most = max_u64(most, c->plan->tiles[i].row_count);
    }
    return most + 2ULL * (m->kv_lora + m->qk_rope) + 4ULL * m->kda_dim + m->v_head + 64;
}

static void do_expert(const struct corun *c, const struct item *it, float *y)
{
    const struct model_config *m = &c->model->config;
    const uint64_t *part = c->model->part_bytes;
    const unsigned char *w1 = it->w;
    const unsigned char *w2 = w1 + part[W1_PACKED] + part[W1_SCALE];
    const unsigned char *w3 = w2 + part[W2_PACKED] + part[W2_SCALE];
    float *gate = y;
    float *up = gate + m->expert_width;
    struct matmul mm = {.y = gate, .y_stride = m->expert_width, .x = c->x, .x_stride = m->latent,
                        .w = w1, .scale = w1 + part[W1_PACKED], .rows = m->expert_width,
                        .cols = m->latent, .tokens = 1};
    c->kernels->mxfp4(&mm);
    mm.y = up;
    mm.w = w3;
    mm.scale = w3 + part[W3_PACKED];
    c->kernels->mxfp4(&mm);
    c->kernels->situ(gate, gate, up, m->expert_width, m->situ_beta, m->situ_linear_beta);
    c->kernels->mxfp4_split(up, gate, m->expert_width);
    mm = (struct matmul){.y = up + m->expert_width, .y_stride = m->latent, .x = up,
                         .x_stride = m->expert_width, .w = w2, .scale = w2 + part[W2_PACKED],
                         .rows = m->latent, .cols = m->expert_width, .tokens = 1};
    c->kernels->mxfp4(&mm);
}

static void do_kv_b(const struct corun *c, const struct item *it, float *y)
{
    const struct model_config *m = &c->model->config;
    uint64_t unit = (uint64_t)(m->qk_nope + m->v_head) * m->kv_lora * 2;
    for (uint32_t head = 0; head < it->rows; head++) {
        const unsigned char *w = it->w + head * unit;
        c->kernels->bf16_transposed(y, w, c->x, m->qk_nope, m->kv_lora);
        struct matmul mm = {.y = y + m->kv_lora, .y_stride = m->v_head, .x = c->x,
                            .x_stride = m->kv_lora, .w = w + (uint64_t)m->qk_nope * m->kv_lora * 2,
                            .rows = m->v_head, .cols = m->kv_lora, .tokens = 1};
        c->kernels->bf16(&mm);
    }
}

static void do_kda(const struct corun *c, const struct item *it, float *y)
{
    uint32_t d = c->model->config.kda_dim;
    for (uint32_t head = 0; head < it->rows; head++) {
        c->kernels->kda_step(it->state + (size_t)head * d * d, y, c->x, c->x + d, c->x + 2 * d,
                             c->x + 3 * d, 0.5f, d, y + d);
    }
}

static void do_item(const struct corun *c, const struct item *it, float *y)
{
    struct matmul mm = {.y = y, .y_stride = it->rows, .x = c->x, .x_stride = it->cols, .w = it->w,
                        .rows = it->rows, .cols = it->cols, .tokens = 1};
    switch (it->kind) {
    case ITEM_BF16:
        c->kernels->bf16(&mm);
        break;
    case ITEM_ROUTER:
        c->kernels->bf16_router(&mm);
        break;
    case ITEM_KV_B:
        do_kv_b(c, it, y);
        break;
    case ITEM_KDA:
        do_kda(c, it, y);
        break;
    case ITEM_EXPERT:
        do_expert(c, it, y);
        break;
    }
}

void corun_compute(struct corun *c, float *y)
{
    for (uint64_t i; (i = atomic_fetch_add(&c->next, 1)) < c->total;) {
        do_item(c, &c->item[i % c->item_count], y);
    }
}
