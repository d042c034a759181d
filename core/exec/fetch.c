/* SPDX-License-Identifier: Apache-2.0 */
/* The I/O thread: owns the ring, the slab's ring and slots, and the cache. Each turn reaps what
 * completed, takes back memory of finished tiles and experts, and fills the queue in order of
 * service: embedding rows, demanded experts, then the next trunk tiles of the walk, across layer
 * and token borders. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/base/memory.h"
#include "core/exec/exec_priv.h"

#define WAIT_NS 1000000000ULL     /* of one sleep, after which the drive is looked at */
#define SILENCE_NS 600000000000ULL /* with reads in flight and none ending: given up; */
#define SILENCE_TOLD_PART 20       /* told of after this part of it */
#define TILES_TOGETHER 4U          /* whose memory is waited for at once, of a full ring */

int fetch_init(struct engine *e)
{
    struct fetch *f = &e->fetch;
    const struct plan *p = e->plan;
    f->ring_capacity = plan_ring_tiles(p);
    uint32_t requests = io_capacity(e->options.io_depth, e->files.device_count);
    f->requests = requests;
    f->pool = calloc(requests, sizeof *f->pool);
    f->ring = calloc(f->ring_capacity, sizeof *f->ring);
    f->slice_known = calloc(slab_slice_count(e->slab), sizeof *f->slice_known);
    if (f->pool == NULL || f->ring == NULL || f->slice_known == NULL) {
        return err_set(ERR_MEMORY, "no memory for %u requests", requests);
    }
    for (uint32_t i = 0; i < requests; i++) {
        f->pool[i].engine = e;
        f->pool[i].next = f->free;
        f->free = &f->pool[i];
    }
    return 0;
}

void fetch_fini(struct engine *e)
{
    free(e->fetch.pool);
    free(e->fetch.ring);
    free(e->fetch.slice_known);
}

/* What a request reads, and where: "FILE: reading 4096 bytes at offset 0 (layer 3)". */
static void describe(const struct engine *e, const struct fetch_req *r, char *text, size_t capacity)
{
    const struct plan_tile *tiles = e->plan->tiles;
    char where[64] = "an embedding row";
    if (r->req.file == e->checks.file) {
        snprintf(where, sizeof where, "sums of pages");
    } else if (r->class == READ_EXPERTS) {
        snprintf(where, sizeof where, "layer %u expert %u", e->batch.layer,
                 e->batch.run[r->index].expert);
    } else if (r->class == READ_HEAD) {
        snprintf(where, sizeof where, "lm_head");
    } else if (r->class == READ_TRUNK) {
        snprintf(where, sizeof where, "layer %u", e->plan->steps[tiles[r->index].step].layer);
    }
    snprintf(text, capacity, "%s: reading %u bytes at offset %llu (%s)",
             e->files.file[r->req.file].path, r->req.size_bytes,
             (unsigned long long)r->req.offset_bytes, where);
}

static void read_failed(struct engine *e, const struct fetch_req *r)
{
    char what[ERR_MESSAGE_BYTES - 300];
    char text[ERR_MESSAGE_BYTES];
    struct stat now;
    const struct io_file *file = &e->files.file[r->req.file];
    char cause[256];
    if (fstat(file->fd, &now) == 0 && (uint64_t)now.st_size < file->size_bytes) {
        snprintf(cause, sizeof cause, "the file shrank from %llu to %llu bytes while running; "
                 "fetch it again, and let nothing write to it",
                 (unsigned long long)file->size_bytes, (unsigned long long)now.st_size);
    } else {
        snprintf(cause, sizeof cause, "%s; %s", strerror(-r->req.res), io_cure(-r->req.res));
    }
    describe(e, r, what, sizeof what);
    snprintf(text, sizeof text, "%s: %s", what, cause);
    engine_fail(e, ERR_IO, text);
}

/* The request that has been in flight for longest. */
static const struct fetch_req *oldest(const struct engine *e)
{
    const struct fetch_req *best = NULL;
    for (uint32_t i = 0; i < e->fetch.requests; i++) {
        const struct fetch_req *r = &e->fetch.pool[i];
        if (r->flying && (best == NULL || r->begun_ns < best->begun_ns)) {
            best = r;
        }
    }
    return best;
}

