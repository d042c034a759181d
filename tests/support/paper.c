/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/paper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_FILE_SHIFT 48
#define SCATTER_BASE 4097 /* odd, and one byte behind a page */

static void need(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "model on paper: %s failed\n", what);
        abort();
    }
}

uint64_t paper_data_start(const struct model_config *c, uint32_t layer)
{
    if (c->layers != 93) {
        return 1000 + 34 * (uint64_t)layer;
    }
    if (layer == 0) {
        return 2928;
    }
    if (layer == TENSOR_MODEL_LEVEL) {
        return 584;
    }
    return c->is_mla[layer] ? (layer < 10 ? 817616 : 823016) : (layer < 10 ? 818704 : 824112);
}

bool paper_is_small(enum tensor_id id)
{
    switch (id) {
    case T_INPUT_NORM:
    case T_POST_NORM:
    case T_ATTN_RES_NORM:
    case T_ATTN_RES_PROJ:
    case T_MLP_RES_NORM:
    case T_MLP_RES_PROJ:
    case T_CONV_Q:
    case T_CONV_K:
    case T_CONV_V:
    case T_A_LOG:
    case T_DT_BIAS:
    case T_O_NORM:
    case T_Q_A_NORM:
    case T_KV_A_NORM:
    case T_ROUTER_BIAS:
    case T_LATENT_NORM:
    case T_NORM:
    case T_OUT_RES_NORM:
    case T_OUT_RES_PROJ:
        return true;
    default:
        return false;
    }
}

static int shard_order(const void *a, const void *b)
{
    const struct tensor_spec *x = a;
    const struct tensor_spec *y = b;
    if (x->dtype != y->dtype) {
        return x->dtype < y->dtype ? -1 : 1; /* F32, BF16, U8 */
    }
    return strcmp(x->name, y->name);
}

static uint64_t place(struct model *m, struct tensor_spec *specs, size_t count, uint32_t file,
                      uint64_t at)
{
    qsort(specs, count, sizeof *specs, shard_order);
    for (size_t i = 0; i < count; i++) {
        const struct tensor_spec *spec = &specs[i];
        size_t slot = spec->layer == TENSOR_MODEL_LEVEL
                          ? (size_t)m->config.layers * T_LAYER_COUNT + spec->id - T_LAYER_COUNT
                          : (size_t)spec->layer * T_LAYER_COUNT + spec->id;
        uint64_t inner = spec->shape[1] * spec->shape[2];
        m->tensors[slot] = (struct tensor_ref){
            .offset_bytes = at,
            .size_bytes = tensor_spec_bytes(spec),
            .file = file,
            .rows = spec->rank == 1 ? 1 : (uint32_t)spec->shape[0],
            .cols = spec->rank == 1 ? (uint32_t)spec->shape[0] : (uint32_t)inner,
            .dtype = spec->dtype,
        };
        at += m->tensors[slot].size_bytes;
        m->total_bytes += m->tensors[slot].size_bytes;
        m->tensor_count++;
    }
    return at;
}

static uint64_t place_layer(struct model *m, uint32_t layer)
{
    struct tensor_spec specs[T_LAYER_COUNT];
    size_t count = 0;
    for (enum tensor_id id = 0; id < T_LAYER_COUNT; id++) {
        if (inventory_layer_has(&m->config, layer, id)) {
            inventory_tensor(&m->config, layer, id, &specs[count++]);
        }
    }
    return place(m, specs, count, layer, paper_data_start(&m->config, layer));
}

static uint64_t place_level(struct model *m)
{
    struct tensor_spec specs[T_COUNT - T_LAYER_COUNT];
    size_t count = 0;
    for (enum tensor_id id = T_EMBED; id < T_COUNT; id++) {
        inventory_tensor(&m->config, TENSOR_MODEL_LEVEL, id, &specs[count++]);
    }
    return place(m, specs, count, m->config.layers,
                 paper_data_start(&m->config, TENSOR_MODEL_LEVEL));
}

static void place_experts(struct model *m, uint32_t layer, uint64_t at, bool scattered)
{
    const struct model_config *c = &m->config;
    uint64_t *word = m->expert_parts +
                     (size_t)(layer - c->first_dense) * c->experts * EXPERT_PARTS;
    for (uint32_t expert = 0; expert < c->experts; expert++) {
        for (uint32_t part = 0; part < EXPERT_PARTS; part++, word++) {
            uint64_t index = (uint64_t)(layer - c->first_dense) * c->experts + expert;
            uint64_t file = scattered ? c->layers + 1 + part : layer;
            uint64_t offset = scattered ? SCATTER_BASE + index * (m->part_bytes[part] + 2) : at;
            *word = file << PART_FILE_SHIFT | offset;
            at += m->part_bytes[part];
            m->total_bytes += m->part_bytes[part];
            m->tensor_count++;
        }
    }
}

static struct model *make(const struct model_config *c, bool scattered)
{
    struct model *m = calloc(1, sizeof *m);
    need(m != NULL, "calloc");
    m->config = *c;
    m->dir = strdup("paper");
    m->file_count = c->layers + 1 + (scattered ? EXPERT_PARTS : 0);
    m->files = calloc(m->file_count, sizeof *m->files);
    m->tensors = calloc((size_t)c->layers * T_LAYER_COUNT + T_COUNT, sizeof *m->tensors);
    m->expert_parts = calloc((size_t)c->layers * c->experts * EXPERT_PARTS, sizeof(uint64_t));
    need(m->dir && m->files && m->tensors && m->expert_parts, "calloc");
    for (uint32_t i = 0; i < m->file_count; i++) {
        m->files[i] = (struct model_file){.path = strdup("shard"), .size_bytes = UINT64_MAX / 4};
        need(m->files[i].path != NULL, "strdup");
    }
    for (enum expert_part part = W1_PACKED; part < EXPERT_PARTS; part++) {
        struct tensor_spec spec;
        inventory_expert(c, c->layers - 1, 0, part, &spec);
        m->part_bytes[part] = tensor_spec_bytes(&spec);
    }
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        uint64_t end = place_layer(m, layer);
        if (config_is_moe(c, layer)) {
            place_experts(m, layer, end, scattered);
        }
    }
    place_level(m);
    return m;
}

struct model *paper_model(const struct model_config *c)
{
    return make(c, false);
}

struct model *paper_scattered(const struct model_config *c)
{
    return make(c, true);
}

struct plan_request paper_request(uint64_t ram_bytes)
{
    return (struct plan_request){
        .ram_bytes = ram_bytes,
        .io_size_bytes = 4 * MIB,
        .io_depth = 8,
        .workers = 2,
        .tile_bytes = PLAN_AUTO,
        .pin_bytes = PLAN_AUTO,
        .pin_percent = -1,
        .expert_slots = PLAN_AUTO,
        .context = 5,
        .chunk = PLAN_AUTO,
        .prompt_tokens = 3,
        .index_bytes = 5 * MIB,
        .cache_base_bytes = 1 * MIB,
        .cache_slot_bytes = 200,
        .reserve_bytes = 15 * MIB,
        .pin_slice_bytes = 256 * MIB,
    };
}
