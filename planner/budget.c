/* SPDX-License-Identifier: Apache-2.0 */
/* Splits the RAM: fixed parts first, then working slots and ring, then pins, then the expert
 * cache. A pinned byte saves a byte per token and a cached one at most half, so with `auto` the
 * cache gets memory only when the whole trunk is pinned. */
#include <stdio.h>

#include "core/base/err.h"
#include "core/model/page_sums.h"
#include "planner/planner_priv.h"

/* The kernel's page tables count in a memory control group, not among what is resident. A group of
 * the RAM and 64 MiB has room for this much of them; the rest is taken from the weights. */
#define PAGE_TABLES_BESIDE (32 * MIB)
#define PAGE_TABLE_SHARE 512U /* bytes mapped by each byte of them */

static uint64_t page_tables_bytes(uint64_t ram_bytes)
{
    uint64_t tables = ram_bytes / PAGE_TABLE_SHARE;
    return tables - min_u64(tables, PAGE_TABLES_BESIDE);
}

static uint64_t fixed_bytes(const struct plan_account *a)
{
    return a->reserve + a->index + a->schedule + a->small + a->state + a->kv + a->drafts +
           a->routing + a->activations + a->scratch + a->rows + a->sums + a->cache_heap;
}

static uint64_t small_tensor_bytes(const struct model *model)
{
    uint64_t floats = 0;
    for (uint32_t layer = 0; layer < model->config.layers; layer++) {
        for (int id = 0; id < T_LAYER_COUNT; id++) {
            const struct tensor_ref *ref = model_tensor(model, layer, (enum tensor_id)id);
            bool vector = ref->size_bytes > 0 && (ref->dtype == DTYPE_F32 || ref->rows == 1);
            floats += vector ? align_up((uint64_t)ref->rows * ref->cols, 16) : 0;
        }
    }
    return floats * sizeof(float) + 3 * align_up(model->config.hidden, 16) * sizeof(float);
}

/* The expert with the largest sum of aligned windows, which stands for all. */
struct largest_expert {
    uint32_t layer, expert;
};

static struct largest_expert measure_experts(const struct model *model, struct plan *plan)
{
    const struct model_config *c = &model->config;
    struct largest_expert largest = {0};
    struct extent extents[EXPERT_PARTS];
    uint32_t part_at[EXPERT_PARTS];
    for (uint32_t layer = c->first_dense; layer < c->layers; layer++) {
        plan->experts_per_pass += c->experts_per_token;
        for (uint32_t expert = 0; expert < c->experts; expert++) {
            uint32_t count = model_expert_extents(model, layer, expert, extents, part_at);
            uint64_t window = 0;
            for (uint32_t i = 0; i < count; i++) {
                window += extent_window(extents[i]).size_bytes;
            }
            if (window > plan->slot_bytes) {
                plan->slot_bytes = window;
                largest = (struct largest_expert){layer, expert};
            }
        }
    }
    plan->expert_window_bytes = plan->slot_bytes;
    for (int part = 0; part < EXPERT_PARTS; part++) {
        plan->expert_payload_bytes += model->part_bytes[part];
    }
    return largest;
}

/* Reads of the largest expert; each of its extents is read on its own. */
static void count_expert_requests(const struct model *model, struct plan *plan,
                                  struct largest_expert largest)
{
    struct extent extents[EXPERT_PARTS];
    uint32_t part_at[EXPERT_PARTS];
    if (plan->slot_bytes == 0) {
        return;
    }
    uint32_t count = model_expert_extents(model, largest.layer, largest.expert, extents, part_at);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t window = extent_window(extents[i]).size_bytes;
        plan->expert_requests += (uint32_t)plan_requests_of(plan, window);
    }
}

/* Memory for slices of sums: one for each row, tile and expert on the way. An expert has up to
 * EXPERT_PARTS windows, each with a slice of its own. */
static uint64_t sums_bytes(struct plan *plan, uint32_t chunk)
{
    const struct plan_request *r = &plan->request;
    if (!r->sums) {
        return 0;
    }
    plan->sums_row_bytes = page_sums_slice_max(plan->row_window_bytes);
    plan->sums_tile_bytes = page_sums_slice_max(plan->tile_window_max);
    plan->sums_expert_bytes = page_sums_slice_max(plan->slot_bytes) +
                              (EXPERT_PARTS - 1) * 2 * PAGE_BYTES;
    return chunk * plan->sums_row_bytes + r->check_tiles * plan->sums_tile_bytes +
           r->check_experts * plan->sums_expert_bytes;
}

