/* SPDX-License-Identifier: Apache-2.0 */

/* The plain reference: a pool of threads in pread(). Two lists under one lock carry requests to
 * the workers and back; verdicts and done() stay with the owner. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/thread.h"
#include "io/io_priv.h"

#define POOL_THREADS_MAX 16U

struct pool {
    pthread_mutex_t lock; /* guards waiting, done, stop */
    pthread_cond_t work;
    struct io_queue waiting;
    struct io_queue done; /* res holds what pread() returned */
    bool stop;
    uint32_t thread_count;
    pthread_t thread[POOL_THREADS_MAX];
};

static void transfer(const struct io *io, struct io_req *req)
{
    int fd = io->files->file[req->file].fd;
    ssize_t rc = pread(fd, io_req_target(req), io_req_left(req), (off_t)io_req_offset(req));
    req->res = rc < 0 ? -errno : (int32_t)rc;
}

/* The next request of the list, or NULL when the pool stops. Called with the lock held. */
static struct io_req *next_waiting(struct pool *pool)
{
    while (pool->waiting.head == NULL && !pool->stop) {
        pthread_cond_wait(&pool->work, &pool->lock);
    }
    return io_queue_pop(&pool->waiting);
}

static void *worker(void *arg)
{
    struct io *io = arg;
    struct pool *pool = io->state;
    pthread_mutex_lock(&pool->lock);
    for (struct io_req *req; (req = next_waiting(pool)) != NULL;) {
        pthread_mutex_unlock(&pool->lock);
        transfer(io, req);
        pthread_mutex_lock(&pool->lock);
        io_queue_push(&pool->done, req);
        pthread_mutex_unlock(&pool->lock);
        /* The owner looks at the list, under this lock, after it has set `asleep`: so it saw
         * the request, or is seen asleep here. */
        io_rouse(io);
        pthread_mutex_lock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static int start_threads(struct io *io, struct pool *pool)
{
    uint32_t count = (uint32_t)min_u64(io->handed_limit, POOL_THREADS_MAX);
    int rc = 0;
    while (rc == 0 && pool->thread_count < count) {
        rc = thread_create(&pool->thread[pool->thread_count], NULL, worker, io);
        pool->thread_count += rc == 0;
    }
    if (rc != 0 && pool->thread_count == 0) {
        return err_set(ERR_MEMORY, "no thread for reading could be started: %s; raise ulimit -u",
                       strerror(rc));
    }
    return 0; /* fewer threads than asked for still read everything */
}

static int pread_open(struct io *io, const struct io_options *options)
{
    (void)options;
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        return err_set(ERR_MEMORY, "no memory for the pool of reading threads");
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    io->state = pool;
    return start_threads(io, pool);
}

static void pread_close(struct io *io)
{
    struct pool *pool = io->state;
    if (pool == NULL) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->thread_count; i++) {
        pthread_join(pool->thread[i], NULL);
    }
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

static void hand_over(struct io *io, struct pool *pool)
{
    if (!io_ready(io)) {
        return;
    }
    io->stats.submits++;
    pthread_mutex_lock(&pool->lock);
    for (struct io_req *req; (req = io_take(io)) != NULL;) {
        io_queue_push(&pool->waiting, req);
        pthread_cond_signal(&pool->work);
    }
    pthread_mutex_unlock(&pool->lock);
    io_log_sent(io);
}

static struct io_queue take_done(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    struct io_queue done = pool->done;
    pool->done = (struct io_queue){0};
    pthread_mutex_unlock(&pool->lock);
    return done;
}

static int pread_run(struct io *io, uint64_t wait_ns)
{
    struct pool *pool = io->state;
    hand_over(io, pool);
    struct io_queue done = take_done(pool);
    if (done.head == NULL && wait_ns > 0 && io_sleep_begin(io)) {
        done = take_done(pool);
        if (done.head == NULL) {
            io_sleep(io, wait_ns);
        }
        io_sleep_end(io);
        if (done.head == NULL) {
            done = take_done(pool);
        }
    }
    for (struct io_req *req; (req = io_queue_pop(&done)) != NULL;) {
        io_ended(io, req, req->res);
    }
    return 0;
}

const struct io_backend io_backend_pread = {
    .name = "pread",
    .open = pread_open,
    .close = pread_close,
    .run = pread_run,
};
