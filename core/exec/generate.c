/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/generate.h"

#include <math.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/exec/draft.h"
#include "kernels/kernels.h"

struct generation {
    struct engine *e;
    const struct generate_request *request;
    struct generate_result *out;
    struct sha256_ctx hash;
    struct sampler sampler; /* when the request asks for one */
    uint32_t vocab;
    uint32_t gen;      /* tokens to make, within the context */
    uint32_t position; /* of the next token that is made */
    uint32_t *history; /* past, prompt, then what was made */
    uint32_t history_count;
    struct draft draft;
    bool stopped;      /* by an id or by who was asked */
};

bool generate_finite(const float *logits, uint32_t vocab, uint32_t step,
                     char text[ERR_MESSAGE_BYTES])
{
    assert(logits != NULL);
    for (uint32_t i = 0; i < vocab; i++) {
        if (!isfinite(logits[i])) {
            snprintf(text, ERR_MESSAGE_BYTES, "logit %u is %s at step %u: lm_head or the final "
                     "norm holds a bad weight; no token was made", i,
                     isnan(logits[i]) ? "NaN" : "infinite", step);
            return false;
        }
    }
    return true;
}

static int choose(struct generation *g, const float *logits, uint32_t *id)
{
    if (g->request->sample == NULL) {
        *id = argmax(logits, g->vocab);
        return 0;
    }
    return sampler_choose(&g->sampler, logits, g->history, g->history_count, g->position, id);
}

static void tell_token(struct generation *g, uint32_t step, uint32_t id, const float *logits)
{
    const struct generate_request *r = g->request;
    if (r->on_choice != NULL) {
        r->on_choice(r->ctx, step, logits, id);
    }
    if (r->on_token != NULL) {
        r->on_token(r->ctx, step, id);
    }
    g->stopped = generate_stops(r->stop, r->stop_count, id) ||
                 (r->stops != NULL && r->stops(r->ctx, step, id));
}

/* Logits -> hash -> token. */
static int take_step(struct generation *g, const float *logits)
{
    uint32_t step = g->out->count;
    uint32_t id;
    char text[ERR_MESSAGE_BYTES];
    if (!generate_finite(logits, g->vocab, step, text)) {
        return err_set(ERR_NUMERIC, "%s", text);
    }
    sha256_update(&g->hash, g->vocab * sizeof *logits, (const uint8_t *)logits);
    if (g->request->on_logits != NULL) {
        g->request->on_logits(g->request->ctx, step, logits);
    }
    TRY(choose(g, logits, &id));
    g->history[g->history_count++] = id;
    g->position++;
    g->out->ids[g->out->count++] = id;
    tell_token(g, step, id, logits);
    return 0;
}

static void tell_positions(const struct generate_request *r, uint32_t count)
{
    if (r->on_positions != NULL) {
        r->on_positions(r->ctx, count);
    }
}

static int run_prompt(struct generation *g, const float **logits)
{
    const struct generate_request *r = g->request;
    uint32_t chunk = engine_plan_of(g->e)->chunk;
    for (uint32_t at = 0; at < r->id_count; at += chunk) {
        uint32_t count = r->id_count - at < chunk ? r->id_count - at : chunk;
        TRY(engine_pass(g->e, r->ids + at, count, logits));
        tell_positions(r, count);
    }
    return 0;
}

bool generate_stops(const uint32_t *stop, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (stop[i] == id) {
            return true;
        }
    }
    return false;
}

/* First guess of the share of a pass that one more token costs: its experts among all weights. */
static double slope_of(const struct plan *plan)
{
    double experts = (double)plan->experts_per_pass * (double)plan->expert_window_bytes;
    double trunk = 0;
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        trunk += (double)plan->traffic[kind].window_bytes;
    }
    return experts / (trunk + experts);
}

static bool over(const struct generation *g)
{
    const struct generate_request *r = g->request;
    return g->out->count == g->gen || g->stopped || (r->enough != NULL && r->enough(r->ctx));
}

/* Makes a token of every row as long as the draft is what the rows say. *kept: drafts that were. */
static int take_rows(struct generation *g, const uint32_t *ids, uint32_t count, uint32_t *kept)
{
    struct generate_result *out = g->out;
    char fault[ERR_MESSAGE_BYTES];
    *kept = 0;
    for (uint32_t row = 0; row < count; row++) {
        if (engine_fault(g->e, row, fault)) {
            return err_set(ERR_NUMERIC, "%s", fault);
        }
        TRY(take_step(g, engine_logits(g->e, row)));
        if (over(g) || row + 1 == count || ids[row + 1] != out->ids[out->count - 1]) {
            return 0;
        }
        ++*kept;
    }
    return 0;
}

