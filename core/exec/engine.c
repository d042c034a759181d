/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing: model, plan, slab, cache, files, resident tensors, threads; and
 * what was really obtained. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/trace.h"
#include "core/base/memory.h"
#include "core/base/thread.h"
#include "core/exec/exec_priv.h"

#ifdef K3RING_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

/* Code, libraries, thread stacks, the allocator's own pages, JSON while opening. */
#define RESERVE_BYTES (14 * MIB)
#define RESERVE_THREAD_BYTES (256 * KIB)
#define LATER_SLICE_BYTES (256 * MIB)
#define RAM_AUTO_SHARE_PERCENT 90U

void engine_fail(struct engine *e, int code, const char *text)
{
    pthread_mutex_lock(&e->error_lock);
    if (atomic_load(&e->error) == 0) {
        snprintf(e->error_text, sizeof e->error_text, "%s", text);
        atomic_store(&e->error, code);
    }
    pthread_mutex_unlock(&e->error_lock);
    gate_notify(&e->pass_gate, 1);
    gate_notify(&e->work_gate, (int)e->worker_count);
    if (e->io != NULL) {
        io_wake(e->io);
    }
}

/* What this process may come to hold: what it holds now and what can still be had. Of what it holds
 * now a part, like its code, may count as another group's. */
static uint64_t reachable_bytes(const char **why)
{
    uint64_t more = memory_available(why);
    uint64_t held = memory_status("VmRSS:");
    return min_u64(more > UINT64_MAX - held ? UINT64_MAX : more + held, memory_limit());
}

/* *why: what allows no more; NULL where a number was given. */
static uint64_t decide_ram(uint64_t ram_bytes, const char **why)
{
    *why = NULL;
    return ram_bytes == ENGINE_RAM_AUTO ? reachable_bytes(why) / 100 * RAM_AUTO_SHARE_PERCENT
                                        : ram_bytes;
}

uint64_t engine_ram_bytes(uint64_t ram_bytes)
{
    const char *why;
    return decide_ram(ram_bytes, &why);
}

/* A plan that this machine cannot hold is refused before anything is taken. */
static int check_available(const struct plan *plan)
{
    const char *why;
    char cure[128];
    uint64_t available = reachable_bytes(&why);
    uint64_t advised = available / 100 * RAM_AUTO_SHARE_PERCENT;
    if (plan->account.total <= available) {
        return 0;
    }
    if (advised >= plan->floor_bytes) {
        snprintf(cure, sizeof cure, "give --ram %lluM or free memory",
                 (unsigned long long)(advised / MIB));
    } else {
        snprintf(cure, sizeof cure, "this request needs %.2f MiB at least: free memory or raise "
                 "the limit", (double)plan->floor_bytes / (double)MIB);
    }
    return err_set(ERR_FIT, "the plan takes %.2f MiB (%llu bytes) but only %.2f MiB can be had "
                   "(%s); %s", (double)plan->account.total / (double)MIB,
                   (unsigned long long)plan->account.total, (double)available / (double)MIB, why,
                   cure);
}

static struct policy_shape shape_of(const struct model_config *c, uint32_t slots)
{
    uint32_t moe = c->layers > c->first_dense ? c->layers - c->first_dense : 0;
    return (struct policy_shape){.layers = moe, .experts = c->experts,
                                 .per_token = c->experts_per_token, .slots = slots};
}

/* Experts to be noted of a token at a layer. */
static uint32_t noted_width(const struct engine_options *o, const struct model_config *c)
{
    uint64_t wide = max_u64(c->experts_per_token, min_u64(c->experts, TRACE_CANDIDATES));
    return o->routing == ROUTING_NONE      ? 0
           : o->routing == ROUTING_EXPERTS ? c->experts_per_token
                                           : (uint32_t)wide;
}

static uint64_t noted_token_bytes(const struct engine_options *o, const struct model_config *c)
{
    uint64_t each = sizeof(uint16_t) + (o->routing == ROUTING_SCORES ? sizeof(float) : 0);
    return (uint64_t)shape_of(c, 0).layers * noted_width(o, c) * each;
}

