/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/slab.h"
#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/base/nondet.h"
#include "io/probe.h"

#define SLICE_NS 10000000ULL       /* of one setting in one round, without filling and draining */
#define LIMIT_NS 2000000000ULL     /* no new turn after that: slow drives get fewer */
#define FLIGHT_MIN (4 * MIB)
#define FAR_BEHIND 0.50
#define DEPTH_MAX 1024U
#define WAIT_NS 100000000ULL       /* between two questions whether to stop */

/* One setting on its turn. */
struct turn {
    struct io *io;
    const struct tune_places *places;
    uint64_t at;               /* reads begun: walks over the places */
    struct rng rng;
    bool over;                 /* nothing more is begun */
    int error;                 /* first errno of a failed read */
    uint32_t error_file;
    uint64_t error_offset;
    uint64_t done_bytes;
};

struct measuring {
    const struct tune_request *request;
    struct slab *slab;
    struct io_req *reqs;
    int32_t buffer;            /* registered one, or IO_NO_BUFFER */
    struct turn turn;
    uint64_t begun_ns;
    uint32_t rounds;           /* complete ones */
    bool stopped;
};

/* ---- settings ---- */

static int by_flight(const void *a, const void *b)
{
    const struct tune_point *x = a;
    const struct tune_point *y = b;
    uint64_t flight_x = x->depth * x->size_bytes;
    uint64_t flight_y = y->depth * y->size_bytes;
    return flight_x != flight_y ? (flight_x > flight_y) - (flight_x < flight_y)
                                : (x->depth > y->depth) - (x->depth < y->depth);
}

uint32_t tune_points(const struct tune_request *r, struct tune_point points[TUNE_POINTS_MAX])
{
    static const uint64_t sizes[] = {512 * KIB, 1 * MIB, 2 * MIB, 4 * MIB, TUNE_SIZE_MAX};
    static const uint32_t depths[] = {2, 4, 8, 16, 32};
    uint64_t flight_max = min_u64(r->flight_max_bytes, TUNE_FLIGHT_MAX);
    uint32_t count = 0;
    for (size_t i = 0; i < (r->size_bytes > 0 ? 1 : countof(sizes)); i++) {
        uint64_t size = r->size_bytes > 0 ? r->size_bytes : sizes[i];
        for (size_t k = 0; k < (r->depth > 0 ? 1 : countof(depths)); k++) {
            uint32_t depth = r->depth > 0 ? r->depth : depths[k];
            bool too_large = r->size_bytes == 0 && size > r->size_max_bytes;
            if (depth * size >= FLIGHT_MIN && depth * size <= flight_max && !too_large) {
                points[count++] = (struct tune_point){.depth = depth, .size_bytes = size};
            }
        }
    }
    if (count == 0) { /* what was given leaves one way to stay within the memory */
        uint32_t depth = r->depth > 0 ? r->depth : 8;
        uint64_t size = max_u64(PAGE_BYTES, align_down(flight_max / depth, PAGE_BYTES));
        size = min_u64(size, r->size_bytes > 0 ? r->size_bytes : r->size_max_bytes);
        points[count++] = (struct tune_point){.depth = depth, .size_bytes = size};
    }
    qsort(points, count, sizeof *points, by_flight);
    return count;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Reorders values; count > 0. */
static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return (values[count / 2] + values[(count - 1) / 2]) / 2;
}

void tune_drop(struct tune_point *points, uint32_t count)
{
    double best = 0;
    for (uint32_t i = 0; i < count; i++) {
        best = points[i].sample[0] > best ? points[i].sample[0] : best;
    }
    for (uint32_t i = 0; i < count; i++) {
        points[i].dropped = points[i].sample[0] < FAR_BEHIND * best;
    }
}

/* The drive's own level in a round: the median over the points that stayed to the end. */
static double level_of(const struct tune_point *points, uint32_t count, uint32_t round)
{
    double values[TUNE_POINTS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!points[i].dropped) {
            values[n++] = points[i].sample[round];
        }
    }
    return median(values, n);
}

/* Sets rates relative to the level of each round; returns how far a rate may be off, as a share:
 * the median over points of the mean distance from the median, by the root of the rounds. */
static double set_rates(struct tune_point *points, uint32_t count, uint32_t rounds,
                        const double level[TUNE_ROUNDS])
{
    double spread[TUNE_POINTS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct tune_point *point = &points[i];
        double values[TUNE_ROUNDS];
        double distance = 0;
        point->rate = 0;
        if (point->dropped) {
            continue;
        }
        for (uint32_t k = 0; k < rounds; k++) {
            values[k] = point->sample[k] / level[k];
        }
        point->rate = median(values, rounds);
        for (uint32_t k = 0; k < rounds; k++) {
            distance += fabs(values[k] - point->rate) / point->rate / rounds;
        }
        spread[n++] = distance;
    }
    return median(spread, n) / sqrt(rounds);
}

