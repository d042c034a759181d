/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs with an engine: inference under measurement, and the same tokens with all weights in
 * memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/base/nondet.h"
#include "core/cli/bench_priv.h"
#include "core/cli/recorder.h"
#include "core/cli/running.h"

#define LOG_SLACK 64U
#define LOG_PASSES_AHEAD 3U       /* what log_full() keeps free, and reads ahead */
#define LOG_SHARE 16U             /* the log takes at most this part of --ram ... */
#define LOG_BYTES_LEAST (1 * MIB) /* ... but may take so much, and never more than the next */
#define LOG_BYTES_MOST (256 * MIB)
#define SPANS_LEAST 4096U
#define WAITS_MOST 16384U         /* of a worker */

struct measuring {
    struct bench_stage *stage;
    struct engine *e;
    struct bench_inference *out;
    uint32_t made;                /* tokens, warm-up included */
    uint64_t begun_ns, last_ns;
    struct engine_stats from, last, now; /* measuring began; the token before; the latest one */
    struct recorder recorder;     /* of the first round, when asked for */
};

/* ---- room for what is written down ---- */

static uint64_t steps_of(const struct bench_request *r)
{
    return (uint64_t)r->warmup + r->tokens;
}

/* Experts that the prompt's passes may ask for. */
static uint64_t prompt_experts(const struct bench_stage *stage, const struct plan *plan)
{
    uint32_t ids = stage->request->id_count;
    uint64_t all = (uint64_t)stage->result->layers * stage->result->experts;
    return min_u64((uint64_t)plan->experts_per_pass * ids, all * div_ceil(ids, plan->chunk));
}

static uint32_t log_capacity(const struct bench_stage *stage, const struct plan *plan)
{
    const struct bench_request *r = stage->request;
    uint64_t ram = stage->options.ram_bytes;
    uint64_t passes = div_ceil(r->id_count, plan->chunk) + steps_of(r);
    uint64_t prompt = prompt_experts(stage, plan) * plan->expert_requests;
    uint64_t wanted = (passes + LOG_PASSES_AHEAD) * stage->pass_requests + prompt + LOG_SLACK;
    uint64_t most = ram == ENGINE_RAM_AUTO ? LOG_BYTES_MOST
                    : min_u64(LOG_BYTES_MOST, max_u64(LOG_BYTES_LEAST, ram / LOG_SHARE));
    return (uint32_t)min_u64(wanted, most / sizeof(struct io_record));
}

static uint32_t experts_capacity(const struct bench_stage *stage, const struct plan *plan)
{
    uint64_t wanted = steps_of(stage->request) * plan->experts_per_pass +
                      prompt_experts(stage, plan) + LOG_SLACK;
    return (uint32_t)min_u64(wanted, LOG_BYTES_MOST / sizeof(struct journal_expert));
}

/* Tasks and waits of one token, spread over the workers. */
static uint32_t spans_capacity(const struct plan *plan, uint32_t workers)
{
    uint64_t tasks = plan->tile_count + 32ULL * plan->step_count + 40ULL * plan->experts_per_pass;
    return (uint32_t)(SPANS_LEAST + 4 * tasks / max_u64(1, workers));
}

static bool records(const struct bench_stage *stage)
{
    return stage->request->trace != NULL && stage->to == &stage->result->point[0] &&
           (stage->round == NULL || stage->round == &stage->to->round[0]);
}

/* How much is written down, and by how many workers. */
struct records {
    uint32_t reads, experts, workers, spans;
};

/* Puts the memory of records into the options, which a plan then accounts. */
static int size_records(struct bench_stage *stage, struct records *r)
{
    struct engine_options *o = &stage->options;
    struct model *model;
    struct plan *plan;
    o->routing = records(stage) ? ROUTING_EXPERTS : ROUTING_NONE;
    TRY(engine_plan(stage->request->dir, o, &model, &plan));
    r->workers = o->threads > 0 ? o->threads : memory_processors();
    r->reads = log_capacity(stage, plan);
    r->experts = experts_capacity(stage, plan);
    r->spans = spans_capacity(plan, r->workers);
    plan_free(plan);
    model_close(model);
    o->caller_bytes += io_log_bytes(r->reads) + 2 * sizeof(void *) * r->reads +
                       journal_bytes(r->experts, r->workers, r->spans, WAITS_MOST);
    return 0;
}

int bench_records_fit(struct bench_stage *stage)
{
    struct records r;
    struct model *model;
    struct plan *plan;
    TRY(size_records(stage, &r));
    TRY(engine_plan(stage->request->dir, &stage->options, &model, &plan));
    plan_free(plan);
    model_close(model);
    return 0;
}

