/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences and passes, from the caller's thread. */
#include <stdio.h>
#include <string.h>

#include "core/exec/exec_priv.h"

#define TICK_NS 200000000ULL

static int report_failure(struct engine *e)
{
    return err_set(atomic_load(&e->error), "%s", e->error_text);
}

static uint64_t bytes_so_far(const struct engine *e)
{
    uint64_t bytes = 0;
    for (int i = 0; i < READ_CLASSES; i++) {
        bytes += atomic_load(&e->class_bytes[i]);
    }
    return bytes;
}

/* Most distinct experts the passes of one kind ask for. */
static uint64_t experts_of(const struct engine *e, uint64_t passes, uint64_t tokens)
{
    const struct model_config *c = config_of(e);
    uint64_t per_layer = min_u64(c->experts, tokens * c->experts_per_token);
    return passes * per_layer * (e->plan->experts_per_pass / max_u64(1, c->experts_per_token));
}

/* Bytes all expected passes will read, with every expert a miss. */
static uint64_t planned_bytes(const struct engine *e, const struct engine_forecast *f)
{
    const struct plan *p = e->plan;
    uint64_t bytes;
    uint64_t requests;
    uint64_t total = 0;
    bool first = e->passes_ever == 0;
    if (f->prompt_passes > 1) {
        plan_pass_reads(p, first, first, false, &bytes, &requests);
        total += bytes;
        plan_pass_reads(p, false, false, false, &bytes, &requests);
        total += (f->prompt_passes - 2) * bytes;
    }
    plan_pass_reads(p, first && f->prompt_passes == 1, first, true, &bytes, &requests);
    total += bytes;
    plan_pass_reads(p, false, false, true, &bytes, &requests);
    return total + f->steps * bytes +
           p->expert_window_bytes * (experts_of(e, f->prompt_passes, f->prompt_tokens) +
                                     experts_of(e, f->steps, f->step_tokens));
}

int engine_start(struct engine *e, const struct engine_forecast *forecast)
{
    assert(!e->begun && forecast->prompt_passes > 0);
    if (atomic_load(&e->error) != 0) {
        return report_failure(e);
    }
    e->begun = true;
    e->passes_made = 0;
    e->draft_first = UINT32_MAX;
    e->passes_expected = forecast->prompt_passes + forecast->steps;
    e->planned_bytes = planned_bytes(e, forecast);
    e->planned_bytes += bytes_so_far(e);
    atomic_store(&e->passes_total, 0);
    return 0;
}

void engine_forget(struct engine *e, uint32_t sequence)
{
    if (sequence == e->replay_sequence) {
        e->replay = 0;
    }
    if (sequence == 0) {
        e->position = 0;
        e->torn = false;
    }
}

void engine_clear(struct engine *e, uint32_t sequence)
{
    state_clear(e, sequence);
    engine_forget(e, sequence);
}

int state_usable(const struct engine *e)
{
    if (atomic_load(&e->error) != 0) {
        return err_set(atomic_load(&e->error), "a pass failed in its middle and left half a state, "
                       "which cannot go on or be saved: %s", e->error_text);
    }
    return !e->torn ? 0 : err_set(ERR_NUMERIC, "the sequence cannot go on or be saved, for a value "
                                  "of one of its passes was not finite; begin it anew");
}

static int start_single(struct engine *e, uint32_t prompt_tokens, uint32_t steps)
{
    uint32_t chunk = e->plan->chunk;
    struct engine_forecast forecast = {
        .prompt_passes = (uint32_t)div_ceil(prompt_tokens, chunk), .steps = steps,
        .prompt_tokens = (uint32_t)min_u64(prompt_tokens, chunk), .step_tokens = 1};
    TRY(engine_start(e, &forecast));
    e->prompt_left = prompt_tokens;
    e->steps_left = steps;
    return 0;
}

int engine_begin(struct engine *e, uint32_t prompt_tokens, uint32_t steps)
{
    assert(prompt_tokens > 0);
    if ((uint64_t)prompt_tokens + steps > e->plan->request.context) {
        return err_set(ERR_FIT, "%u prompt tokens and %u steps exceed --context %u",
                       prompt_tokens, steps, e->plan->request.context);
    }
    TRY(start_single(e, prompt_tokens, steps));
    engine_clear(e, 0);
    return 0;
}