uint32_t tune_choose(struct tune_point *points, uint32_t count, uint32_t rounds, uint32_t *best,
                     bool *noisy)
{
    double level[TUNE_ROUNDS];
    double sorted[TUNE_ROUNDS];
    for (uint32_t k = 0; k < rounds; k++) {
        sorted[k] = level[k] = level_of(points, count, k);
    }
    double typical = median(sorted, rounds);
    double close = 1 - 3 * set_rates(points, count, rounds, level);
    *noisy = rounds < 2 || close < TUNE_CLOSE_NOISY;
    close = close > TUNE_CLOSE ? TUNE_CLOSE : close < TUNE_CLOSE_NOISY ? TUNE_CLOSE_NOISY : close;
    *best = 0;
    for (uint32_t i = 0; i < count; i++) {
        points[i].rate *= typical;
        *best = points[i].rate > points[*best].rate ? i : *best;
    }
    uint32_t chosen = 0;
    while (points[chosen].rate < close * points[*best].rate) {
        chosen++;
    }
    return chosen;
}

/* ---- reading ---- */

static void begin_read(struct turn *turn, struct io_req *req)
{
    const struct extent *window = &turn->places->window[turn->at++ % turn->places->count];
    uint64_t steps = (window->size_bytes - req->size_bytes) / PAGE_BYTES + 1;
    req->file = window->file;
    req->offset_bytes = window->offset_bytes + rng_below(&turn->rng, steps) * PAGE_BYTES;
    io_read(turn->io, req);
}

static void read_done(struct io_req *req)
{
    struct turn *turn = req->owner;
    if (req->res < 0 && turn->error == 0) {
        turn->error = -req->res;
        turn->error_file = req->file;
        turn->error_offset = req->offset_bytes;
    }
    turn->done_bytes += req->size_bytes;
    turn->over = turn->over || turn->error != 0;
    if (!turn->over) {
        begin_read(turn, req);
    }
}

/* Until a read has ended; the question whether to stop is asked meanwhile. */
static int await(struct measuring *m)
{
    uint64_t before = m->turn.done_bytes;
    while (m->turn.done_bytes == before) {
        if (!m->turn.over && m->request->stop != NULL && m->request->stop()) {
            m->stopped = true;
            m->turn.over = true;
        }
        TRY(io_run(m->turn.io, WAIT_NS));
    }
    return 0;
}

/* The rate between the first completion and the last one in time: the queue is full at both. */
static int take_turn(struct measuring *m, struct tune_point *point, uint32_t round)
{
    struct turn *turn = &m->turn;
    turn->over = false;
    unsigned char *memory = slab_rows(m->slab);
    for (uint32_t i = 0; i < point->depth; i++) {
        m->reqs[i] = (struct io_req){.size_bytes = (uint32_t)point->size_bytes,
                                     .target = memory + i * point->size_bytes,
                                     .buffer = m->buffer, .done = read_done, .owner = turn};
        begin_read(turn, &m->reqs[i]);
    }
    TRY(await(m));
    uint64_t from_ns = nondet_now_ns();
    uint64_t from_bytes = turn->done_bytes;
    uint64_t now_ns = from_ns;
    while (!turn->over && now_ns - from_ns < SLICE_NS) {
        TRY(await(m));
        now_ns = nondet_now_ns();
    }
    uint64_t bytes = turn->done_bytes - from_bytes;
    turn->over = true;
    while (io_in_flight(turn->io) > 0) {
        TRY(io_run(turn->io, WAIT_NS));
    }
    if (now_ns > from_ns && !m->stopped && turn->error == 0) {
        point->sample[round] = (double)bytes / (double)(now_ns - from_ns);
    }
    return 0;
}

/* A turn for each. *complete is false when time or the drive ended it early; in the first round
 * points that were not reached are dropped instead. */
static int run_round(struct measuring *m, struct tune_point *points, uint32_t count,
                     uint32_t round, bool *complete)
{
    *complete = true;
    for (uint32_t i = 0; i < count && *complete; i++) {
        struct tune_point *point = &points[round % 2 == 0 ? i : count - 1 - i];
        bool late = nondet_now_ns() - m->begun_ns > LIMIT_NS;
        if (late && (round > 0 || i > 0)) {
            *complete = round == 0;
            break;
        }
        if (!point->dropped) {
            TRY(take_turn(m, point, round));
            *complete = point->sample[round] > 0;
        }
    }
    return 0;
}

/* ---- the whole ---- */

static bool in_memory(const struct io_file *file)
{
    struct io_place place;
    return io_probe(file->fd, &place) == 0 && (strcmp(place.file_system, "tmpfs") == 0 ||
                                               strcmp(place.file_system, "ramfs") == 0);
}

