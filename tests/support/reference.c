/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/reference_priv.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SITU_GATE_CAP 4.0
#define SITU_UP_CAP 25.0
#define WIDEST 128 /* of any vector inside an MLP */

const char *mutation_name(enum mutation mutation)
{
    switch (mutation) {
#define X(name, what)     \
    case MUTATION_##name: \
        return what;
        MUTATION_LIST(X)
#undef X
    default:
        return "none";
    }
}

static double situ(double gate, double up, enum mutation mutation)
{
    double capped = SITU_GATE_CAP * tanh(gate / SITU_GATE_CAP);
    double capped_up = SITU_UP_CAP * tanh(up / SITU_UP_CAP);
    switch (mutation) {
    case MUTATION_CAPPED_SIGMOID:
        return capped * ref_sigmoid(capped) * capped_up;
    case MUTATION_NO_UP_CAP:
        return capped * ref_sigmoid(gate) * up;
    case MUTATION_SWIGLU:
        return gate * ref_sigmoid(gate) * up;
    default:
        return capped * ref_sigmoid(gate) * capped_up;
    }
}

struct mlp {
    const float *gate, *up, *down;
    int in, inner, out;
};

static void mlp_forward(const struct mlp *m, const double *x, double *y, enum mutation mutation)
{
    double gate[WIDEST], up[WIDEST];
    ref_multiply(gate, m->gate, x, m->inner, m->in);
    ref_multiply(up, m->up, x, m->inner, m->in);
    for (int i = 0; i < m->inner; i++) {
        gate[i] = situ(gate[i], up[i], mutation);
    }
    ref_multiply(y, m->down, gate, m->out, m->inner);
}

/* The residual stream of one token: snapshots, and the running sum since the last of them. */
struct stream {
    double snapshot[REF_SOURCES_MAX][REF_HIDDEN];
    int snapshots;
    double prefix[REF_HIDDEN];
};

static const double *stream_source(const struct stream *s, int i)
{
    return i < s->snapshots ? s->snapshot[i] : s->prefix;
}

static void attn_res(const struct stream *s, const float *norm, const float *proj, double *out,
                     enum mutation mutation)
{
    double weight[REF_SOURCES_MAX + 1], rms[REF_SOURCES_MAX + 1];
    int sources = s->snapshots + 1;
    for (int k = 0; k < sources; k++) {
        const double *source = stream_source(s, k);
        rms[k] = ref_inverse_rms(source, REF_HIDDEN);
        weight[k] = 0.0;
        for (int i = 0; i < REF_HIDDEN; i++) {
            weight[k] += (double)norm[i] * (double)proj[i] * source[i];
        }
        weight[k] *= mutation == MUTATION_ATTNRES_RAW_KEYS ? 1.0 : rms[k];
    }
    ref_softmax(weight, sources);
    for (int i = 0; i < REF_HIDDEN; i++) {
        out[i] = 0.0;
        for (int k = 0; k < sources; k++) {
            double value = stream_source(s, k)[i];
            out[i] +=
                weight[k] * (mutation == MUTATION_ATTNRES_NORMED_VALUES ? value * rms[k] : value);
        }
    }
}

static void router_scores(const struct reference *ref, const struct ref_moe *m, const double *x,
                          double *score)
{
    ref_multiply(score, m->gate, x, REF_EXPERTS, REF_HIDDEN);
    if (ref->mutation == MUTATION_SOFTMAX_ROUTER) {
        ref_softmax(score, REF_EXPERTS);
        return;
    }
    for (int e = 0; e < REF_EXPERTS; e++) {
        score[e] = ref_sigmoid(score[e]);
    }
}

static void route(const struct reference *ref, const struct ref_moe *m, const double *x,
                  struct ref_routing *out)
{
    double score[REF_EXPERTS], choice[REF_EXPERTS], sum = 1e-20;
    router_scores(ref, m, x, score);
    for (int e = 0; e < REF_EXPERTS; e++) {
        choice[e] = score[e] + (ref->mutation == MUTATION_NO_BIAS ? 0.0 : (double)m->bias[e]);
    }
    for (int j = 0; j < REF_TOP; j++) {
        int best = ref_argmax(choice, REF_EXPERTS);
        out->expert[j] = best;
        out->weight[j] = ref->mutation == MUTATION_BIASED_WEIGHTS ? choice[best] : score[best];
        sum += out->weight[j];
        choice[best] = -INFINITY;
    }
    for (int j = 0; j < REF_TOP && ref->mutation != MUTATION_RENORM_DROPPED; j++) {
        out->weight[j] /= sum;
    }
}

/* Reading a matrix with its nibbles exchanged is reading x with its pairs exchanged, and halving
 * every scale is halving the product: so the decoded weights serve these mutations too. */
static void expert_multiply(const struct reference *ref, double *y, const float *w, const double *x,
                            int rows, int in)
{
    double seen[WIDEST];
    int flip = ref->mutation == MUTATION_NIBBLES_SWAPPED ? 1 : 0;
    double scale = ref->mutation == MUTATION_SCALE_BIAS_128 ? 0.5 : 1.0;
    for (int i = 0; i < in; i++) {
        seen[i] = scale * x[i ^ flip];
    }
    ref_multiply(y, w, seen, rows, in);
}

static void expert_forward(const struct reference *ref, const struct ref_expert *e, const double *x,
                           double *y)
{
    double gate[REF_INTER], up[REF_INTER];
    bool swapped = ref->mutation == MUTATION_W1_W3_SWAPPED;
    expert_multiply(ref, gate, swapped ? e->w3 : e->w1, x, REF_INTER, REF_LATENT);
    expert_multiply(ref, up, swapped ? e->w1 : e->w3, x, REF_INTER, REF_LATENT);
    for (int i = 0; i < REF_INTER; i++) {
        gate[i] = situ(gate[i], up[i], ref->mutation);
    }
    expert_multiply(ref, y, e->w2, gate, REF_LATENT, REF_INTER);
}