static uint64_t later_slice_bytes(const struct engine_options *o)
{
    return o->slice_bytes > 0 ? o->slice_bytes : LATER_SLICE_BYTES;
}

static uint32_t worker_count(const struct engine_options *o)
{
    return o->threads > 0 ? o->threads : memory_processors();
}

/* As many sequences as were asked for, or as leave half of the RAM to weights. */
static uint32_t sequences_of(const struct engine_options *o, const struct model_config *c)
{
    uint64_t each = state_bytes(c) + kv_bytes(c, o->context) + c->vocab * sizeof(float);
    uint64_t fit = engine_ram_bytes(o->ram_bytes) / 2 / max_u64(each, 1);
    uint32_t asked = o->sequences > 0 ? o->sequences : 1;
    return o->sequences_most ? (uint32_t)max_u64(1, min_u64(asked, fit)) : asked;
}

int engine_plan_model(const struct model *model, const struct engine_options *o,
                      struct plan **plan)
{
    const struct model_config *c = &model->config;
    uint64_t most = o->chunk == PLAN_AUTO ? PLAN_CHUNK_AUTO_MAX : o->chunk;
    uint32_t sequences = sequences_of(o, c);
    uint32_t tokens_min = sequences + o->drafts;
    uint32_t chunk = (uint32_t)max_u64(min_u64(most, o->prompt_tokens), tokens_min);
    struct policy_shape none = shape_of(c, 0);
    struct policy_shape all = shape_of(c, none.layers * c->experts);
    uint64_t base = none.layers > 0 ? cache_bytes(&none, chunk) : 0;
    uint64_t full = none.layers > 0 ? cache_bytes(&all, chunk) : 0;
    struct plan_request r = {
        .io_size_bytes = o->io_size_bytes,
        .io_depth = o->io_depth,
        .devices = files_devices(model, o),
        .ahead_bytes = o->ahead_bytes,
        .workers = worker_count(o),
        .tile_bytes = o->tile_bytes,
        .pin_bytes = o->pin_bytes,
        .pin_percent = o->pin_percent,
        .pin_order = o->pin_order,
        .expert_slots = o->expert_slots,
        .context = o->context,
        .chunk = o->chunk,
        .prompt_tokens = o->prompt_tokens,
        .tokens_min = tokens_min,
        .sequences = sequences,
        .head_rows = o->logits_all ? PLAN_ROWS_ALL : tokens_min,
        .drafts = o->drafts,
        .routing_token_bytes = noted_token_bytes(o, c),
        .index_bytes = model_resident_bytes(model),
        .cache_base_bytes = base,
        .cache_slot_bytes = all.slots > 0 ? div_ceil(full - min_u64(full, base), all.slots) : 0,
        .reserve_bytes = RESERVE_BYTES + o->caller_bytes + o->caller_token_bytes * c->vocab +
                         checks_row_bytes(model, o) +
                         (worker_count(o) + 2 + PAGES_THREADS) * RESERVE_THREAD_BYTES,
        .pin_slice_bytes = later_slice_bytes(o),
    };
    r.ram_bytes = decide_ram(o->ram_bytes, &r.ram_limit);
    files_ask_checks(o, none.layers > 0, &r);
    if (o->context > c->context_max) {
        return err_set(ERR_FIT, "%u positions of context exceed the model's %u; use a smaller "
                       "--context, a shorter prompt, or have fewer tokens made", o->context,
                       c->context_max);
    }
    return plan_build(model, &r, plan);
}

int engine_plan(const char *dir, const struct engine_options *o, struct model **model,
                struct plan **plan)
{
    struct model_options mo = {.allow_holes = true, .note = o->note};
    TRY(model_open(dir, &mo, model));
    int rc = engine_plan_model(*model, o, plan);
    if (rc < 0) {
        model_close(*model);
        *model = NULL;
    }
    return rc;
}

