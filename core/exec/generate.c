/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/generate.h"

#include <math.h>
#include <nettle/sha2.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "kernels/kernels.h"

struct generation {
    struct engine *e;
    const struct generate_request *request;
    struct generate_result *out;
    struct sha256_ctx hash;
    uint32_t vocab;
};

static int check_finite(const float *logits, uint32_t vocab, uint32_t step)
{
    for (uint32_t i = 0; i < vocab; i++) {
        if (!isfinite(logits[i])) {
            return err_set(ERR_NUMERIC, "logit %u is %s at step %u: lm_head or the final norm "
                           "holds a bad weight; no token was made", i,
                           isnan(logits[i]) ? "NaN" : "infinite", step);
        }
    }
    return 0;
}

/* Logits -> hash -> token. */
static int take_step(struct generation *g, const float *logits)
{
    uint32_t step = g->out->count;
    TRY(check_finite(logits, g->vocab, step));
    sha256_update(&g->hash, g->vocab * sizeof *logits, (const uint8_t *)logits);
    if (g->request->on_logits != NULL) {
        g->request->on_logits(g->request->ctx, step, logits);
    }
    uint32_t id = argmax(logits, g->vocab);
    g->out->ids[g->out->count++] = id;
    if (g->request->on_token != NULL) {
        g->request->on_token(g->request->ctx, step, id);
    }
    return 0;
}

static int run_prompt(struct generation *g, const float **logits)
{
    const struct generate_request *r = g->request;
    uint32_t chunk = engine_plan_of(g->e)->chunk;
    for (uint32_t at = 0; at < r->id_count; at += chunk) {
        uint32_t count = r->id_count - at < chunk ? r->id_count - at : chunk;
        TRY(engine_pass(g->e, r->ids + at, count, logits));
    }
    return 0;
}

static bool stops(const struct generate_request *r, uint32_t id)
{
    for (uint32_t i = 0; i < r->stop_count; i++) {
        if (r->stop[i] == id) {
            return true;
        }
    }
    return false;
}

static int run_all(struct generation *g)
{
    const struct generate_request *r = g->request;
    const float *logits = NULL;
    uint64_t begun = nondet_now_ns();
    TRY(engine_check_ids(g->e, "prompt", r->ids, r->id_count));
    TRY(engine_begin(g->e, r->id_count, r->gen - 1));
    TRY(run_prompt(g, &logits));
    TRY(take_step(g, logits));
    uint64_t first = nondet_now_ns();
    g->out->first_ns = first - begun;
    while (g->out->count < r->gen && !stops(r, g->out->ids[g->out->count - 1])) {
        TRY(engine_pass(g->e, &g->out->ids[g->out->count - 1], 1, &logits));
        TRY(take_step(g, logits));
        g->out->rest_ns = nondet_now_ns() - first;
    }
    if (g->out->count < r->gen || stops(r, g->out->ids[g->out->count - 1])) {
        g->out->finish = FINISH_STOP;
    }
    return 0;
}

int generate(struct engine *e, const struct generate_request *request,
             struct generate_result *out)
{
    struct generation g = {.e = e, .request = request, .out = out,
                           .vocab = engine_model(e)->config.vocab};
    out->count = 0;
    out->first_ns = out->rest_ns = 0;
    out->finish = FINISH_LENGTH;
    sha256_init(&g.hash);
    int rc = run_all(&g);
    if (rc < 0) {
        out->finish = engine_interrupted(e) ? FINISH_INTERRUPTED : FINISH_FAILED;
    }
    sha256_digest(&g.hash, sizeof out->hash, out->hash);
    int end = engine_end(e);
    if (rc == 0 && end < 0) {
        out->finish = FINISH_FAILED;
    }
    return rc < 0 ? rc : end;
}

void generate_hash_text(const unsigned char hash[LOGITS_HASH_BYTES], char text[65])
{
    for (int i = 0; i < LOGITS_HASH_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
    }
}

const char *generate_finish_name(enum finish_reason reason)
{
    static const char *const names[] = {"length", "stop", "interrupted", "failed"};
    return names[reason];
}
