/* SPDX-License-Identifier: Apache-2.0 */

/* The ring. Everything here runs in the owner thread: with SINGLE_ISSUER the kernel answers any
 * other with -EEXIST, and with DEFER_TASKRUN completions appear only when the owner enters and
 * asks for events. One submission beyond the depth is a poll of the waker's eventfd, always
 * armed, so that io_wake() ends a wait in the kernel. Only the interface of liburing 2.3. */

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/base/err.h"
#include "io/io_priv.h"

#define NS_PER_SECOND 1000000000ULL
#define REAP_BATCH 64U
#define RING_EXTRA 2U /* the poll; and, on kernels before 5.11, liburing's own time-out */
#define SYSCTL_PATH "/proc/sys/kernel/io_uring_disabled"

struct uring {
    struct io_uring ring;
    bool open;
    bool wake_armed;
    bool fixed_files;
    int buffers_error;   /* 0 while fixed reads hold, else why not (negative) */
    uint32_t step;       /* of the ladder below */
    uint32_t table_count;
    struct iovec *table; /* what each buffer slot holds; NULL base = nothing */
    char features[128];
};

static const struct {
    unsigned flags;
    const char *name;
} ladder[] = {
    {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN |
         IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
     "SINGLE_ISSUER|DEFER_TASKRUN|COOP_TASKRUN"},
    {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE |
         IORING_SETUP_CLAMP,
     "COOP_TASKRUN"},
    {IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP, ""},
};

/* ---- opening ---- */

/* The sysctl's value, or -1 where there is none. */
static int io_uring_sysctl(void)
{
    int fd = open(SYSCTL_PATH, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    char digit = 0;
    ssize_t rc = read(fd, &digit, 1);
    close(fd);
    return rc == 1 && digit >= '0' && digit <= '9' ? digit - '0' : -1;
}

static int explain_locked_memory(uint32_t entries)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    return err_set(ERR_RUN,
                   "io_uring refused: a ring of %u entries does not fit the locked memory limit "
                   "of %llu KiB (hard limit %llu KiB); raise ulimit -l or LimitMEMLOCK=, or try "
                   "--io pread",
                   entries, (unsigned long long)(limit.rlim_cur / KIB),
                   (unsigned long long)(limit.rlim_max / KIB));
}

static int explain(int rc, uint32_t entries)
{
    int disabled;
    switch (-rc) {
    case EPERM:
    case EACCES:
        disabled = io_uring_sysctl();
        if (disabled > 0) {
            return err_set(ERR_RUN,
                           "io_uring refused: the system sets kernel.io_uring_disabled=%d; set "
                           "it to 0 with sysctl, or try --io pread",
                           disabled);
        }
        return err_set(ERR_RUN, "io_uring refused: blocked by a seccomp filter; in a container "
                                "use --security-opt seccomp=PROFILE that allows it, or try --io "
                                "pread");
    case ENOSYS:
        return err_set(ERR_RUN, "io_uring refused: this kernel has none; use Linux 5.6 or later, "
                                "or try --io pread");
    case ENOMEM:
        return explain_locked_memory(entries);
    default:
        return err_set(ERR_RUN, "io_uring refused: a ring of %u entries: %s; try --io pread",
                       entries, strerror(-rc));
    }
}

static void raise_memlock(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_MEMLOCK, &limit); /* the error, if any, comes when memory is locked */
    }
}

static int create_ring(struct uring *uring, uint32_t handed_limit)
{
    uint32_t entries = handed_limit + RING_EXTRA;
    int rc = -EINVAL;
    for (uint32_t i = 0; i < countof(ladder) && rc == -EINVAL; i++) {
        /* Twice what can be in flight: the completion queue never overflows. */
        struct io_uring_params params = {.flags = ladder[i].flags, .cq_entries = 2 * entries};
        rc = io_uring_queue_init_params(entries, &uring->ring, &params);
        uring->step = i;
    }
    if (rc < 0) {
        return explain(rc, entries);
    }
    uring->open = true;
    io_uring_ring_dontfork(&uring->ring);
    io_uring_register_ring_fd(&uring->ring); /* saves a lookup per call; not needed */
    return 0;
}

/* A ring without plain reads (before Linux 5.6) would fail every one of them. */
static int probe_read(struct uring *uring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(&uring->ring);
    bool known = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
    io_uring_free_probe(probe);
    return known ? 0 : err_set(ERR_RUN, "io_uring refused: this kernel's ring knows no plain "
                               "reads; use Linux 5.6 or later, or try --io pread");
}

