/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/score.h"

#include <math.h>
#include <nettle/sha2.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/exec/logprob.h"
#include "kernels/kernels.h"

/* A pass: tokens first .. first + count - 1 of the text, positions counted from window_begin. */
struct piece {
    uint32_t window_begin, first, count;
    uint32_t scores_from; /* of its tokens, those from this one on want logits */
    bool last;
};

struct scoring {
    struct engine *e;
    const struct score_request *request;
    struct score_result *out;
    struct engine_token *token; /* [chunk] */
    uint32_t *logits_of;        /* [chunk] */
    float *scratch;             /* [vocab] */
    struct sha256_ctx hash;
    uint32_t chunk, vocab;
};

/* The last token is read by nobody: there is none after it. */
static uint32_t read_end(const struct score_request *r, uint32_t window_begin)
{
    return (uint32_t)min_u64((uint64_t)window_begin + r->window, r->id_count - 1);
}

static struct piece piece_at(const struct score_request *r, uint32_t chunk, uint32_t window_begin,
                             uint32_t first)
{
    uint32_t end = read_end(r, window_begin);
    /* What the windows before this one have read has its followers scored. */
    uint32_t known = window_begin > 0 ? read_end(r, window_begin - r->stride) : 0;
    struct piece p = {.window_begin = window_begin, .first = first,
                      .count = (uint32_t)min_u64(chunk, end - first)};
    p.scores_from = known > first ? known : first;
    p.last = first + p.count == r->id_count - 1;
    return p;
}

static struct piece next_piece(const struct score_request *r, uint32_t chunk,
                               const struct piece *p)
{
    uint32_t first = p->first + p->count;
    if (first < read_end(r, p->window_begin)) {
        return piece_at(r, chunk, p->window_begin, first);
    }
    return piece_at(r, chunk, p->window_begin + r->stride, p->window_begin + r->stride);
}

static bool wants_logits(const struct piece *p)
{
    return p->scores_from < p->first + p->count;
}

uint32_t score_passes(const struct score_request *r, uint32_t chunk)
{
    uint32_t passes = 1;
    for (struct piece p = piece_at(r, chunk, 0, 0); !p.last; p = next_piece(r, chunk, &p)) {
        passes++;
    }
    return passes;
}

/* The score of the token after text[at]. */
static int take_row(struct scoring *s, uint32_t at, const float *logits)
{
    const struct score_request *r = s->request;
    const struct kernels *kernels = engine_kernels(s->e);
    if (!isfinite(kernels->max_abs(logits, s->vocab))) {
        return err_set(ERR_NUMERIC, "a logit after token %u of the text is not finite: lm_head or "
                       "the final norm holds a bad weight", at);
    }
    sha256_update(&s->hash, s->vocab * sizeof *logits, (const uint8_t *)logits);
    struct logprob_norm norm = logprob_norm(kernels, logits, s->vocab, s->scratch);
    double logprob = logprob_of(&norm, logits[r->ids[at + 1]]);
    s->out->logprob[at + 1] = logprob;
    s->out->nats -= logprob;
    s->out->scored = at + 1;
    return 0;
}

static int run_piece(struct scoring *s, const struct piece *p, const struct piece *next,
                     uint32_t later)
{
    uint32_t rows = 0;
    if (p->first == p->window_begin) {
        engine_clear(s->e, 0);
        s->out->windows++;
    }
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t at = p->first + i;
        s->token[i] = (struct engine_token){.id = s->request->ids[at],
                                            .position = at - p->window_begin};
        if (at >= p->scores_from) {
            s->logits_of[rows++] = i;
        }
    }
    struct engine_work work = {.token = s->token, .count = p->count, .logits_of = s->logits_of,
                               .logits_count = rows, .head = rows > 0, .later = later,
                               .next_head = !p->last && wants_logits(next)};
    TRY(engine_run(s->e, &work));
    s->out->passes++;
    s->out->positions += p->count;
    for (uint32_t row = 0; row < rows; row++) {
        TRY(take_row(s, p->first + s->logits_of[row], engine_logits(s->e, row)));
    }
    return 0;
}

static int run_all(struct scoring *s)
{
    const struct score_request *r = s->request;
    uint32_t passes = score_passes(r, s->chunk);
    struct piece p = piece_at(r, s->chunk, 0, 0);
    struct engine_forecast forecast = {.prompt_passes = 1, .prompt_tokens = p.count,
                                       .steps = passes - 1, .step_tokens = s->chunk};
    TRY(engine_check_ids(s->e, "text", r->ids, r->id_count));
    TRY(engine_start(s->e, &forecast));
    for (uint32_t left = passes - 1;; left--) {
        struct piece next = p.last ? p : next_piece(r, s->chunk, &p);
        TRY(run_piece(s, &p, &next, left));
        if (p.last) {
            return 0;
        }
        p = next;
    }
}

int score_run(struct engine *e, const struct score_request *request, struct score_result *out)
{
    struct scoring s = {.e = e, .request = request, .out = out,
                        .chunk = engine_plan_of(e)->chunk,
                        .vocab = engine_model(e)->config.vocab};
    uint64_t begun = nondet_now_ns();
    assert(request->id_count >= 2 && request->stride >= 1 && request->stride <= request->window);
    *out = (struct score_result){.logprob = out->logprob};
    sha256_init(&s.hash);
    s.token = calloc(s.chunk, sizeof *s.token);
    s.logits_of = calloc(s.chunk, sizeof *s.logits_of);
    s.scratch = malloc(s.vocab * sizeof *s.scratch);
    int rc = s.token != NULL && s.logits_of != NULL && s.scratch != NULL
                 ? run_all(&s) : err_set(ERR_MEMORY, "no memory to score %u tokens",
                                         request->id_count);
    rc = engine_end_with(e, rc);
    free(s.token);
    free(s.logits_of);
    free(s.scratch);
    sha256_digest(&s.hash, sizeof out->hash, out->hash);
    out->took_ns = nondet_now_ns() - begun;
    return rc;
}