/* A drive that ends no read is told of, and in the end given up: the reads stay with the kernel,
 * and so does the memory they go to. */
static void watch_drive(struct engine *e, bool answered)
{
    struct fetch *f = &e->fetch;
    uint64_t now_ns = nondet_now_ns();
    uint64_t limit_ns = e->options.silence_ns > 0 ? e->options.silence_ns : SILENCE_NS;
    if (answered || io_in_flight(e->io) == 0) {
        f->answered_ns = now_ns;
        f->silence_told = false;
        return;
    }
    if (now_ns - f->answered_ns < limit_ns / SILENCE_TOLD_PART) {
        return;
    }
    const struct fetch_req *r = oldest(e);
    assert(r != NULL);
    uint64_t silent_ns = now_ns - max_u64(f->answered_ns, r->begun_ns);
    if (silent_ns < limit_ns / SILENCE_TOLD_PART || (f->silence_told && silent_ns < limit_ns)) {
        return;
    }
    char what[ERR_MESSAGE_BYTES - 300];
    char text[ERR_MESSAGE_BYTES];
    describe(e, r, what, sizeof what);
    snprintf(text, sizeof text, "%s: no read has ended for %.0f s; %s", what,
             (double)silent_ns / 1e9, io_cure(ENODEV));
    if (silent_ns < limit_ns) {
        f->silence_told = true;
        fetch_note(e, text);
        return;
    }
    atomic_store(&e->stuck, 1);
    engine_fail(e, ERR_IO, text);
    atomic_store(&e->ring_dead, 1);
    gate_notify(&e->pass_gate, 1);
}

static void tile_arrived(struct engine *e, uint32_t index)
{
    struct tile_run *run = &e->tile[index];
    if (--run->requests_left == 0) {
        run->loaded = e->plan->tiles[index].pinned;
        if (e->checks.by != CHECKS_OFF) {
            checks_tile_data(e, index);
        } else {
            run_tile_data(e, index);
        }
    }
}

/* Sums are told apart from weights: they are in no class. */
static void count_read(struct engine *e, const struct fetch_req *r)
{
    const struct io_req *req = &r->req;
    if (req->file == e->checks.file) {
        atomic_fetch_add(&e->checks.sums_requests, 1);
        atomic_fetch_add(&e->checks.sums_bytes, req->size_bytes);
        return;
    }
    histogram_add(&e->fetch.latency[r->class], nondet_now_ns() - r->begun_ns);
    atomic_fetch_add(&e->class_requests[r->class], 1);
    atomic_fetch_add(&e->class_bytes[r->class], req->size_bytes);
    atomic_fetch_add(&e->class_payload[r->class], r->payload_bytes);
}

static void on_read(struct io_req *req)
{
    struct fetch_req *r = req->owner;
    struct engine *e = r->engine;
    r->next = e->fetch.free;
    r->flying = false;
    e->fetch.free = r;
    atomic_fetch_sub(&e->in_flight[r->class], 1);
    atomic_fetch_sub(&e->in_flight_bytes, req->size_bytes);
    if (req->res < 0) {
        read_failed(e, r);
        return;
    }
    count_read(e, r);
    if (r->class == READ_EXPERTS) {
        expert_arrived(e, r->index);
    } else if (r->class == READ_EMBED) {
        if (--e->fetch.rows_left == 0) {
            run_step_input(e, 0);
        }
    } else {
        tile_arrived(e, r->index);
    }
}

void fetch_issue(struct engine *e, enum read_class class, uint32_t index, uint32_t file,
                 uint64_t offset_bytes, uint64_t size_bytes, unsigned char *target,
                 uint64_t payload_bytes)
{
    struct fetch_req *r = e->fetch.free;
    assert(r != NULL && size_bytes <= UINT32_MAX && size_bytes % PAGE_BYTES == 0);
    e->fetch.free = r->next;
    r->flying = true;
    r->class = class;
    r->index = index;
    r->payload_bytes = payload_bytes;
    r->begun_ns = nondet_now_ns();
    r->req = (struct io_req){.offset_bytes = offset_bytes, .size_bytes = (uint32_t)size_bytes,
                             .file = file, .target = target, .buffer = IO_NO_BUFFER,
                             .urgent = class == READ_EXPERTS || class == READ_EMBED,
                             .label = (uint8_t)class, .done = on_read, .owner = r};
    if (e->fetch.fixed) {
        uint32_t slice = slab_slice_of(e->slab, target);
        r->req.buffer = e->fetch.slice_known[slice] ? (int32_t)slice : IO_NO_BUFFER;
    }
    atomic_fetch_add(&e->in_flight[class], 1);
    atomic_fetch_add(&e->in_flight_bytes, size_bytes);
    io_read(e->io, &r->req);
}

