/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_READER_H
#define EXEC_READER_H

/* Reads without an engine: the same I/O code, queue and kind of memory, fed from a list. What a
 * drive gives by itself, for benchmarks; or, with `use`, the bytes of files one after the other
 * while the drive goes on reading. One thread; nothing is written. */

#include "io/io.h"

struct reader_read;

struct reader_options {
    enum io_engine io;        /* IO_URING falls back to IO_PREAD */
    uint32_t depth;           /* reads in flight on each drive */
    uint64_t size_max_bytes;  /* largest read to come; multiple of PAGE_BYTES */
    struct io_log *log;       /* where reads are written down, or NULL */
    bool (*stop)(void);       /* asked between reads; true: ERR_STOPPED; may be NULL */
    /* About five times a second; may be NULL. */
    void (*tick)(void *ctx, uint64_t done_bytes);
    /* Takes what was read, in the order in which it was named, or NULL: then nobody looks at it.
     * size_bytes is less than the read's where the file ends. A negative result ends the run and
     * is its result. Gets the ctx of reader_run. */
    int (*use)(void *ctx, const struct reader_read *read, const unsigned char *bytes,
               uint32_t size_bytes);
    void *ctx;
};

struct reader_read {
    uint64_t offset_bytes;    /* multiple of PAGE_BYTES */
    uint32_t size_bytes;      /* the same, <= size_max_bytes */
    uint32_t file;            /* index into the files */
    uint8_t label;            /* for the log */
};

/* What to read next; false when there is nothing more. */
typedef bool reader_next(void *ctx, struct reader_read *read);

struct reader_result {
    uint64_t bytes, requests;
    uint64_t begun_ns, ended_ns; /* first read begun, last one ended */
};

struct reader_facts {
    const char *io_engine, *io_features; /* valid until the reader is closed */
    bool fixed_buffers;
    uint64_t mapped_bytes, huge_bytes;
};

struct reader;

/* Memory for a full queue, present before anything is read. files must outlive it. ERR_MEMORY,
 * ERR_RUN. */
int reader_open(struct reader **out, const struct io_files *files,
                const struct reader_options *options);
void reader_close(struct reader *r); /* NULL is fine */

/* Reads all that next names, in that order, with a full queue. Also in case of failure nothing is
 * in flight afterwards. ERR_IO names file and offset; ERR_STOPPED; what `use` says. */
int reader_run(struct reader *r, reader_next *next, void *ctx, struct reader_result *result);

void reader_facts(const struct reader *r, struct reader_facts *out);

/* Memory a reader takes: pure. */
uint64_t reader_bytes(uint32_t depth, uint32_t device_count, uint64_t size_max_bytes);

#endif