static int open_records(struct bench_stage *stage)
{
    struct bench_result *result = stage->result;
    struct records r;
    TRY(size_records(stage, &r));
    io_log_close(&result->log);
    journal_close(&result->journal);
    result->logged = (uint32_t)(stage->to - result->point);
    result->from_ns = result->to_ns = 0;
    stage->options.log = &result->log;
    stage->options.journal = &result->journal;
    TRY(io_log_open(&result->log, r.reads));
    return journal_open(&result->journal, r.experts, r.workers, r.spans, WAITS_MOST);
}

/* ---- while it runs ---- */

static uint64_t sum_of(const uint64_t stall_ns[STALL_CAUSES])
{
    uint64_t sum = 0;
    for (int i = 0; i < STALL_CAUSES; i++) {
        sum += stall_ns[i];
    }
    return sum;
}

static void begin_measuring(struct measuring *m, uint64_t now_ns)
{
    engine_stats(m->e, &m->from);
    m->now = m->from;
    m->stage->result->from_ns = m->stage->result->to_ns = m->last_ns = now_ns;
    atomic_store(&m->stage->result->journal.spans,
                 m->stage->request->tokens == 1 ? SPANS_ALL : SPANS_WAITS);
}

static void take_token(struct measuring *m, uint64_t now_ns)
{
    struct bench_inference *out = m->out;
    uint64_t stall_ns[STALL_CAUSES];
    uint64_t busy_ns;
    m->last = m->now;
    engine_stats(m->e, &m->now);
    engine_stats_between(&m->last, &m->now, stall_ns, &busy_ns);
    out->tokens++;
    histogram_add(&out->token, now_ns - m->last_ns);
    histogram_add(&out->stall, sum_of(stall_ns));
    m->last_ns = m->stage->result->to_ns = now_ns;
}

static void on_token(void *ctx, uint32_t step, uint32_t id)
{
    struct measuring *m = ctx;
    uint64_t now_ns = nondet_now_ns();
    (void)id;
    m->made = step + 1;
    m->out->first_ns = step == 0 ? now_ns - m->begun_ns : m->out->first_ns;
    if (m->made > m->stage->request->warmup) {
        take_token(m, now_ns);
    } else if (m->made == m->stage->request->warmup) {
        engine_pages_wait(m->e); /* to make memory present takes processors and the memory bus */
        begin_measuring(m, nondet_now_ns());
    }
}

static void on_positions(void *ctx, uint32_t count)
{
    struct measuring *m = ctx;
    recorder_add(&m->recorder, m->e, count);
}

static uint64_t requests_of(const struct engine_stats *stats)
{
    uint64_t requests = 0;
    for (int i = 0; i < READ_CLASSES; i++) {
        requests += stats->class[i].requests;
    }
    return requests;
}

/* True when the log may not hold another token's reads and those begun ahead. By the engine's
 * counters: the log itself is the I/O thread's until the engine is closed. */
static bool log_full(const struct measuring *m)
{
    return requests_of(&m->now) + 2 * m->stage->pass_requests > m->stage->result->log.capacity;
}

/* True when the token after this one would be one too many. The last one's spans are kept. */
static bool enough(void *ctx)
{
    struct measuring *m = ctx;
    const struct bench_request *r = m->stage->request;
    struct bench_result *result = m->stage->result;
    if (m->out->tokens == 0) {
        return false;
    }
    uint64_t took_ns = result->to_ns - result->from_ns;
    uint64_t each_ns = took_ns / m->out->tokens;
    bool late = r->runtime_ns > 0 && took_ns >= r->runtime_ns;
    if (m->out->tokens + 1 == r->tokens ||
        (r->runtime_ns > 0 && took_ns + each_ns >= r->runtime_ns)) {
        atomic_store(&result->journal.spans, SPANS_ALL);
    }
    return late || log_full(m);
}

static void show_status(struct measuring *m, const struct engine_progress *p)
{
    struct engine_stats stats;
    engine_stats(m->e, &stats);
    struct bench_status_now now = {
        .job = bench_job_names[JOB_INFERENCE], .engine = true, .bytes = p->done_bytes,
        .requests = requests_of(&stats), .depth = p->in_flight, .tokens = m->made,
        .in_flight_bytes = p->in_flight_bytes, .stall_ns = sum_of(stats.stall_ns),
        .demands = p->demands, .hits = p->hits};
    bench_status_show(m->stage->status, &now);
}

static void on_tick(void *ctx, const struct engine_progress *p)
{
    struct measuring *m = ctx;
    char detail[64];
    snprintf(detail, sizeof detail, "token %u of %llu", m->made + 1,
             (unsigned long long)steps_of(m->stage->request));
    progress_show(&m->stage->progress, p->done_bytes, p->planned_bytes, detail);
    if (m->stage->request->status_ns > 0) {
        show_status(m, p);
    }
}

/* ---- afterwards ---- */

