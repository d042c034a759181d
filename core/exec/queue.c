/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/queue.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "the path of a task holds no lock, not even one inside an atomic");

int queue_init(struct queue *q, uint64_t capacity)
{
    uint64_t size = 64;
    while (size < capacity) {
        size *= 2;
    }
    q->cell = calloc(size, sizeof *q->cell);
    if (q->cell == NULL) {
        return err_set(ERR_MEMORY, "no memory for a queue of %llu tasks",
                       (unsigned long long)size);
    }
    q->mask = size - 1;
    for (uint64_t i = 0; i < size; i++) {
        atomic_init(&q->cell[i].sequence, i);
    }
    atomic_init(&q->head, 0);
    atomic_init(&q->tail, 0);
    return 0;
}

void queue_fini(struct queue *q)
{
    free(q->cell);
    q->cell = NULL;
}

void queue_push(struct queue *q, uint64_t task)
{
    uint64_t at = atomic_fetch_add(&q->tail, 1);
    struct queue_cell *cell = &q->cell[at & q->mask];
    /* A full queue is a programmer's error: the capacity covers every task of a pass. */
    while (atomic_load_explicit(&cell->sequence, memory_order_acquire) != at) {
        assert(at - atomic_load(&q->head) <= 2 * (q->mask + 1));
    }
    cell->task = task;
    atomic_store_explicit(&cell->sequence, at + 1, memory_order_release);
}

bool queue_pop(struct queue *q, uint64_t *task)
{
    uint64_t at = atomic_load_explicit(&q->head, memory_order_relaxed);
    for (;;) {
        struct queue_cell *cell = &q->cell[at & q->mask];
        uint64_t sequence = atomic_load(&cell->sequence);
        if (sequence == at + 1) {
            if (atomic_compare_exchange_weak(&q->head, &at, at + 1)) {
                *task = cell->task;
                atomic_store_explicit(&cell->sequence, at + q->mask + 1, memory_order_release);
                return true;
            }
        } else if (sequence < at + 1) {
            return false;
        } else {
            at = atomic_load_explicit(&q->head, memory_order_relaxed);
        }
    }
}

static void futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

uint32_t gate_enter(struct gate *g)
{
    atomic_fetch_add(&g->waiters, 1);
    return atomic_load(&g->epoch);
}

void gate_leave(struct gate *g)
{
    atomic_fetch_sub(&g->waiters, 1);
}

void gate_wait(struct gate *g, uint32_t key, uint64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000U),
                               .tv_nsec = (long)(timeout_ns % 1000000000U)};
    futex(&g->epoch, FUTEX_WAIT, key, timeout_ns == UINT64_MAX ? NULL : &timeout);
    gate_leave(g);
}

void gate_notify(struct gate *g, int sleepers)
{
    atomic_fetch_add(&g->epoch, 1);
    if (atomic_load(&g->waiters) > 0) {
        futex(&g->epoch, FUTEX_WAKE, (uint32_t)sleepers, NULL);
    }
}