/* Registered files save a reference per read; without them the plain descriptors serve. */
static int register_files(struct io *io, struct uring *uring)
{
    uint32_t count = io->files->count;
    if (count == 0) {
        return 0;
    }
    int *fds = malloc(count * sizeof *fds);
    if (fds == NULL) {
        return err_set(ERR_MEMORY, "no memory for a list of %u files", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        fds[i] = io->files->file[i].fd;
    }
    uring->fixed_files = io_uring_register_files(&uring->ring, fds, count) == 0;
    free(fds);
    return 0;
}

static int make_buffer_table(struct uring *uring, uint32_t count)
{
    uring->buffers_error = -ENOBUFS;
    if (count == 0) {
        return 0;
    }
    uring->table = calloc(count, sizeof *uring->table);
    if (uring->table == NULL) {
        return err_set(ERR_MEMORY, "no memory for a table of %u buffers", count);
    }
    uring->table_count = count;
    uring->buffers_error = io_uring_register_buffers_sparse(&uring->ring, count);
    return 0;
}

static void name_features(struct uring *uring)
{
    bool buffers = false;
    for (uint32_t i = 0; i < uring->table_count && uring->buffers_error == 0; i++) {
        buffers = buffers || uring->table[i].iov_base != NULL;
    }
    char text[sizeof uring->features];
    snprintf(text, sizeof text, "|%s%s%s", ladder[uring->step].name,
             uring->fixed_files ? "|FIXED_FILES" : "", buffers ? "|FIXED_BUFFERS" : "");
    size_t skip = text[1] == '|' ? 2 : 1;
    snprintf(uring->features, sizeof uring->features, "%s", text + skip);
}

static int uring_open(struct io *io, const struct io_options *options)
{
    struct uring *uring = calloc(1, sizeof *uring);
    if (uring == NULL) {
        return err_set(ERR_MEMORY, "no memory for the ring");
    }
    io->state = uring;
    raise_memlock();
    TRY(create_ring(uring, io->handed_limit));
    TRY(probe_read(uring));
    TRY(register_files(io, uring));
    TRY(make_buffer_table(uring, options->buffer_count));
    name_features(uring);
    return 0;
}

static void uring_close(struct io *io)
{
    struct uring *uring = io->state;
    if (uring == NULL) {
        return;
    }
    /* Pinned memory is back when this returns; what the exit of a ring frees comes later. */
    if (uring->open && uring->table_count > 0 && uring->buffers_error == 0) {
        io_uring_unregister_buffers(&uring->ring);
    }
    if (uring->open) {
        io_uring_queue_exit(&uring->ring); /* takes the armed poll with it */
    }
    free(uring->table);
    free(uring);
}

static int uring_register_buffer(struct io *io, uint32_t slot, void *base, uint64_t size_bytes)
{
    struct uring *uring = io->state;
    if (uring->buffers_error < 0) {
        return uring->buffers_error;
    }
    assert(slot < uring->table_count);
    struct iovec iov = {.iov_base = base, .iov_len = size_bytes};
    __u64 tag = 0;
    int rc = io_uring_register_buffers_update_tag(&uring->ring, slot, &iov, &tag, 1);
    if (rc < 0) {
        uring->buffers_error = rc; /* all or none: every read from now on is a plain one */
    } else {
        uring->table[slot] = iov;
    }
    name_features(uring);
    return rc < 0 ? rc : 0;
}

static const char *uring_features(const struct io *io)
{
    const struct uring *uring = io->state;
    return uring->features;
}

/* ---- submitting ---- */

static bool use_fixed(const struct uring *uring, const struct io_req *req)
{
    if (req->buffer < 0 || uring->buffers_error < 0) {
        return false;
    }
    assert((uint32_t)req->buffer < uring->table_count);
    const struct iovec *iov = &uring->table[req->buffer];
    const unsigned char *target = req->target;
    const unsigned char *base = iov->iov_base;
    if (base == NULL) {
        return false;
    }
    assert(target >= base && target + req->size_bytes <= base + iov->iov_len);
    return true;
}

static void prepare_read(const struct io *io, struct uring *uring, struct io_req *req)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    assert(sqe != NULL); /* the caller has looked for space */
    int fd = uring->fixed_files ? (int)req->file : io->files->file[req->file].fd;
    if (use_fixed(uring, req)) {
        io_uring_prep_read_fixed(sqe, fd, io_req_target(req), io_req_left(req),
                                 io_req_offset(req), req->buffer);
    } else {
        io_uring_prep_read(sqe, fd, io_req_target(req), io_req_left(req), io_req_offset(req));
    }
    if (uring->fixed_files) {
        sqe->flags |= IOSQE_FIXED_FILE;
    }
    io_uring_sqe_set_data(sqe, req);
}