/* Fixed parts of the account for a chunk of tokens. */
static void account_fixed(const struct model *model, struct plan *plan, uint32_t chunk)
{
    const struct plan_request *r = &plan->request;
    const struct model_config *c = &model->config;
    struct plan_account *a = &plan->account;
    uint64_t head_rows = r->head_rows == PLAN_ROWS_ALL ? chunk : r->head_rows;
    plan->chunk = chunk;
    activations_layout(c, chunk, &plan->activations);
    scratch_layout(c, chunk, r->context, r->drafts > 0, &plan->scratch);
    plan->row_window_bytes = align_up(c->hidden * dtype_bytes(DTYPE_BF16), PAGE_BYTES) + PAGE_BYTES;
    a->reserve = r->reserve_bytes;
    a->index = r->index_bytes;
    a->schedule = walk_bytes(plan);
    a->small = small_tensor_bytes(model);
    a->state = state_bytes(c) * r->sequences;
    a->kv = kv_bytes(c, r->context) * r->sequences;
    a->drafts = draft_bytes(c) * r->drafts;
    a->activations = plan->activations.size_bytes +
                     ((uint64_t)c->vocab + c->hidden) * sizeof(float) * head_rows;
    a->scratch = plan->scratch.size_bytes * r->workers;
    a->routing = r->routing_token_bytes * chunk;
    a->rows = plan->row_window_bytes * chunk;
    a->sums = sums_bytes(plan, chunk);
    a->cache_heap = r->cache_base_bytes;
}

static uint64_t trunk_window_bytes(const struct plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        bytes += plan->tiles[i].window_bytes;
    }
    return bytes;
}

static uint64_t streamed_bytes(const struct plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        bytes += plan->tiles[i].pinned ? 0 : plan->tiles[i].window_bytes;
    }
    return bytes;
}

static uint64_t requests_in_flight(const struct plan *plan)
{
    return (uint64_t)plan->request.io_depth * max_u64(plan->request.devices, 1);
}

/* What the ring would like: some windows of requests in flight, never less than two tiles. */
static uint64_t ring_wanted(const struct plan *plan, uint64_t windows)
{
    uint64_t flight = requests_in_flight(plan) * plan->request.io_size_bytes;
    uint64_t want = max_u64(min_u64(windows * flight, 1 * GIB - plan->tile_window_max),
                            2 * plan->tile_window_max);
    return align_up(want, PAGE_BYTES);
}

/* Working slots and ring from `room` bytes, from comfortable down to one of each. The ring has
 * beside_bytes whatever is in flight. */
static void share_ring(struct plan *plan, uint64_t room, uint64_t streamed, uint64_t beside_bytes)
{
    uint32_t slots = plan->slot_bytes > 0 ? PLAN_WORKING_SLOTS : 0;
    uint64_t want = max_u64(ring_wanted(plan, 3), align_up(plan->request.ahead_bytes, PAGE_BYTES));
    want = max_u64(want, beside_bytes);
    want = min_u64(want, streamed);
    uint64_t modest = min_u64(ring_wanted(plan, 1), want);
    uint64_t least = min_u64(plan->tile_window_max, want);
    while (slots > 2 && slots * plan->slot_bytes + want > room) {
        slots--;
    }
    while (slots > 1 && slots * plan->slot_bytes + modest > room) {
        slots--;
    }
    uint64_t left = room - slots * plan->slot_bytes;
    plan->working_slots = slots;
    plan->ring_bytes = max_u64(least, min_u64(want, align_down(left, PAGE_BYTES)));
}

/* depth requests of equal size must fit the ring: the size gives way, never the depth. */
static void set_io_size(struct plan *plan)
{
    uint64_t size = plan->request.io_size_bytes;
    if (plan->ring_bytes > 0) {
        size = min_u64(size, align_down(plan->ring_bytes / requests_in_flight(plan), PAGE_BYTES));
    }
    plan->io_size_bytes = max_u64(size, PAGE_BYTES);
}

