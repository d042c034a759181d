/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs that only read: what the drive gives for random places with its queue full, and for the
 * very reads that inference made. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/base/nondet.h"
#include "core/cli/bench_priv.h"
#include "core/cli/signals.h"

#define LIMIT_RECORDS (1U << 18)
#define FLIGHT_FIRST (4 * MIB)
#define DEPTH_MAX 1024U
#define RAM_SHARE 2U              /* a reader's memory is at most this part of --ram */
#define LOG_SHARE 8U              /* and its log this part of that */

static bool stop_asked(void)
{
    return signals_caught() != 0;
}

static void on_tick(void *ctx, uint64_t done_bytes)
{
    struct bench_stage *stage = ctx;
    struct bench_status_now now = {.job = bench_job_names[stage->kind], .bytes = done_bytes};
    progress_show(&stage->progress, done_bytes, 0, NULL);
    bench_status_show(stage->status, &now);
}

/* Most that a reader may take: no engine is open meanwhile. */
static uint64_t reader_room(const struct bench_stage *stage)
{
    const char *why;
    uint64_t ram = stage->options.ram_bytes;
    return (ram != ENGINE_RAM_AUTO ? ram : memory_available(&why)) / RAM_SHARE;
}

/* Reads that a limit writes down at most, and with that makes. */
static uint32_t limit_records(const struct bench_stage *stage)
{
    uint64_t most = reader_room(stage) / LOG_SHARE / sizeof(struct io_record);
    return (uint32_t)min_u64(LIMIT_RECORDS, max_u64(1, most));
}

static bool has_room(const struct bench_stage *stage, uint64_t depth, uint64_t size_bytes)
{
    return reader_bytes((uint32_t)depth, stage->files->device_count, size_bytes) <=
           reader_room(stage);
}

static int open_reader(struct bench_stage *stage, struct reader **out, uint32_t depth,
                       uint64_t size_max_bytes, struct io_log *log)
{
    struct reader_options options = {.io = stage->options.io, .depth = depth,
                                     .size_max_bytes = size_max_bytes, .log = log,
                                     .stop = stop_asked, .tick = on_tick, .ctx = stage};
    return reader_open(out, stage->files, &options);
}

/* ---- limits ---- */

struct random_reads {
    const struct io_files *files;
    struct rng rng;
    uint64_t until_ns, total_bytes;
    uint32_t chunk_bytes;
    uint32_t left;                /* as many as the log holds, so that figures are of all reads */
};

static bool next_random(void *ctx, struct reader_read *read)
{
    struct random_reads *r = ctx;
    uint64_t at = rng_below(&r->rng, r->total_bytes);
    uint32_t file = 0;
    while (at >= r->files->file[file].size_bytes) {
        at -= r->files->file[file++].size_bytes;
    }
    uint64_t pages = div_ceil(r->files->file[file].size_bytes, PAGE_BYTES);
    uint64_t wanted = min_u64(r->chunk_bytes / PAGE_BYTES, pages);
    uint64_t page = min_u64(at / PAGE_BYTES, pages - wanted);
    *read = (struct reader_read){.offset_bytes = page * PAGE_BYTES, .file = file,
                                 .size_bytes = (uint32_t)(wanted * PAGE_BYTES)};
    return r->left-- > 0 && nondet_now_ns() < r->until_ns;
}

/* Other places in every round, so that no cache on the way to the drive holds them. */
static uint64_t seed_of(const struct bench_stage *stage, uint32_t index, bool after)
{
    uint64_t round = (uint64_t)(stage->round - stage->to->round);
    return stage->request->seed + index + 1000U * after + 1000000U * round;
}

/* One setting; its figures are the job's when it is the best so far. */
static int run_limit(struct bench_stage *stage, enum bench_job_kind kind, struct io_log *log,
                     uint32_t index, uint64_t *bytes)
{
    bool after = kind == JOB_LIMIT_AFTER;
    struct bench_limit *limit = &stage->round->limit[after][index];
    uint32_t *best = &stage->round->limit_best[after];
    struct random_reads reads = {.files = stage->files, .chunk_bytes = (uint32_t)limit->chunk_bytes,
                                 .left = log->capacity,
                                 .rng = rng_seed(seed_of(stage, index, after))};
    struct reader_result result;
    struct reader *reader;
    for (uint32_t i = 0; i < stage->files->count; i++) {
        reads.total_bytes += stage->files->file[i].size_bytes;
    }
    io_log_clear(log);
    TRY(open_reader(stage, &reader, limit->depth, limit->chunk_bytes, log));
    reads.until_ns = nondet_now_ns() + stage->request->limit_ns / BENCH_LIMITS;
    int rc = reader_run(reader, next_random, &reads, &result);
    reader_close(reader);
    TRY(rc);
    *bytes += result.bytes;
    uint64_t took_ns = max_u64(1, result.ended_ns - result.begun_ns);
    limit->rate = (double)result.bytes / (double)took_ns * 1e9;
    if (*best == index || limit->rate > stage->round->limit[after][*best].rate) {
        *best = index;
        return bench_job_figures(stage, kind, log, result.begun_ns, result.ended_ns + 1, false);
    }
    return 0;
}

