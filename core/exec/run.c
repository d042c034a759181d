/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and tasks of a pass: counts that reach zero make a task ready, tasks that end make a step
 * done, and a step done is an input of those after it. No lock anywhere. */
#include <stdlib.h>

#include "core/exec/exec_priv.h"

static void push(struct engine *e, uint64_t task)
{
    queue_push(&e->ready, task);
}

/* Successor lists of the plan's dependencies, as one array cut by step. */
static int link_steps(struct engine *e)
{
    const struct plan *p = e->plan;
    uint32_t edges = 0;
    for (uint32_t i = 0; i < p->step_count; i++) {
        edges += p->steps[i].dep_count;
        for (uint32_t d = 0; d < p->steps[i].dep_count; d++) {
            e->step[p->steps[i].dep[d]].succ_count++;
        }
    }
    e->succ = calloc(edges + 1, sizeof *e->succ);
    if (e->succ == NULL) {
        return err_set(ERR_MEMORY, "no memory for %u step edges", edges);
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->step_count; i++) {
        e->step[i].succ_first = at;
        at += e->step[i].succ_count;
        e->step[i].succ_count = 0;
    }
    for (uint32_t i = 0; i < p->step_count; i++) {
        for (uint32_t d = 0; d < p->steps[i].dep_count; d++) {
            struct step_run *from = &e->step[p->steps[i].dep[d]];
            e->succ[from->succ_first + from->succ_count++] = i;
        }
    }
    return 0;
}

_Static_assert(sizeof(struct tile_run) <= 64 && sizeof(struct step_run) <= 64,
               "the planner accounts 64 bytes of state per tile and step");

int run_init(struct engine *e)
{
    const struct plan *p = e->plan;
    e->tile = calloc(p->tile_count, sizeof *e->tile);
    e->step = calloc(p->step_count, sizeof *e->step);
    if (e->tile == NULL || e->step == NULL) {
        return err_set(ERR_MEMORY, "no memory for the state of %u tiles", p->tile_count);
    }
    for (uint32_t i = 0; i < p->tile_count; i++) {
        atomic_init(&e->tile[i].pending, 2);
    }
    TRY(link_steps(e));
    /* Ready at once: at most the tasks of a layer and its neighbours, and a batch of experts. */
    uint64_t widest = 0;
    for (uint32_t i = 0; i < p->step_count; i++) {
        widest = max_u64(widest, p->steps[i].tile_count);
    }
    uint64_t parts = max_u64((uint64_t)p->chunk, KDA_PARTS);
    uint64_t experts = config_of(e)->experts +
                       (uint64_t)config_of(e)->experts_per_token * EXPERT_PARTS_MAX;
    uint64_t checks = (uint64_t)e->checks.tile_count + e->checks.expert_count;
    return queue_init(&e->ready, 8 * widest + 8 * parts + experts + checks + 64);
}

void run_fini(struct engine *e)
{
    queue_fini(&e->ready);
    free(e->tile);
    free(e->step);
    free(e->succ);
}

void run_reset(struct engine *e)
{
    const struct plan *p = e->plan;
    for (uint32_t i = 0; i < p->step_count; i++) {
        const struct plan_step *step = &p->steps[i];
        uint32_t extra = step->kind == STEP_EMBED; /* the rows */
        uint32_t tasks = step->tile_count > 0 ? step->tile_count : compute_parts(e, i);
        atomic_store(&e->step[i].deps_left, step->dep_count + extra);
        atomic_store(&e->step[i].tasks_left, tasks);
    }
    atomic_store(&e->open_step, 0);
}

/* Pushes an expert's tasks of a stage; returns how many. */
static uint32_t push_expert(struct engine *e, enum task_kind kind, uint32_t step, uint32_t index)
{
    uint32_t parts = e->batch.parts; /* once: after the last push the batch may go by */
    for (uint32_t part = 0; part < parts; part++) {
        push(e, task_make(kind, step, part << 16 | index));
    }
    return parts;
}

static uint32_t push_ready_expert(struct engine *e, uint32_t step, uint32_t index)
{
    return push_expert(e, e->batch.parts > 1 ? TASK_EXPERT_HIDDEN : TASK_EXPERT, step, index);
}

static void activate(struct engine *e, uint32_t index)
{
    const struct plan_step *step = &e->plan->steps[index];
    uint32_t ready = 0;
    if (step->kind == STEP_EXPERTS) {
        /* Read once: after the last push other threads may run on to the next layer's batch. */
        uint32_t count = e->batch.count;
        for (uint32_t i = 0; i < count; i++) {
            if (atomic_fetch_sub(&e->batch.run[i].pending, 1) == 1) {
                ready += push_ready_expert(e, index, i);
            }
        }
    } else if (step->tile_count > 0) {
        for (uint32_t i = 0; i < step->tile_count; i++) {
            uint32_t tile = step->tile_first + i;
            if (atomic_fetch_sub(&e->tile[tile].pending, 1) == 1) {
                push(e, task_make(TASK_TILE, index, tile));
                ready++;
            }
        }
    } else {
        ready = compute_parts(e, index);
        for (uint32_t i = 0; i < ready; i++) {
            push(e, task_make(TASK_PART, index, i));
        }
    }
    if (ready > 0) {
        workers_notify(e, ready);
    }
}

