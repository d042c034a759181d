/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IO_IO_H
#define IO_IO_H

/* Reads of aligned ranges of files into memory, many in flight per device, over three backends:
 * `uring` (liburing), `pread` (a pool of threads, the plain reference) and `sim` (seeded order,
 * delays and faults, for tests). io knows files, offsets and targets; it has never heard of a
 * tile or an expert.
 *
 * One thread owns a struct io: it opens it, queues reads, runs it and closes it. Only io_wake()
 * may be called by others. Requests are the caller's memory; nothing is allocated per read. */

#include "core/base/base.h"
#include "io/file.h"
#include "io/log.h"

#define IO_REQ_MAGIC 0x494F5251U
#define IO_WAIT_FOREVER UINT64_MAX
#define IO_NO_BUFFER (-1)
#define IO_NO_RECORD UINT32_MAX

/* Caller owns it; io borrows it from io_read() until done() is called. */
struct io_req {
    uint64_t offset_bytes; /* multiple of PAGE_BYTES */
    uint32_t size_bytes;   /* > 0, multiple of PAGE_BYTES */
    uint32_t file;         /* index into the struct io_files */
    void *target;          /* page aligned, size_bytes long */
    int32_t buffer;        /* registered buffer holding all of target, or IO_NO_BUFFER */
    int32_t res;           /* set before done(): size_bytes, or less when the file ends inside the
                            * last page, or a negative errno (never -EINTR or -EAGAIN) */
    void (*done)(struct io_req *req); /* runs inside io_run(), never nested; may call io_read() */
    void *owner;           /* the caller's */
    bool urgent;           /* goes before waiting ones that are not, on its device */
    uint8_t label;         /* the caller's, for its log */
    /* private to io */
    struct io_req *next;
    uint64_t queued_ns;
    uint64_t due_ns;       /* of a repeat that waits: not before */
    uint32_t magic;        /* IO_REQ_MAGIC while borrowed */
    uint32_t got_bytes;    /* progress over short reads */
    uint32_t retries;
    uint32_t tag;
    uint32_t record;       /* its place in the log, or IO_NO_RECORD */
};

enum io_engine { IO_URING, IO_PREAD, IO_SIM };

/* Faults of the sim backend; all counts are of reads since open, 1 = the first; 0 = never. */
struct io_sim_options {
    uint64_t seed;
    bool threads;          /* real time: io_run() sleeps seeded delays; else pure steps */
    uint64_t fail_read;    /* this read ... */
    int fail_errno;        /* ... fails with this errno (positive) */
    bool fail_from_there;  /* and every later one too */
    uint32_t short_every;  /* every n-th transfer returns a seeded aligned part */
    uint32_t again_every;  /* every n-th transfer returns -EAGAIN once */
    uint32_t intr_every;   /* every n-th transfer returns -EINTR once */
};

struct io_options {
    enum io_engine engine;
    uint32_t depth;           /* requests in flight on each device at most, 1..1024 */
    uint32_t buffer_count;    /* size of the registered buffer table, 0 = none */
    struct io_sim_options sim;
    struct io_log *log;       /* where reads are written down, or NULL; outlives the struct io */
};

/* Counters since open. Read by the owner, or by anyone after io_close() copied them. */
struct io_stats {
    uint64_t requests;        /* reads completed, well or badly */
    uint64_t bytes;           /* asked for by completed reads (aligned sizes) */
    uint64_t submits;         /* io_uring_enter calls or batches handed to the pool */
    uint64_t short_reads;     /* transfers that returned less than asked, not at end of file */
    uint64_t retries;         /* -EINTR, -EAGAIN and the like, repeated */
    uint64_t late_wakes;      /* wake-ups that no sleep was ended by: found at the end of one */
    uint64_t strays;          /* completions that belonged to no read in flight, passed over */
    uint64_t in_flight_max;   /* on all devices together */
    uint32_t device_max[IO_DEVICES_MAX]; /* in flight on each, at most */
    uint64_t latency_ns_sum;  /* io_read() to done() */
    uint64_t busy_ns;         /* time with at least one read in flight */
};

struct io;

/* Opens a backend over files, which must outlive it. When io_uring is refused (seccomp, sysctl,
 * old kernel, locked memory) this returns ERR_RUN with cause and cure; the caller may then open
 * IO_PREAD and say so. */
int io_open(struct io **out, const struct io_options *options, const struct io_files *files);
void io_close(struct io *io); /* drains what is in flight, without done(); NULL is fine */

/* Registers memory as buffer `slot` (< buffer_count) for fixed reads. Returns 0, or a negative
 * errno when the kernel refuses; then the caller reads with IO_NO_BUFFER. Backends without the
 * notion return -ENOTSUP. */
int io_register_buffer(struct io *io, uint32_t slot, void *base, uint64_t size_bytes);

/* Queues a read. io_room() must be > 0. Submitted by the next io_run(). */
void io_read(struct io *io, struct io_req *req);

/* How many reads may be queued at once, waiting ones included: depth on one device; on several,
 * more than depth for each, so that reads in the order of one cursor keep all of them busy. */
uint32_t io_capacity(uint32_t depth, uint32_t device_count);

/* How many more reads may be queued before that. */
uint32_t io_room(const struct io *io);
uint32_t io_in_flight(const struct io *io); /* queued or in the kernel */

/* Submits what is queued, reaps what has completed and calls done() for each. With wait_ns > 0
 * and nothing to reap it sleeps until a completion, io_wake() or the time; with 0 it only polls.
 * Returns how many reads ended, or a negative code when the ring itself failed. */
int io_run(struct io *io, uint64_t wait_ns);

/* Ends the current or next sleep of io_run(). Any thread, async-signal-safe, cheap when the
 * owner is not asleep. */
void io_wake(struct io *io);

const struct io_stats *io_stats(const struct io *io);

/* "io_uring", "pread" or "sim", and the ring features in force, e.g.
 * "SINGLE_ISSUER|DEFER_TASKRUN|COOP_TASKRUN" ("" for others). */
const char *io_engine_name(const struct io *io);
const char *io_features(const struct io *io);

/* The rules of completion as one pure function, for every backend and for its table test. */
enum io_verdict {
    IO_DONE,     /* the request is complete */
    IO_RESUME,   /* read on at *got (an aligned position) */
    IO_RETRY,    /* transient: the same transfer again, after io_pause_ns() */
    IO_FAILED    /* *error is the errno to report (positive) */
};

/* want: bytes asked for in all; *got: bytes in place before this transfer, updated; res: what the
 * transfer returned; offset: file offset of the request; file_size: at open. */
enum io_verdict io_judge(int64_t res, uint32_t want, uint32_t *got, uint64_t offset,
                         uint64_t file_size, uint32_t *retries, int *error);

/* How long a repeat should wait, given the count that io_judge() keeps: the pauses of
 * core/base/retry.h, or a moment for the second chance after an error of the medium. */
uint64_t io_pause_ns(uint32_t retries);

/* What a user can do about a read that failed with this errno (positive). */
const char *io_cure(int error);

#endif
