/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/batch.h"

#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "kernels/kernels.h"

/* A sequence being made, in the state of the same number. */
struct lane {
    struct batch_request request;
    struct sha256_ctx hash;
    uint32_t *history;       /* prompt, then room for what is made */
    uint32_t *ids;           /* [gen] in history */
    uint32_t made, fed;      /* tokens made; prompt tokens consumed */
    uint32_t first, count;   /* its tokens in this pass */
    bool busy, wants_logits; /* in this pass */
};

struct rounds {
    struct engine *e;
    const struct batch_source *source;
    struct batch_totals *totals;
    struct lane *lane;
    uint32_t lanes, chunk, vocab;
    struct sampler sampler;     /* of the lane in turn; open from the first that wants one on */
    struct batch_request ahead; /* the next request, when there is one */
    bool more;
    struct engine_token *token; /* of the pass being put together */
    uint32_t *logits_of, *row_lane;
    uint32_t tokens, rows;
    bool head;                  /* as announced */
};

static bool in_prompt(const struct lane *lane)
{
    return lane->fed < lane->request.id_count;
}

static void look_ahead(struct rounds *b)
{
    b->more = b->source->next(b->source->ctx, &b->ahead);
}

static int check_request(const struct rounds *b, const struct batch_request *r)
{
    uint32_t context = engine_plan_of(b->e)->request.context;
    char what[64];
    snprintf(what, sizeof what, "prompt of request %u", r->tag);
    TRY(engine_check_ids(b->e, what, r->ids, r->id_count));
    if ((uint64_t)r->id_count + r->gen > context) {
        return err_set(ERR_FIT, "request %u: %u prompt tokens and %u to make exceed --context %u",
                       r->tag, r->id_count, r->gen, context);
    }
    return r->sample != NULL ? sample_check(r->sample, b->vocab) : 0;
}

static int join(struct rounds *b, uint32_t index)
{
    struct lane *lane = &b->lane[index];
    TRY(check_request(b, &b->ahead));
    *lane = (struct lane){.request = b->ahead, .busy = true};
    const struct batch_request *r = &lane->request;
    lane->history = malloc(((size_t)r->id_count + r->gen) * sizeof *lane->history);
    if (lane->history == NULL) {
        return err_set(ERR_MEMORY, "no memory for %u ids", r->gen);
    }
    memcpy(lane->history, r->ids, r->id_count * sizeof *lane->history);
    lane->ids = lane->history + r->id_count;
    if (r->sample != NULL && b->sampler.vocab == 0) {
        TRY(sampler_open(&b->sampler, r->sample, engine_kernels(b->e), b->vocab));
    }
    sha256_init(&lane->hash);
    engine_clear(b->e, index);
    b->totals->sequences++;
    look_ahead(b);
    return 0;
}

static int leave(struct rounds *b, struct lane *lane, enum finish_reason finish, const char *error)
{
    struct batch_result result = {.tag = lane->request.tag, .ids = lane->ids,
                                  .count = lane->made, .finish = finish, .error = error};
    TRY(engine_check_files(b->e)); /* what is handed over is final */
    sha256_digest(&lane->hash, sizeof result.hash, result.hash);
    b->totals->failed += finish == FINISH_FAILED;
    int rc = b->source->done(b->source->ctx, &result);
    free(lane->history);
    *lane = (struct lane){0};
    return rc;
}

/* Appends count tokens of a lane to the pass. */
static void add_tokens(struct rounds *b, uint32_t index, const uint32_t *ids, uint32_t position,
                       uint32_t count, bool logits)
{
    struct lane *lane = &b->lane[index];
    lane->first = b->tokens;
    lane->count = count;
    lane->wants_logits = logits;
    for (uint32_t i = 0; i < count; i++) {
        b->token[b->tokens++] = (struct engine_token){.id = ids[i], .position = position + i,
                                                      .sequence = index};
    }
    if (logits) {
        b->row_lane[b->rows] = index;
        b->logits_of[b->rows++] = b->tokens - 1;
    }
}

/* One token of every sequence past its prompt, then prompt tokens while there is room. */
static void assemble(struct rounds *b)
{
    b->tokens = b->rows = 0;
    for (uint32_t i = 0; i < b->lanes; i++) {
        struct lane *lane = &b->lane[i];
        lane->count = 0;
        lane->wants_logits = false;
        if (lane->busy && !in_prompt(lane)) {
            add_tokens(b, i, &lane->ids[lane->made - 1],
                       lane->request.id_count + lane->made - 1, 1, true);
        }
    }
    for (uint32_t i = 0; i < b->lanes; i++) {
        struct lane *lane = &b->lane[i];
        if (lane->busy && in_prompt(lane) && b->tokens < b->chunk) {
            uint32_t left = lane->request.id_count - lane->fed;
            uint32_t count = (uint32_t)min_u64(left, b->chunk - b->tokens);
            add_tokens(b, i, lane->request.ids + lane->fed, lane->fed, count, count == left);
        }
    }
}

/* Whether a pass may follow this one, and whether it may want logits: never less than it does. */
static void forecast_next(const struct rounds *b, bool *later, bool *head)
{
    *later = *head = b->more;
    for (uint32_t i = 0; i < b->lanes; i++) {
        const struct lane *lane = &b->lane[i];
        if (!lane->busy) {
            continue;
        }
        if (lane->wants_logits) {
            bool goes_on = lane->made + 1 < lane->request.gen;
            *later = *later || goes_on;
            *head = *head || goes_on;
        } else {
            uint32_t left = lane->request.id_count - lane->fed - lane->count;
            *later = true;
            *head = *head || left <= b->chunk;
        }
    }
}

