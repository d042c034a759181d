/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that work on items, and the caller's that shows progress and looks for signals. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/thread.h"
#include "core/cli/pack_priv.h"
#include "core/cli/progress.h"
#include "core/cli/signals.h"

#define TICK_NS 20000000L
#define THREADS_MAX 256

int pack_hand_open(struct pack_hand *hand, uint64_t widest_bytes, bool decodes)
{
    uint64_t room_bytes = align_up(widest_bytes, PAGE_BYTES) + PAGE_BYTES;
    *hand = (struct pack_hand){.raw = aligned_alloc(PAGE_BYTES, room_bytes),
                               .stored = aligned_alloc(PAGE_BYTES, room_bytes),
                               .decoded = decodes ? aligned_alloc(PAGE_BYTES, room_bytes) : NULL,
                               .bounce = aligned_alloc(PAGE_BYTES, PACK_BOUNCE_BYTES)};
    if (hand->raw == NULL || hand->stored == NULL || (decodes && hand->decoded == NULL) ||
        hand->bounce == NULL) {
        pack_hand_close(hand);
        return err_set(ERR_MEMORY, "no memory for buffers of %llu bytes; use less --threads",
                       (unsigned long long)room_bytes);
    }
    return 0;
}

void pack_hand_close(struct pack_hand *hand)
{
    free(hand->raw);
    free(hand->stored);
    free(hand->decoded);
    free(hand->bounce);
    *hand = (struct pack_hand){.raw = NULL};
}

static void fail(struct pack_pool *pool, int code)
{
    pthread_mutex_lock(&pool->lock);
    if (pool->error == 0) {
        pool->error = code;
        snprintf(pool->message, sizeof pool->message, "%s", err_message());
    }
    pthread_mutex_unlock(&pool->lock);
    atomic_store(&pool->stop, true);
    if (pool->failed != NULL) {
        pool->failed(pool->ctx);
    }
}

static int work_on(struct pack_pool *pool, struct pack_hand *hand)
{
    for (;;) {
        uint32_t index = pool->first + atomic_fetch_add(&pool->next, 1);
        if (index >= pool->items->count || atomic_load(&pool->stop)) {
            return 0;
        }
        TRY(pool->work(pool->ctx, hand, index));
        atomic_fetch_add(&pool->done_bytes, pool->items->item[index].raw_bytes);
    }
}

static void *thread_main(void *argument)
{
    struct pack_pool *pool = argument;
    struct pack_hand hand;
    int rc = pack_hand_open(&hand, pool->items->widest_bytes, pool->decodes);
    if (rc == 0) {
        rc = work_on(pool, &hand);
        pack_hand_close(&hand);
    }
    if (rc < 0) {
        fail(pool, rc);
    }
    atomic_fetch_sub(&pool->running, 1);
    return NULL;
}

static uint64_t bytes_before(const struct pack_pool *pool)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < pool->first; i++) {
        bytes += pool->items->item[i].raw_bytes;
    }
    return bytes;
}

static void watch(struct pack_pool *pool)
{
    struct progress line;
    uint64_t whole = pool->items->raw_bytes - bytes_before(pool);
    progress_begin(&line, pool->what, pool->quiet);
    while (atomic_load(&pool->running) > 0) {
        if (signals_caught() != 0 && !atomic_load(&pool->stop)) {
            err_clear();
            err_set(ERR_STOPPED, "%s was stopped", pool->what);
            fail(pool, ERR_STOPPED);
            err_clear();
        }
        progress_show(&line, atomic_load(&pool->done_bytes), whole, NULL);
        nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
    }
    progress_clear(&line);
}

int pack_pool_run(struct pack_pool *pool)
{
    pthread_t threads[THREADS_MAX];
    uint32_t started = 0;
    uint32_t wanted = (uint32_t)min_u64(pool->threads, THREADS_MAX);
    pthread_mutex_init(&pool->lock, NULL);
    atomic_init(&pool->next, 0);
    atomic_init(&pool->stop, false);
    atomic_init(&pool->done_bytes, 0);
    atomic_init(&pool->running, wanted);
    pool->error = 0;
    while (started < wanted &&
           thread_create(&threads[started], NULL, thread_main, pool) == 0) {
        started++;
    }
    atomic_fetch_sub(&pool->running, wanted - started);
    if (started > 0) {
        watch(pool);
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_mutex_destroy(&pool->lock);
    if (started == 0) {
        return err_set(ERR_MEMORY, "the system refused every thread; raise ulimit -u");
    }
    if (pool->error < 0) {
        err_clear();
        return err_set(pool->error, "%s", pool->message);
    }
    return 0;
}

int pack_item_read(const struct model *source, const struct io_files *files,
                   const struct pack_item *item, struct pack_hand *hand)
{
    unsigned char *at = hand->raw;
    uint64_t read_bytes = 0;
    if (item->kind != PACK_EXPERT) {
        return io_file_read(files, item->from.file, item->from.offset_bytes,
                            item->from.size_bytes, at, hand->bounce, PACK_BOUNCE_BYTES,
                            &read_bytes);
    }
    for (uint32_t part = 0; part < EXPERT_PARTS; part++) {
        struct extent x = model_expert_part(source, item->layer, item->expert,
                                            (enum expert_part)part);
        TRY(io_file_read(files, x.file, x.offset_bytes, x.size_bytes, at, hand->bounce,
                         PACK_BOUNCE_BYTES, &read_bytes));
        at += x.size_bytes;
    }
    return 0;
}