static int open_slab(struct engine *e)
{
    const struct plan *p = e->plan;
    struct slab_layout layout = {
        .rows_bytes = p->account.rows + p->account.sums,
        .ring_bytes = p->ring_bytes,
        .slot_bytes = p->slot_bytes,
        .slot_count = p->working_slots + p->cache_slots,
        .later_slots = p->cache_slots,
        .pin_bytes = p->pin_area_bytes,
        .later_slice_bytes = later_slice_bytes(&e->options),
        .ring_entries = plan_ring_tiles(p),
    };
    return slab_open(&e->slab, &layout);
}

static int no_heat(void)
{
    return err_set(ERR_USAGE, "--heat: this model has no experts, so there is nothing to keep");
}

static int load_heat(struct engine *e)
{
    if (e->cache == NULL) {
        return no_heat();
    }
    TRY(cache_heat_load(e->cache, e->options.heat_path));
    if (e->plan->cache_slots == 0 && e->options.note != NULL) {
        e->options.note("--heat: there is no expert cache to learn from; --expert-slots makes one");
    }
    return 0;
}

static int open_cache(struct engine *e)
{
    struct policy_shape shape = shape_of(config_of(e), e->plan->cache_slots);
    const struct policy_ops *ops = policy_find(e->options.policy);
    if (ops == NULL) {
        return err_set(ERR_USAGE, "no cache policy is called '%s'", e->options.policy);
    }
    if (shape.layers > 0) {
        TRY(cache_open(&e->cache, ops, &shape, e->plan->chunk));
    }
    return e->options.heat_path != NULL ? load_heat(e) : 0;
}

int engine_heat_write(struct engine *e, FILE *file)
{
    assert(!e->begun);
    return e->cache != NULL ? cache_heat_write(e->cache, file) : no_heat();
}

/* Everything a pass writes to, once. */
static int open_memory(struct engine *e)
{
    const struct plan *p = e->plan;
    const struct model_config *c = config_of(e);
    uint32_t k = c->experts_per_token;
    uint64_t uses = (uint64_t)p->chunk * k;
    e->arena = aligned_alloc(64, align_up(p->activations.size_bytes, 64));
    uint32_t rows = p->request.head_rows;
    e->head_x = malloc((size_t)rows * c->hidden * sizeof(float));
    e->logits = malloc((size_t)rows * c->vocab * sizeof(float));
    e->token = calloc(p->chunk, sizeof *e->token);
    e->fault = calloc(p->chunk, sizeof *e->fault);
    e->logits_of = calloc(rows, sizeof *e->logits_of);
    e->route_ids = malloc(uses * sizeof *e->route_ids);
    e->layer_max = calloc(c->layers, sizeof(float));
    e->layer_peaks = calloc(c->layers, sizeof *e->layer_peaks);
    e->layer_peak = calloc(c->layers, sizeof(float));
    e->trace_ids = calloc((size_t)c->layers * k, sizeof *e->trace_ids);
    e->trace_weights = calloc((size_t)c->layers * k, sizeof(float));
    e->batch.run = calloc(min_u64(c->experts, uses), sizeof *e->batch.run);
    e->batch.use = calloc(uses, sizeof *e->batch.use);
    e->batch.use_at = calloc(c->experts, sizeof *e->batch.use_at);
    if (e->arena == NULL || e->head_x == NULL || e->logits == NULL || e->token == NULL ||
        e->fault == NULL || e->logits_of == NULL || e->route_ids == NULL ||
        e->layer_max == NULL || e->layer_peaks == NULL || e->layer_peak == NULL ||
        e->trace_ids == NULL || e->trace_weights == NULL || e->batch.run == NULL ||
        e->batch.use == NULL || e->batch.use_at == NULL) {
        return err_set(ERR_MEMORY, "no memory for activations");
    }
    return 0;
}

