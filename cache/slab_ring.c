/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of a slab. Memory is taken at the head and comes back at the tail, in the order it was
 * taken. A piece that does not fit before the end of the area begins at its start; the gap this
 * leaves belongs to the piece before it.
 *
 *   0        head          tail              end
 *   |########|.............|########|########gap|
 */

#include <stdlib.h>

#include "cache/slab_priv.h"

bool slab_ring_init(struct slab_ring *ring, const struct slab_layout *layout)
{
    ring->size_bytes = layout->ring_bytes;
    ring->capacity = layout->ring_entries;
    size_t entries = ring->capacity > 0 ? ring->capacity : 1;
    ring->entry = calloc(entries, sizeof *ring->entry);
    return ring->entry != NULL;
}

void slab_ring_fini(struct slab_ring *ring)
{
    free(ring->entry);
}

static uint32_t entry_index(const struct slab_ring *ring, uint32_t position)
{
    uint64_t index = (uint64_t)ring->first + position;
    return (uint32_t)(index % ring->capacity);
}

/* Where a piece would begin, or SLAB_NONE. An empty ring has head and tail at 0. */
static uint64_t place_of(const struct slab_ring *ring, uint64_t size_bytes)
{
    assert(size_bytes > 0 && size_bytes % PAGE_BYTES == 0 && size_bytes <= ring->size_bytes);
    bool full = ring->count > 0 && ring->head_bytes == ring->tail_bytes;
    if (ring->count == ring->capacity || full) {
        return SLAB_NONE;
    }
    if (ring->head_bytes < ring->tail_bytes) {
        return size_bytes <= ring->tail_bytes - ring->head_bytes ? ring->head_bytes : SLAB_NONE;
    }
    if (size_bytes <= ring->size_bytes - ring->head_bytes) {
        return ring->head_bytes;
    }
    return size_bytes <= ring->tail_bytes ? 0 : SLAB_NONE;
}

unsigned char *slab_ring_take(struct slab *slab, uint64_t size_bytes, uint32_t *entry)
{
    struct slab_ring *ring = &slab->ring;
    uint64_t place = place_of(ring, size_bytes);
    if (place == SLAB_NONE) {
        return NULL;
    }
    if (place != ring->head_bytes) {
        uint64_t gap = ring->size_bytes - ring->head_bytes;
        ring->entry[entry_index(ring, ring->count - 1)].span_bytes += gap;
        ring->used_bytes += gap;
    }
    *entry = entry_index(ring, ring->count);
    ring->entry[*entry] = (struct ring_entry){.offset_bytes = place, .span_bytes = size_bytes};
    ring->count++;
    ring->used_bytes += size_bytes;
    ring->head_bytes = place + size_bytes;
    return ring->base + place;
}

static void drop_first(struct slab_ring *ring)
{
    ring->used_bytes -= ring->entry[ring->first].span_bytes;
    ring->first = entry_index(ring, 1);
    ring->count--;
    if (ring->count == 0) {
        ring->head_bytes = ring->tail_bytes = 0;
    } else {
        ring->tail_bytes = ring->entry[ring->first].offset_bytes;
    }
}

void slab_ring_free(struct slab *slab, uint32_t entry)
{
    struct slab_ring *ring = &slab->ring;
    assert(entry < ring->capacity);
    uint32_t position = (uint32_t)(((uint64_t)entry + ring->capacity - ring->first) %
                                   ring->capacity);
    assert(position < ring->count);
    assert(!ring->entry[entry].freed);
    ring->entry[entry].freed = true;
    while (ring->count > 0 && ring->entry[ring->first].freed) {
        drop_first(ring);
    }
}

uint64_t slab_ring_used(const struct slab *slab)
{
    return slab->ring.used_bytes;
}

bool slab_ring_fits(const struct slab *slab, uint64_t size_bytes)
{
    return place_of(&slab->ring, size_bytes) != SLAB_NONE;
}

void slab_ring_check(const struct slab_ring *ring)
{
    uint64_t used = 0, at = ring->tail_bytes;
    assert(ring->count <= ring->capacity);
    for (uint32_t i = 0; i < ring->count; i++) {
        const struct ring_entry *entry = &ring->entry[entry_index(ring, i)];
        assert(entry->offset_bytes == at && entry->span_bytes > 0);
        assert(entry->offset_bytes + entry->span_bytes <= ring->size_bytes);
        assert(i > 0 || !entry->freed);
        used += entry->span_bytes;
        at += entry->span_bytes;
        if (at == ring->size_bytes && i + 1 < ring->count) {
            at = 0;
        }
    }
    assert(at == ring->head_bytes);
    assert(used == ring->used_bytes && used <= ring->size_bytes);
    assert(ring->count > 0 || (ring->head_bytes == 0 && ring->tail_bytes == 0));
}
