/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/arc_core.h"

void arc_core_take(struct arc_core *core, struct block *block, uint32_t keys)
{
    core->links.older = block_take(block, keys, sizeof *core->links.older);
    core->links.newer = block_take(block, keys, sizeof *core->links.newer);
    core->place = block_take(block, keys, sizeof *core->place);
}

void arc_core_init(struct arc_core *core, uint32_t capacity)
{
    for (int place = 0; place < ARC_PLACES; place++) {
        key_list_init(&core->list[place]);
    }
    core->target = 0;
    core->capacity = capacity;
}

bool arc_core_resident(const struct arc_core *core, uint32_t key)
{
    return core->place[key] == ARC_T1 || core->place[key] == ARC_T2;
}

/* To the recent end of a list, or out of all of them. */
static void move(struct arc_core *core, uint32_t key, enum arc_place to)
{
    if (core->place[key] != ARC_OUT) {
        key_list_remove(&core->list[core->place[key]], &core->links, key);
    }
    if (to != ARC_OUT) {
        key_list_push(&core->list[to], &core->links, key);
    }
    core->place[key] = (uint8_t)to;
}

static uint32_t drop_oldest(struct arc_core *core, enum arc_place from)
{
    uint32_t key = core->list[from].oldest;
    assert(key != KEY_NONE);
    move(core, key, ARC_OUT);
    return key;
}

static bool has_victim(const struct key_list *list, const bool *held)
{
    return list->count > 0 && (held == NULL || !held[list->oldest]);
}

/* REPLACE of the paper: the oldest of T1 or of T2 becomes a ghost. */
static uint32_t replace(struct arc_core *core, bool asked_in_b2, const bool *held)
{
    uint32_t t1 = core->list[ARC_T1].count;
    bool from_t1 = t1 > core->target || (asked_in_b2 && t1 == (uint32_t)core->target);
    if (!has_victim(&core->list[from_t1 ? ARC_T1 : ARC_T2], held)) {
        from_t1 = !from_t1;
    }
    uint32_t victim = core->list[from_t1 ? ARC_T1 : ARC_T2].oldest;
    assert(victim != KEY_NONE);
    move(core, victim, from_t1 ? ARC_B1 : ARC_B2);
    return victim;
}

/* A ghost is asked for again: its side was too small. Lengths are those before it moves. */
static void adapt(struct arc_core *core, enum arc_place ghost)
{
    double b1 = core->list[ARC_B1].count, b2 = core->list[ARC_B2].count;
    if (ghost == ARC_B1) {
        double grown = core->target + (b2 > b1 ? b2 / b1 : 1);
        core->target = grown < core->capacity ? grown : core->capacity;
    } else {
        double shrunk = core->target - (b1 > b2 ? b1 / b2 : 1);
        core->target = shrunk > 0 ? shrunk : 0;
    }
}

/* Makes room for a key of no list: case IV of the paper. */
static uint32_t make_room(struct arc_core *core, const bool *held)
{
    const struct key_list *list = core->list;
    uint32_t recent = list[ARC_T1].count + list[ARC_B1].count;
    uint32_t known = recent + list[ARC_T2].count + list[ARC_B2].count;
    if (recent == core->capacity) {
        if (list[ARC_B1].count == 0) {
            return drop_oldest(core, ARC_T1);
        }
        drop_oldest(core, ARC_B1);
        return replace(core, false, held);
    }
    if (known < core->capacity) {
        return KEY_NONE;
    }
    if (known == 2 * (uint64_t)core->capacity) {
        drop_oldest(core, ARC_B2);
    }
    return replace(core, false, held);
}

uint32_t arc_core_request(struct arc_core *core, uint32_t key, const bool *held)
{
    enum arc_place place = core->place[key];
    uint32_t victim = KEY_NONE;
    assert(core->capacity > 0);
    if (place == ARC_OUT) {
        victim = make_room(core, held);
        move(core, key, ARC_T1);
    } else {
        if (place == ARC_B1 || place == ARC_B2) {
            adapt(core, place);
            victim = replace(core, place == ARC_B2, held);
        }
        move(core, key, ARC_T2);
    }
    debug_assert(core->list[ARC_T1].count + core->list[ARC_T2].count <= core->capacity);
    debug_assert(core->list[ARC_T1].count + core->list[ARC_B1].count <= core->capacity);
    return victim;
}