/* What is noted of a pass's routing, for all its tokens. */
static int open_notes(struct engine *e)
{
    const struct model_config *c = config_of(e);
    size_t entries = (size_t)e->plan->chunk * shape_of(c, 0).layers *
                     noted_width(&e->options, c);
    if (entries == 0) {
        return 0;
    }
    bool scores = e->options.routing == ROUTING_SCORES;
    e->noted_width = noted_width(&e->options, c);
    e->noted_ids = malloc(entries * sizeof *e->noted_ids);
    e->noted_scores = scores ? malloc(entries * sizeof *e->noted_scores) : NULL;
    return e->noted_ids != NULL && (e->noted_scores != NULL) == scores
               ? 0 : err_set(ERR_MEMORY, "no memory for the routing of a pass; use a smaller "
                             "--chunk");
}

static int start_threads(struct engine *e)
{
    if (e->options.stepped) {
        return fetch_open_ring(e);
    }
    int rc = thread_create(&e->io_thread, NULL, fetch_thread, e);
    if (rc != 0) {
        return err_set(ERR_MEMORY, "the system refused the I/O thread: %s; raise the limit of "
                       "processes (ulimit -u) or of memory (ulimit -v)", strerror(rc));
    }
    e->io_started = true;
    while (atomic_load(&e->threads_ready) < e->worker_count + 1) {
        gate_wait(&e->pass_gate, gate_enter(&e->pass_gate), 1000000);
    }
    if (atomic_load(&e->error) != 0) {
        return err_set(atomic_load(&e->error), "%s", e->error_text);
    }
    return pages_start(e);
}

/* What opening allocated and freed goes back to the system: it is not part of the account. */
static void purge_allocator(void)
{
#ifdef K3RING_JEMALLOC
    char name[64];
    snprintf(name, sizeof name, "arena.%u.purge", MALLCTL_ARENAS_ALL);
    mallctl(name, NULL, NULL, NULL, 0);
#endif
}

static int open_all(struct engine *e, const char *dir)
{
    struct model_options mo = {.note = e->options.note};
    e->kernels = kernels_select(e->options.isa);
    if (e->kernels == NULL) {
        return err_set(ERR_USAGE, "this processor lacks the instruction set asked for; "
                       "use --isa auto");
    }
    kernels_thread_init();
    TRY(model_open(dir, &mo, &e->model));
    TRY(checks_open(e));
    purge_allocator();
    TRY(engine_plan_model(e->model, &e->options, &e->plan));
    TRY(check_available(e->plan));
    TRY(files_open(e->model, e->checks.sums, &e->files));
    TRY(resident_load(e));
    purge_allocator();
    TRY(open_memory(e));
    TRY(open_notes(e));
    TRY(state_open(e));
    TRY(open_slab(e));
    TRY(checks_place(e));
    TRY(open_cache(e));
    TRY(run_init(e));
    pages_init(e);
    TRY(fetch_init(e));
    TRY(workers_start(e));
    TRY(start_threads(e));
    purge_allocator();
    return 0;
}

int engine_open(struct engine **out, const char *dir, const struct engine_options *options)
{
    struct engine *e = aligned_alloc(64, align_up(sizeof *e, 64));
    if (e == NULL) {
        return err_set(ERR_MEMORY, "no memory for an engine");
    }
    memset(e, 0, sizeof *e);
    e->options = *options;
    e->worker_count = worker_count(options);
    crew_init(&e->crew, e->worker_count, options->threads == 0);
    e->rng = rng_seed(options->sim.seed);
    atomic_store(&e->pass_done, 1); /* no pass is running */
    e->caller_allocated = thread_allocated();
    pthread_mutex_init(&e->error_lock, NULL);
    int rc = open_all(e, dir);
    if (rc < 0) {
        engine_close(e);
        return rc;
    }
    *out = e;
    return 0;
}

/* Whoever may wake the I/O thread ends before it, since it frees what it is woken through; and the
 * last to wake it is this thread, under the lock it takes before it frees. */
static void stop_threads(struct engine *e)
{
    workers_stop(e);
    pages_stop(e);
    if (e->io_started) {
        pthread_mutex_lock(&e->error_lock);
        atomic_store(&e->io_stop, 1);
        if (e->io != NULL) {
            io_wake(e->io);
        }
        pthread_mutex_unlock(&e->error_lock);
        pthread_join(e->io_thread, NULL);
    } else {
        fetch_close_ring(e);
    }
}

