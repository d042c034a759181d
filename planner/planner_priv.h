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

/* pins.c. trunk: bytes of all windows. Chooses tiles of about budget bytes, in the request's order;
 * all when budget reaches trunk. */
void pins_choose(struct plan *plan, uint64_t budget, uint64_t trunk);
/* Places chosen tiles one after the other, none across a slice. Bytes taken, padding included. */
uint64_t pins_place(struct plan *plan);
/* Chooses and places at most budget bytes, padding included. */
void pins_within(struct plan *plan, uint64_t budget, uint64_t trunk);

/* Run-time state the executor keeps per tile and per step; it asserts these figures. */
#define TILE_STATE_BYTES 64
#define STEP_STATE_BYTES 64

#endif
