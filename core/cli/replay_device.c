/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/replay_device.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/base/nondet.h"
#include "core/cli/signals.h"

#define RECORDS_LEAST (1U << 18)

/* A replay under way. The log is emptied between two positions when it may not hold the next one:
 * then the queue runs dry once, after hundreds of thousands of reads. */
struct replaying {
    struct replay_device_result *result;
    struct walk_reads *reads;
    struct io_log log;
    uint32_t capacity;            /* of the log, at least the most reads of a position */
    uint32_t logged;              /* reads named since it was emptied */
    uint64_t begun_ns;            /* of the first read */
    uint64_t border_ns;           /* when the last position that was begun was */
    uint32_t border_tokens;       /* positions before it */
    struct cache_stats border_cache;
    struct progress progress;
};

static bool stop_asked(void)
{
    return signals_caught() != 0;
}

static void on_tick(void *ctx, uint64_t done_bytes)
{
    struct replaying *r = ctx;
    char detail[64];
    snprintf(detail, sizeof detail, "token %u of %u", walk_reads_done(r->reads) + 1,
             r->result->request->positions);
    progress_show(&r->progress, r->result->requested_bytes + done_bytes, 0, detail);
}

static void pass_border(struct replaying *r)
{
    r->border_ns = nondet_now_ns();
    r->border_tokens = walk_reads_done(r->reads);
    r->border_cache = *walk_reads_cache(r->reads);
    if (r->border_tokens == 0) {
        r->begun_ns = r->border_ns;
    } else if (r->border_tokens == 1 && r->result->first_ns == 0) {
        r->result->first_ns = r->border_ns - r->begun_ns;
    }
}

/* Also false when the log may not hold the next position. */
static bool next_read(void *ctx, struct reader_read *read)
{
    struct replaying *r = ctx;
    if (walk_reads_at_border(r->reads)) {
        pass_border(r);
        if (r->logged + walk_reads_most(r->result->plan) > r->capacity) {
            return false;
        }
    }
    r->logged++;
    return walk_reads_next(r->reads, read);
}

/* ---- figures ---- */

static int add_figures(const struct io_log *log, const struct io_slice *slice,
                       struct io_figures *into)
{
    struct io_figures figures;
    TRY(io_figures(log, slice, &figures));
    io_figures_merge(into, &figures);
    return 0;
}

/* What was read from one emptying of the log to the next. Of a replay that was stopped, what had
 * been read when the position began that was not finished. */
static int take_stretch(struct replaying *r, const struct reader_result *read, bool stopped)
{
    struct replay_device_result *out = r->result;
    struct io_slice slice = {read->begun_ns, stopped ? r->border_ns : read->ended_ns + 1, IO_ANY,
                             IO_ANY};
    out->requested_bytes += read->bytes;
    assert(r->log.missed == 0);
    if (slice.to_ns > slice.from_ns) {
        TRY(add_figures(&r->log, &slice, &out->all));
        for (slice.label = 0; slice.label < READ_CLASSES; slice.label++) {
            TRY(add_figures(&r->log, &slice, &out->class[slice.label]));
        }
    }
    out->tokens = r->border_tokens;
    out->cache = r->border_cache;
    return 0;
}

static int read_all(struct replaying *r, struct reader *reader)
{
    int rc = 0;
    while (rc == 0 && walk_reads_done(r->reads) < r->result->request->positions) {
        struct reader_result read;
        io_log_clear(&r->log);
        r->logged = 0;
        rc = reader_run(reader, next_read, r, &read);
        r->result->stopped = rc == ERR_STOPPED;
        if (rc == 0 || rc == ERR_STOPPED) {
            TRY(take_stretch(r, &read, r->result->stopped));
        }
    }
    return rc;
}

/* ---- what speaks against them ---- */

static void add_gate(struct replay_device_result *out, const char *code,
                     enum environment_severity severity, const char *reason)
{
    assert(out->gate_count < REPLAY_DEVICE_GATES_MAX);
    struct environment_gate *gate = &out->gate[out->gate_count++];
    *gate = (struct environment_gate){.code = code, .severity = severity};
    snprintf(gate->reason, sizeof gate->reason, "%s", reason);
}

static void judge(struct replay_device_result *out)
{
    char reason[ENVIRONMENT_TEXT_BYTES];
    if (out->disk.known &&
        !environment_delivered(&out->disk.files, out->requested_bytes, reason)) {
        add_gate(out, "delivered", GATE_INVALID, reason);
    }
    if (strcmp(out->io_engine, "sim") == 0) {
        add_gate(out, "engine", GATE_INVALID, "read by the simulator (--io sim), which orders and "
                 "delays reads on its own: use --io uring");
    } else if (strcmp(out->io_engine, "io_uring") != 0) {
        snprintf(reason, sizeof reason, "read by %s, not by io_uring: the figures are those of "
                 "that engine", out->io_engine);
        add_gate(out, "engine", GATE_WARNING, reason);
    }
}

