/* SPDX-License-Identifier: Apache-2.0 */
/* The walk of one pass: every step of every layer in order, and the tiles of its matrices. */
#include <stdlib.h>

#include "core/base/err.h"
#include "planner/planner_priv.h"

#define TILE_DEFAULT_BYTES (4 * MIB)

struct walk {
    const struct model *model;
    struct plan *plan;
    uint32_t step_capacity, tile_capacity;
    bool failed;
};

static void *grow(struct walk *w, void *array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity) {
        return array;
    }
    uint32_t more = *capacity == 0 ? 256 : *capacity * 2;
    void *larger = realloc(array, more * size);
    if (larger == NULL) {
        w->failed = true;
        return array;
    }
    *capacity = more;
    return larger;
}

/* Appends a step that needs up to two earlier ones; more are added by need(). */
static uint32_t add_step(struct walk *w, enum step_kind kind, uint32_t layer, uint32_t dep_a,
                         uint32_t dep_b)
{
    struct plan *p = w->plan;
    p->steps = grow(w, p->steps, p->step_count, &w->step_capacity, sizeof *p->steps);
    if (w->failed) {
        return 0;
    }
    struct plan_step *step = &p->steps[p->step_count];
    *step = (struct plan_step){.kind = kind, .layer = layer, .tensor = T_COUNT,
                               .tile_first = p->tile_count};
    if (dep_a != NO_STEP) {
        step->dep[step->dep_count++] = dep_a;
    }
    if (dep_b != NO_STEP) {
        step->dep[step->dep_count++] = dep_b;
    }
    return p->step_count++;
}

static void need(struct walk *w, uint32_t step, uint32_t dep)
{
    struct plan_step *s = &w->plan->steps[step];
    assert(w->failed || s->dep_count < STEP_DEPS_MAX);
    if (!w->failed) {
        s->dep[s->dep_count++] = dep;
    }
}

static void add_tile(struct walk *w, uint32_t step, struct extent rows, uint32_t row_first,
                     uint32_t row_count, bool coded)
{
    struct plan *p = w->plan;
    p->tiles = grow(w, p->tiles, p->tile_count, &w->tile_capacity, sizeof *p->tiles);
    if (w->failed) {
        return;
    }
    struct extent window = extent_window(rows);
    struct plan_tile *tile = &p->tiles[p->tile_count++];
    *tile = (struct plan_tile){
        .offset_bytes = window.offset_bytes,
        .window_bytes = (uint32_t)window.size_bytes,
        .skip_bytes = (uint32_t)(rows.offset_bytes - window.offset_bytes),
        .payload_bytes = (uint32_t)rows.size_bytes,
        .file = rows.file,
        .step = step,
        .row_first = row_first,
        .row_count = row_count,
        .coded = coded,
    };
    p->tile_window_max = max_u64(p->tile_window_max, tile->window_bytes);
    p->steps[step].tile_count++;
}

/* Cuts a matrix into equal tiles of whole units of rows (kv_b: heads). */
static void cut(struct walk *w, uint32_t step, const struct tensor_ref *ref, uint32_t unit_rows)
{
    uint64_t unit_bytes = (uint64_t)unit_rows * ref->cols * dtype_bytes(ref->dtype);
    uint64_t units = ref->rows / unit_rows;
    /* One page less than the tile: the aligned window then never exceeds it, nor needs a second
     * request for its last page. A tile of one page is filled: less would be a row each. */
    uint64_t tile_bytes = w->plan->tile_bytes;
    uint64_t room_bytes = tile_bytes > PAGE_BYTES ? tile_bytes - PAGE_BYTES : tile_bytes;
    uint64_t fit = max_u64(1, room_bytes / unit_bytes);
    uint64_t per_tile = div_ceil(units, div_ceil(units, fit));
    for (uint64_t unit = 0; unit < units && !w->failed; unit += per_tile) {
        uint64_t take = min_u64(per_tile, units - unit);
        struct extent rows = {.file = ref->file,
                              .offset_bytes = ref->offset_bytes + unit * unit_bytes,
                              .size_bytes = take * unit_bytes};
        add_tile(w, step, rows, (uint32_t)(unit * unit_rows), (uint32_t)(take * unit_rows), false);
    }
}

