/* SPDX-License-Identifier: Apache-2.0 */
/* Where a measurement may read: windows without a hole. */
#include <stdlib.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/exec/tune.h"

#define PLACES_MAX 1024U
#define TRIES_MAX 8192U

bool tune_holds_data(int fd, uint64_t offset, uint64_t size)
{
    off_t data = lseek(fd, (off_t)offset, SEEK_DATA);
    if (data != (off_t)offset) {
        return false;
    }
    off_t hole = lseek(fd, (off_t)offset, SEEK_HOLE);
    return hole < 0 || (uint64_t)hole >= offset + size;
}

/* Depth and size are per device, so one is measured: that of the first file read directly. */
static uint64_t windows_of(const struct io_files *files, uint32_t file, uint64_t size)
{
    uint32_t first = 0;
    while (first < file && !files->file[first].direct) {
        first++;
    }
    const struct io_file *f = &files->file[file];
    bool counts = f->direct && f->device == files->file[first].device;
    return counts ? f->size_bytes / size : 0;
}

/* The window of a number counted over all files that are measured. */
static struct extent window_at(const struct io_files *files, uint64_t number, uint64_t size)
{
    for (uint32_t i = 0; i < files->count; i++) {
        uint64_t whole = windows_of(files, i, size);
        if (number < whole) {
            return (struct extent){.file = i, .offset_bytes = number * size, .size_bytes = size};
        }
        number -= whole;
    }
    assert(false && "no such window");
    return (struct extent){0};
}

static uint64_t count_windows(const struct io_files *files, uint64_t size)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < files->count; i++) {
        count += windows_of(files, i, size);
    }
    return count;
}

/* Every number below total once, in an order without pattern: steps of a length that shares no
 * factor with total. */
static uint64_t stride_of(uint64_t total, struct rng *rng)
{
    for (;;) {
        uint64_t stride = 1 + rng_below(rng, total);
        uint64_t a = total;
        uint64_t b = stride;
        while (b != 0) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) {
            return stride;
        }
    }
}

static void shuffle(struct tune_places *places, struct rng *rng)
{
    for (uint32_t i = places->count; i > 1; i--) {
        uint32_t other = (uint32_t)rng_below(rng, i);
        struct extent swap = places->window[i - 1];
        places->window[i - 1] = places->window[other];
        places->window[other] = swap;
    }
}

int tune_find_places(const struct io_files *files, uint64_t window_bytes, uint64_t seed,
                     struct tune_places *out)
{
    struct rng rng = rng_seed(seed);
    uint64_t total = count_windows(files, window_bytes);
    *out = (struct tune_places){.window_bytes = window_bytes};
    out->window = calloc(PLACES_MAX, sizeof *out->window);
    if (out->window == NULL) {
        return err_set(ERR_MEMORY, "no memory for a list of places to read");
    }
    if (total == 0) {
        return 0;
    }
    uint64_t at = rng_below(&rng, total);
    uint64_t stride = stride_of(total, &rng);
    uint64_t tries = min_u64(total, TRIES_MAX);
    for (uint64_t i = 0; i < tries && out->count < PLACES_MAX; i++) {
        struct extent window = window_at(files, at, window_bytes);
        if (tune_holds_data(files->file[window.file].fd, window.offset_bytes, window_bytes)) {
            out->window[out->count++] = window;
        }
        at = (at + stride) % total;
    }
    shuffle(out, &rng);
    return 0;
}
