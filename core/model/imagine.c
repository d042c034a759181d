/* SPDX-License-Identifier: Apache-2.0 */
/* A model of a given config without a checkpoint: for plans of a model that is not at hand. */
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/model/model_priv.h"

/* Behind the length word of a header: off the pages, as in released files. */
#define BASE_BYTES 8U

/* Takes the next place of a file and counts it. */
static uint64_t place(struct model *model, uint32_t file, uint64_t size_bytes)
{
    uint64_t at = model->files[file].size_bytes;
    model->files[file].size_bytes += size_bytes;
    model->total_bytes += size_bytes;
    model->tensor_count++;
    return at;
}

static void add_tensor(struct model *model, uint32_t file, uint32_t layer, enum tensor_id id)
{
    struct tensor_spec spec;
    const struct tensor_place where = {.layer = layer, .id = id};
    inventory_tensor(&model->config, layer, id, &spec);
    uint64_t size_bytes = tensor_spec_bytes(&spec);
    model->tensors[bind_slot(&model->config, &where)] = (struct tensor_ref){
        .offset_bytes = place(model, file, size_bytes), .size_bytes = size_bytes, .file = file,
        .rows = spec.rank == 1 ? 1 : (uint32_t)spec.shape[0],
        .cols = (uint32_t)spec.shape[spec.rank - 1], .dtype = spec.dtype};
}

static void add_experts(struct model *model, uint32_t layer)
{
    const struct model_config *c = &model->config;
    uint64_t *word = model->expert_parts +
                     (uint64_t)(layer - c->first_dense) * c->experts * EXPERT_PARTS;
    for (uint32_t expert = 0; expert < c->experts; expert++) {
        for (int part = 0; part < EXPERT_PARTS; part++) {
            *word++ = (uint64_t)layer << PART_FILE_SHIFT |
                      place(model, layer, model->part_bytes[part]);
        }
    }
}

static void add_all(struct model *model)
{
    const struct model_config *c = &model->config;
    for (uint32_t layer = 0; layer < c->layers; layer++) {
        for (int id = 0; id < T_LAYER_COUNT; id++) {
            if (inventory_layer_has(c, layer, (enum tensor_id)id)) {
                add_tensor(model, layer, layer, (enum tensor_id)id);
            }
        }
        if (config_is_moe(c, layer)) {
            add_experts(model, layer);
        }
    }
    for (int id = T_LAYER_COUNT; id < T_COUNT; id++) {
        add_tensor(model, c->layers, TENSOR_MODEL_LEVEL, (enum tensor_id)id);
    }
}

static int name_files(struct model *model)
{
    uint32_t count = model->config.layers + 1;
    model->files = calloc(count, sizeof *model->files);
    for (uint32_t i = 0; model->files != NULL && i < count; i++) {
        model->files[i] = (struct model_file){.path = strdup(""), .size_bytes = BASE_BYTES};
        model->file_count += model->files[i].path != NULL;
    }
    return model->files != NULL && model->file_count == count
               ? 0 : err_set(ERR_MEMORY, "no memory for a model of %u layers", count - 1);
}

int model_imagine(const struct model_config *config, struct model **out)
{
    struct model *model = calloc(1, sizeof *model);
    *out = NULL;
    if (model == NULL || (model->dir = strdup("")) == NULL) {
        free(model);
        return err_set(ERR_MEMORY, "no memory for a model");
    }
    model->config = *config;
    int rc = name_files(model);
    rc = rc == 0 ? model_make_tables(model, false) : rc;
    if (rc < 0) {
        model_close(model);
        return rc;
    }
    add_all(model);
    *out = model;
    return 0;
}
