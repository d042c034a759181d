/* SPDX-License-Identifier: Apache-2.0 */
/* KDA by groups of heads: convolutions, norms, decay, the delta rule. A drafted token advances a
 * copy of its head's state and leaves its inputs behind; once accepted, the next pass advances the
 * state itself with the same kernels over the same inputs. */
#include <math.h>
#include <string.h>

#include "core/exec/exec_priv.h"

#define KDA_L2_EPS 1e-6f

/* The state of one head: what a token advances. */
struct head_state {
    float *matrix;  /* [d][d] */
    float *conv[3]; /* [taps - 1][d] of q, k, v */
};

/* One worker's scratch of d floats each. */
struct head_scratch {
    float *alpha, *step, *qkv[3], *o; /* step: [2 * d] */
};

static struct head_scratch scratch_of(const struct engine *e, const struct worker *w)
{
    size_t d = config_of(e)->kda_dim;
    float *at = w->scratch + e->plan->scratch.kda;
    return (struct head_scratch){.alpha = at, .step = at + d,
                                 .qkv = {at + 3 * d, at + 4 * d, at + 5 * d}, .o = at + 6 * d};
}

static struct head_state kept_state(const struct engine *e, uint32_t sequence, uint32_t layer,
                                    uint32_t head)
{
    return (struct head_state){.matrix = state_kda(e, sequence, layer, head),
                               .conv = {state_conv(e, sequence, layer, 0, head),
                                        state_conv(e, sequence, layer, 1, head),
                                        state_conv(e, sequence, layer, 2, head)}};
}

/* The worker's copy of a state, for drafted tokens. */
static struct head_state trial_state(const struct engine *e, const struct worker *w,
                                     const struct head_state *kept)
{
    const struct model_config *c = config_of(e);
    size_t matrix = (size_t)c->kda_dim * c->kda_dim;
    size_t history = (size_t)(c->conv_taps - 1) * c->kda_dim;
    struct head_state trial = {.matrix = w->scratch + e->plan->scratch.kda_trial};
    memcpy(trial.matrix, kept->matrix, matrix * sizeof *trial.matrix);
    for (size_t kind = 0; kind < 3; kind++) {
        trial.conv[kind] = trial.matrix + matrix + kind * history;
        memcpy(trial.conv[kind], kept->conv[kind], history * sizeof *trial.matrix);
    }
    return trial;
}

/* What a drafted token leaves of one head. */
struct head_log {
    float *input[3], *alpha, *beta;
};

static struct head_log log_of(const struct engine *e, uint32_t draft, uint32_t layer,
                              uint32_t head)
{
    const struct model_config *c = config_of(e);
    size_t width = config_kda_width(c);
    float *base = state_draft(e, draft, layer);
    float *at = base + (size_t)head * c->kda_dim;
    return (struct head_log){.input = {at, at + width, at + 2 * width}, .alpha = at + 3 * width,
                             .beta = base + 4 * width + head};
}

/* Convolution inputs in qkv become q, k, v; the state takes the token in; o is what it says. */
static void advance(const struct engine *e, uint32_t layer, uint32_t head,
                    const struct head_state *state, float *const qkv[3], const float *alpha,
                    float beta, float *o, float *step)
{
    const struct model_config *c = config_of(e);
    const struct kernels *k = e->kernels;
    const struct layer_small *s = &e->small[layer];
    uint32_t d = c->kda_dim;
    size_t at = (size_t)head * d;
    for (uint32_t kind = 0; kind < 3; kind++) {
        k->conv_silu(qkv[kind], state->conv[kind], s->conv[kind] + at * c->conv_taps, qkv[kind],
                     c->conv_taps, d);
    }
    k->l2norm(qkv[0], qkv[0], d, KDA_L2_EPS, (float)(1.0 / sqrt((double)d)));
    k->l2norm(qkv[1], qkv[1], d, KDA_L2_EPS, 1.0f);
    k->kda_step(state->matrix, o, qkv[0], qkv[1], qkv[2], alpha, beta, d, step);
}

