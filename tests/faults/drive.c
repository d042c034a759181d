/* SPDX-License-Identifier: Apache-2.0 */
/* The drive and the ring in disorder. Between the program and liburing, completions are taken out
 * of the real queue, changed, and handed on when their time has come. The program returns their
 * places by moving the head of the queue by as many as it was given; the rest is made good here. */
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/base.h"
#include "core/base/nondet.h"
#include "tests/faults/faults.h"

#define HELD_MAX 4096U
#define FLIGHTS_MAX 256U
#define BATCH_MAX 64U
#define SPOILT_MAX 16U
#define WAKE_DATA 0U /* what the program marks the poll of its wake-up with */
#define POISON 0x5A
#define NS_PER_SECOND 1000000000ULL

/* A read handed to the kernel. */
struct flight {
    uint64_t data; /* its mark; 0 = none */
    uint64_t number, offset_bytes;
    int fd;
    void *target;
};

/* A struct io_uring_cqe without what follows it in large rings. */
struct completion {
    uint64_t user_data;
    int32_t res;
    uint32_t flags;
};
_Static_assert(sizeof(struct completion) == sizeof(struct io_uring_cqe), "as the kernel has it");

/* Where a read was spoilt. */
struct spoilt {
    int fd;
    uint64_t offset_bytes;
};

struct held {
    struct completion cqe;
    uint64_t due_ns;
};

static struct {
    atomic_bool armed;
    pthread_mutex_t lock; /* pread() comes from many threads */
    struct drive_faults faults;
    struct drive_counts counts;
    struct rng rng;
    bool doomed_known;
    int doomed_fd;
    uint64_t doomed_offset, wakes, seen;
    struct spoilt spoilt[SPOILT_MAX];
    unsigned spoilt_next;
    struct flight flight[FLIGHTS_MAX];
    struct held held[HELD_MAX];
    unsigned held_count;
    struct completion out[BATCH_MAX]; /* what the program was given last */
} drive = {.lock = PTHREAD_MUTEX_INITIALIZER};

void drive_faults_arm(const struct drive_faults *faults)
{
    memset(&drive.counts, 0, sizeof drive.counts);
    memset(drive.flight, 0, sizeof drive.flight);
    drive.faults = *faults;
    drive.rng = rng_seed(faults->seed);
    drive.doomed_known = false;
    drive.wakes = drive.seen = drive.held_count = 0;
    for (unsigned i = 0; i < SPOILT_MAX; i++) {
        drive.spoilt[i].fd = -1;
    }
    atomic_store(&drive.armed, true);
}

void drive_faults_disarm(struct drive_counts *counts)
{
    atomic_store(&drive.armed, false);
    if (counts != NULL) {
        *counts = drive.counts;
    }
}

bool drive_armed(void)
{
    return atomic_load(&drive.armed);
}

static bool due(uint64_t number, uint32_t every)
{
    return every != 0 && number % every == 0;
}

/* ---- a transfer ---- */

/* True when this place was spoilt not long ago: what happens now and then does not happen to the
 * same read again and again. */
static bool spared(int fd, uint64_t offset_bytes)
{
    for (unsigned i = 0; i < SPOILT_MAX; i++) {
        if (drive.spoilt[i].fd == fd && drive.spoilt[i].offset_bytes == offset_bytes) {
            return true;
        }
    }
    drive.spoilt[drive.spoilt_next++ % SPOILT_MAX] = (struct spoilt){fd, offset_bytes};
    return false;
}

/* The errno that a transfer fails with, or 0. */
static int failure(uint64_t number, int fd, uint64_t offset_bytes)
{
    const struct drive_faults *f = &drive.faults;
    if (f->doomed != 0 && number == f->doomed) {
        drive.doomed_known = true;
        drive.doomed_fd = fd;
        drive.doomed_offset = offset_bytes;
    }
    bool again = drive.doomed_known && fd == drive.doomed_fd && offset_bytes == drive.doomed_offset;
    bool later = f->doomed_later && f->doomed != 0 && number > f->doomed;
    bool doomed = again || later;
    if (!doomed && (!due(number, f->error_every) || spared(fd, offset_bytes))) {
        return 0;
    }
    drive.counts.failed++;
    return f->error;
}

static int64_t shorten(int fd, uint64_t offset_bytes, void *target, int64_t res)
{
    const struct drive_faults *f = &drive.faults;
    if (res <= 1 || !due(++drive.seen, f->short_every)) {
        return res;
    }
    int64_t most = f->short_bytes > 0 ? f->short_bytes
                                      : 1 + (int64_t)rng_below(&drive.rng, (uint64_t)res - 1);
    bool hopeless = f->short_every == 1; /* wanted so */
    if (most >= res || (most < (int64_t)PAGE_BYTES && !hopeless && spared(fd, offset_bytes))) {
        return res;
    }
    memset((char *)target + most, POISON, (size_t)(res - most));
    drive.counts.shortened++;
    return most;
}