/* One pass after the prompt. */
static int run_step(struct generation *g)
{
    const struct generate_request *r = g->request;
    struct generate_result *out = g->out;
    uint32_t ids[1 + DRAFT_TOKENS_MAX];
    uint32_t kept;
    uint32_t most = (uint32_t)min_u64(r->drafts, g->gen - out->count - 1);
    uint32_t tried = draft_propose(&g->draft, g->history, g->history_count, most, ids + 1);
    uint64_t begun = nondet_now_ns();
    ids[0] = out->ids[out->count - 1];
    TRY(engine_try(g->e, ids, 1 + tried));
    uint64_t ended = nondet_now_ns();
    TRY(take_rows(g, ids, 1 + tried, &kept));
    engine_accept(g->e, kept);
    tell_positions(r, 1 + kept);
    draft_learn(&g->draft, tried, kept, ended - begun);
    out->steps++;
    out->drafted += tried;
    out->accepted += kept;
    return 0;
}

/* Announces the sequence. */
static int begin(struct generation *g)
{
    const struct generate_request *r = g->request;
    TRY(engine_check_ids(g->e, "prompt", r->ids, r->id_count));
    return r->resume ? engine_resume(g->e, r->id_count, g->gen - 1)
                     : engine_begin(g->e, r->id_count, g->gen - 1);
}

static int run_all(struct generation *g)
{
    const float *logits = NULL;
    uint64_t begun = nondet_now_ns();
    TRY(begin(g));
    TRY(run_prompt(g, &logits));
    TRY(take_step(g, logits));
    uint64_t first = nondet_now_ns();
    g->out->first_ns = first - begun;
    while (!over(g)) {
        TRY(run_step(g));
        g->out->rest_ns = nondet_now_ns() - first;
    }
    if (g->stopped) {
        g->out->finish = FINISH_STOP;
    } else if (g->out->count == g->gen && g->gen < g->request->gen) {
        g->out->finish = FINISH_CONTEXT;
    }
    return 0;
}

/* How many tokens may be made, and memory for the ids they follow. */
static int prepare(struct generation *g)
{
    const struct generate_request *r = g->request;
    uint32_t context = engine_plan_of(g->e)->request.context;
    uint32_t held = r->resume ? engine_position(g->e) : 0;
    if ((uint64_t)held + r->id_count >= context) {
        return err_set(ERR_FIT, "%u positions held and %u tokens to read leave no room in "
                       "--context %u to make one; give a larger --context or a shorter prompt",
                       held, r->id_count, context);
    }
    g->gen = (uint32_t)min_u64(r->gen, context - held - r->id_count);
    g->position = held + r->id_count;
    g->history_count = r->past_count + r->id_count;
    g->history = malloc(((size_t)g->history_count + g->gen) * sizeof *g->history);
    if (g->history == NULL) {
        return err_set(ERR_MEMORY, "no memory for %u ids", g->history_count + g->gen);
    }
    if (r->past_count > 0) {
        memcpy(g->history, r->past, r->past_count * sizeof *g->history);
    }
    memcpy(g->history + r->past_count, r->ids, r->id_count * sizeof *g->history);
    if (r->sample == NULL) {
        return 0;
    }
    TRY(sample_check(r->sample, g->vocab));
    return sampler_open(&g->sampler, r->sample, engine_kernels(g->e), g->vocab);
}

int generate(struct engine *e, const struct generate_request *request,
             struct generate_result *out)
{
    struct generation g = {.e = e, .request = request, .out = out,
                           .vocab = engine_model(e)->config.vocab};
    uint32_t *ids = out->ids;
    *out = (struct generate_result){.ids = ids, .finish = FINISH_LENGTH};
    sha256_init(&g.hash);
    draft_init(&g.draft, slope_of(engine_plan_of(e)), request->drafts_fixed);
    int rc = prepare(&g);
    rc = rc < 0 ? rc : run_all(&g);
    sampler_close(&g.sampler);
    free(g.history);
    if (rc < 0) {
        out->finish = engine_interrupted(e) ? FINISH_INTERRUPTED : FINISH_FAILED;
    }
    sha256_digest(&g.hash, sizeof out->hash, out->hash);
    int end = engine_end_with(e, rc);
    if (end != rc) {
        out->finish = FINISH_FAILED;
    }
    return end;
}

void generate_hash_text(const unsigned char hash[LOGITS_HASH_BYTES], char text[65])
{
    for (int i = 0; i < LOGITS_HASH_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
    }
}

const char *generate_finish_name(enum finish_reason reason)
{
    static const char *const names[] = {"length", "stop", "context", "interrupted",
                                        "failed"};
    return names[reason];
}
