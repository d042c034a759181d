/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/policy_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- ARC, after figure 4 of the FAST '03 paper ---- */

struct row { /* keys, least recent first */
    uint32_t *key;
    uint32_t count;
};

struct arc {
    struct row t1, t2, b1, b2;
    double p;
    uint32_t c;
};

static uint32_t find(const struct row *row, uint32_t key)
{
    for (uint32_t i = 0; i < row->count; i++) {
        if (row->key[i] == key) {
            return i;
        }
    }
    return UINT32_MAX;
}

static uint32_t delete_at(struct row *row, uint32_t index)
{
    uint32_t key = row->key[index];
    row->count--;
    memmove(row->key + index, row->key + index + 1, (row->count - index) * sizeof *row->key);
    return key;
}

static void append(struct row *row, uint32_t key)
{
    row->key[row->count++] = key;
}

static bool in(const struct row *row, uint32_t key)
{
    return find(row, key) != UINT32_MAX;
}

/* The least recent that is not held; UINT32_MAX when all are. */
static uint32_t oldest_loose(const struct row *row, const uint32_t *held, uint32_t held_count)
{
    for (uint32_t i = 0; i < row->count; i++) {
        struct row holding = {.key = (uint32_t *)(uintptr_t)held, .count = held_count};
        if (!in(&holding, row->key[i])) {
            return i;
        }
    }
    return UINT32_MAX;
}

static void arc_replace(struct arc *arc, bool in_b2, const uint32_t *held, uint32_t held_count)
{
    uint32_t from_t1 = oldest_loose(&arc->t1, held, held_count);
    uint32_t from_t2 = oldest_loose(&arc->t2, held, held_count);
    bool wants_t1 = arc->t1.count >= 1 && (arc->t1.count > arc->p ||
                                           (in_b2 && arc->t1.count == floor(arc->p)));
    if ((wants_t1 && from_t1 != UINT32_MAX) || from_t2 == UINT32_MAX) {
        append(&arc->b1, delete_at(&arc->t1, from_t1));
    } else {
        append(&arc->b2, delete_at(&arc->t2, from_t2));
    }
}

static void arc_case_4(struct arc *arc, uint32_t x, const uint32_t *held, uint32_t held_count)
{
    uint32_t l1 = arc->t1.count + arc->b1.count, l2 = arc->t2.count + arc->b2.count;
    if (l1 == arc->c) {
        if (arc->t1.count < arc->c) {
            delete_at(&arc->b1, 0);
            arc_replace(arc, false, held, held_count);
        } else {
            delete_at(&arc->t1, 0);
        }
    } else if (l1 < arc->c && l1 + l2 >= arc->c) {
        if (l1 + l2 == 2 * arc->c) {
            delete_at(&arc->b2, 0);
        }
        arc_replace(arc, false, held, held_count);
    }
    append(&arc->t1, x);
}

static void arc_request(struct arc *arc, uint32_t x, const uint32_t *held, uint32_t held_count)
{
    double b1 = arc->b1.count, b2 = arc->b2.count;
    if (in(&arc->t1, x)) {
        append(&arc->t2, delete_at(&arc->t1, find(&arc->t1, x)));
    } else if (in(&arc->t2, x)) {
        append(&arc->t2, delete_at(&arc->t2, find(&arc->t2, x)));
    } else if (in(&arc->b1, x)) {
        arc->p = fmin(arc->c, arc->p + fmax(1, b2 / b1));
        arc_replace(arc, false, held, held_count);
        append(&arc->t2, delete_at(&arc->b1, find(&arc->b1, x)));
    } else if (in(&arc->b2, x)) {
        arc->p = fmax(0, arc->p - fmax(1, b1 / b2));
        arc_replace(arc, true, held, held_count);
        append(&arc->t2, delete_at(&arc->b2, find(&arc->b2, x)));
    } else {
        arc_case_4(arc, x, held, held_count);
    }
}

/* ---- the policies ---- */

