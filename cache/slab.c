/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/slab.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cache/slab_priv.h"
#include "core/base/err.h"
#include "core/base/retry.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* Below this, huge pages save nothing and would make more memory resident than the layout says. */
#define HUGE_FROM_BYTES (8 * MIB)

/* Pages are made present in pieces, so that other threads' mmap calls get their turn. */
#define POPULATE_STEP_BYTES (16 * MIB)

static void assert_layout(const struct slab_layout *layout)
{
    assert(layout->rows_bytes % PAGE_BYTES == 0 && layout->rows_bytes <= SLAB_SLICE_BYTES_MAX);
    assert(layout->ring_bytes % PAGE_BYTES == 0 && layout->ring_bytes <= SLAB_SLICE_BYTES_MAX);
    assert(layout->slot_bytes % PAGE_BYTES == 0 && layout->slot_bytes <= SLAB_SLICE_BYTES_MAX);
    assert(layout->slot_bytes > 0 || layout->slot_count == 0);
    assert(layout->ring_entries > 0 || layout->ring_bytes == 0);
    assert(layout->later_slots <= layout->slot_count);
    assert((layout->pin_bytes == 0 && layout->later_slots == 0) || layout->later_slice_bytes > 0);
    assert(layout->later_slice_bytes % HUGE_PAGE_BYTES == 0);
    assert(layout->later_slice_bytes <= SLAB_SLICE_BYTES_MAX);
}

/* Bytes of rows, ring and slots. */
static uint64_t fixed_bytes(const struct slab_layout *layout)
{
    return layout->rows_bytes + layout->ring_bytes + layout->slot_bytes * layout->slot_count;
}

uint64_t slab_bytes(const struct slab_layout *layout)
{
    assert_layout(layout);
    uint64_t total = fixed_bytes(layout) + align_up(layout->pin_bytes, PAGE_BYTES);
    return total < HUGE_FROM_BYTES ? total : align_up(total, HUGE_PAGE_BYTES);
}

/* Lays objects end to end. A slice ends where the next object would make it too long, so slices
 * need no padding between them. With slice == NULL it only counts. */
struct cutter {
    struct slab_slice *slice;
    uint32_t count;
    unsigned char *at;
    uint64_t slice_bytes; /* of those that follow, if their objects fit */
    uint64_t room_bytes;  /* what the present slice may still grow by */
    bool later, pins;     /* of those that follow */
};

/* From here on slices are of another kind. */
static void turn_to(struct cutter *cutter, uint64_t slice_bytes, bool pins)
{
    cutter->slice_bytes = slice_bytes;
    cutter->room_bytes = 0;
    cutter->later = true;
    cutter->pins = pins;
}

static unsigned char *cut(struct cutter *cutter, uint64_t size_bytes)
{
    unsigned char *place = cutter->at;
    if (size_bytes == 0) {
        return place;
    }
    if (cutter->room_bytes < size_bytes) {
        if (cutter->slice != NULL) {
            cutter->slice[cutter->count] =
                (struct slab_slice){.base = place, .later = cutter->later, .pins = cutter->pins};
        }
        cutter->count++;
        cutter->room_bytes = max_u64(cutter->slice_bytes, size_bytes);
    }
    if (cutter->slice != NULL) {
        cutter->slice[cutter->count - 1].size_bytes += size_bytes;
    }
    cutter->room_bytes -= size_bytes;
    cutter->at += size_bytes;
    return place;
}

static void place_areas(struct slab *slab, struct cutter *cutter, bool assign)
{
    const struct slab_layout *layout = &slab->layout;
    cutter->at = slab->base;
    cutter->slice_bytes = SLAB_SLICE_BYTES_MAX;
    cut(cutter, layout->rows_bytes);
    unsigned char *ring = cut(cutter, layout->ring_bytes);
    for (uint32_t i = 0; i < layout->slot_count; i++) {
        if (i == layout->slot_count - layout->later_slots) {
            turn_to(cutter, layout->later_slice_bytes, false);
        }
        unsigned char *slot = cut(cutter, layout->slot_bytes);
        if (assign) {
            slab->slots.address[i] = slot;
        }
    }
    unsigned char *pins = cutter->at;
    uint64_t left = align_up(layout->pin_bytes, PAGE_BYTES);
    turn_to(cutter, layout->later_slice_bytes, true);
    while (left > 0) {
        uint64_t part = min_u64(left, layout->later_slice_bytes);
        cut(cutter, part);
        left -= part;
    }
    if (assign) {
        slab->ring.base = ring;
        slab->pins = pins;
    }
}

