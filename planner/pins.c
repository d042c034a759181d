/* SPDX-License-Identifier: Apache-2.0 */
/* Which tiles stay, and where. The order decides which tiles a budget buys, never how many bytes:
 * spread over the walk, or the walk's first ones. */
#include "planner/planner_priv.h"

uint64_t pins_place(struct plan *plan)
{
    uint64_t slice = plan->request.pin_slice_bytes;
    uint64_t at = 0;
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        struct plan_tile *tile = &plan->tiles[i];
        if (tile->pinned) {
            uint64_t room = align_up(at + 1, slice) - at;
            at += tile->window_bytes > room ? room : 0;
            tile->pin_offset_bytes = at;
            at += tile->window_bytes;
        }
    }
    return at;
}

/* Every stretch of the walk then has the same ratio of streamed to pinned bytes. A tile is due
 * when a whole largest tile of credit has built up, so that small tiles are not taken before large
 * ones. */
static void spread(struct plan *plan, uint64_t budget, uint64_t trunk)
{
    long double share = (long double)budget / (long double)trunk;
    uint64_t walked = 0;
    uint64_t pinned = 0;
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        struct plan_tile *tile = &plan->tiles[i];
        walked += tile->window_bytes;
        tile->pinned = (long double)(pinned + plan->tile_window_max) <=
                       share * (long double)walked;
        pinned += tile->pinned ? tile->window_bytes : 0;
    }
}

/* One pinned stretch from the front of the walk, then one that is streamed. */
static void prefix(struct plan *plan, uint64_t budget)
{
    uint64_t pinned = 0;
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        pinned += plan->tiles[i].window_bytes;
        plan->tiles[i].pinned = pinned <= budget;
    }
}

void pins_choose(struct plan *plan, uint64_t budget, uint64_t trunk)
{
    if (budget >= trunk) {
        for (uint32_t i = 0; i < plan->tile_count; i++) {
            plan->tiles[i].pinned = true;
        }
    } else if (plan->request.pin_order == PIN_PREFIX) {
        prefix(plan, budget);
    } else {
        spread(plan, budget, trunk);
    }
}

void pins_within(struct plan *plan, uint64_t budget, uint64_t trunk)
{
    uint64_t aim = budget;
    for (int attempt = 0; attempt < 64; attempt++) {
        pins_choose(plan, aim, trunk);
        plan->pin_area_bytes = pins_place(plan);
        if (plan->pin_area_bytes <= budget) {
            return;
        }
        uint64_t over = plan->pin_area_bytes - budget;
        aim = min_u64(aim, trunk);
        aim = aim > over ? aim - over : 0;
    }
    pins_choose(plan, 0, trunk);
    plan->pin_area_bytes = 0;
}