int engine_resume(struct engine *e, uint32_t prompt_tokens, uint32_t steps)
{
    uint32_t context = e->plan->request.context;
    assert(prompt_tokens > 0 && e->position <= context);
    TRY(state_usable(e));
    if ((uint64_t)prompt_tokens + steps > context - e->position) {
        return err_set(ERR_FIT, "%u tokens to read and %u steps after them do not fit: %u of "
                       "--context %u positions are left; give a larger --context or less to make, "
                       "or begin anew", prompt_tokens, steps, context - e->position, context);
    }
    return start_single(e, prompt_tokens, steps);
}

uint32_t engine_position(const struct engine *e)
{
    return e->position;
}

static void tick(struct engine *e)
{
    if (e->tick != NULL) {
        struct engine_progress p = {.planned_bytes = e->planned_bytes, .pass = e->passes_made,
                                    .passes = e->passes_expected,
                                    .done_bytes = bytes_so_far(e),
                                    .in_flight_bytes = atomic_load(&e->in_flight_bytes),
                                    .demands = atomic_load(&e->demands),
                                    .hits = atomic_load(&e->hits)};
        for (int i = 0; i < READ_CLASSES; i++) {
            p.in_flight += atomic_load(&e->in_flight[i]);
        }
        e->tick(e->tick_ctx, &p);
    }
}

static void wait_for(struct engine *e, _Atomic uint32_t *flag)
{
    while (!atomic_load(flag) && atomic_load(&e->error) == 0) {
        if (e->options.stepped) {
            engine_pump(e);
            continue;
        }
        uint32_t key = gate_enter(&e->pass_gate);
        if (atomic_load(flag) || atomic_load(&e->error) != 0) {
            gate_leave(&e->pass_gate);
        } else {
            gate_wait(&e->pass_gate, key, TICK_NS);
        }
        tick(e);
    }
}

int engine_check_ids(const struct engine *e, const char *what, const uint32_t *ids,
                     uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] >= config_of(e)->vocab) {
            return err_set(ERR_USAGE, "%s: id %u (number %u) is not of this model, whose ids run "
                           "from 0 to %u", what, ids[i], i + 1, config_of(e)->vocab - 1);
        }
    }
    return 0;
}

#define FAULT_LAYER_BITS 24

static void fault_text(const struct engine *e, uint32_t token, uint32_t fault, char *text)
{
    uint32_t layer = fault & ((1U << FAULT_LAYER_BITS) - 1);
    bool router = fault >> FAULT_LAYER_BITS == FAULT_ROUTER;
    snprintf(text, ERR_MESSAGE_BYTES, router
             ? "a router score of layer %u is not finite (position %u): the weights hold NaN, Inf "
               "or huge values"
             : "the residual is not finite after layer %u (position %u): the weights of this layer "
               "or the ones before hold NaN, Inf or huge values", layer, e->token[token].position);
}

void engine_token_fault(struct engine *e, uint32_t token, enum fault_kind kind, uint32_t layer)
{
    uint32_t none = 0;
    uint32_t fault = (uint32_t)kind << FAULT_LAYER_BITS | layer;
    char text[ERR_MESSAGE_BYTES];
    if (e->isolate || e->token[token].draft) {
        atomic_compare_exchange_strong(&e->fault[token], &none, fault);
        return;
    }
    fault_text(e, token, fault, text);
    engine_fail(e, ERR_NUMERIC, text);
}

bool engine_fault(const struct engine *e, uint32_t token, char text[ERR_MESSAGE_BYTES])
{
    uint32_t fault = atomic_load(&e->fault[token]);
    if (fault != 0) {
        fault_text(e, token, fault, text);
    }
    return fault != 0;
}

static void check_work(const struct engine *e, const struct engine_work *w)
{
    const struct plan_request *r = &e->plan->request;
    assert(e->begun && w->count > 0 && w->count <= e->plan->chunk);
    assert(w->logits_count <= r->head_rows && (w->head || w->logits_count == 0));
    uint32_t slot = e->passes_made % PASS_SLOTS;
    assert(e->passes_made == 0 || atomic_load(&e->pass_head[slot]) == w->head);
    assert(e->passes_made == 0 || e->passes_made < atomic_load(&e->passes_total));
    assert(e->replay == 0 ||
           (!w->token[0].draft && w->token[0].sequence == e->replay_sequence));
    for (uint32_t i = 0; i < w->count; i++) {
        const struct engine_token *t = &w->token[i];
        bool follows = i > 0 && t->sequence == t[-1].sequence;
        assert(t->id < config_of(e)->vocab && t->sequence < r->sequences);
        assert(t->position < r->context);
        assert(!follows || t->position == t[-1].position + 1);
        assert(i == 0 || !t[-1].draft || (t->draft && follows));
        assert(!t->draft || follows);
    }
}

