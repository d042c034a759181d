/* SPDX-License-Identifier: Apache-2.0 */

/* The front of the three backends: the queues, the depth, the accounts, the verdicts and the
 * sleep. See io_priv.h for the split. */

#include "io/io.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/base/retry.h"
#include "io/io_priv.h"

#define NS_PER_SECOND 1000000000ULL
#define WAITING_PER_DEPTH 4U
#define SECOND_CHANCE_NS 10000000U
#define SHORTAGE_NS_MAX 1000000U
#define SLEEP_NS_MAX 100000000U

/* struct io_req's `retries` holds two counts: in the low half the repeats since bytes last
 * arrived, in the high half the repeats after an error of the medium. */
#define TRANSIENT_MASK 0xFFFFU
#define MEDIUM_ONE 0x10000U

/* ---- verdicts ---- */

static bool count_transient(uint32_t *retries)
{
    if ((*retries & TRANSIENT_MASK) >= RETRY_MAX) {
        return false;
    }
    ++*retries;
    return true;
}

static enum io_verdict judge_error(int errnum, uint32_t *retries, int *error)
{
    switch (errnum) {
    case EINTR:
    case EAGAIN:
        *error = EBUSY; /* callers never see these two */
        return count_transient(retries) ? IO_RETRY : IO_FAILED;
    case EBUSY:
    case ENOMEM:    /* of the kernel, for this one transfer */
    case ECANCELED: /* by whatever took the ring's work away */
        *error = errnum;
        return count_transient(retries) ? IO_RETRY : IO_FAILED;
    case EIO:
    case ENODATA:
    case EREMOTEIO:
    case EILSEQ:
    case ETIMEDOUT: /* the drive's own time-outs, and paths to it that are being changed */
    case ETIME:
    case ENOLINK:
        *error = errnum;
        if (*retries >= MEDIUM_ONE) {
            return IO_FAILED;
        }
        *retries += MEDIUM_ONE;
        return IO_RETRY;
    default:
        *error = errnum;
        return IO_FAILED;
    }
}

enum io_verdict io_judge(int64_t res, uint32_t want, uint32_t *got, uint64_t offset,
                         uint64_t file_size, uint32_t *retries, int *error)
{
    assert(*got < want);
    assert(*got % PAGE_BYTES == 0);
    if (res < 0) {
        return judge_error((int)-res, retries, error);
    }
    if (res == 0 || res > (int64_t)(want - *got)) {
        *error = res == 0 ? ENODATA : EIO; /* the file shrank; the kernel overran */
        return IO_FAILED;
    }
    uint32_t end = *got + (uint32_t)res;
    if (end == want || offset + end >= file_size) {
        *got = end;
        return IO_DONE;
    }
    uint32_t aligned = (uint32_t)align_down(end, PAGE_BYTES);
    if (aligned > *got) {
        *got = aligned;
        *retries &= ~TRANSIENT_MASK;
        return IO_RESUME;
    }
    /* Less than a page came: a file cut there gives the same answer for ever. */
    *error = ENODATA;
    return count_transient(retries) ? IO_RESUME : IO_FAILED;
}

uint64_t io_pause_ns(uint32_t retries)
{
    uint32_t transient = retries & TRANSIENT_MASK;
    return transient > 0 ? retry_pause_ns(transient) : SECOND_CHANCE_NS;
}

const char *io_cure(int error)
{
    switch (error) {
    case EBUSY:
    case ECANCELED:
        return "tried again in vain; run again when the drive is less busy";
    case ENOMEM:
        return "tried again in vain; free memory, or give a smaller --ram or --io-depth";
    case EINVAL:
    case EOPNOTSUPP:
        return "this file system does not read as asked; copy the model to ext4 or xfs";
    case ETIMEDOUT:
    case ETIME:
    case ENOLINK:
    case ENXIO:
    case ENODEV:
    case ENOTCONN:
    case ESTALE:
        return "see that the drive or server is connected (dmesg), then run again";
    default:
        return "check the drive (dmesg, smartctl) or fetch the file again";
    }
}

/* ---- time and accounts ---- */

uint64_t io_now_ns(const struct io *io)
{
    return io->backend->now_ns != NULL ? io->backend->now_ns(io) : nondet_now_ns();
}

static void account_busy(struct io *io, uint64_t now_ns)
{
    io->stats.busy_ns += now_ns - io->busy_since_ns;
    io->busy_since_ns = now_ns;
}

static void finish(struct io *io, struct io_req *req, int32_t res)
{
    uint64_t now_ns = io_now_ns(io);
    if (io->in_flight == 1) {
        account_busy(io, now_ns);
    }
    assert(io->in_flight > io->handed);
    io->in_flight--;
    io->ended++;
    io->stats.requests++;
    io->stats.bytes += req->size_bytes;
    io->stats.latency_ns_sum += now_ns - req->queued_ns;
    io_log_end(io, req, res, now_ns);
    req->res = res;
    req->magic = 0;
    req->done(req);
}

