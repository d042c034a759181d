/* SPDX-License-Identifier: Apache-2.0 */
/* From a place in a file back to the tensors there. */
#include <stdio.h>

#include "core/model/model_priv.h"

struct seeker {
    const struct model *model;
    struct extent range;
    struct extent best;        /* of those that reach into it, the first one */
    struct tensor_place place; /* of best */
    uint32_t found;
};

static void look(struct seeker *s, struct extent x, const struct tensor_place *place)
{
    bool meets = x.file == s->range.file &&
                 x.offset_bytes < s->range.offset_bytes + s->range.size_bytes &&
                 s->range.offset_bytes < x.offset_bytes + x.size_bytes;
    if (!meets) {
        return;
    }
    if (s->found++ == 0 || x.offset_bytes < s->best.offset_bytes) {
        s->best = x;
        s->place = *place;
    }
}

static void look_at_tensor(struct seeker *s, uint32_t layer, enum tensor_id id)
{
    const struct tensor_place place = {.layer = layer, .id = id};
    const struct tensor_ref *ref = model_tensor(s->model, layer, id);
    uint32_t tiles;
    const struct model_tile *tile = model_tiles(s->model, layer, id, &tiles);
    if (ref->size_bytes == 0) {
        return;
    }
    if (tiles == 0) {
        look(s, (struct extent){ref->file, ref->offset_bytes, ref->size_bytes}, &place);
    }
    for (uint32_t i = 0; i < tiles; i++) {
        look(s, (struct extent){tile[i].file, tile[i].offset_bytes, tile[i].size_bytes}, &place);
    }
}

static void look_at_experts(struct seeker *s, uint32_t layer)
{
    struct tensor_place place = {.layer = layer, .id = T_COUNT};
    for (; place.expert < s->model->config.experts; place.expert++) {
        for (place.part = W1_PACKED; place.part < EXPERT_PARTS; place.part++) {
            look(s, model_expert_part(s->model, layer, place.expert, place.part), &place);
        }
    }
}

void model_describe(const struct model *model, uint32_t file, uint64_t offset_bytes,
                    uint64_t size_bytes, char text[MODEL_DESCRIBED_BYTES])
{
    const struct model_config *c = &model->config;
    struct seeker s = {.model = model, .range = {file, offset_bytes, size_bytes}};
    struct tensor_spec spec;
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        for (int id = 0; id < T_LAYER_COUNT; id++) {
            look_at_tensor(&s, layer, (enum tensor_id)id);
        }
        if (config_is_moe(c, layer)) {
            look_at_experts(&s, layer);
        }
    }
    for (int id = T_LAYER_COUNT; id < T_COUNT; id++) {
        look_at_tensor(&s, TENSOR_MODEL_LEVEL, (enum tensor_id)id);
    }
    if (s.found == 0) {
        snprintf(text, MODEL_DESCRIBED_BYTES, "%s", offset_bytes == 0
                 ? "the file's header" : "a header, or no tensor that is read");
        return;
    }
    inventory_spec(c, &s.place, &spec);
    if (s.found == 1) {
        snprintf(text, MODEL_DESCRIBED_BYTES, "%s", spec.name);
    } else {
        snprintf(text, MODEL_DESCRIBED_BYTES, "%s and %u more", spec.name, s.found - 1);
    }
}
