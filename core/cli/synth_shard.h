/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SYNTH_SHARD_H
#define CLI_SYNTH_SHARD_H

/* Writes the shards of a synthetic checkpoint with a few threads, each a file at a time. */

#include "core/cli/synth_layout.h"

/* What a file is called until it is complete. */
#define SYNTH_PARTIAL_SUFFIX ".partial"

struct synth_target {
    int dir_fd;
    const char *dir; /* for messages */
};

/* Writes every shard under its partial name and renames it when it is whole. total_bytes is
 * what progress is told. The first failure stops all writers and is returned. */
int synth_shards_write(const struct synth_target *target, const struct synth_geometry *geometry,
                       const struct synth_options *options, uint64_t total_bytes);

#endif
