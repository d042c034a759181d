/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/walk_reads.h"

#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/exec/engine.h"

#define ROWS_SEED 1U

/* Where it stands, from the outside in: position, step, window of the step, request of the
 * window. */
struct walk_reads {
    struct walk_reads_options options;
    struct cache *cache;
    uint32_t *free_slot;       /* stack */
    uint32_t free_count;
    struct rng rng;            /* of rows */
    uint32_t position, step;   /* step 0: its row has not been named */
    uint32_t tile, tile_end;   /* of the step */
    const struct cache_batch *batch; /* of the step, else NULL */
    uint32_t demand;           /* next of it */
    struct extent expert[EXPERT_PARTS]; /* windows of a missed expert */
    uint32_t expert_at, expert_count;
    struct extent window;      /* rest of the one to name next; nothing: there is none left */
    uint64_t request_bytes;    /* at most, of it */
    enum read_class class;     /* of it */
};

int walk_reads_positions(const struct trace *trace, uint32_t *positions)
{
    bool whole = trace->group_count % trace->layers == 0;
    for (uint64_t i = 0; i < trace->group_count && whole; i++) {
        whole = trace->layer[i] == i % trace->layers;
    }
    *positions = (uint32_t)min_u64(trace->group_count / trace->layers, UINT32_MAX);
    return whole ? 0 : err_set(ERR_MODEL, "the trace does not go through all layers position by "
                               "position, as those of `k3ring run --trace` do");
}

/* ---- windows ---- */

static void take_window(struct walk_reads *w, struct extent window, enum read_class class,
                        uint64_t request_bytes)
{
    w->window = window;
    w->class = class;
    w->request_bytes = request_bytes;
}

static void take_row(struct walk_reads *w)
{
    const struct model *model = w->options.model;
    const struct tensor_ref *embed = model_tensor(model, TENSOR_MODEL_LEVEL, T_EMBED);
    uint64_t id = w->options.ids != NULL ? w->options.ids[w->position]
                                         : rng_below(&w->rng, model->config.vocab);
    uint64_t row_bytes = embed->cols * dtype_bytes(embed->dtype);
    struct extent row = {.file = embed->file, .size_bytes = row_bytes,
                         .offset_bytes = embed->offset_bytes + id * row_bytes};
    take_window(w, extent_window(row), READ_EMBED, UINT64_MAX); /* in one piece */
}

/* The step's next tile that is not in place. */
static bool take_tile(struct walk_reads *w)
{
    const struct plan *plan = w->options.plan;
    while (w->tile < w->tile_end && plan->tiles[w->tile].pinned && w->position > 0) {
        w->tile++;
    }
    if (w->tile == w->tile_end) {
        return false;
    }
    const struct plan_tile *tile = &plan->tiles[w->tile];
    struct extent window = {.file = tile->file, .offset_bytes = tile->offset_bytes,
                            .size_bytes = tile->window_bytes};
    take_window(w, window, w->tile >= plan->head_tile_first ? READ_HEAD : READ_TRUNK,
                plan->io_size_bytes);
    w->tile++;
    return true;
}

/* ---- experts ---- */

static void give_slot(struct walk_reads *w, uint32_t slot)
{
    assert(w->free_count <= w->options.plan->cache_slots);
    w->free_slot[w->free_count++] = slot;
}

/* The answer of the cache; slots of all that leave come back. */
static void ask_cache(struct walk_reads *w)
{
    const struct trace *trace = w->options.trace;
    uint32_t first_dense = w->options.model->config.first_dense;
    uint32_t layer = w->options.plan->steps[w->step].layer - first_dense;
    uint64_t group = (uint64_t)w->position * trace->layers + layer;
    w->batch = cache_demand(w->cache, layer, trace_ids(trace, group), 1);
    w->demand = 0;
    for (uint32_t i = 0; i < w->batch->free_count; i++) {
        give_slot(w, w->batch->free_slot[i]);
    }
    for (uint32_t i = 0; i < w->batch->demand_count; i++) {
        const struct cache_demand *demand = &w->batch->demand[i];
        if (demand->slot != CACHE_NO_SLOT && !demand->keep) {
            give_slot(w, demand->slot);
        }
    }
}

/* A miss takes a slot and, as if it were read and used already, keeps it or not. */
static void miss(struct walk_reads *w, const struct cache_demand *demand)
{
    const struct model *model = w->options.model;
    uint32_t layer = w->options.plan->steps[w->step].layer;
    uint32_t part_at[EXPERT_PARTS];
    w->expert_at = 0;
    w->expert_count = model_expert_extents(model, layer, demand->expert, w->expert, part_at);
    assert(w->free_count > 0);
    if (demand->keep) {
        cache_bind(w->cache, layer - model->config.first_dense, demand->expert,
                   w->free_slot[--w->free_count]);
    }
}

