/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_WALK_READS_H
#define EXEC_WALK_READS_H

/* The reads of recorded positions, one after the other, as an engine makes them in passes of one
 * token: an embedding row, the trunk's tiles in the order of the walk (pinned ones in the first
 * pass only), the experts that the cache misses at the place of their step, lm_head. Nothing is
 * read here. One thread. */

#include "cache/cache.h"
#include "cache/trace.h"
#include "core/exec/reader.h"
#include "planner/plan.h"

/* All of it outlives the struct walk_reads. */
struct walk_reads_options {
    const struct model *model;
    const struct plan *plan;        /* of the model */
    const struct policy_ops *policy;
    const struct trace *trace;      /* of the model: layers, experts a token, experts */
    uint32_t positions;             /* of it, from the first on */
    const uint32_t *ids;            /* [positions] whose rows are read; NULL: drawn */
};

struct walk_reads;

/* Positions of a trace; ERR_MODEL when it does not go through all layers position by position. */
int walk_reads_positions(const struct trace *trace, uint32_t *positions);

/* ERR_MEMORY. */
int walk_reads_open(struct walk_reads **out, const struct walk_reads_options *options);
void walk_reads_close(struct walk_reads *w); /* NULL is fine */

/* A reader_next. The label of a read is its enum read_class. */
bool walk_reads_next(void *walk_reads, struct reader_read *read);

/* True when all reads of earlier positions were named and none of the present one. */
bool walk_reads_at_border(const struct walk_reads *w);
uint32_t walk_reads_done(const struct walk_reads *w); /* positions all of whose reads were named */
/* Experts asked for so far. */
const struct cache_stats *walk_reads_cache(const struct walk_reads *w);

/* Pure: no position has more reads, and no read more bytes. */
uint64_t walk_reads_most(const struct plan *plan);
uint64_t walk_reads_size_max(const struct plan *plan);

#endif
