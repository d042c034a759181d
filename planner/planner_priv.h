/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLANNER_PRIV_H
#define PLANNER_PRIV_H

#include "planner/plan.h"

/* walk.c: steps and tiles of the whole model, nothing pinned. ERR_MEMORY. */
int walk_build(const struct model *model, struct plan *plan);
/* Bytes the plan's own arrays and their run-time state take. */
uint64_t walk_bytes(const struct plan *plan);

/* budget.c: splits the RAM, decides pins and places them. */
int budget_split(const struct model *model, struct plan *plan);

/* Run-time state the executor keeps per tile and per step; it asserts these figures. */
#define TILE_STATE_BYTES 64
#define STEP_STATE_BYTES 64

#endif
