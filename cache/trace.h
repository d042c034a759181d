/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CACHE_TRACE_H
#define CACHE_TRACE_H

/* A record of the experts the routers asked for, in memory and as a file. A group is one token at
 * one MoE layer: top_k distinct experts, best score first. Groups of one layer that follow each
 * other lie side by side, so a run of them is a policy batch as it stands.
 *
 * File, version 1, all little endian: "K3RT", u8 version, u8 top_k, u16 layers; then per request
 * u16 layer, u16 expert, top_k requests to a group. One owner, no locking. */

#include "core/base/base.h"

#define TRACE_FILE_BYTES_MAX GIB /* 180,000 tokens of the full model */

struct trace {
    uint32_t layers;      /* 1 .. 65535 */
    uint32_t top_k;       /* 1 .. 255 */
    uint32_t experts;     /* highest expert seen plus one; 0 when empty */
    uint64_t group_count; /* groups recorded */
    uint64_t group_capacity;
    uint16_t *layer;      /* [group_capacity] */
    uint16_t *ids;        /* [group_capacity][top_k] */
};

/* Takes memory for all groups there will be. ERR_MEMORY when it is refused; ERR_USAGE when the
 * shape does not fit the format. Undone by trace_fini(), which leaves an empty trace. */
int trace_init(struct trace *trace, uint32_t layers, uint32_t top_k, uint64_t group_capacity);
void trace_fini(struct trace *trace);

/* ids [tokens][top_k]. Groups beyond the capacity are not recorded; returns how many were. */
uint32_t trace_add(struct trace *trace, uint32_t layer, const uint16_t *ids, uint32_t tokens);

/* Groups from `first` on that have its layer, at most `limit`: the tokens of one batch. */
uint32_t trace_run(const struct trace *trace, uint64_t first, uint32_t limit);
const uint16_t *trace_ids(const struct trace *trace, uint64_t group);

/* Fills an uninitialised trace from a file. ERR_IO when it cannot be read, ERR_RUN when it is not
 * a sound trace, ERR_MEMORY; then nothing is left to free. */
int trace_load(struct trace *trace, const char *path);
/* ERR_OUTPUT when the file could not be written whole. */
int trace_save(const struct trace *trace, const char *path);

#endif