static int refused(uint64_t size_bytes)
{
    return err_set(ERR_MEMORY, "the system refused %" PRIu64 " bytes for weights: %s; lower --ram",
                   size_bytes, strerror(errno));
}

static bool take_tables(struct slab *slab)
{
    struct cutter counter = {0};
    place_areas(slab, &counter, false);
    slab->slice_count = counter.count;
    size_t slices = counter.count > 0 ? counter.count : 1;
    slab->slice = calloc(slices, sizeof *slab->slice);
    slab->present = calloc(slices, sizeof *slab->present);
    return slab->slice != NULL && slab->present != NULL &&
           slab_ring_init(&slab->ring, &slab->layout) &&
           slab_slots_init(&slab->slots, slab->layout.slot_count);
}

/* Reserves address space, then opens the aligned middle of it. What is left on both sides keeps
 * the mapping a line of its own in smaps, and catches strays. */
static int map(struct slab *slab)
{
    uint64_t reserve = slab->size_bytes + HUGE_PAGE_BYTES + 2 * PAGE_BYTES;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *start = mmap(NULL, reserve, PROT_NONE, flags, -1, 0);
    if (start == MAP_FAILED) {
        return refused(reserve);
    }
    slab->reserve = start;
    slab->reserve_bytes = reserve;
    uint64_t misplaced = ((uintptr_t)start + PAGE_BYTES) % HUGE_PAGE_BYTES;
    uint64_t shift = misplaced == 0 ? 0 : HUGE_PAGE_BYTES - misplaced;
    slab->base = (unsigned char *)start + PAGE_BYTES + shift;
    if (slab->size_bytes == 0) {
        return 0;
    }
    if (mprotect(slab->base, slab->size_bytes, PROT_READ | PROT_WRITE) < 0) {
        return refused(slab->size_bytes);
    }
    /* Advice: a kernel without huge pages refuses it, and the statement will say so; a filter may
     * refuse all of it, and a child that only becomes another program does no harm. */
    bool huge = slab->size_bytes >= HUGE_FROM_BYTES;
    madvise(slab->base, slab->size_bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    madvise(slab->base, slab->size_bytes, MADV_DONTFORK);
    return 0;
}

/* For kernels that cannot populate on request. */
static void touch(unsigned char *from, uint64_t size_bytes)
{
    for (uint64_t at = 0; at < size_bytes; at += PAGE_BYTES) {
        volatile unsigned char *page = from + at;
        /* cppcheck-suppress selfAssignment ; a write that changes nothing makes the page */
        *page = *page;
    }
}

/* Ends early when there is no use for it any more. */
static int populate(const struct slab *slab, unsigned char *from, uint64_t size_bytes)
{
    uint32_t retries = 0;
    while (size_bytes > 0 && !atomic_load(&slab->quit)) {
        uint64_t step = min_u64(size_bytes, POPULATE_STEP_BYTES);
        if (madvise(from, step, MADV_POPULATE_WRITE) < 0) {
            if (retry_after(errno, &retries)) {
                continue;
            }
            if (errno == ENOMEM || errno == EFAULT || errno == EHWPOISON) {
                return refused(step);
            }
            touch(from, step); /* this kernel, or a filter, knows no such advice */
        }
        retries = 0;
        from += step;
        size_bytes -= step;
    }
    return 0;
}

/* The bytes up to the next slice; behind the last one the rounding of the mapping is included. */
static uint64_t reach_bytes(const struct slab *slab, uint32_t index)
{
    const struct slab_slice *slice = &slab->slice[index];
    unsigned char *end = slab->base + slab->size_bytes;
    return index + 1 < slab->slice_count ? slice->size_bytes : (uint64_t)(end - slice->base);
}

static int populate_slice(struct slab *slab, uint32_t index)
{
    TRY(populate(slab, slab->slice[index].base, reach_bytes(slab, index)));
    if (!atomic_load(&slab->quit)) {
        atomic_store_explicit(&slab->present[index], true, memory_order_release);
    }
    return 0;
}

static int open_areas(struct slab *slab)
{
    TRY(map(slab));
    if (!take_tables(slab)) {
        return err_set(ERR_MEMORY, "no memory for the tables of %u expert slots; lower --ram",
                       slab->layout.slot_count);
    }
    struct cutter cutter = {.slice = slab->slice};
    place_areas(slab, &cutter, true);
    for (uint32_t i = 0; i < slab->slice_count; i++) {
        if (!slab->slice[i].later) {
            TRY(populate_slice(slab, i));
        }
    }
    return 0;
}

int slab_open(struct slab **out, const struct slab_layout *layout)
{
    *out = NULL;
    struct slab *slab = calloc(1, sizeof *slab);
    if (slab == NULL) {
        return refused(sizeof *slab);
    }
    slab->layout = *layout;
    slab->size_bytes = slab_bytes(layout);
    int rc = open_areas(slab);
    if (rc < 0) {
        slab_close(slab);
        return rc;
    }
    *out = slab;
    return 0;
}

void slab_close(struct slab *slab)
{
    if (slab == NULL) {
        return;
    }
    if (slab->reserve != NULL) {
        slab_release(slab);
    }
    slab_ring_fini(&slab->ring);
    slab_slots_fini(&slab->slots);
    free(slab->slice);
    free(slab->present);
    free(slab);
}

uint32_t slab_slice_count(const struct slab *slab)
{
    return slab->slice_count;
}

const struct slab_slice *slab_slice(const struct slab *slab, uint32_t index)
{
    assert(index < slab->slice_count);
    return &slab->slice[index];
}

uint32_t slab_slice_of(const struct slab *slab, const void *address)
{
    const unsigned char *at = address;
    uint32_t low = 0, high = slab->slice_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (slab->slice[middle].base <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    assert(low < slab->slice_count && at >= slab->slice[low].base);
    assert(at < slab->slice[low].base + slab->slice[low].size_bytes);
    return low;
}

unsigned char *slab_rows(struct slab *slab)
{
    return slab->base;
}

unsigned char *slab_pin_address(struct slab *slab, uint64_t offset_bytes)
{
    assert(offset_bytes < slab->layout.pin_bytes);
    return slab->pins + offset_bytes;
}

int slab_populate(struct slab *slab, uint32_t slice)
{
    assert(slice < slab->slice_count);
    return slab_slice_present(slab, slice) ? 0 : populate_slice(slab, slice);
}

void slab_quit(struct slab *slab)
{
    if (slab != NULL) {
        atomic_store(&slab->quit, true);
    }
}

bool slab_slice_present(const struct slab *slab, uint32_t slice)
{
    assert(slice < slab->slice_count);
    return atomic_load_explicit(&slab->present[slice], memory_order_acquire);
}

static void check_slices(const struct slab *slab)
{
    const unsigned char *at = slab->base;
    for (uint32_t i = 0; i < slab->slice_count; i++) {
        assert(slab->slice[i].base == at);
        assert(slab->slice[i].size_bytes > 0);
        assert(slab->slice[i].size_bytes <= SLAB_SLICE_BYTES_MAX);
        assert(i == 0 || slab->slice[i].later || !slab->slice[i - 1].later);
        assert(i == 0 || slab->slice[i].pins || !slab->slice[i - 1].pins);
        assert(slab->slice[i].later || !slab->slice[i].pins);
        at += slab->slice[i].size_bytes;
    }
    assert(at <= slab->base + slab->size_bytes);
}

void slab_check(const struct slab *slab)
{
    check_slices(slab);
    slab_ring_check(&slab->ring);
    slab_slots_check(&slab->slots);
}

/* One line of smaps: the range of a mapping, or a number of the mapping above it. */
static void read_line(const struct slab *slab, const char *line, bool *ours,
                      struct slab_statement *out)
{
    uint64_t from, to, kib;
    uint64_t base = (uintptr_t)slab->base;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &from, &to) == 2) {
        *ours = from >= base && to <= base + slab->size_bytes;
        out->mapped_bytes += *ours ? to - from : 0;
    } else if (*ours && sscanf(line, "Rss: %" SCNu64 " kB", &kib) == 1) {
        out->resident_bytes += kib * KIB;
    } else if (*ours && sscanf(line, "AnonHugePages: %" SCNu64 " kB", &kib) == 1) {
        out->huge_bytes += kib * KIB;
    }
}

void slab_state(const struct slab *slab, struct slab_statement *out)
{
    char line[512];
    bool ours = false;
    *out = (struct slab_statement){0};
    FILE *file = fopen("/proc/self/smaps", "re");
    if (file == NULL) {
        return;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        read_line(slab, line, &ours, out);
    }
    fclose(file);
}
