/* SPDX-License-Identifier: Apache-2.0 */

/* The ring. Everything here runs in the owner thread: with SINGLE_ISSUER the kernel answers any
 * other with -EEXIST, and with DEFER_TASKRUN completions appear only when the owner enters and
 * asks for events. One submission beyond the depth is a poll of the waker's eventfd, always
 * armed, so that io_wake() ends a wait in the kernel. Only the interface of liburing 2.3. */

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/base/err.h"
#include "io/io_priv.h"

#define NS_PER_SECOND 1000000000ULL
#define REAP_BATCH 64U
#define RING_EXTRA 2U /* the poll; and, on kernels before 5.11, liburing's own time-out */
#define SYSCTL_PATH "/proc/sys/kernel/io_uring_disabled"
#define REFUSED_NS_MAX (5 * NS_PER_SECOND)
#define WAKE_DATA 0U
#define NO_PLACE UINT32_MAX

/* Of a read in the kernel. Its completion carries place and turn: one whose turn is over belongs to
 * no read and is passed over, so that memory in use again is never thought filled by it. */
struct place {
    struct io_req *req;
    uint32_t turn;
    uint32_t next; /* of the free ones, or NO_PLACE */
};

struct uring {
    struct io_uring ring;
    bool open;
    bool wake_armed;
    struct place *place;       /* [handed_limit] */
    uint32_t place_free;
    uint64_t refused_since_ns; /* the kernel takes nothing, 0 = it does */
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
                   "of %llu KiB (hard limit %llu KiB), which all processes of a user share; raise "
                   "ulimit -l or LimitMEMLOCK=, or try --io pread",
                   entries, (unsigned long long)(limit.rlim_cur / KIB),
                   (unsigned long long)(limit.rlim_max / KIB));
}

#define FILTER_CURE "in a container use --security-opt seccomp=PROFILE that allows it, or try " \
                    "--io pread"

static bool has_filter(void)
{
    return prctl(PR_GET_SECCOMP) == SECCOMP_MODE_FILTER;
}

static int explain_forbidden(void)
{
    int disabled = io_uring_sysctl();
    if (disabled > 0) {
        return err_set(ERR_RUN, "io_uring refused: the system sets kernel.io_uring_disabled=%d; "
                       "set it to 0 with sysctl%s, or try --io pread", disabled,
                       disabled == 1 ? ", or join the group kernel.io_uring_group names" : "");
    }
    return has_filter() ? err_set(ERR_RUN, "io_uring refused: blocked by a seccomp filter; "
                                  FILTER_CURE)
                        : err_set(ERR_RUN, "io_uring refused: blocked by a security module, such "
                                  "as SELinux or AppArmor; allow it there, or try --io pread");
}

/* Of which kernel: false when it is older than Linux 5.6, or does not say. */
static bool kernel_has_rings(unsigned *major, unsigned *minor)
{
    struct utsname kernel = {0};
    uname(&kernel);
    bool known = sscanf(kernel.release, "%u.%u", major, minor) == 2;
    return known && (*major > 5 || (*major == 5 && *minor >= 6));
}

/* Filters may claim that a kernel knows no such call, and some kernels are built without it. */
static int explain_missing(void)
{
    unsigned major = 0;
    unsigned minor = 0;
    if (!kernel_has_rings(&major, &minor)) {
        return err_set(ERR_RUN, "io_uring refused: this kernel has none; use Linux 5.6 or later, "
                       "or try --io pread");
    }
    return has_filter() ? err_set(ERR_RUN, "io_uring refused: a seccomp filter hides it; "
                                  FILTER_CURE)
                        : err_set(ERR_RUN, "io_uring refused: Linux %u.%u has it, but this one "
                                  "was built without (CONFIG_IO_URING) or is emulated; use "
                                  "another, or try --io pread", major, minor);
}