/* The tiles of a pack were cut when it was made. */
static void take_cut(struct walk *w, uint32_t step, const struct model_tile *tiles, uint32_t count)
{
    for (uint32_t i = 0; i < count && !w->failed; i++) {
        struct extent rows = {.file = tiles[i].file, .offset_bytes = tiles[i].offset_bytes,
                              .size_bytes = tiles[i].size_bytes};
        add_tile(w, step, rows, tiles[i].row_first, tiles[i].row_count, tiles[i].coded);
    }
}

static uint32_t add_matrix(struct walk *w, enum step_kind kind, uint32_t layer,
                           enum tensor_id tensor, uint32_t dep)
{
    const struct model_config *c = &w->model->config;
    uint32_t step = add_step(w, kind, layer, dep, NO_STEP);
    if (w->failed) {
        return 0;
    }
    uint32_t unit = kind == STEP_KV_B ? c->qk_nope + c->v_head : 1;
    uint32_t owner = tensor >= T_LAYER_COUNT ? TENSOR_MODEL_LEVEL : layer;
    w->plan->steps[step].tensor = tensor;
    uint32_t count;
    const struct model_tile *tiles = model_tiles(w->model, owner, tensor, &count);
    if (tiles != NULL) {
        take_cut(w, step, tiles, count);
    } else {
        cut(w, step, model_tensor(w->model, owner, tensor), unit);
    }
    return step;
}

/* Each builder returns the step that holds the stage's result. */

static uint32_t add_kda(struct walk *w, uint32_t layer, uint32_t in)
{
    uint32_t f_a = add_matrix(w, STEP_MATRIX, layer, T_F_A, in);
    uint32_t beta = add_matrix(w, STEP_MATRIX, layer, T_B, in);
    uint32_t q = add_matrix(w, STEP_MATRIX, layer, T_Q, in);
    uint32_t k = add_matrix(w, STEP_MATRIX, layer, T_K, in);
    uint32_t v = add_matrix(w, STEP_MATRIX, layer, T_V, in);
    uint32_t f_b = add_matrix(w, STEP_MATRIX, layer, T_F_B, f_a);
    uint32_t g = add_matrix(w, STEP_MATRIX, layer, T_G, in);
    uint32_t kda = add_step(w, STEP_KDA, layer, q, k);
    need(w, kda, v);
    need(w, kda, g);
    need(w, kda, f_b);
    need(w, kda, beta);
    return add_matrix(w, STEP_MATRIX, layer, T_O, kda);
}

static uint32_t add_mla(struct walk *w, uint32_t layer, uint32_t in)
{
    uint32_t q_a = add_matrix(w, STEP_MATRIX, layer, T_Q_A, in);
    uint32_t kv_a = add_matrix(w, STEP_MATRIX, layer, T_KV_A, in);
    uint32_t latent = add_step(w, STEP_MLA_LATENT, layer, q_a, kv_a);
    uint32_t g = add_matrix(w, STEP_MATRIX, layer, T_G, in);
    uint32_t q = add_matrix(w, STEP_MATRIX, layer, T_Q_B, latent);
    uint32_t kv_b = add_matrix(w, STEP_KV_B, layer, T_KV_B, q);
    need(w, kv_b, g);
    return add_matrix(w, STEP_MATRIX, layer, T_O, kv_b);
}

static uint32_t add_gated(struct walk *w, uint32_t layer, uint32_t in, enum tensor_id gate,
                          enum tensor_id up, enum tensor_id down)
{
    uint32_t a = add_matrix(w, STEP_MATRIX, layer, gate, in);
    uint32_t b = add_matrix(w, STEP_MATRIX, layer, up, in);
    uint32_t situ = add_step(w, STEP_SITU, layer, a, b);
    return add_matrix(w, STEP_MATRIX, layer, down, situ);
}

