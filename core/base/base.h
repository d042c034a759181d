/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_BASE_H
#define BASE_BASE_H

/* The vocabulary every folder shares: integer sizes, alignment arithmetic and assertions.
 * Pure inline functions, no state, any thread. */

#include <assert.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* One page: the unit in which reads are aligned and buffers are placed. */
#define PAGE_BYTES ((uint64_t)4096)
#define HUGE_PAGE_BYTES (2 * MIB)

#define countof(array) (sizeof(array) / sizeof((array)[0]))

/* Costly or inner-loop checks; on in sanitizer and debug builds only. */
#ifdef K3RING_DEBUG
#define debug_assert(condition) assert(condition)
#else
#define debug_assert(condition) ((void)0)
#endif

static inline uint64_t align_down(uint64_t value, uint64_t alignment)
{
    return value / alignment * alignment;
}

static inline uint64_t align_up(uint64_t value, uint64_t alignment)
{
    return align_down(value + alignment - 1, alignment);
}

static inline uint64_t div_ceil(uint64_t value, uint64_t divisor)
{
    return value / divisor + (value % divisor != 0);
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* One range of one file. Source of a read before alignment; never crosses a file. */
struct extent {
    uint32_t file;         /* index into the model's file list */
    uint64_t offset_bytes; /* any byte, aligned or not */
    uint64_t size_bytes;   /* > 0 */
};

/* The aligned window of pages that covers an extent: what a direct read of it asks for. */
static inline struct extent extent_window(struct extent x)
{
    uint64_t begin = align_down(x.offset_bytes, PAGE_BYTES);
    uint64_t end = align_up(x.offset_bytes + x.size_bytes, PAGE_BYTES);
    return (struct extent){.file = x.file, .offset_bytes = begin, .size_bytes = end - begin};
}

#endif