/* Embedding rows of the pass that waits for them. */
static bool issue_row(struct engine *e)
{
    struct fetch *f = &e->fetch;
    if (f->row_next == f->rows_total) {
        return false;
    }
    const struct tensor_ref *embed = model_tensor(e->model, TENSOR_MODEL_LEVEL, T_EMBED);
    uint64_t row_bytes = embed->cols * dtype_bytes(embed->dtype);
    uint32_t token = f->row_next % e->tokens;
    struct extent row = {.file = embed->file,
                         .offset_bytes = embed->offset_bytes + e->token[token].id * row_bytes,
                         .size_bytes = row_bytes};
    struct extent window = extent_window(row);
    unsigned char *target = slab_rows(e->slab) + token * e->plan->row_window_bytes;
    if (f->row_next < e->tokens) {
        fetch_issue(e, READ_EMBED, token, window.file, window.offset_bytes, window.size_bytes,
                    target, row_bytes);
    } else {
        checks_issue_row(e, token, window);
    }
    f->row_next++;
    return true;
}

static uint32_t pass_tiles(const struct engine *e, uint32_t pass)
{
    return atomic_load(&e->pass_head[pass % PASS_SLOTS]) ? e->plan->tile_count
                                                         : e->plan->head_tile_first;
}

/* Moves the cursor to the next tile that must be read. False when there is none within reach:
 * passes announced, and at most one ahead of the one running. */
static bool trunk_seek(struct engine *e)
{
    struct fetch *f = &e->fetch;
    /* In this order: a total of a new sequence must not meet the last pass of the one before. */
    uint32_t total = atomic_load(&e->passes_total);
    uint32_t now = atomic_load(&e->pass_now);
    uint32_t reach = (uint32_t)min_u64(total, now + 2ULL);
    if (f->pass < min_u64(now, reach)) { /* it has ended, so every tile of it was read */
        f->pass = now;
        f->tile = 0;
    }
    while (!f->drain && f->pass < reach) {
        uint32_t end = pass_tiles(e, f->pass);
        while (f->tile < end && e->tile[f->tile].loaded) {
            f->tile++;
        }
        if (f->tile < end) {
            return true;
        }
        f->pass++;
        f->tile = 0;
    }
    return false;
}

/* Memory for the tile under the cursor; false while it must wait. */
static bool trunk_place(struct engine *e)
{
    struct fetch *f = &e->fetch;
    const struct plan_tile *tile = &e->plan->tiles[f->tile];
    struct tile_run *run = &e->tile[f->tile];
    if (atomic_load(&run->busy)) {
        return false; /* the pass before has not used it yet */
    }
    if (tile->pinned) {
        f->tile_target = slab_pin_address(e->slab, tile->pin_offset_bytes);
        bool present = slab_slice_present(e->slab, slab_slice_of(e->slab, f->tile_target));
        atomic_store(&e->waits_pages, !present);
        return present;
    }
    if (f->ring_count == f->ring_capacity) {
        return false;
    }
    uint32_t entry;
    f->tile_target = slab_ring_take(e->slab, tile->window_bytes, &entry);
    if (f->tile_target != NULL) {
        uint32_t at = (f->ring_head + f->ring_count++) % f->ring_capacity;
        f->ring[at] = (struct ring_item){.tile = f->tile, .entry = entry};
    }
    return f->tile_target != NULL;
}

static bool trunk_begin(struct engine *e)
{
    struct fetch *f = &e->fetch;
    if (!trunk_seek(e) || !checks_room(e, false) || !trunk_place(e)) {
        return false;
    }
    const struct plan_tile *tile = &e->plan->tiles[f->tile];
    struct tile_run *run = &e->tile[f->tile];
    atomic_store(&run->busy, 1);
    run->data = f->tile_target + tile->skip_bytes;
    run->ticket = checks_take(e, false);
    f->tile_sums = checks_with_sums(e);
    run->requests_left = (uint32_t)plan_requests_of(e->plan, tile->window_bytes) + f->tile_sums;
    f->tile_done_bytes = 0;
    f->tile_begun = true;
    return true;
}