static int refuse_fit(const struct plan *plan, uint64_t needed, const char *cure)
{
    const struct plan_request *r = &plan->request;
    if (r->ram_limit != NULL) {
        return err_set(ERR_FIT, "needs %llu bytes (%.2f MiB) of RAM, and nine tenths of what can "
                       "be had (%s) are %llu (%.2f MiB); free memory or raise the limit, or %s",
                       (unsigned long long)needed, (double)needed / (double)MIB, r->ram_limit,
                       (unsigned long long)r->ram_bytes, (double)r->ram_bytes / (double)MIB, cure);
    }
    return err_set(ERR_FIT, "needs %llu bytes (%.2f MiB) of RAM but --ram allows %llu (%.2f MiB); "
                   "%s", (unsigned long long)needed, (double)needed / (double)MIB,
                   (unsigned long long)r->ram_bytes, (double)r->ram_bytes / (double)MIB, cure);
}

/* The largest chunk that leaves nine tenths of the RAM and `least` bytes for all that is not
 * sized by the chunk. */
static uint32_t choose_chunk(const struct model *model, struct plan *plan, uint64_t least)
{
    uint32_t least_tokens = plan->request.tokens_min;
    uint32_t chunk = 1;
    while (chunk < PLAN_CHUNK_AUTO_MAX && chunk < plan->request.prompt_tokens) {
        chunk *= 2;
    }
    chunk = (uint32_t)min_u64(chunk, plan->request.prompt_tokens);
    for (; chunk > least_tokens; chunk = (chunk + 1) / 2) {
        account_fixed(model, plan, chunk);
        uint64_t fixed = fixed_bytes(&plan->account);
        uint64_t flexible = plan->account.activations + plan->account.scratch + plan->account.rows;
        if (fixed + least <= plan->request.ram_bytes &&
            flexible * 10 <= plan->request.ram_bytes) {
            break;
        }
    }
    return chunk > least_tokens ? chunk : least_tokens;
}

static uint64_t explicit_pins(const struct plan *plan, uint64_t trunk, bool *given)
{
    const struct plan_request *r = &plan->request;
    *given = r->pin_percent >= 0 || r->pin_bytes != PLAN_AUTO;
    if (r->pin_percent >= 0) {
        return (uint64_t)((double)trunk * r->pin_percent / 100.0);
    }
    return r->pin_bytes == PLAN_ALL ? UINT64_MAX : min_u64(r->pin_bytes, trunk);
}

static uint64_t total_experts(const struct model_config *c)
{
    return (uint64_t)(c->layers - min_u64(c->layers, c->first_dense)) * c->experts;
}

/* What overrides ask for, before the rest is divided. */
struct demand {
    bool pins_given;
    uint64_t slots;       /* of the cache; 0 with auto */
    uint64_t slot_cost;   /* a slot and its heap */
    uint64_t slots_max;
    uint64_t taken_bytes; /* pins and slots given */
    uint64_t least_bytes; /* one ring tile and one working slot */
};

static void place_demand(const struct model *model, struct plan *plan, uint64_t trunk,
                         struct demand *d)
{
    const struct plan_request *r = &plan->request;
    uint64_t pins = explicit_pins(plan, trunk, &d->pins_given);
    d->slots_max = total_experts(&model->config);
    d->slots = r->expert_slots == PLAN_AUTO ? 0 : min_u64(r->expert_slots, d->slots_max);
    d->slot_cost = plan->slot_bytes + r->cache_slot_bytes;
    if (d->pins_given) {
        pins_choose(plan, pins, trunk);
        plan->pin_area_bytes = pins_place(plan);
    }
    d->taken_bytes = plan->pin_area_bytes + d->slots * d->slot_cost;
    d->least_bytes = min_u64(plan->tile_window_max, streamed_bytes(plan)) + plan->slot_bytes;
}

/* Fixes the chunk and the floor, which with `auto` is that of the smallest pass. */
static int fix_chunk(const struct model *model, struct plan *plan, const struct demand *d)
{
    const struct plan_request *r = &plan->request;
    bool automatic = r->chunk == PLAN_AUTO;
    uint64_t rest = d->taken_bytes + d->least_bytes;
    uint64_t asked = automatic ? 1 : min_u64(r->chunk, r->prompt_tokens);
    uint32_t chunk = (uint32_t)max_u64(asked, r->tokens_min);
    account_fixed(model, plan, chunk);
    plan->floor_bytes = fixed_bytes(&plan->account) + rest;
    if (plan->floor_bytes > r->ram_bytes) {
        char cure[160];
        snprintf(cure, sizeof cure, "give --ram %lluM%s%s%s",
                 (unsigned long long)div_ceil(plan->floor_bytes, MIB),
                 d->taken_bytes > 0 ? ", or less --pin and --expert-slots" : "",
                 !automatic && chunk > r->tokens_min ? ", or a smaller --chunk" : "",
                 plan->account.kv > plan->floor_bytes / 4 ? ", or a smaller --context" : "");
        return refuse_fit(plan, plan->floor_bytes, cure);
    }
    if (automatic) {
        account_fixed(model, plan, choose_chunk(model, plan, rest));
    }
    return 0;
}

