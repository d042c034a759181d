/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors, tiles and experts of a manifest -> a model. Every number is checked against the config
 * and the files; the ranges of a file must follow each other, so that none can overlap. */
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/packed.h"
#include "core/model/pack_priv.h"

/* The tensor that a name stands for: of this model, and not met before. */
static int take_name(struct pack_reader *r, struct tensor_place *place, struct tensor_ref **ref)
{
    char name[HEADER_NAME_BYTES];
    TRY(pack_take_text(r, name, sizeof name));
    if (!inventory_locate(&r->model->config, name, place) || place->id == T_COUNT) {
        return pack_refuse(r, "a tensor is not of the model that config.json describes");
    }
    *ref = &r->model->tensors[bind_slot(&r->model->config, place)];
    if ((*ref)->size_bytes > 0) {
        return pack_refuse(r, "a tensor is described twice");
    }
    return 0;
}

/* [name, dtype, rows, cols, file, offset, checksum]: kept as it is. */
static int read_tensor(struct pack_reader *r)
{
    struct tensor_place place;
    struct tensor_spec spec;
    struct tensor_ref *ref;
    char dtype[16];
    uint64_t rows = 0, cols = 0, file = 0, offset_bytes = 0, checksum = 0;
    TRY(pack_take(r, '['));
    TRY(take_name(r, &place, &ref));
    TRY(pack_take(r, ','));
    TRY(pack_take_text(r, dtype, sizeof dtype));
    TRY(pack_next_number(r, UINT32_MAX, &rows));
    TRY(pack_next_number(r, UINT32_MAX, &cols));
    TRY(pack_next_number(r, UINT32_MAX, &file));
    TRY(pack_next_number(r, UINT64_MAX, &offset_bytes));
    TRY(pack_next_hash(r, &checksum));
    TRY(pack_take(r, ']'));
    inventory_shape(&r->model->config, &place, &spec);
    uint64_t last = spec.shape[spec.rank - 1];
    bool bare = place.id == T_A_LOG && cols == r->model->config.kda_heads;
    if (pack_is_matrix(place.id) || !inventory_dtype_fits(place.id, dtype, &ref->dtype) ||
        rows != (spec.rank == 1 ? 1 : spec.shape[0]) || (cols != last && !bare)) {
        return pack_refuse(r, "a tensor has another form than config.json implies");
    }
    uint64_t size_bytes = rows * cols * dtype_bytes(ref->dtype);
    TRY(pack_claim(r, file, offset_bytes, size_bytes));
    *ref = (struct tensor_ref){.offset_bytes = offset_bytes, .size_bytes = size_bytes,
                               .file = (uint32_t)file, .rows = (uint32_t)rows,
                               .cols = (uint32_t)cols, .dtype = ref->dtype};
    r->pack->checksums[bind_slot(&r->model->config, &place)] = checksum;
    r->model->tensor_count++;
    r->model->total_bytes += size_bytes;
    return 0;
}

int pack_read_tensors(struct pack_reader *r)
{
    bool first = true;
    TRY(pack_member(r, "tensors"));
    TRY(pack_take(r, '['));
    while (pack_next_item(r, &first)) {
        TRY(read_tensor(r));
    }
    return pack_settled(r);
}

static int add_tile(struct pack_reader *r, const struct model_tile *tile)
{
    struct model_pack *pack = r->pack;
    if (pack->tile_count == r->tile_capacity) {
        uint32_t capacity = r->tile_capacity == 0 ? 256 : r->tile_capacity * 2;
        struct model_tile *larger = realloc(pack->tiles, capacity * sizeof *larger);
        if (larger == NULL) {
            return err_set(ERR_MEMORY, "%s: no memory for %u tiles", r->path, capacity);
        }
        pack->tiles = larger;
        r->tile_capacity = capacity;
    }
    pack->tiles[pack->tile_count++] = *tile;
    return 0;
}

/* [file, offset, bytes, rows, checksum]. Less bytes than its rows have as bf16: coded. */
static int read_tile(struct pack_reader *r, const struct tensor_place *place,
                     const struct tensor_ref *ref, uint32_t row_first)
{
    uint64_t file, offset_bytes, size_bytes, rows, checksum;
    TRY(pack_take(r, '['));
    TRY(pack_take_number(r, UINT32_MAX, &file));
    TRY(pack_next_number(r, UINT64_MAX, &offset_bytes));
    TRY(pack_next_number(r, PACK_TILE_MAX_BYTES, &size_bytes));
    TRY(pack_next_number(r, UINT32_MAX, &rows));
    TRY(pack_next_hash(r, &checksum));
    TRY(pack_take(r, ']'));
    uint32_t unit = pack_unit_rows(&r->model->config, place->id);
    bool last = row_first + rows == ref->rows;
    if (rows == 0 || rows > ref->rows - row_first || (rows % unit != 0 && !last)) {
        return pack_refuse(r, "a tile has no rows, too many, or parts a head");
    }
    uint64_t raw_bytes = rows * ref->cols * dtype_bytes(DTYPE_BF16);
    bool coded = size_bytes != raw_bytes;
    if (coded && (!pack_may_code(place->id, ref->cols) || size_bytes > raw_bytes ||
                  size_bytes < packed_tile_bytes((uint32_t)rows, ref->cols, 0) ||
                  (size_bytes - packed_tile_bytes((uint32_t)rows, ref->cols, 0)) % 4 != 0)) {
        return pack_refuse(r, "a tile's size is neither that of bf16 nor of a coded tile");
    }
    TRY(pack_claim(r, file, offset_bytes, size_bytes));
    const struct model_tile tile = {.offset_bytes = offset_bytes, .checksum = checksum,
                                    .size_bytes = (uint32_t)size_bytes, .file = (uint32_t)file,
                                    .row_first = row_first, .row_count = (uint32_t)rows,
                                    .coded = coded};
    r->pack->raw_bytes += place->id == T_EMBED ? 0 : raw_bytes;
    r->pack->stored_bytes += place->id == T_EMBED ? 0 : size_bytes;
    r->model->total_bytes += size_bytes;
    return add_tile(r, &tile);
}