/* The I/O thread may read for this pass and the next one from here on. */
static void announce(struct engine *e, const struct engine_work *w)
{
    uint32_t pass = e->passes_made;
    atomic_store(&e->pass_head[pass % PASS_SLOTS], w->head);
    atomic_store(&e->pass_head[(pass + 1) % PASS_SLOTS], w->next_head);
    atomic_store(&e->pass_now, pass);
    atomic_store(&e->passes_total, pass + 1 + w->later);
}

static void start_pass(struct engine *e, const struct engine_work *w)
{
    workers_activate(e, crew_next(&e->crew, w->count));
    atomic_store(&e->pass_clock, (nondet_now_ns() - e->passes_ns) << 1 | 1);
    e->pass_begun_bytes = bytes_so_far(e);
    memmove(e->token, w->token, w->count * sizeof *w->token);
    memmove(e->logits_of, w->logits_of, w->logits_count * sizeof *w->logits_of);
    e->tokens = w->count;
    e->logits_count = w->logits_count;
    e->head = w->head;
    e->isolate = w->isolate;
    e->draft_first = UINT32_MAX;
    for (uint32_t i = w->count; i > 0; i--) {
        atomic_store(&e->fault[i - 1], 0);
        e->draft_first = w->token[i - 1].draft ? i - 1 : e->draft_first;
    }
    assert(e->draft_first == UINT32_MAX || w->count - e->draft_first <= e->plan->request.drafts);
    for (uint32_t i = 0; i < config_of(e)->layers; i++) {
        atomic_store(&e->layer_peaks[i], 0);
    }
    run_reset(e);
    atomic_store(&e->pass_done, 0);
    announce(e, w);
    atomic_store(&e->rows_wanted, 1);
    if (!e->options.stepped) {
        io_wake(e->io);
    }
}

/* Stepped passes take no time: one is drawn, like all order there. */
static void count_time(struct engine *e)
{
    uint64_t took_ns = e->options.stepped ? rng_below(&e->rng, 1000000)
                                          : pass_clock_ns(e) - e->passes_ns;
    e->passes_ns += took_ns;
    atomic_store(&e->pass_clock, e->passes_ns << 1);
    e->active_ns += took_ns * atomic_load(&e->active_workers);
    if (engine_pages_present(e)) { /* else passes are not alike */
        crew_made(&e->crew, e->tokens, bytes_so_far(e) - e->pass_begun_bytes, took_ns);
    }
}

/* The pass is over: what the state of sequence 0 now holds. */
static void count_positions(struct engine *e)
{
    e->replay = 0;
    for (uint32_t i = 0; i < e->tokens && i < e->draft_first; i++) {
        if (e->token[i].sequence == 0) {
            e->position = e->token[i].position + 1;
            e->torn = e->torn || atomic_load(&e->fault[i]) != 0;
        }
    }
    e->positions_made += e->tokens;
}

int engine_run(struct engine *e, const struct engine_work *work)
{
    check_work(e, work);
    for (uint32_t i = 0; i < work->count; i++) {
        TRY(state_reserve(e, work->token[i].sequence, work->token[i].position + 1));
    }
    if (atomic_load(&e->interrupted)) {
        return err_set(ERR_STOPPED, "stopped before pass %u of %u", e->passes_made + 1,
                       e->passes_expected);
    }
    bool torn = e->torn;
    e->torn = true;
    start_pass(e, work);
    wait_for(e, &e->pass_done);
    if (atomic_load(&e->error) != 0) {
        return report_failure(e);
    }
    e->torn = torn;
    count_time(e);
    count_positions(e);
    e->passes_made++;
    e->passes_ever++;
    return 0;
}

const float *engine_logits(const struct engine *e, uint32_t row)
{
    assert(row < e->logits_count);
    return e->logits + (size_t)row * config_of(e)->vocab;
}

void engine_accept(struct engine *e, uint32_t count)
{
    assert(count == 0 || e->draft_first + count <= e->tokens);
    e->replay = count;
    e->replay_sequence = count > 0 ? e->token[e->draft_first].sequence : 0;
    e->position += e->replay_sequence == 0 ? count : 0;
    e->steps_left -= (uint32_t)min_u64(count, e->steps_left);
}

