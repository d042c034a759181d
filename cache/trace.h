/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CACHE_TRACE_H
#define CACHE_TRACE_H

/* A record of the experts the routers asked for, in memory and as a file. A group is one token at
 * one MoE layer: top_k distinct experts, best score first. Groups of one layer that follow each
 * other lie side by side, so a run of them is a policy batch as it stands.
 *
 * docs/TRACE.md describes the file. Version 1 holds the experts; version 2 also the best candidates
 * of each group and their scores, which are checked and passed over when a file is loaded. One
 * owner, no locking. */

#include <stdio.h>

#include "core/base/base.h"

#define TRACE_FILE_BYTES_MAX GIB /* 180,000 tokens of the full model */

struct trace {
    uint32_t layers;      /* 1 .. 65535 */
    uint32_t top_k;       /* 1 .. 255 */
    uint32_t experts;     /* per layer where the file says so, else highest seen plus one */
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

/* Fills an uninitialised trace from a file. ERR_IO when it cannot be read, ERR_MODEL when it is not
 * a sound trace, ERR_MEMORY; then nothing is left to free. */
int trace_load(struct trace *trace, const char *path);
/* ERR_OUTPUT when the file could not be written whole. */
int trace_save(const struct trace *trace, const char *path);

/* The file itself, written group by group as a run goes. */
struct trace_format {
    uint32_t layers, top_k;
    uint32_t experts;    /* per layer; version 2 */
    uint32_t candidates; /* of a group, top_k .. experts; 0 = version 1 */
};

#define TRACE_CANDIDATES 64U /* recorded where there are as many experts */

/* ERR_USAGE when the shape does not fit the format. */
int trace_format_check(const struct trace_format *format);
/* In order from the stream's present place; whether that worked is the stream's to say. */
void trace_write_head(FILE *file, const struct trace_format *format);
/* ids: top_k of version 1, candidates of version 2, best first; scores [candidates] or NULL. */
void trace_write_group(FILE *file, const struct trace_format *format, uint32_t layer,
                       const uint16_t *ids, const float *scores);

#endif