/* The next window of a missed expert of the step. */
static bool take_expert(struct walk_reads *w)
{
    while (w->expert_at == w->expert_count && w->batch != NULL &&
           w->demand < w->batch->demand_count) {
        const struct cache_demand *demand = &w->batch->demand[w->demand++];
        if (demand->slot == CACHE_NO_SLOT) {
            miss(w, demand);
        }
    }
    if (w->expert_at == w->expert_count) {
        return false;
    }
    take_window(w, extent_window(w->expert[w->expert_at++]), READ_EXPERTS,
                w->options.plan->io_size_bytes);
    return true;
}

/* ---- the walk ---- */

static void next_step(struct walk_reads *w)
{
    const struct plan *plan = w->options.plan;
    w->batch = NULL;
    if (++w->step == plan->step_count) {
        w->step = 0;
        w->tile = w->tile_end = 0;
        w->position++;
        return;
    }
    const struct plan_step *step = &plan->steps[w->step];
    w->tile = step->tile_first;
    w->tile_end = step->tile_first + step->tile_count;
    if (step->kind == STEP_EXPERTS) {
        ask_cache(w);
    }
}

/* Goes on to the next window, if there is one. */
static void seek(struct walk_reads *w)
{
    assert(w->options.plan->steps[0].kind == STEP_EMBED);
    while (w->position < w->options.positions) {
        bool begins = w->step == 0;
        if (!begins && (take_tile(w) || take_expert(w))) {
            return;
        }
        if (begins) {
            take_row(w);
        }
        next_step(w);
        if (begins) {
            return;
        }
    }
}

int walk_reads_open(struct walk_reads **out, const struct walk_reads_options *options)
{
    const struct trace *trace = options->trace;
    struct policy_shape shape = {.layers = trace->layers, .per_token = trace->top_k,
                                 .experts = options->model->config.experts,
                                 .slots = options->plan->cache_slots};
    struct walk_reads *w = calloc(1, sizeof *w);
    /* One for the expert being read. */
    uint32_t *free_slot = calloc(shape.slots + 1ULL, sizeof *free_slot);
    *out = NULL;
    if (w == NULL || free_slot == NULL) {
        free(w);
        free(free_slot);
        return err_set(ERR_MEMORY, "no memory for %u expert slots", shape.slots);
    }
    w->options = *options;
    w->rng = rng_seed(ROWS_SEED);
    w->free_slot = free_slot;
    while (w->free_count <= shape.slots) {
        w->free_slot[w->free_count] = w->free_count;
        w->free_count++;
    }
    int rc = cache_open(&w->cache, options->policy, &shape, 1);
    if (rc < 0) {
        walk_reads_close(w);
        return rc;
    }
    seek(w);
    *out = w;
    return 0;
}

void walk_reads_close(struct walk_reads *w)
{
    if (w == NULL) {
        return;
    }
    cache_close(w->cache);
    free(w->free_slot);
    free(w);
}

bool walk_reads_next(void *walk_reads, struct reader_read *read)
{
    struct walk_reads *w = walk_reads;
    if (w->window.size_bytes == 0) {
        return false;
    }
    uint64_t size = min_u64(w->request_bytes, w->window.size_bytes);
    assert(size <= UINT32_MAX && w->window.offset_bytes % PAGE_BYTES == 0);
    *read = (struct reader_read){.file = w->window.file, .offset_bytes = w->window.offset_bytes,
                                 .size_bytes = (uint32_t)size, .label = (uint8_t)w->class};
    w->window.offset_bytes += size;
    w->window.size_bytes -= size;
    if (w->window.size_bytes == 0) {
        seek(w);
    }
    return true;
}

bool walk_reads_at_border(const struct walk_reads *w)
{
    return w->window.size_bytes == 0 || w->class == READ_EMBED;
}

uint32_t walk_reads_done(const struct walk_reads *w)
{
    return w->position;
}

const struct cache_stats *walk_reads_cache(const struct walk_reads *w)
{
    return cache_stats(w->cache);
}

uint64_t walk_reads_most(const struct plan *plan)
{
    uint64_t bytes;
    uint64_t requests;
    uint64_t expert = plan->slot_bytes / plan->io_size_bytes + EXPERT_PARTS;
    plan_pass_reads(plan, true, true, true, &bytes, &requests);
    return 1 + requests + plan->experts_per_pass * expert;
}

uint64_t walk_reads_size_max(const struct plan *plan)
{
    return max_u64(plan->io_size_bytes, plan->row_window_bytes);
}