/* Pins all when that fits without a ring, else what the ring leaves. */
static void pin_automatically(struct plan *plan, uint64_t room, uint64_t trunk)
{
    uint64_t free_bytes = room - plan->working_slots * plan->slot_bytes;
    pins_choose(plan, trunk, trunk);
    plan->pin_area_bytes = pins_place(plan);
    if (plan->pin_area_bytes > free_bytes) {
        pins_within(plan, free_bytes - plan->ring_bytes, trunk);
    }
    plan->ring_bytes = min_u64(plan->ring_bytes, streamed_bytes(plan));
}

/* While a layer computes experts that need not be read, the drive goes on with the trunk: at the
 * pace of the cores it brings as much as they take. */
static uint64_t beside_experts(const struct plan *plan, const struct model_config *c,
                               const struct demand *d)
{
    uint64_t most = align_down(GIB - plan->tile_window_max, PAGE_BYTES);
    return d->slots > d->slots_max / 2 ? min_u64(c->experts_per_token * plan->slot_bytes, most)
                                       : 0;
}

/* Pins and explicit slots first, when they are given; then ring and working slots; then pins;
 * then, the trunk being whole, the cache. */
static int split(const struct model *model, struct plan *plan, uint64_t trunk)
{
    const struct plan_request *r = &plan->request;
    struct demand d;
    place_demand(model, plan, trunk, &d);
    TRY(fix_chunk(model, plan, &d));
    uint64_t room = r->ram_bytes - fixed_bytes(&plan->account) - d.taken_bytes;
    plan->page_tables_bytes = min_u64(page_tables_bytes(r->ram_bytes), room - d.least_bytes);
    room -= plan->page_tables_bytes;
    share_ring(plan, room, streamed_bytes(plan), beside_experts(plan, &model->config, &d));
    if (!d.pins_given) {
        pin_automatically(plan, room, trunk);
    }
    if (r->expert_slots == PLAN_AUTO && plan->slot_bytes > 0 && streamed_bytes(plan) == 0) {
        uint64_t used = fixed_bytes(&plan->account) + plan->pin_area_bytes +
                        plan->working_slots * plan->slot_bytes;
        d.slots = min_u64((r->ram_bytes - used - plan->page_tables_bytes) / d.slot_cost,
                          d.slots_max);
    }
    plan->cache_slots = (uint32_t)d.slots;
    return 0;
}

static void account_split(struct plan *plan)
{
    struct plan_account *a = &plan->account;
    a->ring = plan->ring_bytes;
    a->working = plan->working_slots * plan->slot_bytes;
    a->cached = plan->cache_slots * plan->slot_bytes;
    a->cache_heap += plan->cache_slots * plan->request.cache_slot_bytes;
    a->pins = plan->pin_area_bytes;
    a->total = fixed_bytes(a) + a->ring + a->working + a->cached + a->pins;
}

int budget_split(const struct model *model, struct plan *plan)
{
    const struct plan_request *r = &plan->request;
    struct largest_expert largest = measure_experts(model, plan);
    if (plan->tile_window_max > r->pin_slice_bytes) {
        return err_set(ERR_FIT, "a tile takes %llu bytes, more than a buffer of %llu; use a "
                       "smaller --tile", (unsigned long long)plan->tile_window_max,
                       (unsigned long long)r->pin_slice_bytes);
    }
    if (plan->slot_bytes > 1 * GIB) {
        return err_set(ERR_FIT, "an expert takes %llu bytes; k3ring reads experts of at most 1 GiB",
                       (unsigned long long)plan->slot_bytes);
    }
    TRY(split(model, plan, trunk_window_bytes(plan)));
    set_io_size(plan);
    account_split(plan);
    count_expert_requests(model, plan, largest);
    assert(plan->account.total + plan->page_tables_bytes <= r->ram_bytes);
    return 0;
}
