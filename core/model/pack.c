/* SPDX-License-Identifier: Apache-2.0 */
/* What a pack holds of each tensor, and the tiles of an open one. */
#include "core/model/pack.h"

#include <stdlib.h>

#include "core/base/packed.h"
#include "core/model/model_priv.h"

bool pack_is_matrix(enum tensor_id id)
{
    switch (id) {
    case T_G:
    case T_O:
    case T_Q:
    case T_K:
    case T_V:
    case T_F_A:
    case T_F_B:
    case T_B:
    case T_Q_A:
    case T_Q_B:
    case T_KV_A:
    case T_KV_B:
    case T_DENSE_GATE:
    case T_DENSE_UP:
    case T_DENSE_DOWN:
    case T_ROUTER:
    case T_LATENT_DOWN:
    case T_LATENT_UP:
    case T_SHARED_GATE:
    case T_SHARED_UP:
    case T_SHARED_DOWN:
    case T_EMBED:
    case T_LM_HEAD:
        return true;
    default:
        return false;
    }
}

bool pack_may_code(enum tensor_id id, uint32_t cols)
{
    return pack_is_matrix(id) && id != T_KV_B && id != T_ROUTER && id != T_EMBED &&
           packed_fits(cols);
}

uint32_t pack_unit_rows(const struct model_config *c, enum tensor_id id)
{
    if (id == T_KV_B) {
        return c->qk_nope + c->v_head;
    }
    uint64_t rows = 1;
    while (id == T_EMBED && rows * c->hidden * dtype_bytes(DTYPE_BF16) % PAGE_BYTES != 0) {
        rows *= 2; /* ends: the page is a power of two */
    }
    return (uint32_t)rows;
}

const struct model_tile *model_tiles(const struct model *model, uint32_t layer, enum tensor_id id,
                                     uint32_t *count)
{
    *count = 0;
    if (model->pack == NULL) {
        return NULL;
    }
    const struct tensor_place place = {.layer = layer, .id = id};
    const struct pack_range *range = &model->pack->ranges[bind_slot(&model->config, &place)];
    *count = range->count;
    return range->count > 0 ? &model->pack->tiles[range->first] : NULL;
}

uint64_t pack_tensor_checksum(const struct model *model, uint32_t layer, enum tensor_id id)
{
    const struct tensor_place place = {.layer = layer, .id = id};
    return model->pack->checksums[bind_slot(&model->config, &place)];
}

uint64_t pack_expert_checksum(const struct model *model, uint32_t layer, uint32_t expert)
{
    const struct model_config *c = &model->config;
    assert(model->pack->expert_checksums != NULL && expert < c->experts);
    return model->pack->expert_checksums[(uint64_t)(layer - c->first_dense) * c->experts + expert];
}

uint64_t pack_expert_bytes(const struct model *model)
{
    uint64_t bytes = 0;
    for (uint32_t part = 0; part < EXPERT_PARTS; part++) {
        bytes += model->part_bytes[part];
    }
    return bytes;
}

void pack_free(struct model_pack *pack)
{
    if (pack == NULL) {
        return;
    }
    pack_identity_free(&pack->identity);
    free(pack->source);
    free(pack->tiles);
    free(pack->ranges);
    free(pack->checksums);
    free(pack->expert_checksums);
    free(pack);
}

uint64_t pack_resident_bytes(const struct model *model)
{
    const struct model_pack *pack = model->pack;
    const struct model_config *c = &model->config;
    if (pack == NULL) {
        return 0;
    }
    uint64_t slots = (uint64_t)c->layers * T_LAYER_COUNT + (T_COUNT - T_LAYER_COUNT);
    uint64_t experts = (uint64_t)(c->layers - c->first_dense) * c->experts;
    /* Tiles grow by doubling; a shard's name is short. */
    return sizeof *pack + 2ULL * pack->tile_count * sizeof *pack->tiles +
           slots * (sizeof *pack->ranges + sizeof *pack->checksums) +
           (pack->expert_checksums != NULL ? experts * sizeof *pack->expert_checksums : 0) +
           pack->identity.shard_count * (sizeof *pack->identity.shards + 128ULL);
}
