/* SPDX-License-Identifier: Apache-2.0 */
/* What goes into a pack, in which order and into which file. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/cli/pack_priv.h"
#include "planner/plan.h"

static int add(struct pack_items *items, const struct pack_item *item)
{
    if (items->count == items->capacity) {
        uint32_t capacity = items->capacity == 0 ? 1024 : items->capacity * 2;
        struct pack_item *larger = realloc(items->item, capacity * sizeof *larger);
        if (larger == NULL) {
            return err_set(ERR_MEMORY, "no memory for a list of %u tiles", capacity);
        }
        items->item = larger;
        items->capacity = capacity;
    }
    items->item[items->count++] = *item;
    items->raw_bytes += item->raw_bytes;
    items->widest_bytes = max_u64(items->widest_bytes, item->raw_bytes);
    return 0;
}

void pack_items_free(struct pack_items *items)
{
    free(items->item);
    *items = (struct pack_items){.item = NULL};
}

static int add_tensor(struct pack_items *items, const struct model *source, uint32_t layer,
                      enum tensor_id id)
{
    const struct tensor_ref *ref = model_tensor(source, layer, id);
    const struct pack_item item = {
        .kind = PACK_TENSOR, .layer = layer, .id = id, .raw_bytes = ref->size_bytes,
        .from = {.file = ref->file, .offset_bytes = ref->offset_bytes,
                 .size_bytes = ref->size_bytes}};
    return ref->size_bytes > 0 && !pack_is_matrix(id) ? add(items, &item) : 0;
}

static int add_tensors(struct pack_items *items, const struct model *source)
{
    for (uint32_t layer = 0; layer < source->config.layers; layer++) {
        for (int id = 0; id < T_LAYER_COUNT; id++) {
            TRY(add_tensor(items, source, layer, (enum tensor_id)id));
        }
    }
    for (int id = T_LAYER_COUNT; id < T_COUNT; id++) {
        TRY(add_tensor(items, source, TENSOR_MODEL_LEVEL, (enum tensor_id)id));
    }
    return 0;
}

static int add_rows(struct pack_items *items, const struct model *source, uint32_t layer,
                    enum tensor_id id, uint32_t row_first, uint32_t row_count)
{
    const struct tensor_ref *ref = model_tensor(source, layer, id);
    uint64_t row_bytes = ref->cols * dtype_bytes(ref->dtype);
    const struct pack_item item = {
        .kind = PACK_TILE, .layer = layer, .id = id, .row_first = row_first,
        .row_count = row_count, .cols = ref->cols, .raw_bytes = row_count * row_bytes,
        .may_code = pack_may_code(id, ref->cols),
        .from = {.file = ref->file, .offset_bytes = ref->offset_bytes + row_first * row_bytes,
                 .size_bytes = row_count * row_bytes}};
    if (item.raw_bytes > PACK_TILE_MAX_BYTES) {
        return err_set(ERR_FIT, "a tile of layer %u takes %llu bytes, more than the %llu a pack "
                       "may hold; use a smaller --tile", layer,
                       (unsigned long long)item.raw_bytes,
                       (unsigned long long)PACK_TILE_MAX_BYTES);
    }
    return add(items, &item);
}

static int add_embedding(struct pack_items *items, const struct model *source, uint64_t tile_bytes)
{
    const struct tensor_ref *ref = model_tensor(source, TENSOR_MODEL_LEVEL, T_EMBED);
    uint64_t unit = pack_unit_rows(&source->config, T_EMBED);
    uint64_t unit_bytes = unit * ref->cols * dtype_bytes(ref->dtype);
    uint64_t step = max_u64(1, tile_bytes / unit_bytes) * unit;
    for (uint64_t row = 0; row < ref->rows; row += step) {
        TRY(add_rows(items, source, TENSOR_MODEL_LEVEL, T_EMBED, (uint32_t)row,
                     (uint32_t)min_u64(step, ref->rows - row)));
    }
    return 0;
}

static int add_walk(struct pack_items *items, const struct model *source, const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        const struct plan_tile *tile = &plan->tiles[i];
        const struct plan_step *step = &plan->steps[tile->step];
        uint32_t layer = step->tensor >= T_LAYER_COUNT ? TENSOR_MODEL_LEVEL : step->layer;
        TRY(add_rows(items, source, layer, step->tensor, tile->row_first, tile->row_count));
    }
    return 0;
}

static int add_experts(struct pack_items *items, const struct model *source)
{
    const struct model_config *c = &source->config;
    for (uint32_t layer = c->first_dense; layer < c->layers; layer++) {
        for (uint32_t expert = 0; expert < c->experts; expert++) {
            const struct pack_item item = {.kind = PACK_EXPERT, .layer = layer, .id = T_COUNT,
                                           .expert = expert,
                                           .raw_bytes = pack_expert_bytes(source)};
            TRY(add(items, &item));
        }
    }
    return 0;
}

/* The part that is furthest behind its share takes the next item. */
static uint32_t choose_part(uint64_t given[PACK_PARTS_MAX], const uint32_t *shares, uint32_t parts,
                            uint64_t bytes)
{
    uint32_t best = 0;
    for (uint32_t p = 1; p < parts; p++) {
        /* given + bytes over share, without a division */
        best = (long double)(given[p] + bytes) * shares[best] <
                       (long double)(given[best] + bytes) * shares[p]
                   ? p : best;
    }
    given[best] += bytes;
    return best;
}

