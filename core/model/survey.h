/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_SURVEY_H
#define MODEL_SURVEY_H

/* What can be said of an open checkpoint beyond what model_open() insists on: bytes between
 * tensors, what its index claims, tensors of no model that occur twice, files that lie beside.
 * Headers and index are read again, weights are not. */

#include "core/model/model.h"

#define SURVEY_NAME_BYTES 512

/* How often something was met, and where first. */
struct survey_count {
    uint64_t count;
    char first[SURVEY_NAME_BYTES]; /* a name; "" while count is 0 */
};

struct survey_file {
    uint64_t tensors;      /* entries of its header */
    uint64_t header_bytes; /* with the length word */
};

struct model_survey {
    struct survey_file *files;         /* [model->file_count]; zeros for a pack */
    uint64_t tensors, tensor_bytes;    /* of all headers */
    uint64_t header_bytes;
    struct survey_count gaps;          /* runs of bytes that belong to no tensor; first: the file */
    uint64_t gap_bytes;
    struct survey_count twice;         /* tensors not of the model that several files hold */
    bool has_index, has_total;
    uint64_t index_tensors;
    uint64_t index_total_bytes;        /* total_size, with has_total */
    struct survey_count index_absent;  /* tensors not of the model that no header has, or another */
    uint64_t unnamed;                  /* tensors of headers that the index does not name */
    struct survey_count others;        /* regular files of the folder that no model consists of */
    uint64_t other_bytes;
    struct survey_count partial;       /* of these: what downloads leave that did not end */
    struct survey_count ignored;       /* of these: safetensors files the index does not name */
    uint32_t shards_claimed;           /* N of names like model-00001-of-N, when all agree; or 0 */
};

/* ERR_MODEL, ERR_MEMORY, ERR_IO. Free with survey_free(), also then. */
int survey_model(const struct model *model, struct model_survey *out);
void survey_free(struct model_survey *survey);

/* Names of the regular *.safetensors files of a folder, sorted: of one that model_open() refuses.
 * *names is free()d with every name by the caller. ERR_MODEL, ERR_MEMORY. */
int survey_shards(const char *dir, char ***names, uint32_t *count);

#endif
