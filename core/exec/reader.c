/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/slab.h"
#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/base/nondet.h"

#define WAIT_NS 200000000ULL /* between two questions whether to stop */

struct reader {
    struct reader_options options;
    const struct io_files *files;
    struct io *io;
    struct slab *slab;
    struct io_req *pool;       /* [capacity], each with memory of its own */
    struct io_req **free;      /* stack */
    uint32_t free_count;
    struct io_req **line;      /* [capacity] with `use`: those begun, oldest first; circular */
    bool *ended;               /* [capacity] with `use`: of the pool */
    uint32_t line_first, line_count, capacity;
    int32_t buffer_count;      /* slices registered: all or none */
    /* a run */
    uint64_t done_bytes, done_requests, ended_ns, ticked_ns;
    int error;                 /* first errno of a failed read */
    struct io_req failed;
};

uint64_t reader_bytes(uint32_t depth, uint32_t device_count, uint64_t size_max_bytes)
{
    struct slab_layout layout = {.slot_bytes = size_max_bytes,
                                 .slot_count = io_capacity(depth, device_count)};
    return slab_bytes(&layout);
}

static void on_read(struct io_req *req)
{
    struct reader *r = req->owner;
    if (r->line == NULL) {
        r->free[r->free_count++] = req;
    } else {
        r->ended[req - r->pool] = true;
    }
    r->ended_ns = nondet_now_ns();
    if (req->res < 0) {
        r->failed = r->error == 0 ? *req : r->failed;
        r->error = r->error == 0 ? -req->res : r->error;
        return;
    }
    r->done_bytes += req->size_bytes;
    r->done_requests++;
}

static int open_ring(struct reader *r)
{
    struct io_options options = {.engine = r->options.io, .depth = r->options.depth,
                                 .buffer_count = slab_slice_count(r->slab),
                                 .sim = {.seed = 1, .threads = true}, .log = r->options.log};
    int rc = io_open(&r->io, &options, r->files);
    if (rc < 0 && options.engine == IO_URING) {
        err_clear();
        options.engine = IO_PREAD;
        rc = io_open(&r->io, &options, r->files);
    }
    return rc;
}

/* Fixed reads for all memory or for none, as in an engine. */
static bool register_memory(struct reader *r)
{
    uint64_t needed = 0;
    for (uint32_t i = 0; i < slab_slice_count(r->slab); i++) {
        needed += slab_slice(r->slab, i)->size_bytes;
    }
    if (needed > memory_lockable()) {
        return false;
    }
    for (uint32_t i = 0; i < slab_slice_count(r->slab); i++) {
        const struct slab_slice *slice = slab_slice(r->slab, i);
        if (io_register_buffer(r->io, i, slice->base, slice->size_bytes) < 0) {
            return false;
        }
    }
    return true;
}

static int open_all(struct reader *r, uint32_t capacity)
{
    struct slab_layout layout = {.slot_bytes = r->options.size_max_bytes, .slot_count = capacity};
    r->pool = calloc(capacity, sizeof *r->pool);
    r->free = calloc(capacity, sizeof(void *));
    r->capacity = capacity;
    bool lines = r->options.use != NULL;
    if (lines) {
        r->line = calloc(capacity, sizeof(void *));
        r->ended = calloc(capacity, sizeof *r->ended);
    }
    if (r->pool == NULL || r->free == NULL || (lines && (r->line == NULL || r->ended == NULL))) {
        return err_set(ERR_MEMORY, "no memory for %u requests", capacity);
    }
    TRY(slab_open(&r->slab, &layout));
    TRY(open_ring(r));
    bool fixed = register_memory(r);
    r->buffer_count = fixed ? (int32_t)slab_slice_count(r->slab) : 0;
    for (uint32_t i = 0; i < capacity; i++) {
        unsigned char *memory = slab_slot_address(r->slab, i);
        uint32_t slice = slab_slice_of(r->slab, memory);
        r->pool[i] = (struct io_req){.target = memory, .done = on_read, .owner = r,
                                     .buffer = fixed ? (int32_t)slice : IO_NO_BUFFER};
        r->free[r->free_count++] = &r->pool[i];
    }
    return 0;
}