void run_step_input(struct engine *e, uint32_t step)
{
    uint32_t before = atomic_fetch_sub(&e->step[step].deps_left, 1);
    assert(before > 0);
    if (before == 1) {
        activate(e, step);
    }
}

void run_tile_data(struct engine *e, uint32_t tile)
{
    if (atomic_fetch_sub(&e->tile[tile].pending, 1) == 1) {
        push(e, task_make(TASK_TILE, e->plan->tiles[tile].step, tile));
        workers_notify(e, 1);
    }
}

void run_expert_data(struct engine *e, uint32_t index)
{
    if (atomic_fetch_sub(&e->batch.run[index].pending, 1) == 1) {
        workers_notify(e, push_ready_expert(e, e->batch.step, index));
    }
}

static void pass_over(struct engine *e)
{
    atomic_store(&e->pass_done, 1);
    gate_notify(&e->pass_gate, 1);
}

static void step_done(struct engine *e, uint32_t index)
{
    const struct plan_step *step = &e->plan->steps[index];
    const struct step_run *run = &e->step[index];
    if (step->kind == STEP_HEAD || (step->kind == STEP_HEAD_IN && !e->head)) {
        pass_over(e);
        return;
    }
    if (step->kind == STEP_ROUTE) {
        /* The I/O thread asks the cache, starts the reads, and then counts this input. */
        assert(run->succ_count == 1);
        atomic_store(&e->demand_step, e->succ[run->succ_first] + 1);
        io_wake(e->io);
        return;
    }
    for (uint32_t i = 0; i < run->succ_count; i++) {
        run_step_input(e, e->succ[run->succ_first + i]);
    }
}

/* Re-arms a tile for the next pass and lets the I/O thread have its memory. */
static void tile_done(struct engine *e, uint32_t tile)
{
    struct tile_run *run = &e->tile[tile];
    atomic_store(&run->pending, e->plan->tiles[tile].pinned ? 1 : 2);
    atomic_store(&run->busy, 0);
    if (atomic_load(&e->wants_room) && atomic_load(&e->ring_awaited) == tile) {
        io_wake(e->io);
    }
}

static void expert_done(struct engine *e, uint32_t index)
{
    atomic_store(&e->batch.run[index].done, 1);
    atomic_fetch_add(&e->batch.done_count, 1);
    if (atomic_load(&e->wants_slot)) {
        io_wake(e->io);
    }
}

/* One part of an expert. True when it was the expert's last. */
static bool expert_part(struct engine *e, struct worker *w, enum task_kind kind, uint32_t step,
                        uint32_t task_index)
{
    uint32_t index = task_index & 0xFFFFU;
    uint32_t part = task_index >> 16;
    struct expert_run *run = &e->batch.run[index];
    if (kind == TASK_EXPERT_HIDDEN) {
        compute_expert_hidden(e, w, index, part);
        if (atomic_fetch_sub(&run->parts_left, 1) == 1) {
            atomic_store(&run->parts_left, e->batch.parts);
            workers_notify(e, push_expert(e, TASK_EXPERT, step, index));
        }
        return false;
    }
    if (e->batch.parts == 1) {
        compute_expert(e, w, index);
    } else {
        compute_expert_down(e, index, part);
    }
    if (atomic_fetch_sub(&run->parts_left, 1) > 1) {
        return false;
    }
    expert_done(e, index);
    return true;
}

void run_task(struct engine *e, struct worker *w, uint64_t task)
{
    enum task_kind kind = task_kind(task);
    uint32_t step = task_step(task);
    uint32_t index = (uint32_t)task & 0x0FFFFFFFU;
    bool whole = true; /* one of the tasks its step counts */
    if (atomic_load(&e->error) != 0) {
        return;
    }
    if (kind == TASK_CHECK_TILE || kind == TASK_CHECK_EXPERT) {
        checks_task(e, kind, index);
        return;
    }
    if (kind == TASK_TILE) {
        compute_tile(e, w, index);
        tile_done(e, index);
    } else if (kind == TASK_PART) {
        compute_part(e, w, step, index);
    } else {
        whole = expert_part(e, w, kind, step, index);
    }
    whole = whole && atomic_load(&e->error) == 0;
    if (whole && atomic_fetch_sub(&e->step[step].tasks_left, 1) == 1) {
        step_done(e, step);
    }
}