const char *replay_device_refusal(const struct replay_device_result *result)
{
    for (uint32_t i = 0; i < result->gate_count; i++) {
        if (result->gate[i].severity == GATE_INVALID) {
            return result->gate[i].reason;
        }
    }
    return NULL;
}

/* ---- the run ---- */

static int look_at_files(struct replay_device_result *out)
{
    const struct model *model = out->request->model;
    const char **paths = calloc(model->file_count, sizeof *paths);
    if (paths == NULL) {
        return err_set(ERR_MEMORY, "no memory for %u file names", model->file_count);
    }
    for (uint32_t i = 0; i < model->file_count; i++) {
        paths[i] = model->files[i].path;
    }
    int rc = environment_open(&out->environment, "", paths, model->file_count);
    free(paths);
    out->gate_count = rc == 0 ? environment_gates(&out->environment, out->gate) : 0;
    return rc;
}

/* The queue's memory; what a run would keep resident is not taken. */
static int check_memory(const struct replay_device_result *out, uint64_t size_max_bytes)
{
    const char *why;
    uint64_t needed = reader_bytes(out->plan->request.io_depth, out->devices, size_max_bytes);
    uint64_t available = memory_available(&why);
    return needed <= available
               ? 0 : err_set(ERR_FIT, "reads in flight take %.2f MiB but only %.2f MiB can be had "
                             "(%s); use a smaller --io-depth or --io-size",
                             (double)needed / (double)MIB, (double)available / (double)MIB, why);
}

static int open_reader(struct replaying *r, const struct io_files *files, struct reader **out)
{
    struct replay_device_result *result = r->result;
    struct reader_options options = {
        .io = result->request->options->io, .depth = result->plan->request.io_depth,
        .size_max_bytes = walk_reads_size_max(result->plan), .log = &r->log, .stop = stop_asked,
        .tick = on_tick, .ctx = r};
    struct reader_facts facts;
    result->devices = files->device_count;
    result->files = files->count;
    result->direct_files = files->direct_count;
    TRY(check_memory(result, options.size_max_bytes));
    TRY(reader_open(out, files, &options));
    reader_facts(*out, &facts);
    snprintf(result->io_engine, sizeof result->io_engine, "%s", facts.io_engine);
    snprintf(result->io_features, sizeof result->io_features, "%s", facts.io_features);
    result->fixed_buffers = facts.fixed_buffers;
    return 0;
}

static int read_files(struct replaying *r, const struct io_files *files)
{
    struct replay_device_result *out = r->result;
    struct environment_diskstats before;
    struct environment_diskstats after;
    struct reader *reader = NULL;
    TRY(open_reader(r, files, &reader));
    progress_begin(&r->progress, "reading", out->request->quiet);
    environment_diskstats(&out->environment, &before);
    int rc = read_all(r, reader);
    environment_diskstats(&out->environment, &after);
    environment_diskstats_since(&before, &after, &out->disk);
    progress_clear(&r->progress);
    reader_close(reader);
    if (rc == 0) {
        rc = io_files_unchanged(files);
    }
    judge(out);
    return rc;
}

static int replay(struct replaying *r)
{
    const struct replay_device_request *q = r->result->request;
    struct walk_reads_options options = {.model = q->model, .plan = r->result->plan,
                                         .policy = policy_find(q->options->policy),
                                         .trace = q->trace, .positions = q->positions};
    struct io_files files;
    r->capacity = (uint32_t)min_u64(UINT32_MAX, max_u64(RECORDS_LEAST,
                                                        walk_reads_most(r->result->plan)));
    TRY(io_log_open(&r->log, r->capacity));
    TRY(walk_reads_open(&r->reads, &options));
    TRY(engine_open_files(q->model, &files));
    int rc = read_files(r, &files);
    io_files_close(&files);
    return rc;
}

int replay_device_run(const struct replay_device_request *request,
                      struct replay_device_result *out)
{
    struct replaying r = {.result = out};
    *out = (struct replay_device_result){.request = request,
                                         .environment = {.diskstats_fd = -1}};
    TRY(look_at_files(out));
    TRY(engine_plan_model(request->model, request->options, &out->plan));
    int rc = replay(&r);
    walk_reads_close(r.reads);
    io_log_close(&r.log);
    return rc;
}

void replay_device_fini(struct replay_device_result *result)
{
    if (result->request != NULL) {
        environment_close(&result->environment);
    }
    plan_free(result->plan);
    *result = (struct replay_device_result){.request = NULL};
}
