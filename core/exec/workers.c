/* SPDX-License-Identifier: Apache-2.0 */
/* The worker pool: pop a task, run it; with nothing to do spin briefly, then sleep, and count the
 * idle time by what was missing. Workers beyond the active count rest. In stepped mode the same
 * pieces run one at a time in an order chosen by the seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/thread.h"
#include "core/exec/exec_priv.h"

#ifdef K3RING_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

/* Some 50 microseconds, about what falling asleep and being woken cost; a step in the middle of a
 * layer comes sooner. The I/O thread, which sleeps in the kernel, gets a spinner's processor. */
#define SPINS 2048
#define IDLE_SLICE_NS 100000000ULL

const uint64_t *thread_allocated(void)
{
    uint64_t *counter = NULL;
#ifdef K3RING_JEMALLOC
    size_t size = sizeof counter;
    if (mallctl("thread.allocatedp", &counter, &size, NULL, 0) != 0) {
        counter = NULL;
    }
#endif
    return counter;
}

void workers_notify(struct engine *e, uint32_t tasks)
{
    gate_notify(&e->work_gate, (int)min_u64(tasks, e->worker_count));
}

static bool rests(const struct worker *w)
{
    return w->index >= atomic_load(&w->engine->active_workers);
}

/* A worker asleep at the work gate must not take a wake-up that it would not use: all sleepers
 * there are roused, and whoever comes later looks at the count behind the gate's key. */
void workers_activate(struct engine *e, uint32_t count)
{
    assert(count > 0 && count <= e->worker_count);
    if (atomic_exchange(&e->active_workers, count) != count) {
        gate_notify(&e->work_gate, (int)e->worker_count);
        gate_notify(&e->rest_gate, (int)e->worker_count);
    }
}

static uint64_t stretch_ns(const struct worker *w, uint64_t now_ns)
{
    uint64_t since_ns = atomic_load(&w->since_ns);
    return now_ns > since_ns ? now_ns - since_ns : 0;
}

/* Books the time since the last turn; from here on it is for `doing`. */
static void turn_to(struct engine *e, struct worker *w, uint32_t doing)
{
    uint64_t now_ns = pass_clock_ns(e);
    atomic_fetch_add(&w->spent_ns[atomic_load(&w->doing)], stretch_ns(w, now_ns));
    atomic_store(&w->since_ns, now_ns);
    atomic_store(&w->doing, doing);
}

void workers_spent(const struct engine *e, uint64_t spent_ns[WORKER_DOINGS])
{
    uint64_t now_ns = pass_clock_ns(e);
    memset(spent_ns, 0, WORKER_DOINGS * sizeof *spent_ns);
    for (uint32_t i = 0; i < e->worker_count; i++) {
        const struct worker *w = &e->workers[i];
        spent_ns[atomic_load(&w->doing)] += stretch_ns(w, now_ns);
        for (int k = 0; k < WORKER_DOINGS; k++) {
            spent_ns[k] += atomic_load(&w->spent_ns[k]);
        }
    }
}

static void rest(struct engine *e, struct worker *w)
{
    turn_to(e, w, WORKER_RESTS);
    uint32_t key = gate_enter(&e->rest_gate);
    if (rests(w) && !atomic_load(&e->stop)) {
        gate_wait(&e->rest_gate, key, UINT64_MAX);
    } else {
        gate_leave(&e->rest_gate);
    }
    turn_to(e, w, WORKER_WORKS);
}

/* What the oldest unfinished step is waiting for. */
static enum stall_cause stall_cause(struct engine *e)
{
    uint32_t from = atomic_load(&e->open_step);
    uint32_t i = from;
    while (i < e->plan->step_count && atomic_load(&e->step[i].tasks_left) == 0) {
        i++;
    }
    if (i == e->plan->step_count) {
        return STALL_COMPUTE;
    }
    atomic_compare_exchange_strong(&e->open_step, &from, i); /* unless a pass began meanwhile */
    const struct plan_step *step = &e->plan->steps[i];
    if (step->kind == STEP_EMBED) {
        return STALL_EMBED;
    }
    /* Unfinished tasks that no worker runs are waiting for their data, and demanded experts come
     * before tiles. */
    if (atomic_load(&e->step[i].tasks_left) <= atomic_load(&e->busy_workers)) {
        return STALL_COMPUTE;
    }
    if (step->kind == STEP_EXPERTS || atomic_load(&e->in_flight[READ_EXPERTS]) > 0) {
        return atomic_load(&e->slot_waits_pages) ? STALL_PAGES : STALL_EXPERTS;
    }
    if (step->tile_count == 0) {
        return STALL_COMPUTE;
    }
    if (atomic_load(&e->waits_pages)) {
        return STALL_PAGES;
    }
    if (atomic_load(&e->in_flight[READ_TRUNK]) + atomic_load(&e->in_flight[READ_HEAD]) == 0) {
        return STALL_COMPUTE; /* a task has just been taken by another */
    }
    return step->kind == STEP_HEAD ? STALL_HEAD : STALL_TRUNK;
}