/* The latent projection precedes the shared experts, whose reads then cover the expert reads. */
static uint32_t add_moe(struct walk *w, uint32_t layer, uint32_t in, uint32_t *shared)
{
    uint32_t router = add_matrix(w, STEP_MATRIX, layer, T_ROUTER, in);
    uint32_t route = add_step(w, STEP_ROUTE, layer, router, NO_STEP);
    uint32_t down = add_matrix(w, STEP_MATRIX, layer, T_LATENT_DOWN, in);
    uint32_t split = add_step(w, STEP_SPLIT, layer, down, NO_STEP);
    *shared = add_gated(w, layer, in, T_SHARED_GATE, T_SHARED_UP, T_SHARED_DOWN);
    uint32_t experts = add_step(w, STEP_EXPERTS, layer, split, route);
    uint32_t sum = add_step(w, STEP_EXPERT_SUM, layer, experts, NO_STEP);
    return add_matrix(w, STEP_MATRIX, layer, T_LATENT_UP, sum);
}

static void add_layer(struct walk *w, uint32_t layer, uint32_t *out, uint32_t *shared)
{
    const struct model_config *c = &w->model->config;
    uint32_t in = add_step(w, STEP_ATTN_IN, layer, *out, *shared);
    uint32_t attention = c->is_mla[layer] ? add_mla(w, layer, in) : add_kda(w, layer, in);
    uint32_t mlp = add_step(w, STEP_MLP_IN, layer, attention, NO_STEP);
    *shared = NO_STEP;
    *out = config_is_moe(c, layer)
               ? add_moe(w, layer, mlp, shared)
               : add_gated(w, layer, mlp, T_DENSE_GATE, T_DENSE_UP, T_DENSE_DOWN);
}

static int decide_tile(const struct model *model, struct plan *plan)
{
    uint64_t asked = plan->request.tile_bytes;
    uint64_t whole = asked == PLAN_AUTO ? TILE_DEFAULT_BYTES
                                        : max_u64(PAGE_BYTES, align_down(asked, PAGE_BYTES));
    /* The default is no wish: a run that says nothing takes the pack as it was cut. */
    if (model->pack != NULL && whole != TILE_DEFAULT_BYTES && whole != model->pack->tile_bytes) {
        return err_set(ERR_USAGE, "%s: is a pack, cut with --tile %llu when it was made; leave "
                       "--tile out, or pack again with the one wanted", model->dir,
                       (unsigned long long)model->pack->tile_bytes);
    }
    plan->tile_bytes = model->pack != NULL ? model->pack->tile_bytes : whole;
    return 0;
}

int walk_build(const struct model *model, struct plan *plan)
{
    struct walk w = {.model = model, .plan = plan};
    TRY(decide_tile(model, plan));
    uint32_t shared = NO_STEP;
    uint32_t out = add_step(&w, STEP_EMBED, UINT32_MAX, NO_STEP, NO_STEP);
    for (uint32_t layer = 0; layer < model->config.layers && !w.failed; layer++) {
        add_layer(&w, layer, &out, &shared);
    }
    uint32_t head_in = add_step(&w, STEP_HEAD_IN, UINT32_MAX, out, shared);
    plan->head_tile_first = plan->tile_count;
    add_matrix(&w, STEP_HEAD, UINT32_MAX, T_LM_HEAD, head_in);
    if (w.failed) {
        return err_set(ERR_MEMORY, "no memory for a schedule of %u tiles; use a larger --tile",
                       plan->tile_count);
    }
    return 0;
}

uint64_t walk_bytes(const struct plan *plan)
{
    /* Arrays grow by doubling, so up to twice the count may have been touched. */
    return plan->tile_count * (2 * sizeof *plan->tiles + TILE_STATE_BYTES) +
           plan->step_count * (2 * sizeof *plan->steps + STEP_STATE_BYTES);
}
