/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_INVENTORY_H
#define MODEL_INVENTORY_H

/* Which tensors a model of a given config consists of: names, dtypes, shapes. One description
 * used by the index (to bind and check what a checkpoint holds) and by synth (to write one).
 * Pure functions of the config. */

#include "core/model/config.h"

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_U8 };

/* Tensors of a layer that are not experts, then those of the model level. */
enum tensor_id {
    T_INPUT_NORM, T_POST_NORM,
    T_ATTN_RES_NORM, T_ATTN_RES_PROJ, T_MLP_RES_NORM, T_MLP_RES_PROJ,
    /* attention, both kinds */
    T_G, T_O,
    /* KDA */
    T_Q, T_K, T_V, T_CONV_Q, T_CONV_K, T_CONV_V, T_F_A, T_F_B, T_B, T_A_LOG, T_DT_BIAS, T_O_NORM,
    /* MLA */
    T_Q_A, T_Q_A_NORM, T_Q_B, T_KV_A, T_KV_A_NORM, T_KV_B,
    /* dense MLP */
    T_DENSE_GATE, T_DENSE_UP, T_DENSE_DOWN,
    /* mixture of experts */
    T_ROUTER, T_ROUTER_BIAS, T_LATENT_DOWN, T_LATENT_NORM, T_LATENT_UP,
    T_SHARED_GATE, T_SHARED_UP, T_SHARED_DOWN,
    T_LAYER_COUNT,
    /* model level */
    T_EMBED = T_LAYER_COUNT, T_LM_HEAD, T_NORM, T_OUT_RES_NORM, T_OUT_RES_PROJ,
    T_COUNT
};

/* The six tensors of an expert, in the order the released files hold them. */
enum expert_part { W1_PACKED, W1_SCALE, W2_PACKED, W2_SCALE, W3_PACKED, W3_SCALE, EXPERT_PARTS };

#define TENSOR_NAME_BYTES 160
#define TENSOR_MODEL_LEVEL UINT32_MAX

struct tensor_spec {
    char name[TENSOR_NAME_BYTES];
    enum dtype dtype;
    uint32_t rank;          /* 1..3 */
    uint64_t shape[3];      /* entries from rank on are 1 */
    uint32_t layer;         /* or TENSOR_MODEL_LEVEL */
    enum tensor_id id;      /* T_COUNT for a tensor of an expert */
    uint32_t expert;        /* with id == T_COUNT */
    enum expert_part part;  /* with id == T_COUNT */
};

static inline uint64_t dtype_bytes(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 4 : dtype == DTYPE_BF16 ? 2 : 1;
}

const char *dtype_name(enum dtype dtype); /* "F32", "BF16", "U8" */

uint64_t tensor_spec_bytes(const struct tensor_spec *spec);

/* Whether a layer has the tensor id (T_EMBED.. are never layer tensors). */
bool inventory_layer_has(const struct model_config *c, uint32_t layer, enum tensor_id id);

/* Fills spec for one tensor that exists. layer is TENSOR_MODEL_LEVEL for T_EMBED and later. */
void inventory_tensor(const struct model_config *c, uint32_t layer, enum tensor_id id,
                      struct tensor_spec *spec);
void inventory_expert(const struct model_config *c, uint32_t layer, uint32_t expert,
                      enum expert_part part, struct tensor_spec *spec);

/* Finds which tensor of this config a name denotes and fills spec. Returns false for a name
 * that is not of the text model (vision and projector tensors, unknown names). */
bool inventory_find(const struct model_config *c, const char *name, struct tensor_spec *spec);

#endif