void engine_close(struct engine *e)
{
    if (e == NULL || atomic_load(&e->stuck)) {
        return;
    }
    stop_threads(e);
    run_fini(e);
    fetch_fini(e);
    cache_close(e->cache);
    checks_close(e);
    slab_close(e->slab);
    state_close(e);
    io_files_close(&e->files);
    free(e->small);
    free(e->small_block);
    free(e->arena);
    free(e->head_x);
    free(e->logits);
    free(e->token);
    free(e->fault);
    free(e->logits_of);
    free(e->route_ids);
    free(e->layer_max);
    free(e->layer_peaks);
    free(e->layer_peak);
    free(e->trace_ids);
    free(e->trace_weights);
    free(e->noted_ids);
    free(e->noted_scores);
    free(e->batch.run);
    free(e->batch.use);
    free(e->batch.use_at);
    plan_free(e->plan);
    model_close(e->model);
    pthread_mutex_destroy(&e->error_lock);
    free(e);
}

const struct plan *engine_plan_of(const struct engine *e)
{
    return e->plan;
}

const struct model *engine_model(const struct engine *e)
{
    return e->model;
}

const struct kernels *engine_kernels(const struct engine *e)
{
    return e->kernels;
}

/* Each file system once, in file order; more than fit are left out. */
static void list_places(const struct engine *e, struct engine_facts *out)
{
    for (uint32_t i = 0; i < e->files.count && out->place_count < ENGINE_PLACES_MAX; i++) {
        struct io_place place;
        bool known = io_probe(e->files.file[i].fd, &place) < 0;
        for (uint32_t k = 0; k < out->place_count; k++) {
            known = known || out->place[k].device == place.device;
        }
        if (!known) {
            out->place[out->place_count++] = place;
        }
        out->alignment = out->alignment > e->files.file[i].alignment
                             ? out->alignment : e->files.file[i].alignment;
    }
}

void engine_facts(const struct engine *e, struct engine_facts *out)
{
    struct slab_statement slab = {0};
    if (!engine_interrupted(e)) { /* the kernel counts for long, and who stopped it waits */
        slab_state(e->slab, &slab);
    }
    *out = (struct engine_facts){
        .isa = e->kernels->name,
        .io_engine = io_engine_name(e->io),
        .io_features = e->io_features,
        .io_refused = e->io_refused[0] != '\0' ? e->io_refused : NULL,
        .policy = e->options.policy,
        .fixed_buffers = e->io_fixed,
        .direct_files = e->files.direct_count,
        .files = e->files.count,
        .devices = e->files.device_count,
        .threads = e->worker_count,
        .workers = e->crew.chosen,
        .slab_mapped_bytes = slab.mapped_bytes,
        .slab_resident_bytes = slab.resident_bytes,
        .slab_huge_bytes = slab.huge_bytes,
        .ram_bytes = e->plan->request.ram_bytes,
    };
    crew_explain(&e->crew, out->workers_why, sizeof out->workers_why);
    list_places(e, out);
}

void engine_on_tick(struct engine *e, void (*tick)(void *ctx, const struct engine_progress *p),
                    void *ctx)
{
    e->tick = tick;
    e->tick_ctx = ctx;
}

void engine_interrupt(struct engine *e)
{
    atomic_store(&e->interrupted, 1);
}

bool engine_interrupted(const struct engine *e)
{
    return atomic_load(&e->interrupted) != 0;
}

void engine_interrupt_clear(struct engine *e)
{
    assert(!e->begun);
    atomic_store(&e->interrupted, 0);
}

int64_t engine_allocated_bytes(const struct engine *e)
{
    if (e->caller_allocated == NULL) {
        return -1;
    }
    uint64_t sum = *e->caller_allocated;
    sum += e->io_allocated != NULL ? *e->io_allocated : 0;
    for (uint32_t i = 0; i < e->worker_count; i++) {
        sum += e->workers[i].allocated != NULL ? *e->workers[i].allocated : 0;
    }
    return (int64_t)sum;
}
