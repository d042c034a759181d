/* SPDX-License-Identifier: Apache-2.0 */
/* The expert half of the I/O thread: a layer's demand goes through the cache once; hits are ready
 * at once, misses are read into free slots in order of demand and computed as they arrive; then
 * each slot is kept or freed, as the policy answered at the start of the batch. */
#include <string.h>

#include "core/exec/exec_priv.h"

/* Where each part of an expert lies in its slot: the windows of its extents, one after another.
 * window receives them; returns their count. */
static uint32_t lay_parts(struct engine *e, struct expert_run *run,
                          struct extent window[EXPERT_PARTS])
{
    uint32_t part_at[EXPERT_PARTS];
    uint64_t slot_at[EXPERT_PARTS];
    uint32_t count = model_expert_extents(e->model, e->batch.layer, run->expert, window, part_at);
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        window[i] = extent_window(window[i]);
        slot_at[i] = at;
        at += window[i].size_bytes;
    }
    assert(at <= e->plan->slot_bytes);
    const unsigned char *slot = slab_slot_address(e->slab, run->slot);
    for (int part = 0; part < EXPERT_PARTS; part++) {
        struct extent x = model_expert_part(e->model, e->batch.layer, run->expert,
                                            (enum expert_part)part);
        uint32_t in = part_at[part];
        run->part[part] = slot + slot_at[in] + (x.offset_bytes - window[in].offset_bytes);
    }
    return count;
}

/* Which tokens use which expert, in token and router order: a counting sort. */
static void list_uses(struct engine *e)
{
    struct batch *b = &e->batch;
    uint32_t k = config_of(e)->experts_per_token;
    uint32_t total = b->tokens * k;
    for (uint32_t i = 0; i < b->count; i++) {
        b->use_at[b->run[i].expert] = i;
        b->run[i].use_count = 0;
    }
    for (uint32_t i = 0; i < total; i++) {
        b->run[b->use_at[e->route_ids[i]]].use_count++;
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        b->run[i].use_first = at;
        at += b->run[i].use_count;
        b->run[i].use_count = 0;
    }
    for (uint32_t i = 0; i < total; i++) {
        struct expert_run *run = &b->run[b->use_at[e->route_ids[i]]];
        b->use[run->use_first + run->use_count++] = (struct expert_use){i / k, i % k};
    }
}

static void open_run(struct engine *e, struct expert_run *run, const struct cache_demand *demand)
{
    run->expert = demand->expert;
    run->slot = demand->slot;
    run->hit = demand->slot != CACHE_NO_SLOT;
    run->keep = demand->keep;
    run->retired = false;
    run->requests_left = 0;
    atomic_store(&run->done, 0);
    atomic_store(&run->parts_left, e->batch.parts);
    atomic_store(&run->pending, run->hit ? 1 : 2);
    if (run->hit) {
        struct extent window[EXPERT_PARTS];
        slab_slot_use(e->slab, run->slot);
        lay_parts(e, run, window);
    }
}

bool expert_take_demand(struct engine *e)
{
    uint32_t wanted = atomic_exchange(&e->demand_step, 0);
    if (wanted == 0) {
        return false;
    }
    struct batch *b = &e->batch;
    expert_retire(e);
    assert(!b->open);
    b->step = wanted - 1;
    b->layer = e->plan->steps[b->step].layer;
    b->tokens = e->tokens;
    b->parts = compute_expert_parts(e, b->tokens);
    const struct cache_batch *answer =
        cache_demand(e->cache, b->layer - config_of(e)->first_dense, e->route_ids, b->tokens);
    for (uint32_t i = 0; i < answer->free_count; i++) {
        slab_slot_free(e->slab, answer->free_slot[i]);
    }
    b->count = answer->demand_count;
    b->retired = 0;
    b->open = true;
    atomic_store(&b->done_count, 0);
    for (uint32_t i = 0; i < b->count; i++) {
        open_run(e, &b->run[i], &answer->demand[i]);
        atomic_fetch_add(&e->demands, 1);
        atomic_fetch_add(&e->hits, b->run[i].hit);
    }
    list_uses(e);
    journal_demand(e);
    e->fetch.expert_next = 0;
    e->fetch.expert_begun = false;
    atomic_store(&e->step[b->step].tasks_left, b->count);
    run_step_input(e, b->step);
    return true;
}