/* No answer from io_uring_register. */
static int explain_untold(void)
{
    unsigned major = 0;
    unsigned minor = 0;
    if (!kernel_has_rings(&major, &minor)) {
        return err_set(ERR_RUN, "io_uring refused: this kernel does not tell what its ring can do; "
                       "use Linux 5.6 or later, or try --io pread");
    }
    return has_filter() ? err_set(ERR_RUN, "io_uring refused: a seccomp filter blocks "
                                  "io_uring_register; " FILTER_CURE)
                        : err_set(ERR_RUN, "io_uring refused: it does not tell what it can do; "
                                  "try --io pread");
}

static int explain(int rc, uint32_t entries)
{
    switch (-rc) {
    case EPERM:
    case EACCES:
        return explain_forbidden();
    case ENOSYS:
        return explain_missing();
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
    bool told = probe != NULL;
    io_uring_free_probe(probe);
    if (!told) {
        return explain_untold();
    }
    return known ? 0 : err_set(ERR_RUN, "io_uring refused: this kernel's ring knows no plain "
                               "reads; use Linux 5.6 or later, or try --io pread");
}

/* Filters that let a ring be made and then block its use are met here, not at the first read. */
static int probe_enter(struct uring *uring, uint32_t entries)
{
    int rc = io_uring_submit_and_get_events(&uring->ring);
    bool passes = rc >= 0 || rc == -EAGAIN || rc == -EBUSY || rc == -EINTR || rc == -ENOMEM;
    return passes ? 0 : explain(rc, entries);
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

static int make_places(struct uring *uring, uint32_t count)
{
    uring->place = calloc(count, sizeof *uring->place);
    if (uring->place == NULL) {
        return err_set(ERR_MEMORY, "no memory for %u reads in flight", count);
    }
    uring->place_free = NO_PLACE;
    for (uint32_t i = count; i-- > 0;) {
        uring->place[i] = (struct place){.turn = 1, .next = uring->place_free};
        uring->place_free = i;
    }
    return 0;
}

static int uring_open(struct io *io, const struct io_options *options)
{
    struct uring *uring = calloc(1, sizeof *uring);
    if (uring == NULL) {
        return err_set(ERR_MEMORY, "no memory for the ring");
    }
    io->state = uring;
    TRY(make_places(uring, io->handed_limit));
    raise_memlock();
    TRY(create_ring(uring, io->handed_limit));
    TRY(probe_read(uring));
    TRY(probe_enter(uring, io->handed_limit + RING_EXTRA));
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
    free(uring->place);
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

/* Turns are below 2^31: no completion of a read looks like liburing's own. */
static uint64_t take_place(struct uring *uring, struct io_req *req)
{
    uint32_t index = uring->place_free;
    assert(index != NO_PLACE); /* as many as may be handed */
    struct place *place = &uring->place[index];
    uring->place_free = place->next;
    place->req = req;
    return (uint64_t)place->turn << 32 | (index + 1U);
}

/* The read a completion belongs to, whose turn is then over; NULL when it belongs to none. */
static struct io_req *leave_place(const struct io *io, struct uring *uring, uint64_t data)
{
    uint32_t index = (uint32_t)data - 1U;
    if (index >= io->handed_limit || uring->place[index].turn != data >> 32) {
        return NULL;
    }
    struct place *place = &uring->place[index];
    struct io_req *req = place->req;
    if (req != NULL) {
        *place = (struct place){.turn = place->turn % INT32_MAX + 1, .next = uring->place_free};
        uring->place_free = index;
    }
    return req;
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
    io_uring_sqe_set_data64(sqe, take_place(uring, req));
}

static void arm_wake(struct io *io, struct uring *uring)
{
    if (uring->wake_armed) {
        return;
    }
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    if (sqe != NULL) {
        io_uring_prep_poll_add(sqe, io->waker.fd, POLLIN);
        io_uring_sqe_set_data64(sqe, WAKE_DATA);
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
    struct io_uring_cqe *cqe;
    struct __kernel_timespec ts = {.tv_sec = (long long)(wait_ns / NS_PER_SECOND),
                                   .tv_nsec = (long long)(wait_ns % NS_PER_SECOND)};
    int rc = io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1, &ts, NULL);
    io_sleep_end(io);
    return rc;
}

/* ---- reaping ---- */

struct ended {
    uint64_t data;
    int32_t res;
};

/* Copies completions out and returns their slots before anybody is called. */
static uint32_t pull(struct uring *uring, struct ended *out)
{
    struct io_uring_cqe *cqes[REAP_BATCH];
    unsigned count = io_uring_peek_batch_cqe(&uring->ring, cqes, REAP_BATCH);
    for (unsigned i = 0; i < count; i++) {
        out[i] = (struct ended){cqes[i]->user_data, cqes[i]->res};
    }
    io_uring_cq_advance(&uring->ring, count);
    return count;
}

static void end(struct io *io, struct uring *uring, const struct ended *ended)
{
    if (ended->data == LIBURING_UDATA_TIMEOUT) {
        return;
    }
    if (ended->data == WAKE_DATA) {
        uring->wake_armed = false;
        io_waker_drain(io);
        return;
    }
    struct io_req *req = leave_place(io, uring, ended->data);
    if (req != NULL) {
        io_ended(io, req, ended->res);
    } else {
        io->stats.strays++;
    }
}

/* Returns how many completions there were. */
static uint32_t reap(struct io *io, struct uring *uring)
{
    struct ended ended[REAP_BATCH];
    uint32_t total = 0;
    for (uint32_t count; (count = pull(uring, ended)) > 0; total += count) {
        for (uint32_t i = 0; i < count; i++) {
            end(io, uring, &ended[i]);
        }
    }
    return total;
}

/* A sleep went by although somebody had called: the poll that should have ended it is lost when
 * what it waits for is there. Another is armed; if the first comes after all, it does no harm. */
static void mend_wake(struct io *io, struct uring *uring)
{
    struct pollfd waker = {.fd = io->waker.fd, .events = POLLIN};
    if (!atomic_load(&io->waker.woken)) {
        return;
    }
    io->stats.late_wakes++;
    if (poll(&waker, 1, 0) > 0) {
        uring->wake_armed = false;
    }
}

static int ring_failed(int error, uint64_t refused_ns)
{
    if (refused_ns > 0) {
        return err_set(ERR_RUN, "io_uring failed while reading: for %llu s the kernel has neither "
                       "taken nor ended a request: %s; try --io pread",
                       (unsigned long long)(refused_ns / NS_PER_SECOND), strerror(error));
    }
    return err_set(ERR_RUN, "io_uring failed while reading: %s; try --io pread", strerror(error));
}

/* The kernel is short of something, or a signal came. What was reaped helps; but a kernel that for
 * seconds takes nothing, and ends nothing either, will not. Signals alone are no fault: a drive may
 * be slow while they come. */
static int refused(struct io *io, struct uring *uring, int error, bool reaped)
{
    uint64_t now_ns = io_now_ns(io);
    bool left = io_uring_sq_ready(&uring->ring) > 0;
    bool stuck = left || (error != EINTR && io->handed > 0);
    io->transient = !reaped && (left || error != EINTR);
    if (reaped || !stuck) {
        uring->refused_since_ns = 0;
        return 0;
    }
    if (uring->refused_since_ns == 0) {
        uring->refused_since_ns = now_ns;
    }
    uint64_t refused_ns = now_ns - uring->refused_since_ns;
    return refused_ns < REFUSED_NS_MAX ? 0 : ring_failed(error, refused_ns);
}

static int uring_run(struct io *io, uint64_t wait_ns)
{
    struct uring *uring = io->state;
    fill(io, uring);
    hand_over(io, uring);
    int rc = enter(io, uring, wait_ns);
    bool reaped = reap(io, uring) > 0;
    switch (rc) {
    case -EAGAIN:
    case -EBUSY:
    case -ENOMEM:
    case -EINTR:
        return refused(io, uring, -rc, reaped);
    case -ETIME:
        mend_wake(io, uring);
        break;
    default:
        if (rc < 0) {
            return ring_failed(-rc, 0);
        }
    }
    uring->refused_since_ns = 0;
    return 0;
}

const struct io_backend io_backend_uring = {
    .name = "io_uring",
    .open = uring_open,
    .close = uring_close,
    .register_buffer = uring_register_buffer,
    .run = uring_run,
    .features = uring_features,
};
