/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/reference_priv.h"

#include <math.h>
#include <string.h>

#define L2_EPS 1e-6
#define GATE_LOWER_BOUND (-5.0)

/* What one KDA layer computes from its input before the recurrence; channel-major. */
struct kda_input {
    double qkv[REF_QKV][REF_KDA_WIDTH];
    double decay[REF_KDA_WIDTH]; /* alpha */
    double gate[REF_KDA_WIDTH];
    double beta[REF_KDA_HEADS];
};

/* Short causal convolution over the last four projections, then SiLU. */
static void convolve(struct reference *ref, int layer, int which, double *channel)
{
    const float *taps = ref->weights->layer[layer].kda.conv[which];
    bool reversed = ref->mutation == MUTATION_CONV_REVERSED;
    bool linear = ref->mutation == MUTATION_V_NO_SILU && which == REF_VALUE;
    for (int c = 0; c < REF_KDA_WIDTH; c++) {
        double *past = ref->history[layer][which][c];
        const double window[REF_TAPS] = {past[0], past[1], past[2], channel[c]};
        double sum = 0.0;
        for (int t = 0; t < REF_TAPS; t++) {
            sum += window[t] * (double)taps[c * REF_TAPS + (reversed ? REF_TAPS - 1 - t : t)];
        }
        memcpy(past, window + 1, sizeof(double) * (REF_TAPS - 1));
        channel[c] = linear ? sum : sum * ref_sigmoid(sum);
    }
}

static double decay_of(enum mutation mutation, double a_log, double z)
{
    double softplus = -exp(a_log) * log1p(exp(z));
    switch (mutation) {
    case MUTATION_SOFTPLUS_GATE:
        return exp(softplus);
    case MUTATION_SOFTPLUS_CLAMPED:
        return exp(fmax(softplus, GATE_LOWER_BOUND));
    default:
        return exp(GATE_LOWER_BOUND * ref_sigmoid(exp(a_log) * z));
    }
}

static void kda_decay(const struct reference *ref, const struct ref_kda *w, const double *x,
                      double *decay)
{
    double rank[REF_KDA_DIM], z[REF_KDA_WIDTH];
    ref_multiply(rank, w->f_a, x, REF_KDA_DIM, REF_HIDDEN);
    ref_multiply(z, w->f_b, rank, REF_KDA_WIDTH, REF_KDA_DIM);
    for (int c = 0; c < REF_KDA_WIDTH; c++) {
        int per_channel = ref->mutation == MUTATION_A_LOG_PER_CHANNEL;
        double a_log = (double)w->a_log[per_channel ? c % REF_KDA_DIM : c / REF_KDA_DIM];
        double bias = ref->mutation == MUTATION_NO_DT_BIAS ? 0.0 : (double)w->dt_bias[c];
        decay[c] = decay_of(ref->mutation, a_log, z[c] + bias);
    }
}

static void l2_norm(double *x, double scale, enum mutation mutation)
{
    double sum = 0.0;
    for (int i = 0; i < REF_KDA_DIM; i++) {
        sum += x[i] * x[i];
    }
    sum /= mutation == MUTATION_L2_MEAN ? REF_KDA_DIM : 1;
    for (int i = 0; i < REF_KDA_DIM; i++) {
        x[i] *= scale / sqrt(sum + L2_EPS);
    }
}

/* y = S^T x for one head's state. */
static void state_read(double state[REF_KDA_DIM][REF_KDA_DIM], const double *x, double *y)
{
    for (int j = 0; j < REF_KDA_DIM; j++) {
        y[j] = 0.0;
        for (int i = 0; i < REF_KDA_DIM; i++) {
            y[j] += state[i][j] * x[i];
        }
    }
}