void io_ended(struct io *io, struct io_req *req, int64_t res)
{
    assert(req->magic == IO_REQ_MAGIC);
    io_give_back(io, req);
    if (io->closing) {
        req->magic = 0;
        io->in_flight--;
        return;
    }
    int error = 0;
    uint64_t file_bytes = io->files->file[req->file].size_bytes;
    switch (io_judge(res, req->size_bytes, &req->got_bytes, req->offset_bytes, file_bytes,
                     &req->retries, &error)) {
    case IO_DONE:
        finish(io, req, (int32_t)req->got_bytes);
        break;
    case IO_FAILED:
        finish(io, req, -error);
        break;
    case IO_RESUME:
        io->stats.short_reads++;
        io_log_repeat(io, req, true);
        io_wait_in_lane(io, req);
        break;
    case IO_RETRY:
        io->stats.retries++;
        io_log_repeat(io, req, false);
        if (io->backend->now_ns != NULL) {
            io_wait_in_lane(io, req); /* simulated time may stand still */
        } else {
            io_wait_aside(io, req, io_pause_ns(req->retries));
        }
        break;
    }
}

/* ---- sleep and wake ---- */

bool io_sleep_begin(struct io *io)
{
    atomic_store(&io->waker.asleep, true);
    if (atomic_load(&io->waker.woken)) {
        atomic_store(&io->waker.asleep, false);
        return false;
    }
    return true;
}

void io_sleep_end(struct io *io)
{
    atomic_store(&io->waker.asleep, false);
}

void io_waker_drain(struct io *io)
{
    uint64_t count;
    ssize_t rc = read(io->waker.fd, &count, sizeof count);
    (void)rc; /* empty is fine: the flag, not the count, is what was said */
}

void io_sleep(struct io *io, uint64_t wait_ns)
{
    struct pollfd poll_fd = {.fd = io->waker.fd, .events = POLLIN};
    struct timespec ts = {.tv_sec = (time_t)(wait_ns / NS_PER_SECOND),
                          .tv_nsec = (long)(wait_ns % NS_PER_SECOND)};
    int rc = ppoll(&poll_fd, 1, wait_ns == IO_WAIT_FOREVER ? NULL : &ts, NULL);
    if (rc > 0) {
        io_waker_drain(io);
    }
    io->stats.late_wakes += rc == 0 && atomic_load(&io->waker.woken);
}

void io_rouse(struct io *io)
{
    if (atomic_load(&io->waker.asleep)) {
        int saved = errno; /* this may run in a signal handler */
        uint64_t one = 1;
        ssize_t rc = write(io->waker.fd, &one, sizeof one);
        (void)rc; /* a full counter is as good as one more */
        errno = saved;
    }
}

void io_wake(struct io *io)
{
    atomic_store(&io->waker.woken, true);
    io_rouse(io);
}

/* ---- life ---- */

static const struct io_backend *backend_of(enum io_engine engine)
{
    static const struct io_backend *const table[] = {
        [IO_URING] = &io_backend_uring,
        [IO_PREAD] = &io_backend_pread,
        [IO_SIM] = &io_backend_sim,
    };
    assert((size_t)engine < countof(table));
    return table[engine];
}

int io_open(struct io **out, const struct io_options *options, const struct io_files *files)
{
    assert(options->depth >= 1 && options->depth <= 1024);
    *out = NULL;
    struct io *io = calloc(1, sizeof *io);
    if (io == NULL) {
        return err_set(ERR_MEMORY, "no memory for the I/O engine");
    }
    io->backend = backend_of(options->engine);
    io->files = files;
    io->log = options->log;
    io->owner = pthread_self();
    io->depth = options->depth;
    io->lane_count = (uint32_t)max_u64(files->device_count, 1);
    io->handed_limit = io->depth * io->lane_count;
    io->capacity = io_capacity(io->depth, io->lane_count);
    io->waker.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc;
    if (io->waker.fd < 0) {
        rc = err_set(ERR_RUN, "no eventfd for the I/O engine: %s; %s", strerror(errno),
                     errno == EMFILE || errno == ENFILE ? "raise ulimit -n"
                     : errno == ENOMEM                  ? "free memory"
                                                        : "let the seccomp filter allow eventfd2");
        goto fail;
    }
    rc = io->backend->open(io, options);
    if (rc < 0) {
        io->backend->close(io);
        close(io->waker.fd);
        goto fail;
    }
    *out = io;
    return 0;
fail:
    free(io);
    return rc;
}

/* What is queued is forgotten, what is in the kernel is waited for; no done() is called, since
 * whoever closes early has no use for the bytes. Memory may be freed afterwards. */
