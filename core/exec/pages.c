/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is made present while the first pass goes by: pins, and slots of the expert cache.
 * A pass needs all pins but only as many slots as it has experts, both evenly along its walk: in
 * that order slices are made present, then the other slots. */
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"
#include "core/base/thread.h"
#include "core/exec/exec_priv.h"

/* Slices that hold the slots which the first pass fills, of those there are. */
static uint32_t slot_slices_of_pass(const struct engine *e, uint32_t there_are)
{
    const struct model_config *c = config_of(e);
    uint64_t moe = c->layers > c->first_dense ? c->layers - c->first_dense : 0;
    uint64_t each = min_u64(c->experts, (uint64_t)e->plan->chunk * c->experts_per_token);
    uint64_t slots = max_u64(e->plan->cache_slots, 1);
    uint64_t filled = min_u64(moe * each, slots);
    return (uint32_t)div_ceil(filled * there_are, slots);
}

/* Lists slots_soon of the slot slices and all pin slices, evenly mixed, then the rest. first and
 * pins are indices of the first slice of their kind, count the number of slices. */
static void list_slices(struct engine *e, uint32_t first, uint32_t pins, uint32_t slots_soon)
{
    uint32_t count = slab_slice_count(e->slab);
    uint64_t slot_end = first + slots_soon, slot = first, pin = pins;
    uint32_t *at = e->pages_order;
    while (slot < slot_end || pin < count) {
        /* Whose share listed so far is the smaller one; slots where they are equal. */
        bool behind = (slot - first) * (count - pins) <= (pin - pins) * slots_soon;
        *at++ = (uint32_t)(slot < slot_end && (behind || pin == count) ? slot++ : pin++);
    }
    while (slot < pins) {
        *at++ = (uint32_t)slot++;
    }
    e->pages_count = (uint32_t)(at - e->pages_order);
}

int pages_init(struct engine *e)
{
    uint32_t count = slab_slice_count(e->slab), first = 0;
    e->pages_order = calloc(max_u64(count, 1), sizeof *e->pages_order);
    if (e->pages_order == NULL) {
        return err_set(ERR_MEMORY, "no memory for %u slices of weights", count);
    }
    while (first < count && !slab_slice(e->slab, first)->later) {
        first++;
    }
    uint32_t pins = first;
    while (pins < count && !slab_slice(e->slab, pins)->pins) {
        pins++;
    }
    list_slices(e, first, pins, slot_slices_of_pass(e, pins - first));
    return 0;
}

void pages_fini(struct engine *e)
{
    free(e->pages_order);
}

/* The next slice, whoever takes it; UINT32_MAX: none is left. */
static uint32_t next_slice(struct engine *e)
{
    uint32_t i = atomic_fetch_add(&e->pages_next, 1);
    return i < e->pages_count ? e->pages_order[i] : UINT32_MAX;
}

static void *pages_main(void *argument)
{
    struct engine *e = argument;
    uint32_t slice;
    while (!atomic_load(&e->stop) && (slice = next_slice(e)) != UINT32_MAX) {
        uint64_t before = memory_thread_faults();
        if (slab_populate(e->slab, slice) < 0) {
            engine_fail(e, ERR_MEMORY, err_message());
            break;
        }
        atomic_fetch_add(&e->pages_faults, memory_thread_faults() - before);
        io_wake(e->io);
    }
    return NULL;
}

int pages_start(struct engine *e)
{
    while (e->pages_threads < min_u64(PAGES_THREADS, e->pages_count)) {
        int rc = thread_create(&e->pages_thread[e->pages_threads], NULL, pages_main, e);
        if (rc != 0) {
            return err_set(ERR_MEMORY, "the system refused a thread for memory pages: %s; raise "
                           "the limit of processes (ulimit -u) or of memory (ulimit -v)",
                           strerror(rc));
        }
        e->pages_threads++;
    }
    return 0;
}

bool pages_step(struct engine *e)
{
    uint32_t slice = next_slice(e);
    if (slice == UINT32_MAX) {
        return false;
    }
    if (slab_populate(e->slab, slice) < 0) {
        engine_fail(e, ERR_MEMORY, err_message());
    }
    return true;
}

void pages_stop(struct engine *e)
{
    slab_quit(e->slab); /* to make the rest of them present may take long */
    for (uint32_t i = 0; i < e->pages_threads; i++) {
        pthread_join(e->pages_thread[i], NULL);
    }
}

uint64_t engine_pages_faults(const struct engine *e)
{
    return atomic_load(&e->pages_faults);
}
