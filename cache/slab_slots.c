/* SPDX-License-Identifier: Apache-2.0 */
/* The expert slots of a slab: their states (drawn in slab.h) and the stack of free ones. */

#include <stdlib.h>

#include "cache/slab_priv.h"

static void stack(struct slab_slots *slots, uint32_t slot)
{
    assert(slots->free_count < slots->count);
    slots->state[slot] = SLOT_FREE;
    slots->place[slot] = slots->free_count;
    slots->free[slots->free_count++] = slot;
}

bool slab_slots_init(struct slab_slots *slots, uint32_t count)
{
    size_t room = count > 0 ? count : 1;
    slots->address = calloc(room, sizeof *slots->address);
    slots->state = calloc(room, sizeof *slots->state);
    slots->free = calloc(room, sizeof *slots->free);
    slots->place = calloc(room, sizeof *slots->place);
    if (slots->address == NULL || slots->state == NULL || slots->free == NULL ||
        slots->place == NULL) {
        return false;
    }
    slots->count = count;
    for (uint32_t i = count; i-- > 0;) {
        stack(slots, i);
    }
    return true;
}

void slab_slots_fini(struct slab_slots *slots)
{
    free(slots->address);
    free(slots->state);
    free(slots->free);
    free(slots->place);
}

static void move(struct slab *slab, uint32_t slot, enum slot_state from, enum slot_state to)
{
    assert(slot < slab->slots.count);
    assert(slab->slots.state[slot] == from);
    slab->slots.state[slot] = (uint8_t)to;
}

uint32_t slab_slot_take(struct slab *slab)
{
    struct slab_slots *slots = &slab->slots;
    if (slots->free_count == 0) {
        return UINT32_MAX;
    }
    uint32_t slot = slots->free[slots->free_count - 1];
    if (slot >= slots->count - slab->layout.later_slots &&
        !slab_slice_present(slab, slab_slice_of(slab, slots->address[slot]))) {
        return UINT32_MAX; /* those below it were never used */
    }
    slots->free_count--;
    move(slab, slot, SLOT_FREE, SLOT_LOADING);
    return slot;
}

void slab_slot_ready(struct slab *slab, uint32_t slot)
{
    move(slab, slot, SLOT_LOADING, SLOT_READY);
}

void slab_slot_keep(struct slab *slab, uint32_t slot)
{
    move(slab, slot, SLOT_READY, SLOT_KEPT);
}

void slab_slot_use(struct slab *slab, uint32_t slot)
{
    move(slab, slot, SLOT_KEPT, SLOT_READY);
}

void slab_slot_free(struct slab *slab, uint32_t slot)
{
    assert(slot < slab->slots.count);
    assert(slab->slots.state[slot] != SLOT_FREE);
    stack(&slab->slots, slot);
}

unsigned char *slab_slot_address(struct slab *slab, uint32_t slot)
{
    assert(slot < slab->slots.count);
    return slab->slots.address[slot];
}

enum slot_state slab_slot_state(const struct slab *slab, uint32_t slot)
{
    assert(slot < slab->slots.count);
    return (enum slot_state)slab->slots.state[slot];
}

uint32_t slab_slots_free(const struct slab *slab)
{
    return slab->slots.free_count;
}

/* Every free slot is where it says it is in the stack, and there are as many as the stack holds:
 * so none is stacked twice and none is lost. */
void slab_slots_check(const struct slab_slots *slots)
{
    uint32_t free_states = 0;
    assert(slots->free_count <= slots->count);
    for (uint32_t i = 0; i < slots->count; i++) {
        assert(slots->state[i] <= SLOT_KEPT);
        if (slots->state[i] == SLOT_FREE) {
            assert(slots->place[i] < slots->free_count);
            assert(slots->free[slots->place[i]] == i);
            free_states++;
        }
    }
    assert(free_states == slots->free_count);
}