static void take_facts(struct bench_stage *stage, const struct engine *e)
{
    struct bench_facts *out = &stage->to->facts;
    const struct plan *p = engine_plan_of(e);
    struct engine_facts f;
    engine_facts(e, &f);
    *out = (struct bench_facts){
        .fixed_buffers = f.fixed_buffers, .threads = f.threads, .workers = f.workers,
        .devices = f.devices, .files = f.files, .direct_files = f.direct_files,
        .alignment = f.alignment, .io_depth = p->request.io_depth,
        .working_slots = p->working_slots, .cache_slots = p->cache_slots,
        .io_size_bytes = p->io_size_bytes, .tile_bytes = p->tile_bytes,
        .ram_bytes = f.ram_bytes, .slab_mapped_bytes = f.slab_mapped_bytes,
        .slab_resident_bytes = f.slab_resident_bytes, .slab_huge_bytes = f.slab_huge_bytes,
        .pinned_bytes = p->pin_area_bytes,
        .plan_bytes = p->account.total};
    snprintf(out->isa, sizeof out->isa, "%s", f.isa);
    snprintf(out->io_engine, sizeof out->io_engine, "%s", f.io_engine);
    snprintf(out->io_features, sizeof out->io_features, "%s", f.io_features);
    snprintf(out->policy, sizeof out->policy, "%s", f.policy);
}

/* Which layer a span's step is of, for whoever draws them. */
static int take_steps(struct bench_result *result, const struct plan *plan)
{
    free(result->span_layer);
    result->span_layer = malloc(plan->step_count * sizeof *result->span_layer);
    result->span_steps = result->span_layer != NULL ? plan->step_count : 0;
    for (uint32_t i = 0; i < result->span_steps; i++) {
        result->span_layer[i] = plan->steps[i].layer;
    }
    return result->span_layer != NULL ? 0 : err_set(ERR_MEMORY, "no memory for %u steps",
                                                    plan->step_count);
}

/* Demands and hits of the measured stretch; a repeat was asked for before, in the warm-up too. */
static int count_experts(const struct bench_result *result, struct bench_inference *out)
{
    const struct journal *j = &result->journal;
    bool *seen = calloc((size_t)result->layers * result->experts + 1, sizeof *seen);
    if (seen == NULL) {
        return err_set(ERR_MEMORY, "no memory for a list of experts");
    }
    for (uint32_t i = 0; i < j->expert_count; i++) {
        const struct journal_expert *x = &j->expert[i];
        bool *known = &seen[(size_t)x->layer * result->experts + x->expert];
        if (x->needed_ns >= result->from_ns && x->needed_ns < result->to_ns) {
            out->demands++;
            out->hits += x->hit;
            out->repeats += *known;
            out->repeat_hits += *known && x->hit;
            if (!x->hit && x->ready_ns > 0) {
                histogram_add(&out->ready, x->ready_ns - x->needed_ns);
            }
        }
        *known = true;
    }
    free(seen);
    for (uint32_t i = 0; i < j->workers; i++) {
        histogram_merge(&out->layer_stall, &j->worker[i].wait);
    }
    return 0;
}

static int conclude(struct measuring *m)
{
    struct bench_inference *out = m->out;
    struct bench_result *result = m->stage->result;
    out->wall_ns = result->to_ns - result->from_ns;
    out->missed = result->log.missed;
    out->peak_bytes = memory_status("VmHWM:");
    if (out->tokens > 0) {
        engine_stats_between(&m->from, &m->now, out->stall_ns, &out->busy_ns);
    }
    TRY(count_experts(result, out));
    return bench_job_figures(m->stage, JOB_INFERENCE, &result->log, result->from_ns, result->to_ns,
                             true);
}

static uint64_t bytes_of(const struct engine_stats *stats)
{
    uint64_t bytes = 0;
    for (int i = 0; i < READ_CLASSES; i++) {
        bytes += stats->class[i].bytes;
    }
    return bytes;
}

static int open_engine(struct bench_stage *stage, struct engine **e)
{
    progress_begin(&stage->progress, "opening", stage->request->quiet);
    progress_wait(&stage->progress, stage->request->dir);
    int rc = engine_open(e, stage->request->dir, &stage->options);
    progress_clear(&stage->progress);
    if (rc == 0) {
        rc = engine_check_ids(*e, "prompt", stage->request->ids, stage->request->id_count);
        if (rc < 0) {
            engine_close(*e);
            *e = NULL;
        }
    }
    return rc;
}

static int run_engine(struct bench_stage *stage, struct engine *e, struct generate_request *g,
                      struct generate_result *made)
{
    running_begin(e);
    g->ids = stage->request->ids;
    g->id_count = stage->request->id_count;
    int rc = generate(e, g, made);
    running_end();
    progress_clear(&stage->progress);
    return rc;
}