static void assign_files(struct pack_items *items, const uint32_t *shares, uint32_t parts)
{
    uint64_t tiles[PACK_PARTS_MAX] = {0};
    uint64_t experts[PACK_PARTS_MAX] = {0};
    for (uint32_t i = 0; i < items->count; i++) {
        struct pack_item *item = &items->item[i];
        if (item->kind == PACK_EXPERT) {
            item->file = parts + choose_part(experts, shares, parts, item->raw_bytes);
        } else if (item->kind == PACK_TILE && item->id != T_EMBED) {
            item->file = choose_part(tiles, shares, parts, item->raw_bytes);
        }
    }
}

int pack_items_list(struct pack_items *items, const struct model *source, uint64_t *tile_bytes,
                    bool trunk_only, const uint32_t *shares, uint32_t parts)
{
    struct plan *plan;
    *items = (struct pack_items){.item = NULL};
    TRY(plan_walk(source, *tile_bytes, &plan));
    *tile_bytes = plan->tile_bytes;
    int rc = add_tensors(items, source);
    rc = rc < 0 ? rc : add_embedding(items, source, plan->tile_bytes);
    rc = rc < 0 ? rc : add_walk(items, source, plan);
    rc = rc < 0 || trunk_only ? rc : add_experts(items, source);
    plan_free(plan);
    assign_files(items, shares, parts);
    return rc;
}

/* ---- of a pack that is there ---- */

static void settle_tensor(struct pack_item *item, const struct model *packed)
{
    const struct model_config *c = &packed->config;
    const struct tensor_ref *ref = model_tensor(packed, item->layer, item->id);
    uint64_t slot = item->layer == TENSOR_MODEL_LEVEL
                        ? (uint64_t)c->layers * T_LAYER_COUNT + (item->id - T_LAYER_COUNT)
                        : (uint64_t)item->layer * T_LAYER_COUNT + item->id;
    item->file = ref->file;
    item->offset_bytes = ref->offset_bytes;
    item->size_bytes = ref->size_bytes;
    item->checksum = packed->pack->checksums[slot];
}

static int add_packed_tiles(struct pack_items *items, const struct model *packed,
                            const struct model *source, uint32_t layer, enum tensor_id id)
{
    uint32_t count;
    const struct model_tile *tiles = model_tiles(packed, layer, id, &count);
    for (uint32_t i = 0; i < count; i++) {
        TRY(add_rows(items, source, layer, id, tiles[i].row_first, tiles[i].row_count));
        struct pack_item *item = &items->item[items->count - 1];
        item->file = tiles[i].file;
        item->offset_bytes = tiles[i].offset_bytes;
        item->size_bytes = tiles[i].size_bytes;
        item->checksum = tiles[i].checksum;
        item->coded = tiles[i].coded;
    }
    return 0;
}

static int add_all_tiles(struct pack_items *items, const struct model *packed,
                         const struct model *source)
{
    for (uint32_t layer = 0; layer < packed->config.layers; layer++) {
        for (int id = 0; id < T_LAYER_COUNT; id++) {
            TRY(add_packed_tiles(items, packed, source, layer, (enum tensor_id)id));
        }
    }
    TRY(add_packed_tiles(items, packed, source, TENSOR_MODEL_LEVEL, T_EMBED));
    return add_packed_tiles(items, packed, source, TENSOR_MODEL_LEVEL, T_LM_HEAD);
}

static void settle_experts(struct pack_items *items, uint32_t first, const struct model *packed)
{
    for (uint32_t i = first; i < items->count; i++) {
        struct pack_item *item = &items->item[i];
        struct extent x = model_expert_part(packed, item->layer, item->expert, W1_PACKED);
        item->file = x.file;
        item->offset_bytes = x.offset_bytes;
        item->size_bytes = item->raw_bytes;
        item->checksum = packed->pack->expert_checksums[i - first];
    }
}

int pack_items_of(struct pack_items *items, const struct model *packed, const struct model *source)
{
    *items = (struct pack_items){.item = NULL};
    TRY(add_tensors(items, source));
    for (uint32_t i = 0; i < items->count; i++) {
        settle_tensor(&items->item[i], packed);
    }
    TRY(add_all_tiles(items, packed, source));
    if (!packed->pack->experts_in_source) {
        uint32_t first = items->count;
        TRY(add_experts(items, source));
        settle_experts(items, first, packed);
    }
    return 0;
}

void pack_item_name(const struct model *model, const struct pack_item *item, char *text,
                    size_t capacity)
{
    struct tensor_spec spec;
    if (item->kind == PACK_EXPERT) {
        snprintf(text, capacity, "layer %u expert %u", item->layer, item->expert);
        return;
    }
    inventory_tensor(&model->config, item->layer, item->id, &spec);
    if (item->kind == PACK_TILE) {
        snprintf(text, capacity, "rows %u to %u of tensor %s", item->row_first,
                 item->row_first + item->row_count - 1, spec.name);
    } else {
        snprintf(text, capacity, "tensor %s", spec.name);
    }
}

void pack_items_sum(const struct pack_items *items, uint32_t kept, struct pack_summary *out)
{
    for (uint32_t i = 0; i < items->count; i++) {
        const struct pack_item *item = &items->item[i];
        bool walked = item->kind == PACK_TILE && item->id != T_EMBED;
        out->raw_bytes += walked ? item->raw_bytes : 0;
        out->stored_bytes += walked ? item->size_bytes : 0;
        out->other_bytes += walked ? 0 : item->size_bytes;
        out->kept_bytes += i < kept ? item->size_bytes : 0;
        out->tiles += walked;
        out->experts += item->kind == PACK_EXPERT;
    }
}
