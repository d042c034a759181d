/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_ACCOUNT_H
#define TESTS_SUPPORT_ACCOUNT_H

/* What a run must have counted, worked out from its plan, the ids it was fed and the routing of
 * the tiny model alone: bytes and requests of every class, and each figure of the expert cache. */

#include "core/exec/engine.h"
#include "tests/support/golden.h"

/* The routing of consecutive positions. */
struct account_routes {
    uint16_t expert[GOLDEN_PROMPT + GOLDEN_STEPS][REF_LAYERS][REF_TOP];
};

struct account {
    struct engine_class_stats trunk_head; /* the plan's figure for both together, no payload */
    struct engine_class_stats experts, embed;
    uint64_t demands, hits, misses, evictions;
    uint64_t passes;
};

/* The figures of a first sequence: prompt_tokens ids in chunks of the plan, then one at a time, in
 * all `positions` of them. Aborts when memory is refused. */
void account_run(const struct plan *plan, const struct model *model, const char *policy,
                 const struct account_routes *routes, const uint32_t *ids, uint32_t prompt_tokens,
                 uint32_t positions, struct account *out);

/* Trunk and head of any number of sequences on one engine, at least one pass with logits among
 * them: what streams is read in each pass, what is pinned once. */
void account_trunk(const struct plan *plan, uint64_t passes, uint64_t head_passes,
                   struct engine_class_stats *out);

/* False, with one line in why, at the first figure that differs. */
bool account_agrees(const struct account *expected, const struct engine_stats *found, char *why,
                    size_t why_bytes);

#endif