void io_close(struct io *io)
{
    if (io == NULL) {
        return;
    }
    assert(!io->running);
    assert(pthread_equal(io->owner, pthread_self()));
    io->closing = true;
    io_forget_waiting(io);
    while (io->handed > 0 && io->backend->run(io, SLEEP_NS_MAX) >= 0) {
        atomic_store(&io->waker.woken, false);
    }
    io->backend->close(io);
    close(io->waker.fd);
    free(io);
}

int io_register_buffer(struct io *io, uint32_t slot, void *base, uint64_t size_bytes)
{
    assert(pthread_equal(io->owner, pthread_self()));
    assert((uintptr_t)base % PAGE_BYTES == 0 && size_bytes > 0);
    if (io->backend->register_buffer == NULL) {
        return -ENOTSUP;
    }
    return io->backend->register_buffer(io, slot, base, size_bytes);
}

void io_read(struct io *io, struct io_req *req)
{
    debug_assert(pthread_equal(io->owner, pthread_self()));
    assert(io->in_flight < io->capacity);
    assert(req->magic != IO_REQ_MAGIC); /* not borrowed already */
    assert(req->file < io->files->count);
    assert(req->size_bytes > 0 && req->size_bytes % PAGE_BYTES == 0);
    assert(req->size_bytes <= INT32_MAX);
    assert(req->offset_bytes % PAGE_BYTES == 0);
    assert((uintptr_t)req->target % PAGE_BYTES == 0);
    assert(req->done != NULL);
    req->magic = IO_REQ_MAGIC;
    req->res = 0;
    req->got_bytes = 0;
    req->retries = 0;
    req->tag = 0;
    req->record = IO_NO_RECORD;
    req->queued_ns = io_now_ns(io);
    if (io->in_flight == 0) {
        io->busy_since_ns = req->queued_ns;
    }
    io->in_flight++;
    io_wait_in_lane(io, req);
}

uint32_t io_capacity(uint32_t depth, uint32_t device_count)
{
    return device_count > 1 ? depth * device_count * WAITING_PER_DEPTH : depth;
}

uint32_t io_room(const struct io *io)
{
    return io->capacity - io->in_flight;
}

uint32_t io_in_flight(const struct io *io)
{
    return io->in_flight;
}

/* ---- running ---- */

/* True while a sleep of wait_ns begun at start_ns has time left; *left_ns is how much. */
static bool time_left(const struct io *io, uint64_t start_ns, uint64_t wait_ns,
                      uint64_t *left_ns)
{
    if (wait_ns == IO_WAIT_FOREVER) {
        return true;
    }
    uint64_t passed_ns = io_now_ns(io) - start_ns;
    *left_ns = passed_ns < wait_ns ? wait_ns - passed_ns : 0;
    return *left_ns > 0;
}

/* A kernel that takes nothing now is asked again after 10 us, 20 us, .. a millisecond. */
static void back_off(const struct io *io, uint32_t round, uint64_t left_ns)
{
    if (io->transient) {
        uint64_t pause_ns = min_u64(retry_pause_ns(round + 1), SHORTAGE_NS_MAX);
        nanosleep(&(struct timespec){.tv_nsec = (long)min_u64(pause_ns, left_ns)}, NULL);
    }
}

/* How long the backend may sleep at once: until the next repeat is due, and never for long, so that
 * a wake-up that gets lost costs a moment and not the run. */
static uint64_t nap_ns(struct io *io, uint64_t left_ns)
{
    uint64_t due_ns = io_take_due(io);
    return io->backend->now_ns != NULL ? left_ns
                                       : min_u64(left_ns, min_u64(due_ns, SLEEP_NS_MAX));
}

static bool answer_wake(struct io *io)
{
    return atomic_load(&io->waker.woken) && atomic_exchange(&io->waker.woken, false);
}

int io_run(struct io *io, uint64_t wait_ns)
{
    assert(!io->running); /* not from done() */
    assert(pthread_equal(io->owner, pthread_self()));
    io->running = true;
    io->ended = 0;
    io->round++;
    uint64_t start_ns = io_now_ns(io);
    uint64_t left_ns = wait_ns;
    int rc;
    for (uint32_t round = 0;; round++) {
        io->transient = false;
        rc = io->backend->run(io, nap_ns(io, left_ns));
        /* A poll is no sleep, so it leaves a wake-up for the sleep that follows. */
        if (rc < 0 || io->ended > 0 || wait_ns == 0 || answer_wake(io) ||
            !time_left(io, start_ns, wait_ns, &left_ns)) {
            break;
        }
        back_off(io, round, left_ns);
    }
    if (io->in_flight > 0) {
        account_busy(io, io_now_ns(io));
    }
    io->running = false;
    return rc < 0 ? rc : (int)io->ended;
}

/* ---- what was and what is ---- */

const struct io_stats *io_stats(const struct io *io)
{
    return &io->stats;
}

const char *io_engine_name(const struct io *io)
{
    return io->backend->name;
}

const char *io_features(const struct io *io)
{
    return io->backend->features != NULL ? io->backend->features(io) : "";
}
