/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_CHECKPOINT_H
#define TEST_CHECKPOINT_H

/* Small checkpoints for tests: a list of tensors made from the inventory, which a test may
 * change before it is written to a folder of its own under /tmp. All weights are zero. Failures
 * abort: a test that cannot build its input has nothing to say. */

#include <stdio.h>

#include "core/model/model.h"

struct fake_tensor {
    char name[128];
    char dtype[16];
    char shape[640];       /* JSON text */
    char offsets[64];      /* JSON text in place of the true range, or "" */
    uint64_t size_bytes;
    uint32_t shard;
};

struct fake_model {
    struct model_config config;
    struct fake_tensor *tensors;
    size_t count, capacity;
    uint32_t shards;
    uint32_t pad_bytes;      /* spaces behind each header on top of its rounding to 8 */
    bool no_index, sparse;   /* sparse: files are extended, not filled */
    char dir[256];
};

/* The geometry of the real model and a 13-layer one of the same make. */
void fake_config_k3(struct model_config *c);
void fake_config_tiny(struct model_config *c);

/* config.json, nested as released. Free it. */
char *fake_config_json(const struct model_config *c);

/* All tensors of the config over shards files: layers in equal runs, the model level last. */
void fake_init(struct fake_model *fake, const struct model_config *c, uint32_t shards);
void fake_free(struct fake_model *fake); /* removes the folder too */

void fake_add(struct fake_model *fake, const char *name, const char *dtype, const char *shape,
              uint64_t size_bytes, uint32_t shard);
void fake_add_layer(struct fake_model *fake, uint32_t layer, uint32_t shard);
void fake_add_level(struct fake_model *fake, uint32_t shard);
struct fake_tensor *fake_find(struct fake_model *fake, const char *name);
void fake_remove(struct fake_model *fake, const char *name);

/* A shard's header, padded, in the order of the released files. Free it. */
char *fake_header(struct fake_model *fake, uint32_t shard, size_t *size_bytes,
                  uint64_t *data_bytes);

/* Makes the folder and writes config.json, the shards and the index. */
void fake_write(struct fake_model *fake);
void fake_write_index(const struct fake_model *fake); /* once more, alone */

/* True when the folder is refused as a model with part in the message, in one line and in the
 * same words by one thread and by several. Otherwise what happened goes to stderr. */
bool fake_refused(const struct fake_model *fake, const char *part);

/* Paths and single files of the folder. The paths are free()d by the caller. */
char *fake_path(const struct fake_model *fake, const char *name);
char *fake_shard_path(const struct fake_model *fake, uint32_t shard);
void fake_put(const struct fake_model *fake, const char *name, const void *bytes, size_t size);

#endif
