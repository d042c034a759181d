/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_REFERENCE_H
#define TESTS_SUPPORT_REFERENCE_H

/* A second opinion on the model: the forward pass of the tiny 13-layer checkpoint in plain double
 * loops, one token at a time. It shares no code, no header and no table with the engine: shapes
 * are written out here and weights are computed from tensor names, so that nothing can be wrong
 * in both for the same reason. Any one of 37 well-known mistakes can be switched on.
 * Weights are immutable and may be shared; a struct reference has one owner. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ref_shape {
    REF_LAYERS = 13,
    REF_HIDDEN = 128,
    REF_VOCAB = 256,
    REF_BLOCK = 3,       /* layers per AttnRes block */
    REF_SOURCES_MAX = 6, /* five snapshots and the prefix */
    REF_KDA_HEADS = 4,
    REF_KDA_DIM = 16,
    REF_KDA_WIDTH = 64, /* heads times dim */
    REF_TAPS = 4,
    REF_HEADS = 6,
    REF_Q_LORA = 64,
    REF_KV_LORA = 32,
    REF_NOPE = 24,
    REF_ROPE = 8,
    REF_V = 16,
    REF_Q_WIDTH = 192,  /* heads times (nope + rope) */
    REF_KV_WIDTH = 240, /* heads times (nope + v) */
    REF_O_WIDTH = 96,   /* heads times v */
    REF_DENSE = 96,
    REF_EXPERTS = 16,
    REF_TOP = 4,
    REF_LATENT = 64,
    REF_INTER = 64,
    REF_SHARED = 128, /* two shared experts, fused */
    REF_CONTEXT = 32  /* positions a struct reference can hold */
};

/* X(suffix, what is done wrong). The last one cannot be seen in a logit: the norm that follows
 * the weighted sum of experts takes their common scale away again. */
#define MUTATION_LIST(X)                                    \
    X(A_LOG_PER_CHANNEL, "A_log per channel")               \
    X(SOFTPLUS_GATE, "softplus decay gate")                 \
    X(SOFTPLUS_CLAMPED, "softplus decay gate, clamped")     \
    X(NO_DT_BIAS, "dt_bias missing")                        \
    X(CONV_REVERSED, "convolution taps reversed")           \
    X(V_NO_SILU, "v without SiLU")                          \
    X(L2_MEAN, "mean instead of sum in l2")                 \
    X(L2_ON_V, "l2 on v as well")                           \
    X(NO_Q_SCALE, "q not scaled")                           \
    X(READ_BEFORE_DECAY, "state read before decay")         \
    X(OUTPUT_BEFORE_UPDATE, "output before update")         \
    X(NO_DELTA, "no delta correction")                      \
    X(GATE_BEFORE_NORM, "KDA gate before norm")             \
    X(KDA_SILU_GATE, "KDA gate is SiLU")                    \
    X(ROPE_ON, "rotary embedding on")                       \
    X(ROPE_DROPPED, "rope dimensions dropped")              \
    X(SCALE_NOPE, "score scale from nope alone")            \
    X(MLA_NO_GATE, "MLA without gate")                      \
    X(CAPPED_SIGMOID, "sigmoid of the capped gate")         \
    X(NO_UP_CAP, "up branch not capped")                    \
    X(SWIGLU, "SwiGLU")                                     \
    X(NO_BIAS, "router bias missing")                       \
    X(BIASED_WEIGHTS, "router weights with bias")           \
    X(SOFTMAX_ROUTER, "softmax router")                     \
    X(NORM_PER_EXPERT, "norm per expert")                   \
    X(NO_LATENT_NORM, "no latent norm")                     \
    X(SHARED_AVERAGED, "shared experts averaged")           \
    X(W1_W3_SWAPPED, "w1 and w3 swapped")                   \
    X(NIBBLES_SWAPPED, "nibbles swapped")                   \
    X(SCALE_BIAS_128, "scale exponent bias 128")            \
    X(ATTNRES_NORMED_VALUES, "AttnRes mixes normed values") \
    X(ATTNRES_RAW_KEYS, "AttnRes scores from raw keys")     \
    X(BOUNDARY_ONE_BASED, "block boundary one-based")       \
    X(NO_RESET, "prefix not reset at a boundary")           \
    X(PUSH_MIXED, "snapshot of the mixture")                \
    X(NO_OUTPUT_ATTNRES, "no AttnRes before the output")    \
    X(RENORM_DROPPED, "router weights not renormalised")

enum mutation {
    MUTATION_NONE,
#define X(name, what) MUTATION_##name,
    MUTATION_LIST(X)
#undef X
        MUTATION_COUNT,
    MUTATION_FIRST = MUTATION_NONE + 1,
    MUTATION_VISIBLE_END = MUTATION_RENORM_DROPPED /* every earlier one moves the logits */
};

struct ref_weights; /* about 16 MB of f32; every value exact */

/* What the router chose, in its own order: falling selection score, lower expert first. */
struct ref_routing {
    int expert[REF_TOP];
    double weight[REF_TOP];
};

struct reference {
    /* results of the last step */
    double logits[REF_VOCAB];
    double hmax[REF_LAYERS];                /* largest |prefix| after each layer */
    struct ref_routing routing[REF_LAYERS]; /* layer 0 is dense: its entry stays zero */

    /* state carried from token to token */
    const struct ref_weights *weights;
    enum mutation mutation;
    int position;
    double history[REF_LAYERS][3][REF_KDA_WIDTH][REF_TAPS - 1];        /* oldest first; q, k, v */
    double state[REF_LAYERS][REF_KDA_HEADS][REF_KDA_DIM][REF_KDA_DIM]; /* [key][value] */
    double kv[REF_LAYERS][REF_CONTEXT][REF_KV_WIDTH];
    double rope_key[REF_LAYERS][REF_CONTEXT][REF_ROPE];
};

/* Computes every weight from its tensor's name. NULL when memory is refused. */
struct ref_weights *ref_weights_open(void);
void ref_weights_close(struct ref_weights *weights);

/* How many checkpoint tensors the weights stand for, and their size in the file. */
int ref_weights_tensors(const struct ref_weights *weights);
uint64_t ref_weights_size_bytes(const struct ref_weights *weights);

/* Row of the embedding, REF_HIDDEN values. */
const float *ref_weights_embedding(const struct ref_weights *weights, int token);

/* The generator: 64-bit FNV-1a of a name, and word i of the stream it starts. */
uint64_t ref_name_hash(const char *name);
uint64_t ref_word(uint64_t seed, uint64_t i);

const char *mutation_name(enum mutation mutation);

/* A fresh state at position 0. NULL when memory is refused. weights must outlive it. */
struct reference *reference_open(const struct ref_weights *weights, enum mutation mutation);
void reference_close(struct reference *ref);

/* Consumes one token (0..REF_VOCAB - 1) and fills the results. At most REF_CONTEXT steps. */
void reference_step(struct reference *ref, int token);

/* Index of the largest value, the lowest index on ties. */
int ref_argmax(const double *values, int count);

#endif
