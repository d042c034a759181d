/* SPDX-License-Identifier: Apache-2.0 */

/* Giving small pages back keeps the kernel busy, and a run that was stopped would end late. Helpers
 * take turns at pieces of it. */

#include <stdlib.h>
#include <sys/mman.h>

#include "cache/slab_priv.h"
#include "core/base/memory.h"
#include "core/base/thread.h"

#define PIECE_BYTES (128 * MIB)
#define HELPERS_MAX 15

struct release {
    const struct slab *slab;
    _Atomic uint64_t taken_bytes;
};

static void *release_pieces(void *ctx)
{
    struct release *release = ctx;
    const struct slab *slab = release->slab;
    uint64_t at;
    while ((at = atomic_fetch_add(&release->taken_bytes, PIECE_BYTES)) < slab->size_bytes) {
        madvise(slab->base + at, min_u64(slab->size_bytes - at, PIECE_BYTES), MADV_DONTNEED);
    }
    return NULL;
}

/* One for each piece and processor that this thread does not serve. */
static uint32_t helpers_wanted(const struct slab *slab)
{
    uint64_t others = memory_processors() - 1;
    return (uint32_t)min_u64(min_u64(others, slab->size_bytes / PIECE_BYTES), HELPERS_MAX);
}

void slab_release(struct slab *slab)
{
    struct release release = {.slab = slab};
    pthread_t helper[HELPERS_MAX];
    uint32_t wanted = helpers_wanted(slab), count = 0;
    while (count < wanted && thread_create(&helper[count], NULL, release_pieces, &release) == 0) {
        count++; /* without one it takes longer, no more */
    }
    if (count > 0) {
        release_pieces(&release);
    }
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(helper[i], NULL);
    }
    munmap(slab->reserve, slab->reserve_bytes);
}