/* One step of the gated delta rule for one head: decay, read, write, read. */
static void delta_rule(double state[REF_KDA_DIM][REF_KDA_DIM], const struct kda_input *in, int head,
                       double *out, enum mutation mutation)
{
    int c = head * REF_KDA_DIM;
    const double *q = in->qkv[REF_Q] + c, *k = in->qkv[REF_K] + c, *v = in->qkv[REF_VALUE] + c;
    double before[REF_KDA_DIM], read[REF_KDA_DIM];
    state_read(state, k, before);
    for (int i = 0; i < REF_KDA_DIM; i++) {
        for (int j = 0; j < REF_KDA_DIM; j++) {
            state[i][j] *= in->decay[c + i];
        }
    }
    state_read(state, k, read);
    state_read(state, q, out);
    if (mutation == MUTATION_READ_BEFORE_DECAY) {
        memcpy(read, before, sizeof read);
    } else if (mutation == MUTATION_NO_DELTA) {
        memset(read, 0, sizeof read);
    }
    for (int i = 0; i < REF_KDA_DIM; i++) {
        for (int j = 0; j < REF_KDA_DIM; j++) {
            state[i][j] += k[i] * in->beta[head] * (v[j] - read[j]);
        }
    }
    if (mutation != MUTATION_OUTPUT_BEFORE_UPDATE) {
        state_read(state, q, out);
    }
}

static void kda_gate(double *o, const double *gate, const float *norm, enum mutation mutation)
{
    if (mutation == MUTATION_GATE_BEFORE_NORM) {
        for (int i = 0; i < REF_KDA_DIM; i++) {
            o[i] *= ref_sigmoid(gate[i]);
        }
        ref_rms_norm(o, o, norm, REF_KDA_DIM);
        return;
    }
    ref_rms_norm(o, o, norm, REF_KDA_DIM);
    for (int i = 0; i < REF_KDA_DIM; i++) {
        o[i] *= ref_sigmoid(gate[i]) * (mutation == MUTATION_KDA_SILU_GATE ? gate[i] : 1.0);
    }
}

static void kda_heads(struct reference *ref, int layer, struct kda_input *in, double *mixed)
{
    const struct ref_kda *w = &ref->weights->layer[layer].kda;
    double q_scale = ref->mutation == MUTATION_NO_Q_SCALE ? 1.0 : 1.0 / sqrt(REF_KDA_DIM);
    for (int head = 0; head < REF_KDA_HEADS; head++) {
        int c = head * REF_KDA_DIM;
        l2_norm(in->qkv[REF_Q] + c, q_scale, ref->mutation);
        l2_norm(in->qkv[REF_K] + c, 1.0, ref->mutation);
        if (ref->mutation == MUTATION_L2_ON_V) {
            l2_norm(in->qkv[REF_VALUE] + c, 1.0, ref->mutation);
        }
        delta_rule(ref->state[layer][head], in, head, mixed + c, ref->mutation);
        kda_gate(mixed + c, in->gate + c, w->o_norm, ref->mutation);
    }
}

void ref_kda_forward(struct reference *ref, int layer, const double *x, double *out)
{
    const struct ref_layer *l = &ref->weights->layer[layer];
    struct kda_input in;
    double mixed[REF_KDA_WIDTH];
    for (int i = 0; i < REF_QKV; i++) {
        ref_multiply(in.qkv[i], l->kda.proj[i], x, REF_KDA_WIDTH, REF_HIDDEN);
        convolve(ref, layer, i, in.qkv[i]);
    }
    kda_decay(ref, &l->kda, x, in.decay);
    ref_multiply(in.gate, l->g, x, REF_KDA_WIDTH, REF_HIDDEN);
    ref_multiply(in.beta, l->kda.b, x, REF_KDA_HEADS, REF_HIDDEN);
    for (int head = 0; head < REF_KDA_HEADS; head++) {
        in.beta[head] = ref_sigmoid(in.beta[head]);
    }
    kda_heads(ref, layer, &in, mixed);
    ref_multiply(out, l->o, mixed, REF_HIDDEN, REF_KDA_WIDTH);
}

