/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CACHE_SLAB_H
#define CACHE_SLAB_H

/* All memory weights are read into: one mapping of its own (never the allocator's), 2 MiB
 * aligned, huge pages asked for, not inherited by forks. Four areas, one after the other:
 *
 *   rows | ring | slots | pins
 *
 *   rows   embedding rows of the pass being prepared
 *   ring   trunk tiles in plan order: a circular buffer, taken at the head, freed at the tail
 *   slots  one expert each, any order
 *   pins   tiles that stay; placed by the plan, so this module only hands out addresses
 *
 * The mapping is cut in slices of at most 1 GiB, the unit of registration with the kernel; no
 * ring, slot or pinned tile crosses a slice. rows, ring and the first slots are populated at open;
 * the slices of later slots and of pins when slab_populate() is called for them, by any one thread.
 * Slots and ring are owned by one thread.
 *
 *   slot:  FREE --slab_slot_take--> LOADING --slab_slot_ready--> READY --slab_slot_keep--> KEPT
 *          LOADING, READY, KEPT --slab_slot_free--> FREE ;  KEPT --slab_slot_use--> READY
 */

#include "core/base/base.h"

#define SLAB_NONE UINT64_MAX
#define SLAB_NO_SLOT UINT32_MAX

struct slab_layout {
    uint64_t rows_bytes;   /* multiple of PAGE_BYTES, may be 0 */
    uint64_t ring_bytes;   /* multiple of PAGE_BYTES, <= 1 GiB */
    uint64_t slot_bytes;   /* multiple of PAGE_BYTES, <= 1 GiB; 0 with slot_count 0 */
    uint32_t slot_count;
    uint32_t later_slots;  /* of them, the last ones, are not populated at open */
    uint64_t pin_bytes;    /* whole pin area */
    uint64_t later_slice_bytes; /* of what is populated later: a multiple of 2 MiB, <= 1 GiB;
                                 * pinned tiles cross no multiple */
    uint32_t ring_entries; /* most tiles in the ring at once */
};

enum slot_state { SLOT_FREE, SLOT_LOADING, SLOT_READY, SLOT_KEPT };

struct slab_slice {
    unsigned char *base;
    uint64_t size_bytes;
    bool later;            /* not populated at open: later slots, or pins */
    bool pins;
};

struct slab;

/* Bytes of address space and memory a layout takes, padding included: pure. */
uint64_t slab_bytes(const struct slab_layout *layout);

/* ERR_MEMORY when the system refuses. */
int slab_open(struct slab **out, const struct slab_layout *layout);
void slab_close(struct slab *slab);

uint32_t slab_slice_count(const struct slab *slab);
const struct slab_slice *slab_slice(const struct slab *slab, uint32_t index);
/* The slice that holds an address of the slab. */
uint32_t slab_slice_of(const struct slab *slab, const void *address);

unsigned char *slab_rows(struct slab *slab);

/* Ring: size_bytes in one piece (multiple of PAGE_BYTES, <= ring_bytes), or NULL when the tail
 * has not moved far enough. *entry identifies it for slab_ring_free(), which may be called in
 * any order; memory comes back in order. */
unsigned char *slab_ring_take(struct slab *slab, uint64_t size_bytes, uint32_t *entry);
void slab_ring_free(struct slab *slab, uint32_t entry);
uint64_t slab_ring_used(const struct slab *slab); /* bytes between tail and head, gaps too */
bool slab_ring_fits(const struct slab *slab, uint64_t size_bytes); /* would a take succeed */

/* Slots. take returns an index, or SLAB_NO_SLOT when none is free, or the next free one is not
 * present yet. */
uint32_t slab_slot_take(struct slab *slab);
void slab_slot_ready(struct slab *slab, uint32_t slot);
void slab_slot_keep(struct slab *slab, uint32_t slot);
void slab_slot_use(struct slab *slab, uint32_t slot);
void slab_slot_free(struct slab *slab, uint32_t slot);
unsigned char *slab_slot_address(struct slab *slab, uint32_t slot);
enum slot_state slab_slot_state(const struct slab *slab, uint32_t slot);
uint32_t slab_slots_free(const struct slab *slab);

/* Pins: the address of an offset of the pin area, and its slice's index. */
unsigned char *slab_pin_address(struct slab *slab, uint64_t offset_bytes);
/* Makes a later slice's pages present (blocks at the kernel's pace). Idempotent. After slab_quit()
 * it returns soon, and the slice may not be present. */
int slab_populate(struct slab *slab, uint32_t slice);
bool slab_slice_present(const struct slab *slab, uint32_t slice); /* any thread */
/* No more slices are wanted; any thread. NULL is fine. */
void slab_quit(struct slab *slab);

/* Asserts every invariant of ring and slots. */
void slab_check(const struct slab *slab);

/* What was really obtained, from /proc/self/smaps. */
struct slab_statement {
    uint64_t mapped_bytes, resident_bytes, huge_bytes;
};
void slab_state(const struct slab *slab, struct slab_statement *out);

#endif