static void retire(struct engine *e, struct expert_run *run)
{
    run->retired = true;
    e->batch.retired++;
    if (!run->keep) {
        slab_slot_free(e->slab, run->slot);
        return;
    }
    slab_slot_keep(e->slab, run->slot);
    if (!run->hit) {
        cache_bind(e->cache, e->batch.layer - config_of(e)->first_dense, run->expert, run->slot);
    }
}

bool expert_retire(struct engine *e)
{
    struct batch *b = &e->batch;
    if (!b->open || atomic_load(&b->done_count) == b->retired) {
        return false;
    }
    for (uint32_t i = 0; i < b->count; i++) {
        if (!b->run[i].retired && atomic_load(&b->run[i].done)) {
            retire(e, &b->run[i]);
        }
    }
    b->open = b->retired < b->count;
    return true;
}

/* Takes a slot for the next miss; false when there is no miss left or no slot free. */
static bool expert_begin(struct engine *e)
{
    struct fetch *f = &e->fetch;
    struct batch *b = &e->batch;
    while (b->open && f->expert_next < b->count && b->run[f->expert_next].hit) {
        f->expert_next++;
    }
    if (!b->open || f->expert_next >= b->count) {
        return false;
    }
    struct expert_run *run = &b->run[f->expert_next];
    if (!checks_room(e, true)) {
        atomic_store(&e->slot_waits_pages, 0);
        return false;
    }
    uint32_t slot = slab_slot_take(e->slab);
    atomic_store(&e->slot_waits_pages, slot == SLAB_NO_SLOT && slab_slots_free(e->slab) > 0);
    if (slot == SLAB_NO_SLOT) {
        return false;
    }
    pages_touched(e, slot);
    run->slot = slot;
    run->ticket = checks_take(e, true);
    f->extent_sums = checks_with_sums(e);
    f->extent_count = lay_parts(e, run, f->extent);
    f->extent_at = 0;
    f->extent_done_bytes = 0;
    f->extent_target = slab_slot_address(e->slab, slot);
    for (uint32_t i = 0; i < f->extent_count; i++) {
        run->requests_left += (uint32_t)plan_requests_of(e->plan, f->extent[i].size_bytes) +
                              checks_with_sums(e);
    }
    f->expert_begun = true;
    return true;
}

bool expert_issue(struct engine *e)
{
    struct fetch *f = &e->fetch;
    if (!f->expert_begun && !expert_begin(e)) {
        return false;
    }
    const struct extent *x = &f->extent[f->extent_at];
    if (f->extent_sums) {
        f->extent_sums = false;
        checks_issue_expert(e, f->expert_next, f->extent, f->extent_at);
        return true;
    }
    bool first = f->extent_at == 0 && f->extent_done_bytes == 0;
    uint64_t size = min_u64(e->plan->io_size_bytes, x->size_bytes - f->extent_done_bytes);
    fetch_issue(e, READ_EXPERTS, f->expert_next, x->file, x->offset_bytes + f->extent_done_bytes,
                size, f->extent_target, first ? e->plan->expert_payload_bytes : 0);
    f->extent_target += size;
    f->extent_done_bytes += size;
    if (f->extent_done_bytes == x->size_bytes) {
        f->extent_done_bytes = 0;
        f->extent_sums = checks_with_sums(e);
        if (++f->extent_at == f->extent_count) {
            f->expert_begun = false;
            f->expert_next++;
        }
    }
    return true;
}

void expert_arrived(struct engine *e, uint32_t index)
{
    struct expert_run *run = &e->batch.run[index];
    if (--run->requests_left == 0) {
        slab_slot_ready(e->slab, run->slot);
        journal_arrival(e, index);
        if (e->checks.by != CHECKS_OFF) {
            checks_expert_data(e, index);
        } else {
            run_expert_data(e, index);
        }
    }
}