static int run_pass(struct rounds *b)
{
    bool later;
    bool next_head;
    forecast_next(b, &later, &next_head);
    struct engine_work work = {
        .token = b->token, .count = b->tokens, .logits_of = b->logits_of,
        .logits_count = b->rows, .head = b->totals->passes == 0 ? b->rows > 0 : b->head,
        .later = later, .next_head = next_head, .isolate = true};
    bool steady = true;
    for (uint32_t i = 0; i < b->lanes; i++) {
        steady = steady && !(b->lane[i].busy && in_prompt(&b->lane[i]));
    }
    uint64_t begun = nondet_now_ns();
    TRY(engine_run(b->e, &work));
    b->totals->steady_ns += steady ? nondet_now_ns() - begun : 0;
    b->totals->steady_tokens += steady ? b->tokens : 0;
    b->head = next_head;
    b->totals->passes++;
    return 0;
}

/* The first thing about a lane's tokens that was not finite. */
static bool lane_fault(const struct rounds *b, const struct lane *lane, char *text)
{
    for (uint32_t i = 0; i < lane->count; i++) {
        if (engine_fault(b->e, lane->first + i, text)) {
            return true;
        }
    }
    return false;
}

/* By the chance of its position, as generate() chooses. */
static int choose(struct rounds *b, const struct lane *lane, const float *logits, uint32_t *id)
{
    const struct batch_request *r = &lane->request;
    uint32_t position = r->id_count + lane->made;
    if (r->sample == NULL) {
        *id = argmax(logits, b->vocab);
        return 0;
    }
    b->sampler.options = *r->sample;
    return sampler_choose(&b->sampler, logits, lane->history, position, position, id);
}

/* Logits -> hash -> token, for one lane. */
static int take_row(struct rounds *b, struct lane *lane, const float *logits)
{
    char text[ERR_MESSAGE_BYTES];
    if (!generate_finite(logits, b->vocab, lane->made, text)) {
        return leave(b, lane, FINISH_FAILED, text);
    }
    sha256_update(&lane->hash, b->vocab * sizeof *logits, (const uint8_t *)logits);
    uint32_t id;
    TRY(choose(b, lane, logits, &id));
    lane->ids[lane->made++] = id;
    b->totals->made_tokens++;
    if (generate_stops(lane->request.stop, lane->request.stop_count, id)) {
        return leave(b, lane, FINISH_STOP, NULL);
    }
    return lane->made == lane->request.gen ? leave(b, lane, FINISH_LENGTH, NULL) : 0;
}

/* What the pass made of every lane. */
static int take_pass(struct rounds *b)
{
    char text[ERR_MESSAGE_BYTES];
    for (uint32_t i = 0; i < b->lanes; i++) {
        struct lane *lane = &b->lane[i];
        if (in_prompt(lane)) {
            lane->fed += lane->count;
            b->totals->prompt_tokens += lane->count;
        }
        if (lane->busy && lane_fault(b, lane, text)) {
            TRY(leave(b, lane, FINISH_FAILED, text));
        }
    }
    for (uint32_t row = 0; row < b->rows; row++) {
        struct lane *lane = &b->lane[b->row_lane[row]];
        if (lane->busy) {
            TRY(take_row(b, lane, engine_logits(b->e, row)));
        }
    }
    return 0;
}

static int run_all(struct rounds *b)
{
    look_ahead(b);
    for (;;) {
        for (uint32_t i = 0; i < b->lanes && b->more; i++) {
            if (!b->lane[i].busy) {
                TRY(join(b, i));
            }
        }
        assemble(b);
        if (b->tokens == 0) {
            return 0;
        }
        TRY(run_pass(b));
        TRY(take_pass(b));
    }
}

static int open_batch(struct rounds *b)
{
    b->lane = calloc(b->lanes, sizeof *b->lane);
    b->token = calloc(b->chunk, sizeof *b->token);
    b->logits_of = calloc(b->lanes, sizeof *b->logits_of);
    b->row_lane = calloc(b->lanes, sizeof *b->row_lane);
    if (b->lane == NULL || b->token == NULL || b->logits_of == NULL || b->row_lane == NULL) {
        return err_set(ERR_MEMORY, "no memory for %u sequences", b->lanes);
    }
    return 0;
}

static void close_batch(struct rounds *b)
{
    for (uint32_t i = 0; b->lane != NULL && i < b->lanes; i++) {
        free(b->lane[i].history);
    }
    free(b->lane);
    free(b->token);
    free(b->logits_of);
    free(b->row_lane);
    sampler_close(&b->sampler);
}

int batch_run(struct engine *e, const struct batch_source *source,
              const struct engine_forecast *forecast, struct batch_totals *totals)
{
    const struct plan *plan = engine_plan_of(e);
    struct rounds b = {.e = e, .source = source, .totals = totals, .chunk = plan->chunk,
                      .lanes = plan->request.sequences, .vocab = engine_model(e)->config.vocab};
    uint64_t begun = nondet_now_ns();
    *totals = (struct batch_totals){0};
    int rc = open_batch(&b);
    if (rc == 0) {
        rc = engine_start(e, forecast);
    }
    if (rc == 0) {
        rc = engine_end_with(e, run_all(&b));
    }
    totals->total_ns = nondet_now_ns() - begun;
    close_batch(&b);
    return rc;
}