static int record(struct measuring *m, struct generate_request *g)
{
    if (!records(m->stage)) {
        return 0;
    }
    g->on_positions = on_positions;
    TRY(recorder_open(&m->recorder, m->stage->request->trace));
    return recorder_begin(&m->recorder, m->e);
}

/* Closes e. */
static int measure(struct bench_stage *stage, struct engine *e, uint32_t *ids)
{
    struct measuring m = {.stage = stage, .e = e, .out = &stage->round->inference};
    struct generate_request g = {.gen = (uint32_t)steps_of(stage->request), .on_token = on_token,
                                 .enough = enough, .ctx = &m};
    struct generate_result made = {.ids = ids};
    struct engine_stats stats;
    take_facts(stage, e);
    int rc = take_steps(stage->result, engine_plan_of(e));
    if (rc < 0) {
        engine_close(e);
        return rc;
    }
    bench_job_begin(stage, JOB_INFERENCE);
    progress_begin(&stage->progress, "inference", stage->request->quiet);
    engine_on_tick(e, on_tick, &m);
    m.begun_ns = nondet_now_ns();
    if (stage->request->warmup == 0) {
        begin_measuring(&m, m.begun_ns);
    }
    rc = record(&m, &g);
    rc = rc == 0 ? run_engine(stage, e, &g, &made) : rc;
    rc = recorder_end(&m.recorder, rc);
    engine_stats(e, &stats);
    bench_job_end(stage, JOB_INFERENCE, bytes_of(&stats));
    take_facts(stage, e); /* workers may have been sent to rest */
    memcpy(m.out->hash, made.hash, sizeof made.hash);
    engine_close(e);
    int figures = conclude(&m);
    return rc < 0 ? rc : figures;
}

int bench_inference(struct bench_stage *stage)
{
    struct engine *e = NULL;
    struct engine_options shared = stage->options;
    uint32_t *ids = malloc(steps_of(stage->request) * sizeof *ids);
    if (ids == NULL) {
        return err_set(ERR_MEMORY, "no memory for ids");
    }
    int rc = open_records(stage);
    rc = rc == 0 ? open_engine(stage, &e) : rc;
    rc = rc == 0 ? measure(stage, e, ids) : rc;
    stage->options = shared;
    free(ids);
    return rc;
}

/* ---- all in memory ---- */

/* Whether everything fits into the RAM there is; else the job is skipped with the reason. */
static int all_fits(struct bench_stage *stage, bool *fits)
{
    struct model *model;
    struct plan *plan;
    int rc = engine_plan(stage->request->dir, &stage->options, &model, &plan);
    *fits = rc == 0;
    if (rc == 0) {
        plan_free(plan);
        model_close(model);
    } else if (rc == ERR_FIT) {
        char why[BENCH_REASON_BYTES];
        snprintf(why, sizeof why, "not all weights fit: %.280s", err_message());
        bench_job_skip(stage, JOB_COMPUTE, why);
        err_clear();
        rc = 0;
    }
    return rc;
}

/* Twice the same tokens: the second time nothing is left to read but embedding rows. */
static int compute_tokens(struct bench_stage *stage, struct engine *e)
{
    uint32_t ids[BENCH_COMPUTE_TOKENS];
    struct generate_request g = {.gen = BENCH_COMPUTE_TOKENS};
    struct generate_result made = {.ids = ids};
    struct engine_stats before;
    struct engine_stats after;
    TRY(run_engine(stage, e, &g, &made));
    engine_pages_wait(e);
    engine_stats(e, &before);
    bench_job_begin(stage, JOB_COMPUTE);
    int rc = run_engine(stage, e, &g, &made);
    engine_stats(e, &after);
    bench_job_end(stage, JOB_COMPUTE, bytes_of(&after) - bytes_of(&before));
    if (rc == 0 && made.count > 1) {
        stage->round->compute_s = (double)made.rest_ns / 1e9 / (made.count - 1);
        stage->round->job[JOB_COMPUTE].all.wall_ns = made.rest_ns;
    }
    return rc;
}

int bench_compute(struct bench_stage *stage)
{
    struct engine *e = NULL;
    struct engine_options shared = stage->options;
    bool fits;
    stage->options.pin_bytes = PLAN_ALL;
    stage->options.pin_percent = -1;
    stage->options.expert_slots = PLAN_ALL;
    int rc = all_fits(stage, &fits);
    if (rc == 0 && fits) {
        rc = open_engine(stage, &e);
        if (rc == ERR_FIT) {
            bench_job_skip(stage, JOB_COMPUTE, err_message());
            err_clear();
            rc = 0;
        } else if (rc == 0) {
            progress_begin(&stage->progress, "compute", stage->request->quiet);
            rc = compute_tokens(stage, e);
            engine_close(e);
        }
    }
    stage->options = shared;
    return rc;
}
