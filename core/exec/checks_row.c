/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding rows of a pack under --paranoid pack: the checksum in the manifest is of a whole tile,
 * so the one a row lies in is read again for it, one at a time, into memory taken at open. */
#include <stdlib.h>
#include <string.h>

#include "core/exec/exec_priv.h"

#define BOUNCE_BYTES (64 * KIB)

static uint64_t largest_row_tile(const struct model *model)
{
    uint32_t count;
    uint64_t most = 0;
    const struct model_tile *tiles = model_tiles(model, TENSOR_MODEL_LEVEL, T_EMBED, &count);
    for (uint32_t i = 0; i < count; i++) {
        most = max_u64(most, tiles[i].size_bytes);
    }
    return most;
}

uint64_t checks_row_bytes(const struct model *model, const struct engine_options *o)
{
    bool asked = o->paranoid != NULL && strcmp(o->paranoid, ENGINE_PARANOID_PACK) == 0;
    return asked && model->pack != NULL ? largest_row_tile(model) + BOUNCE_BYTES : 0;
}

int checks_place_row_tile(struct engine *e)
{
    struct checks *k = &e->checks;
    k->row_tile = malloc(largest_row_tile(e->model));
    k->row_bounce = aligned_alloc(PAGE_BYTES, BOUNCE_BYTES);
    return k->row_tile != NULL && k->row_bounce != NULL
               ? 0 : err_set(ERR_MEMORY, "no memory to check embedding rows with");
}

/* The tile of a pack that a row lies in, read once more as a whole: its checksum is of all of it.
 * False when the row that is there is not the one of that tile. */
static int compare_row_tile(struct engine *e, const struct model_tile *tile, struct extent row,
                            const unsigned char *bytes, bool *same)
{
    struct checks *k = &e->checks;
    struct extent whole = {tile->file, tile->offset_bytes, tile->size_bytes};
    uint64_t read_bytes = 0;
    pthread_mutex_lock(&k->row_lock);
    int rc = io_file_read(&e->files, tile->file, tile->offset_bytes, tile->size_bytes, k->row_tile,
                          k->row_bounce, BOUNCE_BYTES, &read_bytes);
    if (rc == 0) {
        uint64_t at = row.offset_bytes - tile->offset_bytes;
        *same = checks_compare_piece(e, whole, k->row_tile, tile->checksum) &&
                memcmp(k->row_tile + at, bytes, row.size_bytes) == 0;
    }
    pthread_mutex_unlock(&k->row_lock);
    atomic_fetch_add(&k->sums_requests, 1);
    atomic_fetch_add(&k->sums_bytes, read_bytes);
    return rc;
}

bool checks_packed_row(struct engine *e, struct extent row, const unsigned char *bytes)
{
    uint32_t count;
    bool same = false;
    const struct model_tile *tiles =
        model_tiles(e->model, TENSOR_MODEL_LEVEL, T_EMBED, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (row.offset_bytes < tiles[i].offset_bytes + tiles[i].size_bytes) {
            if (compare_row_tile(e, &tiles[i], row, bytes, &same) < 0) {
                engine_fail(e, ERR_IO, err_message());
                err_clear();
            } else if (!same) {
                engine_fail(e, ERR_IO, "an embedding row read twice was not the same twice: "
                            "memory, cable or controller change what is read; test the memory");
            }
            return same;
        }
    }
    assert(false && "a row of no tile");
    return false;
}