static uint64_t delay_ns(void)
{
    const struct drive_faults *f = &drive.faults;
    bool late = due(drive.counts.transfers, f->late_every);
    drive.counts.late += late;
    return (late ? f->late_ns : 0) +
           (f->shuffle_ns > 0 ? rng_below(&drive.rng, f->shuffle_ns) : 0);
}

/* ---- pread() ---- */

static void pause_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / NS_PER_SECOND),
                            .tv_nsec = (long)(ns % NS_PER_SECOND)};
    if (ns > 0) {
        nanosleep(&left, NULL);
    }
}

int drive_before(int fd, uint64_t offset_bytes)
{
    pthread_mutex_lock(&drive.lock);
    int error = failure(++drive.counts.transfers, fd, offset_bytes);
    uint64_t ns = delay_ns();
    pthread_mutex_unlock(&drive.lock);
    pause_ns(ns);
    return error;
}

int64_t drive_after(int fd, uint64_t offset_bytes, void *target, int64_t res)
{
    pthread_mutex_lock(&drive.lock);
    int64_t said = shorten(fd, offset_bytes, target, res);
    pthread_mutex_unlock(&drive.lock);
    return said;
}

/* ---- reads on their way into the kernel ---- */

static struct flight *flight_of(uint64_t data)
{
    for (unsigned i = 0; i < FLIGHTS_MAX; i++) {
        if (drive.flight[i].data == data) {
            return &drive.flight[i];
        }
    }
    abort(); /* more in flight than any test asks for */
}

static bool is_read(const struct io_uring_sqe *sqe)
{
    return sqe->opcode == IORING_OP_READ || sqe->opcode == IORING_OP_READ_FIXED;
}

static bool is_known(uint64_t data)
{
    for (unsigned i = 0; i < FLIGHTS_MAX; i++) {
        if (drive.flight[i].data == data) {
            return true;
        }
    }
    return false;
}

/* Notes what the program has prepared and not yet handed over. */
static void note_prepared(const struct io_uring *ring)
{
    const struct io_uring_sq *sq = &ring->sq;
    for (unsigned at = sq->sqe_head; at != sq->sqe_tail; at++) {
        const struct io_uring_sqe *sqe = &sq->sqes[at & sq->ring_mask];
        if (!is_read(sqe) || is_known(sqe->user_data)) {
            continue;
        }
        *flight_of(0) = (struct flight){.data = sqe->user_data, .number = ++drive.counts.transfers,
                                        .offset_bytes = sqe->off, .fd = sqe->fd,
                                        .target = (void *)(uintptr_t)sqe->addr};
    }
}

/* ---- completions ---- */

static void hold(const struct completion *cqe, uint64_t due_ns)
{
    if (drive.held_count == HELD_MAX) {
        abort();
    }
    drive.held[drive.held_count++] = (struct held){.cqe = *cqe, .due_ns = due_ns};
}

static void change_read(struct completion *cqe)
{
    struct flight *flight = flight_of(cqe->user_data);
    int error = failure(flight->number, flight->fd, flight->offset_bytes);
    cqe->res = error != 0 ? -error
                          : (int)shorten(flight->fd, flight->offset_bytes, flight->target,
                                         cqe->res);
    *flight = (struct flight){0};
}

static void take_in(const struct io_uring_cqe *from, uint64_t now_ns)
{
    struct completion cqe = {from->user_data, from->res, from->flags};
    const struct drive_faults *f = &drive.faults;
    if (cqe.user_data == WAKE_DATA && due(++drive.wakes, f->deaf_every)) {
        drive.counts.deaf++;
        return;
    }
    if (cqe.user_data == WAKE_DATA || !is_known(cqe.user_data)) {
        hold(&cqe, now_ns);
        return;
    }
    uint64_t number = flight_of(cqe.user_data)->number;
    change_read(&cqe);
    uint64_t due_ns = now_ns + delay_ns();
    hold(&cqe, due_ns);
    if (due(number, f->twice_every)) {
        drive.counts.twice++;
        hold(&cqe, due_ns + 200000); /* when its memory may be in use again */
    }
}