/* Rows of embed_tokens are read one by one, as if it were one piece: it must be one. */
static bool touches(const struct model_tile *tile, const struct model_tile *next)
{
    return tile->file == next->file && tile->offset_bytes + tile->size_bytes == next->offset_bytes;
}

/* [name, [tiles in row order]]. */
static int read_matrix(struct pack_reader *r)
{
    struct tensor_place place;
    struct tensor_spec spec;
    struct tensor_ref *ref;
    TRY(pack_take(r, '['));
    TRY(take_name(r, &place, &ref));
    if (!pack_is_matrix(place.id)) {
        return pack_refuse(r, "a tensor that has no tiles stands among those that have");
    }
    inventory_shape(&r->model->config, &place, &spec);
    struct pack_range *range = &r->pack->ranges[bind_slot(&r->model->config, &place)];
    *range = (struct pack_range){.first = r->pack->tile_count};
    *ref = (struct tensor_ref){.rows = (uint32_t)spec.shape[0], .cols = (uint32_t)spec.shape[1],
                               .dtype = DTYPE_BF16, .size_bytes = tensor_spec_bytes(&spec)};
    TRY(pack_take(r, ','));
    TRY(pack_take(r, '['));
    bool first = true;
    for (uint32_t row = 0; pack_next_item(r, &first); range->count++) {
        TRY(read_tile(r, &place, ref, row));
        const struct model_tile *tile = &r->pack->tiles[r->pack->tile_count - 1];
        if (place.id == T_EMBED && row > 0 && !touches(tile - 1, tile)) {
            return pack_refuse(r, "embed_tokens is not in one piece");
        }
        row += tile->row_count;
    }
    TRY(pack_take(r, ']'));
    const struct model_tile *tiles = r->pack->tiles;
    const struct model_tile *end = &tiles[r->pack->tile_count];
    if (range->count == 0 || end[-1].row_first + end[-1].row_count != ref->rows) {
        return pack_refuse(r, "rows of a matrix are missing");
    }
    ref->file = tiles[range->first].file;
    ref->offset_bytes = tiles[range->first].offset_bytes;
    r->model->tensor_count++;
    return 0;
}

int pack_read_matrices(struct pack_reader *r)
{
    bool first = true;
    TRY(pack_member(r, "matrices"));
    TRY(pack_take(r, '['));
    while (pack_next_item(r, &first)) {
        TRY(read_matrix(r));
    }
    return pack_settled(r);
}

/* [file, offset, checksum] of each, layer by layer. */
static int read_expert(struct pack_reader *r, uint64_t index)
{
    struct model *model = r->model;
    uint64_t file, offset_bytes, checksum;
    TRY(pack_take(r, '['));
    TRY(pack_take_number(r, UINT32_MAX, &file));
    TRY(pack_next_number(r, UINT64_MAX, &offset_bytes));
    TRY(pack_next_hash(r, &checksum));
    TRY(pack_take(r, ']'));
    TRY(pack_claim(r, file, offset_bytes, pack_expert_bytes(model)));
    r->pack->expert_checksums[index] = checksum;
    for (uint32_t part = 0; part < EXPERT_PARTS; part++) {
        model->expert_parts[index * EXPERT_PARTS + part] = file << PART_FILE_SHIFT | offset_bytes;
        offset_bytes += model->part_bytes[part];
        model->total_bytes += model->part_bytes[part];
    }
    model->tensor_count += EXPERT_PARTS;
    return 0;
}

int pack_read_experts(struct pack_reader *r)
{
    const struct model_config *c = &r->model->config;
    uint64_t experts = (uint64_t)(c->layers - c->first_dense) * c->experts;
    uint64_t wanted = r->pack->experts_in_source ? 0 : experts;
    uint64_t count = 0;
    bool first = true;
    TRY(pack_member(r, "experts"));
    TRY(pack_take(r, '['));
    for (; pack_next_item(r, &first); count++) {
        if (count == wanted) {
            return pack_refuse(r, "there are more experts than config.json asks for");
        }
        TRY(read_expert(r, count));
    }
    TRY(pack_settled(r));
    return count == wanted ? 0 : pack_refuse(r, "experts are missing");
}
