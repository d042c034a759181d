/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CACHE_OPT_H
#define CACHE_OPT_H

/* A trace replayed: by a policy, with the code a run uses, and by Belady's rule (the resident
 * whose next use lies farthest leaves), which knows the future and which no policy can beat that
 * holds a batch. Groups of one layer in a row, up to `chunk` of them, are one batch; hits are what
 * was resident when it began, an expert asked for twice in it counts once. */

#include "cache/policy.h"
#include "cache/trace.h"

struct replay_count {
    uint64_t demands, hits;
    uint64_t evictions; /* residents that had left when a batch was over */
};

/* ERR_MEMORY when memory is refused; out is zero then. experts > any of the trace. */
int replay_policy(const struct trace *trace, const struct policy_ops *ops, uint32_t experts,
                  uint32_t slots, uint32_t chunk, struct replay_count *out);

/* Demands for experts that no batch before asked for: no policy hits these. ERR_MEMORY. */
int replay_first_touches(const struct trace *trace, uint32_t experts, uint32_t chunk,
                         uint64_t *out);

/* A batch of more experts than there are slots keeps those used again soonest. */
int replay_opt(const struct trace *trace, uint32_t experts, uint32_t slots, uint32_t chunk,
               struct replay_count *out);

#endif