/* Hands out the held ones whose time has come, the earliest first. */
static unsigned hand_out(struct io_uring_cqe **cqes, unsigned count, uint64_t now_ns)
{
    unsigned given = 0;
    while (given < count && given < BATCH_MAX) {
        unsigned best = drive.held_count;
        for (unsigned i = 0; i < drive.held_count; i++) {
            if (drive.held[i].due_ns <= now_ns &&
                (best == drive.held_count || drive.held[i].due_ns < drive.held[best].due_ns)) {
                best = i;
            }
        }
        if (best == drive.held_count) {
            break;
        }
        drive.out[given] = drive.held[best].cqe;
        cqes[given] = (struct io_uring_cqe *)(void *)&drive.out[given];
        given++;
        drive.held[best] = drive.held[--drive.held_count];
    }
    return given;
}

unsigned __real_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes,
                                        unsigned count);
unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes,
                                        unsigned count);
unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes,
                                        unsigned count)
{
    struct io_uring_cqe *real[BATCH_MAX];
    if (!drive_armed()) {
        return __real_io_uring_peek_batch_cqe(ring, cqes, count);
    }
    uint64_t now_ns = nondet_now_ns();
    unsigned got = __real_io_uring_peek_batch_cqe(ring, real, BATCH_MAX);
    for (unsigned i = 0; i < got; i++) {
        take_in(real[i], now_ns);
    }
    unsigned given = hand_out(cqes, count, now_ns);
    __atomic_store_n(ring->cq.khead, *ring->cq.khead + got - given, __ATOMIC_RELEASE);
    return given;
}

/* ---- calls into the kernel ---- */

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);
int __real_io_uring_submit_and_get_events(struct io_uring *ring);
int __wrap_io_uring_submit_and_get_events(struct io_uring *ring);
int __real_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
                                            unsigned count, struct __kernel_timespec *ts,
                                            sigset_t *mask);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
                                            unsigned count, struct __kernel_timespec *ts,
                                            sigset_t *mask);

/* Fills the completion queue beyond what it holds with entries that the program takes for
 * time-outs of liburing. */
static void flood(struct io_uring *ring)
{
    unsigned wanted = ring->cq.ring_entries + 8;
    while (wanted > 0) {
        struct io_uring_sqe *sqe;
        while (wanted > 0 && (sqe = io_uring_get_sqe(ring)) != NULL) {
            io_uring_prep_nop(sqe);
            io_uring_sqe_set_data64(sqe, LIBURING_UDATA_TIMEOUT);
            wanted--;
        }
        if (__real_io_uring_submit(ring) < 0) {
            break;
        }
    }
    unsigned flags = __atomic_load_n(ring->sq.kflags, __ATOMIC_ACQUIRE);
    drive.counts.overflows += (flags & IORING_SQ_CQ_OVERFLOW) != 0;
}

/* Before every call. Returns 0 or what the call has to return. */
static int before_call(struct io_uring *ring)
{
    const struct drive_faults *f = &drive.faults;
    uint64_t number = ++drive.counts.calls;
    note_prepared(ring);
    if (due(number, f->refuse_every) || (f->refuse_from != 0 && number >= f->refuse_from)) {
        drive.counts.refused++;
        return -f->refuse_error;
    }
    if (due(number, f->flood_every)) {
        flood(ring);
    }
    return 0;
}

int __wrap_io_uring_submit(struct io_uring *ring)
{
    int rc = drive_armed() ? before_call(ring) : 0;
    return rc < 0 ? rc : __real_io_uring_submit(ring);
}

int __wrap_io_uring_submit_and_get_events(struct io_uring *ring)
{
    int rc = drive_armed() ? before_call(ring) : 0;
    return rc < 0 ? rc : __real_io_uring_submit_and_get_events(ring);
}

/* How long until the next held completion; UINT64_MAX when there is none. */
static uint64_t next_ns(void)
{
    uint64_t now_ns = nondet_now_ns();
    uint64_t next = UINT64_MAX;
    for (unsigned i = 0; i < drive.held_count; i++) {
        uint64_t due_ns = drive.held[i].due_ns;
        uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
        next = left_ns < next ? left_ns : next;
    }
    return next;
}

int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
                                            unsigned count, struct __kernel_timespec *ts,
                                            sigset_t *mask)
{
    int rc = drive_armed() ? before_call(ring) : 0;
    if (rc < 0) {
        return rc;
    }
    uint64_t held_ns = drive_armed() ? next_ns() : UINT64_MAX;
    uint64_t asked_ns = (uint64_t)ts->tv_sec * NS_PER_SECOND + (uint64_t)ts->tv_nsec;
    if (held_ns == 0) {
        return __real_io_uring_submit_and_get_events(ring);
    }
    struct __kernel_timespec sooner = {.tv_sec = (long long)(held_ns / NS_PER_SECOND),
                                       .tv_nsec = (long long)(held_ns % NS_PER_SECOND)};
    return __real_io_uring_submit_and_wait_timeout(ring, cqe, count,
                                                   held_ns < asked_ns ? &sooner : ts, mask);
}
