/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CACHE_SLAB_PRIV_H
#define CACHE_SLAB_PRIV_H

/* The inside of a slab, shared by its four files: slab.c (mapping, slices, pins), slab_ring.c,
 * slab_slots.c and slab_release.c. */

#include <stdatomic.h>

#include "cache/slab.h"

#define SLAB_SLICE_BYTES_MAX GIB

/* A tile in the ring. Entries are themselves a circle, in the order they were taken. */
struct ring_entry {
    uint64_t offset_bytes;
    uint64_t span_bytes; /* its size, and the gap behind it when its successor had to wrap */
    bool freed;          /* given back, but an older entry is not yet */
};

struct slab_ring {
    unsigned char *base;
    uint64_t size_bytes;
    uint64_t tail_bytes;      /* offset of the oldest entry */
    uint64_t head_bytes;      /* end of the newest; both 0 when the ring is empty */
    uint64_t used_bytes;      /* sum of the spans */
    struct ring_entry *entry; /* [capacity] */
    uint32_t first, count, capacity;
};

struct slab_slots {
    unsigned char **address; /* [count] */
    uint8_t *state;          /* [count], enum slot_state */
    uint32_t *free;          /* stack of the slots in SLOT_FREE, lowest on top at open */
    uint32_t *place;         /* [count], of a free slot its index in the stack */
    uint32_t free_count, count;
};

struct slab {
    struct slab_layout layout;
    void *reserve; /* the mapping, with inaccessible memory before and after it */
    uint64_t reserve_bytes;
    unsigned char *base; /* 2 MiB aligned */
    uint64_t size_bytes; /* slab_bytes(layout) */
    unsigned char *pins;
    struct slab_slice *slice; /* [slice_count], by address, without holes between them */
    atomic_bool *present;     /* [slice_count] */
    atomic_bool quit;         /* no more of them is wanted */
    uint32_t slice_count;
    struct slab_ring ring;
    struct slab_slots slots;
};

/* Gives the mapping back; all of it, wherever it was present. */
void slab_release(struct slab *slab);

/* Both take memory for their tables; fini also after a failed init. */
bool slab_ring_init(struct slab_ring *ring, const struct slab_layout *layout); /* base later */
void slab_ring_fini(struct slab_ring *ring);
void slab_ring_check(const struct slab_ring *ring);

bool slab_slots_init(struct slab_slots *slots, uint32_t count); /* addresses are set later */
void slab_slots_fini(struct slab_slots *slots);
void slab_slots_check(const struct slab_slots *slots);

#endif
