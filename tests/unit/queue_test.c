/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/base/nondet.h"
#include "core/exec/queue.h"
#include "tests/support/suite.h"

#define PRODUCERS 4
#define CONSUMERS 4
#define TASKS_EACH 20000
#define TASKS (PRODUCERS * TASKS_EACH)
#define ROUNDS 50000

START_TEST(tasks_leave_in_the_order_they_came)
{
    struct queue q;
    uint64_t task;
    ck_assert_int_eq(queue_init(&q, 100), 0);
    ck_assert(!queue_pop(&q, &task));
    for (uint64_t round = 0; round < 10; round++) { /* several times around the ring */
        for (uint64_t i = 0; i < 100; i++) {
            queue_push(&q, round * 1000 + i);
        }
        for (uint64_t i = 0; i < 100; i++) {
            ck_assert(queue_pop(&q, &task));
            ck_assert_uint_eq(task, round * 1000 + i);
        }
        ck_assert(!queue_pop(&q, &task));
    }
    queue_fini(&q);
}
END_TEST

START_TEST(the_capacity_asked_for_is_there)
{
    static const uint64_t capacities[] = {1, 63, 64, 65, 1000, 4096};
    for (size_t i = 0; i < countof(capacities); i++) {
        struct queue q;
        uint64_t task;
        ck_assert_int_eq(queue_init(&q, capacities[i]), 0);
        for (uint64_t t = 0; t < capacities[i]; t++) {
            queue_push(&q, t);
        }
        for (uint64_t t = 0; t < capacities[i]; t++) {
            ck_assert(queue_pop(&q, &task) && task == t);
        }
        ck_assert(!queue_pop(&q, &task));
        queue_fini(&q);
    }
}
END_TEST

/* A small queue between many threads; producers keep within its capacity by themselves. */
struct crowd {
    struct queue queue;
    struct gate gate;
    _Atomic uint32_t inside;
    _Atomic uint32_t taken;
    _Atomic unsigned char seen[TASKS];
};

struct producer {
    struct crowd *crowd;
    uint64_t first;
};

static void *produce(void *arg)
{
    const struct producer *p = arg;
    struct crowd *c = p->crowd;
    for (uint64_t i = 0; i < TASKS_EACH; i++) {
        while (atomic_fetch_add(&c->inside, 1) >= 1000) {
            atomic_fetch_sub(&c->inside, 1);
            sched_yield();
        }
        queue_push(&c->queue, p->first + i);
        gate_notify(&c->gate, 1);
    }
    return NULL;
}

static void *consume(void *arg)
{
    struct crowd *c = arg;
    while (atomic_load(&c->taken) < TASKS) {
        uint64_t task;
        uint32_t key = gate_enter(&c->gate);
        if (!queue_pop(&c->queue, &task)) {
            if (atomic_load(&c->taken) < TASKS) {
                gate_wait(&c->gate, key, UINT64_MAX);
            } else {
                gate_leave(&c->gate);
            }
            continue;
        }
        gate_leave(&c->gate);
        atomic_fetch_sub(&c->inside, 1);
        atomic_fetch_add(&c->seen[task], 1);
        if (atomic_fetch_add(&c->taken, 1) + 1 == TASKS) {
            gate_notify(&c->gate, CONSUMERS);
        }
    }
    return NULL;
}

START_TEST(every_task_of_four_producers_reaches_one_of_four_consumers_once)
{
    struct crowd *c = calloc(1, sizeof *c);
    struct producer producers[PRODUCERS];
    pthread_t threads[PRODUCERS + CONSUMERS];
    ck_assert_int_eq(queue_init(&c->queue, 1024), 0);
    for (uint32_t i = 0; i < CONSUMERS; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, consume, c), 0);
    }
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){c, (uint64_t)i * TASKS_EACH};
        ck_assert_int_eq(pthread_create(&threads[CONSUMERS + i], NULL, produce, &producers[i]), 0);
    }
    for (uint32_t i = 0; i < PRODUCERS + CONSUMERS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    }
    for (uint32_t i = 0; i < TASKS; i++) {
        if (c->seen[i] != 1) {
            ck_abort_msg("task %u was taken %u times", i, c->seen[i]);
        }
    }
    ck_assert_uint_eq(c->gate.waiters, 0);
    queue_fini(&c->queue);
    free(c);
}
END_TEST

/* Two threads that wake each other in turn, without a timeout: a wake-up lost is a hang. */
struct duel {
    struct gate gate[2];
    _Atomic uint32_t turn[2];
};

static void await(struct gate *gate, const _Atomic uint32_t *turn, uint32_t round)
{
    for (;;) {
        uint32_t key = gate_enter(gate);
        if (atomic_load(turn) >= round) {
            gate_leave(gate);
            return;
        }
        gate_wait(gate, key, UINT64_MAX);
    }
}

static void *answer(void *arg)
{
    struct duel *d = arg;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        await(&d->gate[0], &d->turn[0], round);
        atomic_store(&d->turn[1], round);
        gate_notify(&d->gate[1], 1);
    }
    return NULL;
}

START_TEST(a_gate_loses_no_wake_up_in_50000_rounds)
{
    struct duel d = {0};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, answer, &d), 0);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        atomic_store(&d.turn[0], round);
        gate_notify(&d.gate[0], 1);
        await(&d.gate[1], &d.turn[1], round);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_eq(d.gate[0].waiters, 0);
    ck_assert_uint_eq(d.gate[1].waiters, 0);
}
END_TEST

START_TEST(a_wait_ends_at_its_timeout)
{
    struct gate gate = {0};
    uint64_t begun_ns = nondet_now_ns();
    gate_wait(&gate, gate_enter(&gate), 20000000);
    ck_assert_uint_ge(nondet_now_ns() - begun_ns, 19000000);
    ck_assert_uint_eq(gate.waiters, 0);
}
END_TEST

START_TEST(a_wait_with_an_old_key_returns_at_once)
{
    struct gate gate = {0};
    uint32_t key = gate_enter(&gate);
    gate_notify(&gate, 1);
    gate_wait(&gate, key, UINT64_MAX);
    ck_assert_uint_eq(gate.waiters, 0);
}
END_TEST

static Suite *queue_suite(void)
{
    TCase *queue = tcase_create("queue");
    tcase_set_timeout(queue, 120);
    tcase_add_test(queue, tasks_leave_in_the_order_they_came);
    tcase_add_test(queue, the_capacity_asked_for_is_there);
    tcase_add_test(queue, every_task_of_four_producers_reaches_one_of_four_consumers_once);
    TCase *gate = tcase_create("gate");
    tcase_set_timeout(gate, 120);
    tcase_add_test(gate, a_gate_loses_no_wake_up_in_50000_rounds);
    tcase_add_test(gate, a_wait_ends_at_its_timeout);
    tcase_add_test(gate, a_wait_with_an_old_key_returns_at_once);
    Suite *suite = suite_create("queue");
    suite_add_tcase(suite, queue);
    suite_add_tcase(suite, gate);
    return suite;
}

int main(void)
{
    return suite_run(queue_suite()) == 0 ? 0 : 1;
}
