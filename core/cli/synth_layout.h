/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SYNTH_LAYOUT_H
#define CLI_SYNTH_LAYOUT_H

/* Where everything of a synthetic checkpoint lies: shards, headers, offsets, and which elements
 * a sparse one holds. Pure functions of the geometry; nothing is written here. */

#include "core/cli/synth.h"
#include "core/model/inventory.h"

#define SYNTH_RANK_MAX 4
#define SYNTH_FILE_NAME_BYTES 48
#define SYNTH_WINDOW_BYTES (4 * MIB)   /* a sparse matrix holds a row in each */
#define SYNTH_WHOLE_BYTES MIB          /* smaller tensors are never sparse */
#define SYNTH_TOKEN_ROWS 1024          /* embed and lm_head rows always written, from id 0 */

struct synth_geometry {
    enum synth_preset preset;
    struct model_config config;
    uint32_t shard_count;
};

struct synth_tensor {
    char name[TENSOR_NAME_BYTES];
    enum dtype dtype;
    uint32_t rank;
    uint64_t shape[SYNTH_RANK_MAX];
    enum tensor_id id;     /* T_COUNT for a tensor of an expert */
    bool vision;           /* the tensor that readers of the text model must skip */
    enum expert_part part; /* with id == T_COUNT */
    uint64_t offset_bytes; /* in the file */
    uint64_t size_bytes;
};

/* One shard file; owns its arrays. */
struct synth_shard {
    char file_name[SYNTH_FILE_NAME_BYTES];
    struct synth_tensor *tensors; /* in file order */
    uint32_t tensor_count;
    char *header;                 /* length word, JSON, padding: all before the data */
    uint64_t json_bytes;          /* without padding */
    uint64_t header_bytes;        /* a multiple of 8; the data begins here */
    uint64_t size_bytes;          /* of the file */
};

/* Elements [begin, end) of a tensor. */
struct synth_range {
    uint64_t begin, end;
};

/* Sums over all shards. */
struct synth_survey {
    uint64_t tensor_bytes;
    uint64_t write_bytes; /* headers and elements that are written, index not included */
    uint64_t disk_bytes;  /* whole pages those touch */
};

/* ERR_USAGE when an option is out of range. */
int synth_geometry_init(const struct synth_options *options, struct synth_geometry *geometry);

void synth_shard_name(const struct synth_geometry *geometry, uint32_t shard,
                      char name[SYNTH_FILE_NAME_BYTES]);

/* shard counts from 0. ERR_MEMORY. */
int synth_shard_init(const struct synth_geometry *geometry, uint32_t shard,
                     struct synth_shard *out);
void synth_shard_fini(struct synth_shard *shard);

/* Walks the ranges of a tensor that are to be written, in order. *cursor starts at 0. */
bool synth_next_range(const struct synth_tensor *tensor, bool sparse, uint64_t *cursor,
                      struct synth_range *range);

int synth_survey_run(const struct synth_geometry *geometry, bool sparse,
                     struct synth_survey *survey);

#endif
