/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is made present while the first passes go by: pins, and slots of the expert cache. A
 * pass needs all pins in the order of its walk, and slots as it finds new experts: so pins come
 * first, and slots when less than a slice of them is left that no expert has been in. */
#include <string.h>
#include <time.h>

#include "core/base/thread.h"
#include "core/exec/exec_priv.h"

void pages_init(struct engine *e)
{
    struct pages *p = &e->pages;
    uint32_t count = slab_slice_count(e->slab), slots = 0;
    while (slots < count && !slab_slice(e->slab, slots)->later) {
        slots++;
    }
    uint32_t pins = slots;
    while (pins < count && !slab_slice(e->slab, pins)->pins) {
        pins++;
    }
    p->slot_end = pins;
    p->pin_end = count;
    atomic_store(&p->slot_next, slots);
    atomic_store(&p->pin_next, pins);
    atomic_store(&p->slots_begun, e->plan->working_slots);
    atomic_store(&p->left, count - slots);
}

static uint32_t slots_of(const struct engine *e, uint32_t slice)
{
    return (uint32_t)(slab_slice(e->slab, slice)->size_bytes / e->plan->slot_bytes);
}

/* Slots run short when those of one more slice would all be new. */
static bool slots_short(const struct engine *e)
{
    const struct pages *p = &e->pages;
    uint32_t next = atomic_load(&p->slot_next);
    return next < p->slot_end &&
           atomic_load(&p->slots_touched) + slots_of(e, next) > atomic_load(&p->slots_begun);
}

/* False when none is left. */
static bool take(_Atomic uint32_t *next, uint32_t end, uint32_t *slice)
{
    if (atomic_load(next) >= end) {
        return false;
    }
    *slice = atomic_fetch_add(next, 1);
    return *slice < end;
}

static bool take_slots(struct engine *e, uint32_t *slice)
{
    struct pages *p = &e->pages;
    bool taken = take(&p->slot_next, p->slot_end, slice);
    if (taken) {
        atomic_fetch_add(&p->slots_begun, slots_of(e, *slice));
    }
    return taken;
}

static bool take_next(struct engine *e, uint32_t *slice)
{
    return (slots_short(e) && take_slots(e, slice)) ||
           take(&e->pages.pin_next, e->pages.pin_end, slice) || take_slots(e, slice);
}

/* False when there is none left, or none to be had. */
static bool make_slice(struct engine *e)
{
    uint32_t slice;
    if (!take_next(e, &slice)) {
        return false;
    }
    if (slab_populate(e->slab, slice) < 0) {
        engine_fail(e, ERR_MEMORY, err_message());
        return false;
    }
    atomic_fetch_sub(&e->pages.left, 1);
    return true;
}

static void *pages_main(void *argument)
{
    struct engine *e = argument;
    while (!atomic_load(&e->stop) && make_slice(e)) {
        io_wake(e->io);
    }
    return NULL;
}

int pages_start(struct engine *e)
{
    struct pages *p = &e->pages;
    while (p->threads < min_u64(PAGES_THREADS, atomic_load(&p->left))) {
        int rc = thread_create(&p->thread[p->threads], NULL, pages_main, e);
        if (rc != 0) {
            return err_set(ERR_MEMORY, "the system refused a thread for memory pages: %s; raise "
                           "the limit of processes (ulimit -u) or of memory (ulimit -v)",
                           strerror(rc));
        }
        p->threads++;
    }
    return 0;
}

bool pages_step(struct engine *e)
{
    return make_slice(e);
}

void pages_stop(struct engine *e)
{
    slab_quit(e->slab); /* to make the rest of them present may take long */
    for (uint32_t i = 0; i < e->pages.threads; i++) {
        pthread_join(e->pages.thread[i], NULL);
    }
}

void pages_touched(struct engine *e, uint32_t slot)
{
    if (slot >= atomic_load(&e->pages.slots_touched)) {
        atomic_store(&e->pages.slots_touched, slot + 1);
    }
}

void engine_pages_wait(const struct engine *e)
{
    assert(!e->options.stepped);
    while (!engine_pages_present(e) && atomic_load(&e->error) == 0 && !engine_interrupted(e)) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

bool engine_pages_present(const struct engine *e)
{
    return atomic_load(&e->pages.left) == 0;
}
