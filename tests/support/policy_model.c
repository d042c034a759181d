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
    uint32_t *rank;       /* of lhr, per key: class of rank of its latest use */
    double *value;        /* of lhr, per key: its chance as seen at its layer's latest visit */
    double used[12][16], expected[12][16], *layer_used, *layer_expected, trend_used, trend_expected;
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
    model->rank = zeroed(model->keys, sizeof *model->rank);
    model->value = zeroed(model->keys, sizeof *model->value);
    model->layer_used = zeroed(shape->layers, sizeof *model->layer_used);
    model->layer_expected = zeroed(shape->layers, sizeof *model->layer_expected);
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
    free(model->rank);
    free(model->value);
    free(model->layer_used);
    free(model->layer_expected);
    free(model);
}

static double sum_at(const struct policy_model *model, uint32_t key, double age, bool lhr)
{
    return lhr ? model->fast[key] * pow(0.25, age) + 0.08 * model->slow[key] * pow(0.97, age)
               : model->fast[key] * pow(0.3, age) + 0.06 * model->slow[key] * pow(0.97, age);
}

/* ---- lhr: what is expected of a key, and how expectations are corrected ---- */

/* Class of an expert that will be asked, or not, that many visits after its latest use. */
static int age_class(double age)
{
    static const double end[] = {1, 2, 3, 4, 6, 9, 14, 22, 36, 64, 128};
    int class = 0;
    while (class < 11 && age > end[class]) {
        class++;
    }
    return class;
}

static double ratio(double used, double expected, double prior)
{
    return (used + prior) / (expected + prior);
}

/* The chance that a key is asked for at the visit that is `age` visits after its latest use. */
static double chance(const struct policy_model *model, uint32_t key, double age)
{
    uint32_t layer = key / model->shape.experts, rank = model->rank[key];
    int class = age_class(age);
    return 0.4 * sum_at(model, key, age - 1, true) *
           ratio(model->used[class][rank], model->expected[class][rank], 128) *
           ratio(model->layer_used[layer], model->layer_expected[layer], 32);
}

static void add_expected(double *used, double *expected, double more)
{
    *expected += more;
    if (*expected > 4096) {
        *expected /= 2;
        *used /= 2;
    }
}

/* Before the uses of this visit, whose number is already counted, are noted. */
static void lhr_learn(struct policy_model *model, uint32_t layer, const uint16_t *ids)
{
    double guess[12][16] = {{0}}, used[12][16] = {{0}}, all_guess = 0, all_used = 0;
    for (uint32_t expert = 0; expert < model->shape.experts; expert++) {
        uint32_t key = layer * model->shape.experts + expert;
        if (model->visit[key] == 0) {
            continue;
        }
        double age = model->visits[layer] - model->visit[key], now = chance(model, key, age);
        for (uint32_t i = 0; i < model->shape.per_token; i++) {
            if (ids[i] == expert) {
                used[age_class(age)][model->rank[key]]++;
                all_used++;
            }
        }
        guess[age_class(age)][model->rank[key]] += now;
        all_guess += now;
    }
    model->trend_used = model->trend_used * 0.99 + all_used;
    model->trend_expected = model->trend_expected * 0.99 + all_guess;
    double trend = ratio(model->trend_used, model->trend_expected, 8);
    for (int age = 0; age < 12; age++) {
        for (int rank = 0; rank < 16; rank++) {
            double *u = &model->used[age][rank], *x = &model->expected[age][rank];
            double now = ratio(*u, *x, 128);
            *u += used[age][rank];
            add_expected(u, x, guess[age][rank] * trend / now);
        }
    }
    double now = ratio(model->layer_used[layer], model->layer_expected[layer], 32);
    model->layer_used[layer] += all_used;
    add_expected(&model->layer_used[layer], &model->layer_expected[layer],
                 all_guess * trend / now);
}

/* What the victim has least of, while `now` is served. A visit renews only its own layer's part. */
static double scored_worth(const struct policy_model *model, uint32_t key, uint32_t now)
{
    uint32_t layers = model->shape.layers, layer = key / model->shape.experts;
    double age = model->visits[layer] - model->visit[key];
    double distance = (layer + layers - now - 1) % layers + 1;
    if (strcmp(model->name, "lhr") == 0) {
        return model->value[key] * pow(layers / distance, 0.125);
    }
    return sum_at(model, key, age, false) * pow(layers / distance, 0.25);
}

static bool worse(const struct policy_model *model, uint32_t a, uint32_t b, uint32_t now)
{
    if (strcmp(model->name, "lar") == 0 || strcmp(model->name, "lhr") == 0) {
        return scored_worth(model, a, now) < scored_worth(model, b, now);
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
    bool lhr = strcmp(model->name, "lhr") == 0;
    double age = model->visits[layer] - model->visit[key];
    double weight = k == 1 ? 1 : 1 - 0.5 * rank / (k - 1);
    model->fast[key] = (float)(model->fast[key] * pow(lhr ? 0.25 : 0.3, age) + weight);
    model->slow[key] = (float)(model->slow[key] * pow(0.97, age) + weight);
    model->visit[key] = model->visits[layer];
    model->rank[key] = k > 16 ? rank * 16 / k : rank;
    model->count[key]++;
    model->last[key] = ++model->now;
}

static void lhr_renew(struct policy_model *model, uint32_t layer)
{
    for (uint32_t expert = 0; expert < model->shape.experts; expert++) {
        uint32_t key = layer * model->shape.experts + expert;
        model->value[key] = chance(model, key, model->visits[layer] - model->visit[key] + 1.0);
    }
}

static void held_token(struct policy_model *model, uint32_t layer, const uint16_t *ids)
{
    uint32_t k = model->shape.per_token, kept = k < model->shape.slots ? k : model->shape.slots;
    model->visits[layer]++;
    if (strcmp(model->name, "lhr") == 0) {
        lhr_learn(model, layer, ids);
    }
    for (uint32_t rank = 0; rank < k; rank++) {
        note_use(model, layer, layer * model->shape.experts + ids[rank], rank);
    }
    lhr_renew(model, layer);
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
