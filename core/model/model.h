/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

/* A checkpoint or pack folder, opened: its config, its shard files and where every tensor lies.
 * Nothing of the weights is read: only config.json, the index and the safetensors headers.
 * Immutable after model_open(); any thread may read it. */

#include "core/model/inventory.h"

struct model_file {
    char *path;          /* as opened, owned by the model */
    uint64_t size_bytes; /* at open; a later difference means the file changed */
    uint64_t header_hash; /* XXH3 of a shard's header text, at open; 0 in files of a pack */
};

/* Where a tensor lies. rows x cols: a vector has rows 1; a [12288,1,4] tensor is 12288 x 4. */
struct tensor_ref {
    uint64_t offset_bytes; /* absolute in the file; of a pack's matrix that of its first tile */
    uint64_t size_bytes;   /* as in a checkpoint; 0 = this layer has no such tensor */
    uint32_t file;
    uint32_t rows, cols;
    enum dtype dtype;      /* norms and res_proj may be BF16 or F32 */
};

struct model {
    struct model_config config;
    char *dir;
    struct model_file *files;
    uint32_t file_count;
    struct tensor_ref *tensors;    /* [layers][T_LAYER_COUNT], then [T_COUNT - T_LAYER_COUNT] */
    uint64_t *expert_parts;        /* [moe layers][experts][EXPERT_PARTS]: file << 48 | offset */
    uint64_t part_bytes[EXPERT_PARTS]; /* sizes, equal for every expert */
    uint64_t tensor_count;         /* text tensors bound */
    uint64_t skipped_count;        /* tensors of the files that are not of the text model */
    uint64_t total_bytes;          /* of bound tensors */
    bool synthetic;                /* synth's marker file is there */
    struct model_pack *pack;       /* NULL for a checkpoint; core/model/pack.h */
};

/* The marker synth leaves in a folder: such a checkpoint may contain holes. */
#define MODEL_SYNTH_MARKER "SYNTHETIC-MODEL.txt"

struct model_options {
    uint32_t threads;     /* header parsers; 0 = one per processor, at most 8 */
    bool allow_holes;     /* skip the SEEK_HOLE check (plan does; the marker allows it too) */
    /* Called with one line of talk that is not an error (an ignored file, say); may be NULL. */
    void (*note)(const char *line);
};

/* Opens and checks a checkpoint folder. ERR_MODEL with file, tensor and cure when refused. */
int model_open(const char *dir, const struct model_options *options, struct model **out);
/* ERR_MODEL when dir is no folder with a config.json, saying what it is instead and what to give: a
 * file, GGUF, a folder above the model, an empty or absent one. model_open() asks it first. */
int model_folder_check(const char *dir);
/* A model of this config that lies nowhere, a file per layer: to plan with, not to read. */
int model_imagine(const struct model_config *config, struct model **out);
void model_close(struct model *model); /* NULL is fine */

/* layer is TENSOR_MODEL_LEVEL for T_EMBED and later. size_bytes 0 when absent. */
const struct tensor_ref *model_tensor(const struct model *model, uint32_t layer,
                                      enum tensor_id id);

struct extent model_expert_part(const struct model *model, uint32_t layer, uint32_t expert,
                                enum expert_part part);

/* Merges the six parts of an expert into extents in file and offset order; touching parts join.
 * part_at[p] receives the extent that holds part p. Returns the count, 1..6. */
uint32_t model_expert_extents(const struct model *model, uint32_t layer, uint32_t expert,
                              struct extent extents[EXPERT_PARTS], uint32_t part_at[EXPERT_PARTS]);

/* What lies in a range of a file: the name of the first tensor that reaches into it, and how many
 * others do. Goes through all tensors: for messages. */
#define MODEL_DESCRIBED_BYTES (TENSOR_NAME_BYTES + 64)
void model_describe(const struct model *model, uint32_t file, uint64_t offset_bytes,
                    uint64_t size_bytes, char text[MODEL_DESCRIBED_BYTES]);

#define MODEL_IDENTITY_BYTES 16

/* What tells this checkpoint from any other without reading its weights: its config.json, and name,
 * size and header of each shard. A pack has that of the checkpoint it was made from. ERR_MODEL,
 * ERR_IO or ERR_MEMORY when config.json cannot be read (again). */
int model_identity(const struct model *model, unsigned char out[MODEL_IDENTITY_BYTES]);

/* Bytes of heap the model keeps: what the plan's account calls index. */
uint64_t model_resident_bytes(const struct model *model);

#endif