static bool spin_pop(struct engine *e, uint64_t *task)
{
    for (int i = 0; i < SPINS; i++) {
        if (queue_pop(&e->ready, task)) {
            return true;
        }
        __builtin_ia32_pause();
    }
    return false;
}

/* Sleeps until notified. */
static void idle(struct engine *e, struct worker *w, uint64_t *task, bool *found)
{
    enum stall_cause cause = stall_cause(e);
    uint64_t begun_ns = journal_begin(e, SPANS_WAITS);
    uint32_t step = atomic_load(&e->open_step);
    turn_to(e, w, cause);
    *found = spin_pop(e, task);
    if (!*found) {
        uint32_t key = gate_enter(&e->work_gate);
        *found = queue_pop(&e->ready, task);
        if (*found || atomic_load(&e->stop) || rests(w)) {
            gate_leave(&e->work_gate);
        } else {
            gate_wait(&e->work_gate, key, IDLE_SLICE_NS);
        }
    }
    turn_to(e, w, WORKER_WORKS);
    journal_end(e, w, begun_ns, step, DOING_WAIT + cause);
}

static void *worker_main(void *argument)
{
    struct worker *w = argument;
    struct engine *e = w->engine;
    kernels_thread_init();
    w->allocated = thread_allocated();
    atomic_fetch_add(&e->threads_ready, 1);
    while (!atomic_load(&e->stop)) {
        uint64_t task;
        if (rests(w)) {
            rest(e, w);
            continue;
        }
        bool found = queue_pop(&e->ready, &task);
        if (!found) {
            idle(e, w, &task, &found);
        }
        if (found) {
            atomic_fetch_add(&e->busy_workers, 1);
            uint64_t begun_ns = journal_begin(e, SPANS_ALL);
            run_task(e, w, task);
            journal_end(e, w, begun_ns, task_step(task), task_kind(task));
            atomic_fetch_sub(&e->busy_workers, 1);
        }
    }
    return NULL;
}

int workers_start(struct engine *e)
{
    e->workers = calloc(e->worker_count, sizeof *e->workers);
    atomic_store(&e->active_workers, e->worker_count);
    uint64_t floats = e->plan->scratch.size_bytes / sizeof(float);
    e->scratch_block = aligned_alloc(64, align_up(e->plan->scratch.size_bytes * e->worker_count,
                                                  64));
    if (e->workers == NULL || e->scratch_block == NULL) {
        uint32_t wanted = e->worker_count;
        e->worker_count = 0; /* none was started */
        return err_set(ERR_MEMORY, "no memory for %u workers; give fewer --threads", wanted);
    }
    for (uint32_t i = 0; i < e->worker_count; i++) {
        struct worker *w = &e->workers[i];
        w->engine = e;
        atomic_init(&w->doing, WORKER_WORKS);
        w->index = i;
        w->scratch = e->scratch_block + i * floats;
        int rc = e->options.stepped ? 0 : thread_create(&w->thread, NULL, worker_main, w);
        if (rc != 0) {
            e->worker_count = i;
            return err_set(ERR_MEMORY, "the system refused worker thread %u: %s; give fewer "
                           "--threads, or raise the limit of processes (ulimit -u) or of "
                           "memory (ulimit -v)", i + 1, strerror(rc));
        }
    }
    return 0;
}

void workers_stop(struct engine *e)
{
    atomic_store(&e->stop, 1);
    for (uint32_t i = 0; e->workers != NULL && i < e->worker_count; i++) {
        gate_notify(&e->work_gate, (int)e->worker_count);
        gate_notify(&e->rest_gate, (int)e->worker_count);
        if (!e->options.stepped) {
            pthread_join(e->workers[i].thread, NULL);
        }
    }
    free(e->workers);
    free(e->scratch_block);
    e->workers = NULL;
}

/* Takes a task in one step and runs it in a later one, so that workers overtake each other. */
static bool worker_step(struct engine *e, struct worker *w)
{
    if (!w->holds) {
        w->holds = queue_pop(&e->ready, &w->held);
        return w->holds;
    }
    w->holds = false;
    run_task(e, w, w->held);
    return true;
}

void engine_pump(struct engine *e)
{
    /* Any actor that can move is drawn within a few hundred steps; a million is a deadlock. */
    for (uint32_t idle_steps = 0; idle_steps < 1000000; idle_steps++) {
        uint64_t actor = rng_below(&e->rng, atomic_load(&e->active_workers) + 2ULL);
        bool moved;
        if (actor == 0) {
            moved = fetch_step(e, false);
            assert(!fetch_trunk_idles(e));
            slab_check(e->slab);
        } else if (actor == 1) {
            moved = rng_below(&e->rng, 8) == 0 && pages_step(e);
        } else {
            moved = worker_step(e, &e->workers[actor - 2]);
        }
        if (moved) {
            return;
        }
    }
    char text[128];
    snprintf(text, sizeof text, "simulated run stands still (seed %llu, pass %u)",
             (unsigned long long)e->options.sim.seed, e->passes_made);
    engine_fail(e, ERR_RUN, text);
}
