/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_QUEUE_H
#define EXEC_QUEUE_H

/* A bounded queue of tasks, many producers and many consumers, without locks (each cell carries a
 * sequence number), and a gate on which idle consumers sleep. */

#include <stdatomic.h>

#include "core/base/base.h"

struct queue_cell {
    _Atomic uint64_t sequence;
    uint64_t task;
};

struct queue {
    struct queue_cell *cell;
    uint64_t mask;                     /* capacity - 1 */
    _Alignas(64) _Atomic uint64_t head; /* next to pop */
    _Alignas(64) _Atomic uint64_t tail; /* next to push */
};

/* capacity is rounded up to a power of two; the caller guarantees it is never exceeded. */
int queue_init(struct queue *q, uint64_t capacity);
void queue_fini(struct queue *q);
void queue_push(struct queue *q, uint64_t task);
bool queue_pop(struct queue *q, uint64_t *task);

/* Sleepers take a key, look once more, then wait; a notifier changes the key. */
struct gate {
    _Atomic uint32_t epoch;
    _Atomic uint32_t waiters;
};

uint32_t gate_enter(struct gate *g);           /* announces a waiter, returns the key */
void gate_leave(struct gate *g);               /* it found something after all */
void gate_wait(struct gate *g, uint32_t key, uint64_t timeout_ns); /* sleeps, then leaves */
void gate_notify(struct gate *g, int sleepers); /* wakes at most that many */

#endif