/* What makes a measurement senseless before anything is read; NULL when nothing does. */
static const char *obstacle(const struct io_files *files, enum io_engine io)
{
    if (io == IO_SIM) {
        return "reads are simulated";
    }
    for (uint32_t i = 0; i < files->count; i++) {
        if (in_memory(&files->file[i])) {
            return "files lie in memory";
        }
    }
    return files->direct_count == 0 ? "reads go through the page cache here" : NULL;
}

static int open_ring(struct measuring *m, const struct io_files *files, uint32_t depth,
                     struct tune_result *result)
{
    struct io_options options = {.engine = m->request->io, .depth = depth, .buffer_count = 1};
    int rc = io_open(&m->turn.io, &options, files);
    if (rc < 0 && options.engine == IO_URING) {
        err_clear(); /* the run will say it */
        options.engine = IO_PREAD;
        rc = io_open(&m->turn.io, &options, files);
    }
    result->io = options.engine;
    m->buffer = IO_NO_BUFFER;
    const struct slab_slice *slice = slab_slice(m->slab, 0);
    if (rc == 0 && options.engine == IO_URING && slice->size_bytes <= memory_lockable() &&
        io_register_buffer(m->turn.io, 0, slice->base, slice->size_bytes) == 0) {
        m->buffer = 0;
    }
    return rc;
}

static int run_rounds(struct measuring *m, const struct io_files *files,
                      struct tune_point *points, uint32_t count, struct tune_result *result)
{
    uint64_t memory = 0;
    uint32_t depth = 1;
    for (uint32_t i = 0; i < count; i++) {
        memory = max_u64(memory, points[i].depth * points[i].size_bytes);
        depth = (uint32_t)max_u64(depth, points[i].depth);
    }
    assert(depth <= DEPTH_MAX);
    m->reqs = calloc(depth, sizeof *m->reqs);
    if (m->reqs == NULL) {
        return err_set(ERR_MEMORY, "no memory for %u requests", depth);
    }
    TRY(slab_open(&m->slab, &(struct slab_layout){.rows_bytes = memory}));
    TRY(open_ring(m, files, depth, result));
    m->begun_ns = nondet_now_ns();
    bool complete = true;
    while (m->rounds < TUNE_ROUNDS && complete) {
        TRY(run_round(m, points, count, m->rounds, &complete));
        m->rounds += complete;
        if (m->rounds == 1) {
            tune_drop(points, count);
        }
    }
    return m->stopped ? err_set(ERR_STOPPED, "stopped while the drive was measured") : 0;
}

static void conclude(const struct measuring *m, const struct io_files *files,
                     struct tune_point *points, uint32_t count, struct tune_result *result)
{
    if (m->rounds == 0) {
        snprintf(result->why_not, sizeof result->why_not, "a read at byte %llu of %.80s failed: %s",
                 (unsigned long long)m->turn.error_offset,
                 files->file[m->turn.error_file].path, strerror(m->turn.error));
        return;
    }
    uint32_t best;
    uint32_t chosen = tune_choose(points, count, m->rounds, &best, &result->noisy);
    result->measured = true;
    result->depth = points[chosen].depth;
    result->size_bytes = points[chosen].size_bytes;
    result->gbps = points[chosen].rate;
    result->best_gbps = points[best].rate;
    result->read_bytes = m->turn.done_bytes;
    result->took_ns = nondet_now_ns() - m->begun_ns;
}

int tune_measure(const struct io_files *files, const struct tune_request *request,
                 struct tune_result *result)
{
    struct tune_point points[TUNE_POINTS_MAX];
    struct tune_places places = {0};
    *result = (struct tune_result){.io = request->io};
    const char *why_not = obstacle(files, request->io);
    if (why_not != NULL) {
        snprintf(result->why_not, sizeof result->why_not, "%s", why_not);
        return 0;
    }
    uint32_t count = tune_points(request, points);
    uint64_t window = 0;
    for (uint32_t i = 0; i < count; i++) {
        window = max_u64(window, points[i].size_bytes);
    }
    int rc = tune_find_places(files, window, nondet_now_ns(), &places);
    if (rc == 0 && places.count * window < TUNE_DATA_MIN) {
        snprintf(result->why_not, sizeof result->why_not, "of the places tried only %.1f MiB hold "
                 "data", (double)(places.count * window) / (double)MIB);
    } else if (rc == 0) {
        struct measuring m = {.request = request,
                              .turn = {.places = &places, .rng = rng_seed(nondet_now_ns())}};
        rc = run_rounds(&m, files, points, count, result);
        if (rc == 0) {
            conclude(&m, files, points, count, result);
        }
        io_close(m.turn.io);
        slab_close(m.slab);
        free(m.reqs);
    }
    free(places.window);
    return rc;
}
