/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IO_IO_PRIV_H
#define IO_IO_PRIV_H

/* Between the front (io.c) and the backends (uring.c, pread.c, sim.c); no other folder includes
 * this. The front owns every request from io_read() to done(): the queue, the accounts and the
 * verdicts. A backend only moves bytes: it takes requests with io_take(), and gives each back
 * with io_ended() and what the transfer returned.
 *
 *   QUEUED --io_take--> HANDED --io_ended--> done(), or QUEUED again for the rest or a retry
 *
 * Each device has a lane: what waits for it, and how many of its reads are handed, at most depth.
 *
 * Everything here belongs to the owner thread, except struct io_waker and io_wake(). */

#include <pthread.h>
#include <stdatomic.h>

#include "io/io.h"

/* What the owner sleeps on. Whoever wants its attention first publishes (`woken`, or a list
 * under a lock), then looks at `asleep`; the owner sets `asleep` first, then looks at what was
 * published. All of it is sequentially consistent, so one of the two always sees the other. */
struct io_waker {
    int fd;              /* eventfd, non-blocking */
    atomic_bool asleep;  /* the owner may be asleep: write to fd */
    atomic_bool woken;   /* a wake-up nobody has answered yet */
};

struct io_queue {
    struct io_req *head;
    struct io_req *tail;
};

struct io_lane {
    struct io_queue urgent, plain;
    uint32_t handed; /* <= depth */
};

struct io_backend {
    const char *name;
    int (*open)(struct io *io, const struct io_options *options);
    void (*close)(struct io *io); /* nothing is handed; also undoes half an open */
    int (*register_buffer)(struct io *io, uint32_t slot, void *base, uint64_t size_bytes);
    /* Takes all that is ready, gives back what has ended. With wait_ns > 0 it may sleep once,
     * between io_sleep_begin() and io_sleep_end(); returning early is fine. */
    int (*run)(struct io *io, uint64_t wait_ns);
    const char *(*features)(const struct io *io); /* NULL = none */
    uint64_t (*now_ns)(const struct io *io);      /* NULL = the real clock */
};

extern const struct io_backend io_backend_uring;
extern const struct io_backend io_backend_pread;
extern const struct io_backend io_backend_sim;

struct io {
    const struct io_backend *backend;
    const struct io_files *files;
    void *state;             /* the backend's, allocated by its open() */
    pthread_t owner;
    uint32_t depth;          /* of a lane */
    uint32_t handed_limit;   /* of all lanes together */
    uint32_t capacity;
    uint32_t in_flight;      /* queued or handed, <= capacity */
    uint32_t handed;         /* with the backend, <= in_flight */
    uint32_t ended;          /* reads ended in this io_run() */
    bool running;            /* inside io_run() */
    bool closing;            /* io_close() drains: nobody is told */
    bool transient;          /* this round the kernel was short of something: wait a little */
    struct io_queue later;   /* repeats that wait for their time */
    struct io_lane lane[IO_DEVICES_MAX];
    uint32_t lane_count, lane_turn; /* lanes are served in turn */
    struct io_waker waker;
    uint64_t busy_since_ns;  /* valid while in_flight > 0 */
    struct io_stats stats;
    struct io_log *log;      /* or NULL */
    uint32_t round;          /* of io_run() */
};

static inline void io_queue_push(struct io_queue *queue, struct io_req *req)
{
    req->next = NULL;
    if (queue->head == NULL) {
        queue->head = req;
    } else {
        queue->tail->next = req;
    }
    queue->tail = req;
}

static inline struct io_req *io_queue_pop(struct io_queue *queue)
{
    struct io_req *req = queue->head;
    if (req != NULL) {
        queue->head = req->next;
        req->next = NULL;
    }
    return req;
}

/* The transfer a request needs next. */
static inline unsigned char *io_req_target(const struct io_req *req)
{
    return (unsigned char *)req->target + req->got_bytes;
}

static inline uint32_t io_req_left(const struct io_req *req)
{
    return req->size_bytes - req->got_bytes;
}

static inline uint64_t io_req_offset(const struct io_req *req)
{
    return req->offset_bytes + req->got_bytes;
}

/* ---- lane.c ---- */

/* Puts a request behind those that wait for its device. */
void io_wait_in_lane(struct io *io, struct io_req *req);

/* True when a request waits and its device has room. */
bool io_ready(const struct io *io);

/* The next such request, now handed to the backend; NULL when there is none. */
struct io_req *io_take(struct io *io);

/* Takes back what was handed: its device has room for another. */
void io_give_back(struct io *io, const struct io_req *req);

/* Puts a request aside for pause_ns. */
void io_wait_aside(struct io *io, struct io_req *req, uint64_t pause_ns);

/* Puts those whose time has come into their lanes. Returns how long the next of the others has to
 * wait, UINT64_MAX when there is none. */
uint64_t io_take_due(struct io *io);

/* Forgets all that wait. */
void io_forget_waiting(struct io *io);

/* ---- log.c: all of them do nothing without a log ---- */

void io_log_begin(struct io *io, struct io_req *req);
/* All reads begun so far are with the kernel. */
void io_log_sent(struct io *io);
void io_log_repeat(struct io *io, const struct io_req *req, bool came_short);
void io_log_end(struct io *io, const struct io_req *req, int32_t res, uint64_t now_ns);

/* ---- io.c ---- */

/* A transfer came back with res bytes or a negative errno. May call done(). */
void io_ended(struct io *io, struct io_req *req, int64_t res);

uint64_t io_now_ns(const struct io *io);

/* False when a wake-up is already due: then do not sleep. True must be paired with the end. */
bool io_sleep_begin(struct io *io);
void io_sleep_end(struct io *io);

/* Sleeps on the eventfd, for backends without a ring. Inside begin and end. */
void io_sleep(struct io *io, uint64_t wait_ns);

/* Rouses the owner when it may be asleep, for what was published before the call. */
void io_rouse(struct io *io);

/* Empties the eventfd. */
void io_waker_drain(struct io *io);

#endif