static bool issue_trunk(struct engine *e)
{
    struct fetch *f = &e->fetch;
    if (!f->tile_begun && !trunk_begin(e)) {
        return false;
    }
    const struct plan_tile *tile = &e->plan->tiles[f->tile];
    uint64_t size = min_u64(e->plan->io_size_bytes, tile->window_bytes - f->tile_done_bytes);
    enum read_class class = f->tile >= e->plan->head_tile_first ? READ_HEAD : READ_TRUNK;
    if (f->tile_sums) {
        f->tile_sums = false;
        checks_issue_tile(e, class, f->tile);
        return true;
    }
    fetch_issue(e, class, f->tile, tile->file, tile->offset_bytes + f->tile_done_bytes, size,
                f->tile_target + f->tile_done_bytes,
                f->tile_done_bytes == 0 ? tile->payload_bytes : 0);
    f->tile_done_bytes += size;
    if (f->tile_done_bytes == tile->window_bytes) {
        f->tile_begun = false;
        f->tile++;
    }
    return true;
}

/* Frees the oldest tiles of the ring that have been computed. */
static bool ring_retire(struct engine *e)
{
    struct fetch *f = &e->fetch;
    bool moved = false;
    while (f->ring_count > 0 && !atomic_load(&e->tile[f->ring[f->ring_head].tile].busy)) {
        slab_ring_free(e->slab, f->ring[f->ring_head].entry);
        f->ring_head = (f->ring_head + 1) % f->ring_capacity;
        f->ring_count--;
        moved = true;
    }
    return moved;
}

static bool take_rows(struct engine *e)
{
    if (!atomic_exchange(&e->rows_wanted, 0)) {
        return false;
    }
    e->fetch.row_next = 0;
    e->fetch.rows_total = e->fetch.rows_left = e->tokens * (checks_with_sums(e) ? 2 : 1);
    return true;
}

static bool issue_all(struct engine *e)
{
    bool moved = false;
    while (io_room(e->io) > 0 && e->fetch.free != NULL && atomic_load(&e->error) == 0) {
        if (!issue_row(e) && !expert_issue(e) && !issue_trunk(e)) {
            break;
        }
        moved = true;
    }
    return moved;
}

/* After the last pass: what was read ahead is counted, its tiles are made idle again. */
static void discard_ahead(struct engine *e)
{
    struct fetch *f = &e->fetch;
    if (f->tile_begun) {
        checks_drop_tile(e, f->tile);
    }
    for (uint32_t i = 0; i < f->ring_count; i++) {
        uint32_t tile = f->ring[(f->ring_head + i) % f->ring_capacity].tile;
        struct tile_run *run = &e->tile[tile];
        if (atomic_load(&run->busy)) {
            bool partly = f->tile_begun && f->tile == tile;
            e->discarded_bytes += partly ? f->tile_done_bytes
                                         : e->plan->tiles[tile].window_bytes;
            atomic_store(&run->pending, 2);
            atomic_store(&run->busy, 0);
        }
    }
    if (f->tile_begun && e->plan->tiles[f->tile].pinned) {
        e->discarded_bytes += f->tile_done_bytes;
        atomic_store(&e->tile[f->tile].busy, 0);
    }
    /* Pins that arrived for a pass that was not made stay: only their step's count remains. */
    for (uint32_t i = 0; i < e->plan->tile_count; i++) {
        if (e->tile[i].loaded && atomic_load(&e->tile[i].busy)) {
            atomic_store(&e->tile[i].busy, 0);
        }
    }
    f->tile_begun = false;
    ring_retire(e);
}