/* The model has no rotary embedding; one mutation pretends it had. */
static void rotate(double *x, int position)
{
    for (int i = 0; i < REF_ROPE; i += 2) {
        double angle = position * pow(10000.0, -(double)i / REF_ROPE);
        double even = x[i], odd = x[i + 1];
        x[i] = even * cos(angle) - odd * sin(angle);
        x[i + 1] = even * sin(angle) + odd * cos(angle);
    }
}

static void mla_remember(struct reference *ref, int layer, const double *x)
{
    const struct ref_mla *w = &ref->weights->layer[layer].mla;
    double latent[REF_KV_LORA + REF_ROPE];
    double *rope = ref->rope_key[layer][ref->position];
    ref_multiply(latent, w->kv_a, x, REF_KV_LORA + REF_ROPE, REF_HIDDEN);
    memcpy(rope, latent + REF_KV_LORA, sizeof(double) * REF_ROPE);
    if (ref->mutation == MUTATION_ROPE_ON) {
        rotate(rope, ref->position);
    }
    ref_rms_norm(latent, latent, w->kv_a_norm, REF_KV_LORA);
    ref_multiply(ref->kv[layer][ref->position], w->kv_b, latent, REF_KV_WIDTH, REF_KV_LORA);
}

/* One head over all positions so far. q is its nope part followed by its rope part. */
static void mla_head(const struct reference *ref, int layer, int head, const double *q, double *o)
{
    int key = head * (REF_NOPE + REF_V), past = ref->position + 1;
    double width = ref->mutation == MUTATION_SCALE_NOPE ? REF_NOPE : REF_NOPE + REF_ROPE;
    double score[REF_CONTEXT];
    for (int t = 0; t < past; t++) {
        score[t] = 0.0;
        for (int i = 0; i < REF_NOPE; i++) {
            score[t] += q[i] * ref->kv[layer][t][key + i];
        }
        for (int i = 0; i < REF_ROPE && ref->mutation != MUTATION_ROPE_DROPPED; i++) {
            score[t] += q[REF_NOPE + i] * ref->rope_key[layer][t][i];
        }
        score[t] /= sqrt(width);
    }
    ref_softmax(score, past);
    for (int j = 0; j < REF_V; j++) {
        o[j] = 0.0;
        for (int t = 0; t < past; t++) {
            o[j] += score[t] * ref->kv[layer][t][key + REF_NOPE + j];
        }
    }
}

void ref_mla_forward(struct reference *ref, int layer, const double *x, double *out)
{
    const struct ref_layer *l = &ref->weights->layer[layer];
    double low[REF_Q_LORA], q[REF_Q_WIDTH], gate[REF_O_WIDTH], o[REF_O_WIDTH];
    ref_multiply(low, l->mla.q_a, x, REF_Q_LORA, REF_HIDDEN);
    ref_rms_norm(low, low, l->mla.q_a_norm, REF_Q_LORA);
    ref_multiply(q, l->mla.q_b, low, REF_Q_WIDTH, REF_Q_LORA);
    mla_remember(ref, layer, x);
    for (int head = 0; head < REF_HEADS; head++) {
        double *head_q = q + head * (REF_NOPE + REF_ROPE);
        if (ref->mutation == MUTATION_ROPE_ON) {
            rotate(head_q + REF_NOPE, ref->position);
        }
        mla_head(ref, layer, head, head_q, o + head * REF_V);
    }
    ref_multiply(gate, l->g, x, REF_O_WIDTH, REF_HIDDEN);
    for (int i = 0; i < REF_O_WIDTH; i++) {
        o[i] *= ref->mutation == MUTATION_MLA_NO_GATE ? 1.0 : ref_sigmoid(gate[i]);
    }
    ref_multiply(out, l->o, o, REF_HIDDEN, REF_O_WIDTH);
}