struct policy_model {
    const char *name;
    struct policy_shape shape;
    uint32_t keys;
    struct arc *arc;      /* one per layer, or the first alone */
    bool *resident;       /* of lru, lfu and lar */
    uint32_t resident_count;
    double *last, *count; /* of lru and lfu, per key */
    double now;
    float *fast, *slow;   /* of lar, per key */
    uint32_t *visit;      /* per key */
    uint32_t *visits;     /* per layer */
};

static void *zeroed(size_t count, size_t unit)
{
    void *memory = calloc(count, unit);
    assert(memory != NULL);
    return memory;
}

static void arc_open(struct arc *arc, uint32_t c, uint32_t keys)
{
    struct row *rows[] = {&arc->t1, &arc->t2, &arc->b1, &arc->b2};
    arc->c = c;
    for (size_t i = 0; i < countof(rows); i++) {
        rows[i]->key = zeroed(keys + 1U, sizeof *rows[i]->key);
    }
}

struct policy_model *policy_model_open(const char *name, const struct policy_shape *shape)
{
    struct policy_model *model = zeroed(1, sizeof *model);
    assert(policy_find(name) != NULL);
    model->name = name;
    model->shape = *shape;
    model->keys = shape->layers * shape->experts;
    model->arc = zeroed(shape->layers, sizeof *model->arc);
    for (uint32_t i = 0; i < shape->layers; i++) {
        bool global = strcmp(name, "arc-global") == 0;
        uint32_t c = shape->slots / shape->layers + (i < shape->slots % shape->layers ? 1 : 0);
        arc_open(&model->arc[i], global ? shape->slots : c, global ? model->keys : shape->experts);
    }
    model->resident = zeroed(model->keys, sizeof *model->resident);
    model->last = zeroed(model->keys, sizeof *model->last);
    model->count = zeroed(model->keys, sizeof *model->count);
    model->fast = zeroed(model->keys, sizeof *model->fast);
    model->slow = zeroed(model->keys, sizeof *model->slow);
    model->visit = zeroed(model->keys, sizeof *model->visit);
    model->visits = zeroed(shape->layers, sizeof *model->visits);
    return model;
}

void policy_model_close(struct policy_model *model)
{
    for (uint32_t i = 0; i < model->shape.layers; i++) {
        free(model->arc[i].t1.key);
        free(model->arc[i].t2.key);
        free(model->arc[i].b1.key);
        free(model->arc[i].b2.key);
    }
    free(model->arc);
    free(model->resident);
    free(model->last);
    free(model->count);
    free(model->fast);
    free(model->slow);
    free(model->visit);
    free(model->visits);
    free(model);
}

/* What the victim has least of, while `now` is served. */
static double lar_score(const struct policy_model *model, uint32_t key, uint32_t now)
{
    uint32_t layers = model->shape.layers, layer = key / model->shape.experts;
    double age = model->visits[layer] - model->visit[key];
    double distance = (layer + layers - now - 1) % layers + 1;
    return (model->fast[key] * pow(0.3, age) + 0.06 * model->slow[key] * pow(0.97, age)) *
           pow(layers / distance, 0.25);
}

static bool worse(const struct policy_model *model, uint32_t a, uint32_t b, uint32_t now)
{
    if (strcmp(model->name, "lar") == 0) {
        return lar_score(model, a, now) < lar_score(model, b, now);
    }
    if (strcmp(model->name, "lfu") == 0 && !(model->count[a] == model->count[b])) {
        return model->count[a] < model->count[b];
    }
    return model->last[a] < model->last[b];
}

static void evict_worst(struct policy_model *model, uint32_t layer, const uint16_t *members,
                        uint32_t member_count)
{
    uint32_t victim = UINT32_MAX;
    for (uint32_t key = 0; key < model->keys; key++) {
        bool member = false;
        for (uint32_t i = 0; i < member_count; i++) {
            member = member || key == layer * model->shape.experts + members[i];
        }
        if (model->resident[key] && !member &&
            (victim == UINT32_MAX || worse(model, key, victim, layer))) {
            victim = key;
        }
    }
    assert(victim != UINT32_MAX);
    model->resident[victim] = false;
    model->resident_count--;
}