/* The next count tokens of engine_begin's sequence; the last `rows` of them want logits. */
static int run_single(struct engine *e, const uint32_t *ids, uint32_t count, uint32_t rows,
                      bool drafted)
{
    struct engine_token *token = e->token; /* no pass is running: its lists may be written */
    uint32_t chunk = e->plan->chunk;
    TRY(engine_check_ids(e, "prompt", ids, count));
    e->steps_left -= e->prompt_left == 0;
    e->prompt_left -= (uint32_t)min_u64(count, e->prompt_left);
    for (uint32_t i = 0; i < count; i++) {
        token[i] = (struct engine_token){.id = ids[i], .position = e->position + i,
                                         .draft = drafted && i > 0};
    }
    for (uint32_t row = 0; row < rows; row++) {
        e->logits_of[row] = count - rows + row;
    }
    struct engine_work work = {
        .token = token, .count = count, .logits_of = e->logits_of, .logits_count = rows,
        .head = rows > 0, .later = (uint32_t)div_ceil(e->prompt_left, chunk) + e->steps_left,
        .next_head = e->prompt_left <= chunk};
    return engine_run(e, &work);
}

int engine_pass(struct engine *e, const uint32_t *ids, uint32_t count, const float **logits)
{
    assert(e->prompt_left == 0 ? count == 1 && e->steps_left > 0
                               : count == min_u64(e->plan->chunk, e->prompt_left));
    bool head = count >= e->prompt_left;
    TRY(run_single(e, ids, count, head, false));
    *logits = head ? engine_logits(e, 0) : NULL;
    return 0;
}

int engine_try(struct engine *e, const uint32_t *ids, uint32_t count)
{
    assert(e->prompt_left == 0 && count > 0 && count <= e->steps_left);
    return run_single(e, ids, count, count, true);
}

static void wait_drained(struct engine *e)
{
    if (e->options.stepped) {
        /* What is compared takes workers too. */
        if (atomic_load(&e->checks.open) > 0 && atomic_load(&e->error) == 0) {
            engine_pump(e);
        } else {
            fetch_step(e, true);
        }
        return;
    }
    uint32_t key = gate_enter(&e->pass_gate);
    if (atomic_load(&e->drained) || atomic_load(&e->ring_dead)) {
        gate_leave(&e->pass_gate);
    } else {
        gate_wait(&e->pass_gate, key, TICK_NS);
    }
}

int engine_check_files(const struct engine *e)
{
    return io_files_unchanged(&e->files);
}

int engine_end(struct engine *e)
{
    if (!e->begun) {
        return 0;
    }
    e->begun = false;
    atomic_store(&e->passes_total, 0);
    atomic_store(&e->drained, 0);
    atomic_store(&e->drain_wanted, 1);
    if (!e->options.stepped) {
        io_wake(e->io);
    }
    /* Also after a failure: the figures belong to the I/O thread until it has drained. */
    while (!atomic_load(&e->drained) && !atomic_load(&e->ring_dead)) {
        wait_drained(e);
    }
    return atomic_load(&e->error) != 0 ? report_failure(e) : io_files_unchanged(&e->files);
}

/* After a pass that failed engine_end() says so again, and nothing of the files. */
static int end_numeric(struct engine *e)
{
    engine_end(e);
    err_clear();
    return engine_check_files(e);
}

int engine_end_with(struct engine *e, int rc)
{
    char said[ERR_MESSAGE_BYTES];
    if (rc != ERR_STOPPED && rc != ERR_NUMERIC) {
        int end = engine_end(e);
        return rc < 0 ? rc : end;
    }
    snprintf(said, sizeof said, "%s", err_message());
    err_clear();
    TRY(rc == ERR_NUMERIC ? end_numeric(e) : engine_end(e));
    return err_set(rc, "%s", said);
}

void engine_trace(const struct engine *e, struct engine_trace *out)
{
    for (uint32_t i = 0; i < config_of(e)->layers; i++) {
        uint32_t bits = atomic_load(&e->layer_peaks[i]);
        memcpy(&e->layer_peak[i], &bits, sizeof bits);
    }
    *out = (struct engine_trace){.layer_max = e->layer_max, .layer_peak = e->layer_peak,
                                 .route_ids = e->trace_ids,
                                 .route_weights = e->trace_weights};
}

static uint32_t moe_layers(const struct model_config *c)
{
    return c->layers > c->first_dense ? c->layers - c->first_dense : 0;
}

void engine_routes(const struct engine *e, struct engine_routes *out)
{
    *out = (struct engine_routes){.layers = moe_layers(config_of(e)),
                                  .width = e->noted_width, .ids = e->noted_ids,
                                  .scores = e->noted_scores};
}