static void routed_forward(const struct reference *ref, const struct ref_moe *m,
                           const struct ref_routing *routing, const double *x, double *out)
{
    double latent[REF_LATENT], one[REF_LATENT], sum[REF_LATENT] = {0.0};
    bool each = ref->mutation == MUTATION_NORM_PER_EXPERT;
    ref_multiply(latent, m->down, x, REF_LATENT, REF_HIDDEN);
    for (int j = 0; j < REF_TOP; j++) {
        expert_forward(ref, &m->expert[routing->expert[j]], latent, one);
        if (each) {
            ref_rms_norm(one, one, m->norm, REF_LATENT);
        }
        for (int i = 0; i < REF_LATENT; i++) {
            sum[i] += routing->weight[j] * one[i];
        }
    }
    if (!each && ref->mutation != MUTATION_NO_LATENT_NORM) {
        ref_rms_norm(sum, sum, m->norm, REF_LATENT);
    }
    ref_multiply(out, m->up, sum, REF_HIDDEN, REF_LATENT);
}

static void ffn_forward(struct reference *ref, int layer, const double *x, double *out)
{
    const struct ref_layer *l = &ref->weights->layer[layer];
    if (layer == 0) {
        const struct mlp dense = {l->dense.gate, l->dense.up, l->dense.down,
                                  REF_HIDDEN,    REF_DENSE,   REF_HIDDEN};
        mlp_forward(&dense, x, out, ref->mutation);
        return;
    }
    const struct mlp shared = {l->moe.shared_gate, l->moe.shared_up, l->moe.shared_down,
                               REF_HIDDEN,         REF_SHARED,       REF_HIDDEN};
    double share[REF_HIDDEN];
    route(ref, &l->moe, x, &ref->routing[layer]);
    routed_forward(ref, &l->moe, &ref->routing[layer], x, out);
    mlp_forward(&shared, x, share, ref->mutation);
    for (int i = 0; i < REF_HIDDEN; i++) {
        out[i] += share[i] * (ref->mutation == MUTATION_SHARED_AVERAGED ? 0.5 : 1.0);
    }
}

static void stream_add(struct stream *s, const double *x)
{
    for (int i = 0; i < REF_HIDDEN; i++) {
        s->prefix[i] += x[i];
    }
}

/* At a block boundary the prefix becomes a snapshot and starts again from nothing. */
static void stream_cross(struct stream *s, int layer, const double *mixture, enum mutation mutation)
{
    int index = mutation == MUTATION_BOUNDARY_ONE_BASED ? layer + 1 : layer;
    if (index % REF_BLOCK != 0) {
        return;
    }
    assert(s->snapshots < REF_SOURCES_MAX);
    memcpy(s->snapshot[s->snapshots++], mutation == MUTATION_PUSH_MIXED ? mixture : s->prefix,
           sizeof s->prefix);
    if (mutation != MUTATION_NO_RESET) {
        memset(s->prefix, 0, sizeof s->prefix);
    }
}

static void layer_forward(struct reference *ref, int layer, struct stream *s)
{
    const struct ref_layer *l = &ref->weights->layer[layer];
    double h[REF_HIDDEN], out[REF_HIDDEN];
    attn_res(s, l->attn_res_norm, l->attn_res_proj, h, ref->mutation);
    if (s->snapshots == 0) {
        memcpy(h, s->prefix, sizeof h);
    }
    stream_cross(s, layer, h, ref->mutation);
    ref_rms_norm(h, h, l->input_norm, REF_HIDDEN);
    if (ref_is_mla(layer)) {
        ref_mla_forward(ref, layer, h, out);
    } else {
        ref_kda_forward(ref, layer, h, out);
    }
    stream_add(s, out);
    attn_res(s, l->mlp_res_norm, l->mlp_res_proj, h, ref->mutation);
    ref_rms_norm(h, h, l->post_norm, REF_HIDDEN);
    ffn_forward(ref, layer, h, out);
    stream_add(s, out);
    ref->hmax[layer] = 0.0;
    for (int i = 0; i < REF_HIDDEN; i++) {
        ref->hmax[layer] = fmax(ref->hmax[layer], fabs(s->prefix[i]));
    }
}

void reference_step(struct reference *ref, int token)
{
    const struct ref_weights *w = ref->weights;
    struct stream s = {.snapshots = 0};
    double h[REF_HIDDEN];
    assert(token >= 0 && token < REF_VOCAB && ref->position < REF_CONTEXT);
    for (int i = 0; i < REF_HIDDEN; i++) {
        s.prefix[i] = (double)w->embed[token * REF_HIDDEN + i];
    }
    for (int layer = 0; layer < REF_LAYERS; layer++) {
        layer_forward(ref, layer, &s);
    }
    attn_res(&s, w->out_res_norm, w->out_res_proj, h, ref->mutation);
    if (ref->mutation == MUTATION_NO_OUTPUT_ATTNRES) {
        memcpy(h, s.prefix, sizeof h);
    }
    ref_rms_norm(h, h, w->norm, REF_HIDDEN);
    ref_multiply(ref->logits, w->lm_head, h, REF_VOCAB, REF_HIDDEN);
    ref->position++;
}

struct reference *reference_open(const struct ref_weights *weights, enum mutation mutation)
{
    struct reference *ref = calloc(1, sizeof *ref);
    if (ref != NULL) {
        ref->weights = weights;
        ref->mutation = mutation;
    }
    return ref;
}

void reference_close(struct reference *ref)
{
    free(ref);
}