/* Reads of the point's size, or what of it the largest file and the memory hold. */
static uint64_t choose_chunk(const struct bench_stage *stage)
{
    uint64_t most = PAGE_BYTES;
    for (uint32_t i = 0; i < stage->files->count; i++) {
        most = max_u64(most, stage->files->file[i].size_bytes);
    }
    uint64_t chunk = min_u64(stage->to->facts.io_size_bytes, align_up(most, PAGE_BYTES));
    while (chunk > PAGE_BYTES && !has_room(stage, 1, chunk)) {
        chunk = align_up(chunk / 2, PAGE_BYTES);
    }
    return chunk;
}

/* The settings that the memory allows; at least one. Returns the first of them. */
static uint32_t choose_limits(const struct bench_stage *stage, struct bench_limit *limits)
{
    uint64_t chunk = choose_chunk(stage);
    uint64_t last = 0;
    uint32_t first = BENCH_LIMITS;
    for (uint32_t i = 0; i < BENCH_LIMITS; i++) {
        uint64_t depth = min_u64(DEPTH_MAX, max_u64(1, (FLIGHT_FIRST << i) / chunk));
        if (depth != last && (i == 0 || has_room(stage, depth, chunk))) {
            last = depth;
            limits[i] = (struct bench_limit){.depth = (uint32_t)depth, .chunk_bytes = chunk};
            first = i < first ? i : first;
        }
    }
    return first;
}

/* The same settings, so that the two can be compared. */
static uint32_t repeat_limits(const struct bench_limit *before, struct bench_limit *limits)
{
    uint32_t first = BENCH_LIMITS;
    for (uint32_t i = 0; i < BENCH_LIMITS; i++) {
        limits[i] = (struct bench_limit){.depth = before[i].depth,
                                         .chunk_bytes = before[i].chunk_bytes};
        first = first == BENCH_LIMITS && limits[i].depth > 0 ? i : first;
    }
    return first;
}

int bench_limit(struct bench_stage *stage, enum bench_job_kind kind)
{
    bool after = kind == JOB_LIMIT_AFTER;
    struct bench_limit *limits = stage->round->limit[after];
    struct io_log log;
    uint64_t bytes = 0;
    if (stage->request->limit_ns == 0) {
        bench_job_skip(stage, kind, "not asked for (--limit-time 0)");
        return 0;
    }
    stage->round->limit_best[after] =
        after ? repeat_limits(stage->round->limit[0], limits) : choose_limits(stage, limits);
    TRY(io_log_open(&log, limit_records(stage)));
    progress_begin(&stage->progress, after ? "limit after" : "limit before", stage->request->quiet);
    bench_job_begin(stage, kind);
    int rc = 0;
    for (uint32_t i = 0; i < BENCH_LIMITS && rc == 0; i++) {
        rc = limits[i].depth > 0 ? run_limit(stage, kind, &log, i, &bytes) : 0;
    }
    bench_job_end(stage, kind, bytes);
    progress_clear(&stage->progress);
    io_log_close(&log);
    return rc;
}

/* ---- the same reads again ---- */

struct recorded_reads {
    const struct bench_result *result;
    uint32_t at;
};

static bool next_recorded(void *ctx, struct reader_read *read)
{
    struct recorded_reads *r = ctx;
    const struct io_log *log = &r->result->log;
    while (r->at < log->count && (log->record[r->at].begun_ns < r->result->from_ns ||
                                  log->record[r->at].begun_ns >= r->result->to_ns)) {
        r->at++;
    }
    if (r->at == log->count) {
        return false;
    }
    const struct io_record *record = &log->record[r->at++];
    *read = (struct reader_read){.offset_bytes = record->offset_bytes, .file = record->file,
                                 .size_bytes = record->size_bytes, .label = record->label};
    return true;
}

/* The memory of a replay: the largest of its reads, as many as were in flight, if need be fewer. */
static void choose_replay(const struct bench_stage *stage, uint32_t *depth, uint64_t *size_bytes)
{
    struct recorded_reads reads = {.result = stage->result};
    struct reader_read read;
    *depth = stage->to->facts.io_depth;
    *size_bytes = PAGE_BYTES;
    while (next_recorded(&reads, &read)) {
        *size_bytes = max_u64(*size_bytes, read.size_bytes);
    }
    while (*depth > 1 && !has_room(stage, *depth, *size_bytes)) {
        *depth /= 2;
    }
}

int bench_replay(struct bench_stage *stage)
{
    uint32_t depth;
    uint64_t size_bytes;
    struct recorded_reads reads = {.result = stage->result};
    struct reader_result result;
    struct reader *reader = NULL;
    struct io_log log;
    if (stage->round->job[JOB_INFERENCE].all.requests == 0) {
        bench_job_skip(stage, JOB_REPLAY, "the measured tokens read nothing: all was in memory");
        return 0;
    }
    TRY(io_log_open(&log, stage->result->log.count));
    progress_begin(&stage->progress, "replay", stage->request->quiet);
    choose_replay(stage, &depth, &size_bytes);
    int rc = open_reader(stage, &reader, depth, size_bytes, &log);
    if (rc == 0) {
        bench_job_begin(stage, JOB_REPLAY);
        rc = reader_run(reader, next_recorded, &reads, &result);
        bench_job_end(stage, JOB_REPLAY, result.bytes);
    }
    reader_close(reader);
    progress_clear(&stage->progress);
    if (rc == 0) {
        rc = bench_job_figures(stage, JOB_REPLAY, &log, result.begun_ns, result.ended_ns + 1, true);
    }
    io_log_close(&log);
    return rc;
}
