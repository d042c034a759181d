/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_PACK_H
#define MODEL_PACK_H

/* A pack: a run-ready copy of a checkpoint, its matrices cut in tiles that may be coded, on one or
 * several drives. docs/PACK.md has the format. model_open() opens one like any model: tensors and
 * experts are bound as in a checkpoint, and beside them model->pack says where the tiles lie. */

#include "core/model/model.h"

#define PACK_MANIFEST "k3ring-pack.json"    /* its presence makes a folder a pack */
#define PACK_JOURNAL "k3ring-pack.journal"  /* of a pack that is not finished */
#define PACK_TRUNK "trunk.bin"
#define PACK_EXPERTS "experts.bin"
#define PACK_VERSION 1u
#define PACK_PARTS_MAX 8u                   /* folders a pack is spread over */
#define PACK_FILES_MAX (2 * PACK_PARTS_MAX)
#define PACK_TILE_MAX_BYTES (256 * MIB)     /* a row may be wider than any --tile */

/* The first bytes of every data file; the rest of its first page is zero. Little endian. */
struct pack_head {
    char magic[8]; /* "K3RINGPK", no NUL */
    uint32_t version;
    uint32_t file; /* its number in the manifest */
    uint64_t id;   /* of the pack */
};
#define PACK_MAGIC "K3RINGPK"
_Static_assert(sizeof(struct pack_head) == 24, "the head is written as it stands");

/* Whole rows of a matrix. */
struct model_tile {
    uint64_t offset_bytes; /* multiple of PAGE_BYTES */
    uint64_t checksum;     /* XXH3 of the stored bytes */
    uint32_t size_bytes;   /* as stored */
    uint32_t file;
    uint32_t row_first, row_count;
    bool coded;            /* kernels/packed.h; else bf16 */
};

/* What tells one checkpoint from another without reading its weights. */
struct pack_shard {
    char *name;
    uint64_t size_bytes;
    uint64_t hash; /* XXH3 of the header's text */
};

struct pack_identity {
    uint64_t config_hash; /* XXH3 of config.json */
    struct pack_shard *shards;
    uint32_t shard_count;
};

struct pack_range {
    uint32_t first, count; /* into tiles */
};

struct model_pack {
    char *source;          /* folder of the checkpoint, absolute */
    struct pack_identity identity;
    uint64_t id;
    uint64_t tile_bytes;   /* bf16 bytes the matrices were cut to */
    bool experts_in_source;
    struct model_tile *tiles;
    uint32_t tile_count;
    struct pack_range *ranges;  /* per tensor, as model->tensors */
    uint64_t *checksums;        /* per tensor: of those kept whole */
    uint64_t *expert_checksums; /* [moe layers][experts]; NULL when left in the source */
    uint64_t raw_bytes, stored_bytes; /* matrices of the walk as bf16 and as stored */
};

/* Whether a tensor is cut in tiles (all of the walk, and embed_tokens), and whether these may be
 * coded: not where rows are used in another way than as dots. */
bool pack_is_matrix(enum tensor_id id);
bool pack_may_code(enum tensor_id id, uint32_t cols);

/* Rows that may not be parted: a head of kv_b; rows of embed_tokens that fill whole pages, so
 * that its tiles touch. */
uint32_t pack_unit_rows(const struct model_config *c, enum tensor_id id);

/* Tiles of a tensor in row order; NULL when the model is no pack or keeps the tensor whole. */
const struct model_tile *model_tiles(const struct model *model, uint32_t layer, enum tensor_id id,
                                     uint32_t *count);

/* XXH3 of a tensor that is kept whole, and of an expert that is inside. */
uint64_t pack_tensor_checksum(const struct model *model, uint32_t layer, enum tensor_id id);
uint64_t pack_expert_checksum(const struct model *model, uint32_t layer, uint32_t expert);

/* An expert's six parts lie one behind the other, in the order of enum expert_part. */
uint64_t pack_expert_bytes(const struct model *model);

/* Reads config.json and the headers of the shards. ERR_MODEL, ERR_MEMORY. Free it also then. */
int pack_identity_read(const char *dir, const struct model *model, struct pack_identity *out);
void pack_identity_free(struct pack_identity *identity);

#endif