/* One head, one token. */
static void head_token(struct engine *e, const struct worker *w, uint32_t layer, uint32_t head,
                       uint32_t token, const struct head_state *state)
{
    const struct model_config *c = config_of(e);
    const struct kernels *k = e->kernels;
    const struct layer_small *s = &e->small[layer];
    uint32_t d = c->kda_dim;
    size_t at = (size_t)head * d;
    struct head_scratch scratch = scratch_of(e, w);
    float *qkv[3] = {buffer(e, B_Q, token) + at, buffer(e, B_K, token) + at,
                     buffer(e, B_V, token) + at};
    float *o = buffer(e, B_O, token) + at;
    k->kda_decay(scratch.alpha, buffer(e, B_Z, token) + at, s->dt_bias + at, s->exp_a[head],
                 c->gate_lower_bound, d);
    float beta = kernel_sigmoid(buffer(e, B_BETA, token)[head]);
    if (e->token[token].draft) {
        struct head_log log = log_of(e, token - e->draft_first, layer, head);
        for (uint32_t kind = 0; kind < 3; kind++) {
            memcpy(log.input[kind], qkv[kind], d * sizeof(float));
        }
        memcpy(log.alpha, scratch.alpha, d * sizeof(float));
        *log.beta = beta;
    }
    advance(e, layer, head, state, qkv, scratch.alpha, beta, o, scratch.step);
    k->rmsnorm(o, o, s->o_norm, d, c->rms_eps);
    k->gate(o, o, buffer(e, B_G, token) + at, d);
}

/* Drafted tokens of the pass before that were accepted since. */
static void replay(const struct engine *e, const struct worker *w, uint32_t layer, uint32_t head,
                   const struct head_state *state)
{
    struct head_scratch scratch = scratch_of(e, w);
    uint32_t d = config_of(e)->kda_dim;
    for (uint32_t draft = 0; draft < e->replay; draft++) {
        struct head_log log = log_of(e, draft, layer, head);
        for (uint32_t kind = 0; kind < 3; kind++) {
            memcpy(scratch.qkv[kind], log.input[kind], d * sizeof(float));
        }
        advance(e, layer, head, state, scratch.qkv, log.alpha, *log.beta, scratch.o, scratch.step);
    }
}

static void head_tokens(struct engine *e, const struct worker *w, uint32_t layer, uint32_t head)
{
    struct head_state state = {0};
    for (uint32_t token = 0; token < e->tokens; token++) {
        const struct engine_token *t = &e->token[token];
        if (token == 0 || t->sequence != t[-1].sequence) {
            state = kept_state(e, t->sequence, layer, head);
        }
        if (token == 0 && e->replay > 0) {
            replay(e, w, layer, head, &state);
        }
        if (token == e->draft_first) {
            state = trial_state(e, w, &state);
        }
        head_token(e, w, layer, head, token, &state);
    }
}

/* No pass is running, so the first worker's scratch is free. */
void kda_settle(struct engine *e)
{
    const struct model_config *c = config_of(e);
    for (uint32_t layer = 0; layer < c->layers && e->replay > 0; layer++) {
        for (uint32_t head = 0; head < c->kda_heads && !c->is_mla[layer]; head++) {
            struct head_state state = kept_state(e, e->replay_sequence, layer, head);
            replay(e, &e->workers[0], layer, head, &state);
        }
    }
    e->replay = 0;
}

void compute_kda(struct engine *e, struct worker *w, uint32_t layer, uint32_t part)
{
    uint32_t heads = config_of(e)->kda_heads;
    uint32_t parts = (uint32_t)min_u64(KDA_PARTS, heads);
    for (uint32_t head = heads * part / parts; head < heads * (part + 1) / parts; head++) {
        head_tokens(e, w, layer, head);
    }
}