static bool take_drain(struct engine *e)
{
    struct fetch *f = &e->fetch;
    if (!atomic_load(&e->drain_wanted)) {
        return false;
    }
    f->drain = true;
    /* After a failure nothing is compared any more. */
    bool comparing = atomic_load(&e->checks.open) > (f->tile_begun ? 1U : 0U) &&
                     atomic_load(&e->error) == 0;
    if (io_in_flight(e->io) > 0 || (e->checks.by != CHECKS_OFF && comparing)) {
        return false;
    }
    expert_retire(e);
    ring_retire(e);
    discard_ahead(e);
    f->pass = f->tile = 0;
    f->drain = false;
    fetch_copy_figures(e);
    atomic_store(&e->drain_wanted, 0);
    atomic_store(&e->drained, 1);
    gate_notify(&e->pass_gate, 1);
    return true;
}

static bool settle(struct engine *e)
{
    bool moved = ring_retire(e);
    moved |= expert_retire(e);
    moved |= take_drain(e);
    moved |= take_rows(e);
    moved |= expert_take_demand(e);
    fetch_register_slices(e);
    return issue_all(e) || moved;
}

/* Names the tile whose end this thread wants to hear of: not the oldest, but the last unfinished
 * one of the oldest few, so that their reads follow together. Without room in the queue none is: a
 * read will end. */
static void await_tile(struct engine *e)
{
    const struct fetch *f = &e->fetch;
    uint32_t awaited = UINT32_MAX;
    bool room = io_room(e->io) > 0 && f->free != NULL;
    uint32_t few = (uint32_t)min_u64(max_u64(f->ring_count / 4, 1), TILES_TOGETHER);
    for (uint32_t i = room && f->ring_count > 0 ? few : 0; i > 0 && awaited == UINT32_MAX; i--) {
        uint32_t tile = f->ring[(f->ring_head + i - 1) % f->ring_capacity].tile;
        atomic_store(&e->ring_awaited, tile);
        /* Whoever finishes it hereafter sees its name. */
        awaited = atomic_load(&e->tile[tile].busy) ? tile : UINT32_MAX;
    }
    atomic_store(&e->ring_awaited, awaited);
}

bool fetch_step(struct engine *e, bool may_wait)
{
    int reaped = io_run(e->io, 0);
    bool moved = settle(e);
    if (reaped == 0 && !moved && may_wait) {
        atomic_store(&e->wants_slot, e->batch.open && e->fetch.expert_next < e->batch.count);
        atomic_store(&e->wants_room, 1);
        await_tile(e);
        if (!settle(e)) {
            reaped = io_run(e->io, WAIT_NS);
        }
        atomic_store(&e->wants_room, 0);
        watch_drive(e, reaped > 0);
    }
    if (reaped < 0) {
        engine_fail(e, reaped, err_message());
        atomic_store(&e->ring_dead, 1);
        gate_notify(&e->pass_gate, 1);
    }
    return reaped > 0 || moved;
}

/* True when the queue has room, memory is free and a tile of the walk is unread: never, after a
 * turn of the I/O thread. */
bool fetch_trunk_idles(struct engine *e)
{
    struct fetch *f = &e->fetch;
    if (io_room(e->io) == 0 || f->drain || atomic_load(&e->error) != 0) {
        return false;
    }
    if (f->tile_begun) {
        return true;
    }
    if (!trunk_seek(e) || atomic_load(&e->tile[f->tile].busy) || !checks_room(e, false)) {
        return false;
    }
    const struct plan_tile *tile = &e->plan->tiles[f->tile];
    if (tile->pinned) {
        unsigned char *at = slab_pin_address(e->slab, tile->pin_offset_bytes);
        return slab_slice_present(e->slab, slab_slice_of(e->slab, at));
    }
    return slab_ring_fits(e->slab, tile->window_bytes);
}

void *fetch_thread(void *argument)
{
    struct engine *e = argument;
    kernels_thread_init();
    e->io_allocated = thread_allocated();
    if (fetch_open_ring(e) < 0) {
        engine_fail(e, ERR_RUN, err_message());
    }
    atomic_fetch_add(&e->threads_ready, 1);
    gate_notify(&e->pass_gate, 1);
    while (!atomic_load(&e->io_stop) && !atomic_load(&e->ring_dead) && e->io != NULL) {
        fetch_step(e, true);
    }
    while (!atomic_load(&e->io_stop)) { /* nothing can be read any more: until close */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    pthread_mutex_lock(&e->error_lock); /* until the last wake-up is through */
    pthread_mutex_unlock(&e->error_lock);
    fetch_close_ring(e);
    return NULL;
}
