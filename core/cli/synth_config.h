/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SYNTH_CONFIG_H
#define CLI_SYNTH_CONFIG_H

/* The JSON files beside the shards of a synthetic checkpoint. */

#include <stdio.h>

#include "core/cli/synth_layout.h"

/* Text to free(), or NULL when memory is short. */
char *synth_config_text(const struct synth_geometry *geometry);
char *synth_generation_text(const struct synth_geometry *geometry);

/* Streams model.safetensors.index.json; failures of the stream are left to ferror(out). */
int synth_index_print(const struct synth_geometry *geometry, uint64_t tensor_bytes, FILE *out);

#endif