int reader_open(struct reader **out, const struct io_files *files,
                const struct reader_options *options)
{
    assert(options->size_max_bytes > 0 && options->size_max_bytes % PAGE_BYTES == 0);
    struct reader *r = calloc(1, sizeof *r);
    *out = NULL;
    if (r == NULL) {
        return err_set(ERR_MEMORY, "no memory for a reader");
    }
    r->options = *options;
    r->files = files;
    int rc = open_all(r, io_capacity(options->depth, files->device_count));
    if (rc < 0) {
        reader_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

void reader_close(struct reader *r)
{
    if (r == NULL) {
        return;
    }
    io_close(r->io);
    slab_close(r->slab);
    free(r->pool);
    free(r->free);
    free(r->line);
    free(r->ended);
    free(r);
}

/* With `use`, memory of a read comes back when its bytes were used, not when it ends. */
static bool has_memory(const struct reader *r)
{
    return r->free_count > 0 && io_room(r->io) > 0;
}

static void line_up(struct reader *r, struct io_req *req)
{
    if (r->line != NULL) {
        r->ended[req - r->pool] = false;
        r->line[(r->line_first + r->line_count++) % r->capacity] = req;
    }
}

static bool is_usable(const struct reader *r)
{
    return r->line_count > 0 && r->ended[r->line[r->line_first] - r->pool];
}

static int use_oldest(struct reader *r, void *ctx)
{
    struct io_req *req = r->line[r->line_first];
    const struct reader_read read = {.offset_bytes = req->offset_bytes, .file = req->file,
                                     .size_bytes = req->size_bytes, .label = req->label};
    int rc = r->options.use(ctx, &read, req->target, (uint32_t)req->res);
    r->line_first = (r->line_first + 1) % r->capacity;
    r->line_count--;
    r->free[r->free_count++] = req;
    return rc;
}

/* Gives back the memory of reads whose bytes nobody will use. */
static void forget_line(struct reader *r)
{
    for (; r->line_count > 0; r->line_count--) {
        r->free[r->free_count++] = r->line[r->line_first];
        r->line_first = (r->line_first + 1) % r->capacity;
    }
}

/* Fills the queue; false when next has said that there is nothing more. */
static bool fill(struct reader *r, reader_next *next, void *ctx)
{
    struct reader_read read;
    while (has_memory(r)) {
        if (!next(ctx, &read)) {
            return false;
        }
        assert(read.size_bytes <= r->options.size_max_bytes);
        struct io_req *req = r->free[--r->free_count];
        req->offset_bytes = read.offset_bytes;
        req->size_bytes = read.size_bytes;
        req->file = read.file;
        req->label = read.label;
        line_up(r, req);
        io_read(r->io, req);
    }
    return true;
}

static void tick(struct reader *r)
{
    uint64_t now_ns = nondet_now_ns();
    if (r->options.tick != NULL && now_ns - r->ticked_ns >= WAIT_NS) {
        r->ticked_ns = now_ns;
        r->options.tick(r->options.ctx, r->done_bytes);
    }
}

static int drain(struct reader *r)
{
    while (io_in_flight(r->io) > 0) {
        TRY(io_run(r->io, WAIT_NS));
    }
    return 0;
}

static int failure(const struct reader *r)
{
    return err_set(ERR_IO, "%s: reading %u bytes at offset %llu: %s; check the drive (dmesg, "
                   "smartctl) or fetch the file again", r->files->file[r->failed.file].path,
                   r->failed.size_bytes, (unsigned long long)r->failed.offset_bytes,
                   strerror(r->error));
}

int reader_run(struct reader *r, reader_next *next, void *ctx, struct reader_result *result)
{
    bool more = true;
    bool stopped = false;
    int rc = 0;
    r->done_bytes = r->done_requests = 0;
    r->error = 0;
    *result = (struct reader_result){.begun_ns = nondet_now_ns()};
    r->ended_ns = result->begun_ns;
    while ((more || io_in_flight(r->io) > 0 || r->line_count > 0) && r->error == 0 && !stopped &&
           rc == 0) {
        more = more && fill(r, next, ctx);
        if (io_in_flight(r->io) > 0) {
            TRY(io_run(r->io, is_usable(r) ? 0 : WAIT_NS));
        }
        rc = is_usable(r) && r->error == 0 ? use_oldest(r, ctx) : 0;
        stopped = r->options.stop != NULL && r->options.stop();
        tick(r);
    }
    TRY(drain(r));
    forget_line(r);
    result->bytes = r->done_bytes;
    result->requests = r->done_requests;
    result->ended_ns = r->ended_ns;
    return r->error != 0 ? failure(r)
           : rc < 0      ? rc
           : stopped     ? err_set(ERR_STOPPED, "stopped while reading")
                         : 0;
}

void reader_facts(const struct reader *r, struct reader_facts *out)
{
    struct slab_statement state;
    slab_state(r->slab, &state);
    *out = (struct reader_facts){.io_engine = io_engine_name(r->io),
                                 .io_features = io_features(r->io),
                                 .fixed_buffers = r->buffer_count > 0,
                                 .mapped_bytes = state.mapped_bytes,
                                 .huge_bytes = state.huge_bytes};
}
