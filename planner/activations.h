/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLANNER_ACTIVATIONS_H
#define PLANNER_ACTIVATIONS_H

/* Where every activation of a pass lies in one block of memory. Buffers of stages that are never
 * alive together overlay each other:
 *
 *   always | attention of KDA   | dense MLP
 *          | attention of MLA   | mixture of experts
 *          '--- same bytes -----'--- same bytes --'
 *
 * All are f32, [tokens][width], token-major, one chunk of tokens at most. */

#include "core/model/config.h"

enum buffer_id {
    /* alive for the whole pass */
    B_PREFIX,     /* [hidden] residual since the last block border */
    B_SNAPSHOTS,  /* [blocks][hidden] residuals at block borders */
    B_NORMED,     /* [hidden] input of attention, then of the MLP */
    B_ATTN_OUT,   /* [hidden] */
    B_MLP_OUT,    /* [hidden] dense output, or routed_expert_up output */
    B_SHARED_OUT, /* [hidden] shared experts' output */
    B_ALWAYS_LAST = B_SHARED_OUT,
    /* KDA */
    B_Q, B_K, B_V, B_G, /* [kda width] */
    B_F_A,              /* [kda_dim] */
    B_Z,                /* [kda width] decay input */
    B_BETA,             /* [kda_heads] */
    B_O,                /* [kda width] */
    B_KDA_LAST = B_O,
    /* MLA */
    B_Q_A,     /* [q_lora], normed in place */
    B_KV_A,    /* [kv_lora + qk_rope] */
    B_MLA_G,   /* [heads * v_head] */
    B_MLA_Q,   /* [heads * (nope + rope)] */
    B_MLA_O,   /* [heads * v_head] */
    B_MLA_LAST = B_MLA_O,
    /* dense MLP */
    B_DENSE_GATE, B_DENSE_UP, /* [dense_width]; the gate buffer becomes the activation */
    B_DENSE_LAST = B_DENSE_UP,
    /* mixture of experts */
    B_ROUTER,       /* [experts] logits, then scores */
    B_ROUTE_WEIGHT, /* [k] */
    B_LATENT,       /* [latent] */
    B_LATENT_SPLIT, /* [latent] in the layout the expert kernel wants */
    B_SHARED_GATE, B_SHARED_UP, /* [shared width] */
    B_EXPERT_OUT,   /* [k][latent], kept apart until summed in router order */
    B_EXPERT_SUM,   /* [latent] */
    B_EXPERT_HIDDEN, /* [k][expert_width], of one token whatever the chunk: experts cut in parts */
    B_MOE_LAST = B_EXPERT_HIDDEN,
    B_COUNT
};

struct activations {
    uint64_t width[B_COUNT];        /* floats per token */
    uint64_t offset_bytes[B_COUNT]; /* multiples of 64 */
    uint64_t size_bytes;            /* of the block for chunk tokens */
    uint32_t chunk;
    uint32_t blocks;                /* snapshots per token at most */
};

/* Pure. chunk >= 1. */
void activations_layout(const struct model_config *c, uint32_t chunk, struct activations *out);

/* Scratch of one worker: attention scores over the context, expert hidden rows. Floats. */
struct scratch {
    uint64_t scores, absorbed, context, hidden_gate, hidden_up, gather, result, kda;
    uint64_t kda_trial;     /* a head's state while drafted tokens try it; only with drafts */
    uint64_t size_bytes;
    uint32_t expert_tokens; /* tokens of an expert computed together */
};

void scratch_layout(const struct model_config *c, uint32_t chunk, uint32_t context, bool drafts,
                    struct scratch *out);

/* Of one sequence: recurrent state of all KDA layers, and latent cache of all MLA layers for a
 * context. */
uint64_t state_bytes(const struct model_config *c);
uint64_t kv_bytes(const struct model_config *c, uint32_t context);

/* What a drafted token leaves behind until it is accepted, in floats per KDA layer: the inputs of
 * the three convolutions and alpha [kda width] each, beta [kda_heads]. */
uint64_t draft_layer_floats(const struct model_config *c);
uint64_t draft_bytes(const struct model_config *c);

#endif