static void arm_wake(struct io *io, struct uring *uring)
{
    if (uring->wake_armed) {
        return;
    }
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    if (sqe != NULL) {
        io_uring_prep_poll_add(sqe, io->waker.fd, POLLIN);
        io_uring_sqe_set_data(sqe, NULL); /* no request: the wake-up */
        uring->wake_armed = true;
    }
}

static void fill(struct io *io, struct uring *uring)
{
    arm_wake(io, uring);
    while (io_ready(io) && io_uring_sq_space_left(&uring->ring) > 0) {
        prepare_read(io, uring, io_take(io));
    }
}

/* With a log the hand-over is a call of its own, so that its end can be told from the sleep that
 * follows. What the kernel does not take now the next call offers again. */
static void hand_over(struct io *io, struct uring *uring)
{
    if (io->log != NULL && io_uring_sq_ready(&uring->ring) > 0) {
        io_uring_submit(&uring->ring);
        if (io_uring_sq_ready(&uring->ring) == 0) {
            io_log_sent(io);
        }
    }
}

/* One io_uring_enter that submits, asks for events, and sleeps when it may. */
static int enter(struct io *io, struct uring *uring, uint64_t wait_ns)
{
    io->stats.submits++;
    if (wait_ns == 0 || !uring->wake_armed || !io_sleep_begin(io)) {
        return io_uring_submit_and_get_events(&uring->ring);
    }
    int rc;
    if (wait_ns == IO_WAIT_FOREVER) {
        rc = io_uring_submit_and_wait(&uring->ring, 1);
    } else {
        struct io_uring_cqe *cqe;
        struct __kernel_timespec ts = {.tv_sec = (long long)(wait_ns / NS_PER_SECOND),
                                       .tv_nsec = (long long)(wait_ns % NS_PER_SECOND)};
        rc = io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1, &ts, NULL);
    }
    io_sleep_end(io);
    return rc;
}

/* ---- reaping ---- */

struct ended {
    struct io_req *req;
    int32_t res;
};

/* Copies completions out and returns their slots before anybody is called. */
static uint32_t pull(struct uring *uring, struct ended *out)
{
    struct io_uring_cqe *cqes[REAP_BATCH];
    unsigned count = io_uring_peek_batch_cqe(&uring->ring, cqes, REAP_BATCH);
    uint32_t kept = 0;
    for (unsigned i = 0; i < count; i++) {
        if (cqes[i]->user_data != LIBURING_UDATA_TIMEOUT) {
            out[kept++] = (struct ended){io_uring_cqe_get_data(cqes[i]), cqes[i]->res};
        }
    }
    io_uring_cq_advance(&uring->ring, count);
    return kept;
}

static void reap(struct io *io, struct uring *uring)
{
    struct ended ended[REAP_BATCH];
    for (uint32_t count; (count = pull(uring, ended)) > 0;) {
        for (uint32_t i = 0; i < count; i++) {
            if (ended[i].req != NULL) {
                io_ended(io, ended[i].req, ended[i].res);
            } else {
                uring->wake_armed = false;
                io_waker_drain(io);
            }
        }
    }
}

static int uring_run(struct io *io, uint64_t wait_ns)
{
    struct uring *uring = io->state;
    fill(io, uring);
    hand_over(io, uring);
    int rc = enter(io, uring, wait_ns);
    reap(io, uring);
    switch (rc) {
    case -EAGAIN:
    case -EBUSY:
        io->transient = true; /* the kernel is short of something; what was reaped helps */
        return 0;
    case -ETIME:
    case -EINTR:
        return 0;
    default:
        return rc >= 0 ? 0 : err_set(ERR_RUN, "io_uring failed while reading: %s; try --io pread",
                                     strerror(-rc));
    }
}

const struct io_backend io_backend_uring = {
    .name = "io_uring",
    .open = uring_open,
    .close = uring_close,
    .register_buffer = uring_register_buffer,
    .run = uring_run,
    .features = uring_features,
};