static void note_use(struct policy_model *model, uint32_t layer, uint32_t key, uint32_t rank)
{
    uint32_t k = model->shape.per_token;
    double age = model->visits[layer] - model->visit[key];
    double weight = k == 1 ? 1 : 1 - 0.5 * rank / (k - 1);
    model->fast[key] = (float)(model->fast[key] * pow(0.3, age) + weight);
    model->slow[key] = (float)(model->slow[key] * pow(0.97, age) + weight);
    model->visit[key] = model->visits[layer];
    model->count[key]++;
    model->last[key] = ++model->now;
}

static void held_token(struct policy_model *model, uint32_t layer, const uint16_t *ids)
{
    uint32_t k = model->shape.per_token, kept = k < model->shape.slots ? k : model->shape.slots;
    model->visits[layer]++;
    for (uint32_t rank = 0; rank < k; rank++) {
        note_use(model, layer, layer * model->shape.experts + ids[rank], rank);
    }
    for (uint32_t rank = 0; rank < kept; rank++) {
        uint32_t key = layer * model->shape.experts + ids[rank];
        if (model->resident[key]) {
            continue;
        }
        if (model->resident_count == model->shape.slots) {
            evict_worst(model, layer, ids, kept);
        }
        model->resident[key] = true;
        model->resident_count++;
    }
}

static void arc_token(struct policy_model *model, uint32_t layer, const uint16_t *ids)
{
    struct arc *arc = &model->arc[layer];
    for (uint32_t i = 0; i < model->shape.per_token && arc->c > 0; i++) {
        arc_request(arc, ids[model->shape.per_token - 1 - i], NULL, 0);
    }
}

static void arc_global_token(struct policy_model *model, uint32_t layer, const uint16_t *ids)
{
    struct arc *arc = &model->arc[0];
    uint32_t member[64], hits[64], hit_count = 0, member_count = 0;
    uint32_t kept = model->shape.per_token < arc->c ? model->shape.per_token : arc->c;
    assert(kept <= countof(member));
    for (; member_count < kept; member_count++) {
        member[member_count] = layer * model->shape.experts + ids[member_count];
        if (in(&arc->t1, member[member_count]) || in(&arc->t2, member[member_count])) {
            hits[hit_count++] = member[member_count];
        }
    }
    struct row hit_row = {.key = hits, .count = hit_count};
    for (uint32_t i = 0; i < hit_count; i++) {
        arc_request(arc, hits[i], member, member_count);
    }
    for (uint32_t i = 0; i < member_count; i++) {
        if (!in(&hit_row, member[i])) {
            arc_request(arc, member[i], member, member_count);
        }
    }
}

void policy_model_batch(struct policy_model *model, uint32_t layer, const uint16_t *ids,
                        uint32_t tokens)
{
    for (uint32_t token = 0; token < tokens; token++) {
        const uint16_t *own = ids + (size_t)token * model->shape.per_token;
        if (strcmp(model->name, "arc") == 0) {
            arc_token(model, layer, own);
        } else if (strcmp(model->name, "arc-global") == 0) {
            arc_global_token(model, layer, own);
        } else if (strcmp(model->name, "none") != 0) {
            held_token(model, layer, own);
        }
    }
}

bool policy_model_resident(const struct policy_model *model, policy_key key)
{
    if (strcmp(model->name, "arc") == 0) {
        const struct arc *arc = &model->arc[key / model->shape.experts];
        uint32_t expert = key % model->shape.experts;
        return in(&arc->t1, expert) || in(&arc->t2, expert);
    }
    if (strcmp(model->name, "arc-global") == 0) {
        return in(&model->arc[0].t1, key) || in(&model->arc[0].t2, key);
    }
    return model->resident[key];
}
