/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_REFERENCE_PRIV_H
#define TESTS_SUPPORT_REFERENCE_PRIV_H

/* Where reference_weights.c puts each tensor and the forward pass finds it (all row-major), and
 * the arithmetic that is shared by its two halves: attention here, everything else there. */

#include "tests/support/reference.h"

enum ref_qkv { REF_Q, REF_K, REF_VALUE, REF_QKV };

struct ref_kda {
    const float *proj[REF_QKV]; /* [KDA_WIDTH][HIDDEN] */
    const float *conv[REF_QKV]; /* [KDA_WIDTH][TAPS], current token last */
    const float *f_a, *f_b;     /* [KDA_DIM][HIDDEN], [KDA_WIDTH][KDA_DIM] */
    const float *b;             /* [KDA_HEADS][HIDDEN] */
    const float *a_log;         /* [KDA_DIM], the first KDA_HEADS used */
    const float *dt_bias;       /* [KDA_WIDTH] */
    const float *o_norm;        /* [KDA_DIM] */
};

struct ref_mla {
    const float *q_a, *q_a_norm, *q_b;
    const float *kv_a, *kv_a_norm, *kv_b;
};

struct ref_expert {
    const float *w1, *w2, *w3; /* gate, down, up; decoded */
};

struct ref_moe {
    const float *gate, *bias;
    const float *down, *norm, *up; /* into the latent space, its norm, and back */
    const float *shared_gate, *shared_up, *shared_down;
    struct ref_expert expert[REF_EXPERTS];
};

struct ref_dense {
    const float *gate, *up, *down;
};

struct ref_layer {
    const float *input_norm, *post_norm;
    const float *attn_res_norm, *attn_res_proj;
    const float *mlp_res_norm, *mlp_res_proj;
    const float *g, *o; /* output gate and output projection, of either kind */
    struct ref_kda kda; /* empty in MLA layers */
    struct ref_mla mla; /* empty in KDA layers */
    struct ref_moe moe; /* empty in layer 0 */
    struct ref_dense dense;
};

struct ref_weights {
    struct ref_layer layer[REF_LAYERS];
    const float *embed, *lm_head;
    const float *norm, *out_res_norm, *out_res_proj;
    int tensors;
    uint64_t size_bytes;   /* as stored in a checkpoint */
    size_t used, capacity; /* in floats, of pool */
    float pool[];
};

bool ref_is_mla(int layer);

/* y = W x; in is a multiple of 4. */
void ref_multiply(double *y, const float *w, const double *x, int rows, int in);
double ref_sigmoid(double x);
double ref_inverse_rms(const double *x, int count);

/* y may be x. */
void ref_rms_norm(double *y, const double *x, const float *weight, int count);

/* In place: scores become probabilities. */
void ref_softmax(double *score, int count);

/* One attention layer at the current position: x is the normed input, out [REF_HIDDEN]. */
void ref_kda_forward(struct reference *ref, int layer, const double *x, double *out);
void ref_mla_forward(struct reference *ref, int layer, const double *x, double *out);

#endif
