/* SPDX-License-Identifier: Apache-2.0 */
/* What handing a task over costs: threads take tasks from the workers' queue and push each again,
 * with nothing done in between, so that all of the time is the queue's. By number of threads, also
 * far more than processors.
 *
 *   task_bench [--quick] [--json FILE]
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "core/base/memory.h"
#include "core/base/nondet.h"
#include "core/exec/queue.h"

#define THREADS_MAX 64U
#define TASKS 256U     /* going round */

struct round {
    struct queue queue;
    _Atomic uint64_t left; /* hand-overs still to make */
    _Atomic uint32_t go;
};

static void *work(void *argument)
{
    struct round *r = argument;
    while (!atomic_load(&r->go)) {
        __builtin_ia32_pause();
    }
    while (atomic_load_explicit(&r->left, memory_order_relaxed) > 0) {
        uint64_t task;
        uint64_t done = 0;
        while (done < 64 && queue_pop(&r->queue, &task)) {
            queue_push(&r->queue, task);
            done++;
        }
        if (done == 0) {
            sched_yield(); /* where a worker would sleep */
        }
        uint64_t left = atomic_load(&r->left);
        while (!atomic_compare_exchange_weak(&r->left, &left, left - min_u64(left, done))) {
        }
    }
    return NULL;
}

/* Nanoseconds of processor time per hand-over; negative when a thread was refused. */
static double measure(uint32_t threads, uint64_t count)
{
    static struct round r;
    pthread_t id[THREADS_MAX];
    uint32_t started = 0;
    if (queue_init(&r.queue, TASKS) < 0) {
        return -1;
    }
    for (uint64_t i = 0; i < TASKS; i++) {
        queue_push(&r.queue, i);
    }
    atomic_store(&r.left, count);
    atomic_store(&r.go, 0);
    while (started < threads && pthread_create(&id[started], NULL, work, &r) == 0) {
        started++;
    }
    uint64_t begun = nondet_now_ns();
    atomic_store(&r.go, 1);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(id[i], NULL);
    }
    double ns = (double)(nondet_now_ns() - begun);
    queue_fini(&r.queue);
    uint32_t at_once = threads < memory_processors() ? threads : memory_processors();
    return started == threads ? ns * at_once / (double)count : -1;
}

int main(int argc, char **argv)
{
    static const uint32_t threads[] = {1, 2, 4, 16, 64};
    const char *json = NULL;
    uint64_t count = 4000000;
    bool quick = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            count = 1000000;
            quick = true;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json = argv[++i];
        } else {
            fprintf(stderr, "usage: task_bench [--quick] [--json FILE]\n");
            return 2;
        }
    }
    cJSON *root = cJSON_CreateObject();
    if (quick) {
        measure_quick(root, "a million tasks a repeat, not four");
    }
    cJSON *list = cJSON_AddArrayToObject(root, "rows");
    printf("%7s %22s %8s %8s\n", "threads", "ns per task (median)", "min", "max");
    for (size_t i = 0; i < countof(threads); i++) {
        struct figure ns = {0};
        for (int repeat = 0; repeat < 5; repeat++) {
            figure_add(&ns, measure(threads[i], count));
        }
        printf("%7u %22.1f %8.1f %8.1f\n", threads[i], figure_median(&ns), figure_least(&ns),
               figure_most(&ns));
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(list, o);
        cJSON_AddNumberToObject(o, "threads", threads[i]);
        figure_json(o, "ns_per_task", &ns);
    }
    if (json == NULL) {
        cJSON_Delete(root);
        return 0;
    }
    return !measure_write(json, root);
}
