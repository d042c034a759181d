/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"
#include "tests/support/grid.h"

#include <stdio.h>
#include <string.h>

#include "cache/policy.h"
#include "core/base/nondet.h"
#include "tests/support/golden.h"
#include "tests/support/tiny.h"

#define LEVELS_MAX 8

/* GRID_ISA holds an enum isa, GRID_POLICY an index into policy_table, GRID_PIN_ORDER an enum
 * plan_pin_order. */
static const struct {
    const char *option;
    uint32_t count;
    uint64_t value[LEVELS_MAX];
} table[GRID_DIMS] = {
    [GRID_PIN] = {"pin", 3, {0, 50, 100}},
    [GRID_SLOTS] = {"expert-slots", 5, {0, 5, 16, 40, PLAN_ALL}},
    [GRID_DEPTH] = {"io-depth", 5, {1, 2, 3, 8, 64}},
    [GRID_SIZE] = {"io-size", 3, {4 * KIB, 16 * KIB, 4 * MIB}},
    [GRID_POLICY] = {"cache-policy", 7, {0, 1, 2, 3, 4, 5, 6}},
    [GRID_THREADS] = {"threads", 5, {0, 1, 2, 3, 4}}, /* 0: auto */
    [GRID_ISA] = {"isa", 3, {ISA_SCALAR, ISA_AVX2, ISA_AVX512}},
    [GRID_IO] = {"io", 4, {GRID_URING, GRID_PREAD, GRID_SIM, GRID_STEPPED}},
    [GRID_CHUNK] = {"chunk", 3, {1, 7, GOLDEN_PROMPT}},
    [GRID_RAM] = {"ram", 4, {0, 32 * MIB, 64 * MIB, 256 * MIB}},
    [GRID_TILE] = {"tile", 3, {4 * KIB, 16 * KIB, PLAN_AUTO}},
    [GRID_PIN_ORDER] = {"pin-order", 2, {PIN_SPREAD, PIN_PREFIX}},
};

/* Instruction sets are nested, so the first few levels are those of the machine. */
uint32_t grid_levels(enum grid_dim dim)
{
    uint32_t count = table[dim].count;
    while (dim == GRID_ISA && kernels_select((enum isa)table[dim].value[count - 1]) == NULL) {
        count--;
    }
    return count;
}

uint64_t grid_value(const struct grid_point *point, enum grid_dim dim)
{
    return table[dim].value[point->level[dim]];
}

struct grid_point grid_random(uint64_t seed)
{
    struct grid_point point = {.seed = seed};
    struct rng rng = rng_seed(rng_mix(seed));
    for (int dim = 0; dim < GRID_DIMS; dim++) {
        point.level[dim] = (unsigned char)rng_below(&rng, grid_levels((enum grid_dim)dim));
    }
    return point;
}

/* Which pairs have met: a bit per level of the later dimension. */
struct pairs {
    unsigned char met[GRID_DIMS][LEVELS_MAX][GRID_DIMS];
};

static bool met(const struct pairs *pairs, int a, int level_a, int b, int level_b)
{
    return a < b ? (pairs->met[a][level_a][b] >> level_b & 1) != 0
                 : (pairs->met[b][level_b][a] >> level_a & 1) != 0;
}

static void note(struct pairs *pairs, const struct grid_point *point)
{
    for (int a = 0; a < GRID_DIMS; a++) {
        for (int b = a + 1; b < GRID_DIMS; b++) {
            pairs->met[a][point->level[a]][b] |= (unsigned char)(1U << point->level[b]);
        }
    }
}

/* Finds a pair that has not met and puts it into the point; counts those left. */
static uint32_t missing(const struct pairs *pairs, struct grid_point *point, int *first,
                        int *second)
{
    uint32_t left = 0;
    for (int a = 0; a < GRID_DIMS; a++) {
        for (int b = a + 1; b < GRID_DIMS; b++) {
            uint32_t ends = grid_levels((enum grid_dim)a) * grid_levels((enum grid_dim)b);
            for (uint32_t i = 0; i < ends; i++) {
                int i_a = (int)(i / grid_levels((enum grid_dim)b));
                int i_b = (int)(i % grid_levels((enum grid_dim)b));
                if (met(pairs, a, i_a, b, i_b)) {
                    continue;
                }
                if (left++ == 0) {
                    *first = a;
                    *second = b;
                    point->level[a] = (unsigned char)i_a;
                    point->level[b] = (unsigned char)i_b;
                }
            }
        }
    }
    return left;
}

/* The level of dim that meets most levels already chosen for the first time. */
static int best_level(const struct pairs *pairs, const struct grid_point *point,
                      const bool chosen[GRID_DIMS], int dim, uint32_t turn)
{
    int levels = (int)grid_levels((enum grid_dim)dim);
    int best = 0;
    int best_gain = -1;
    for (int i = 0; i < levels; i++) {
        int level = (int)((uint32_t)i + turn) % levels; /* ties go round */
        int gain = 0;
        for (int other = 0; other < GRID_DIMS; other++) {
            gain += other != dim && chosen[other] &&
                    !met(pairs, dim, level, other, point->level[other]);
        }
        if (gain > best_gain) {
            best_gain = gain;
            best = level;
        }
    }
    return best;
}

uint32_t grid_cover(struct grid_point *points, uint32_t capacity)
{
    struct pairs pairs = {0};
    uint32_t count = 0;
    for (; count < capacity; count++) {
        struct grid_point point = {.seed = count + 1};
        bool chosen[GRID_DIMS] = {false};
        int a = 0;
        int b = 0;
        if (missing(&pairs, &point, &a, &b) == 0) {
            break;
        }
        chosen[a] = chosen[b] = true;
        for (int dim = 0; dim < GRID_DIMS; dim++) {
            if (!chosen[dim]) {
                point.level[dim] =
                    (unsigned char)best_level(&pairs, &point, chosen, dim, count);
                chosen[dim] = true;
            }
        }
        note(&pairs, &point);
        points[count] = point;
    }
    return count;
}

uint32_t grid_uncovered(const struct grid_point *points, uint32_t count)
{
    struct pairs pairs = {0};
    struct grid_point unused;
    int a;
    int b;
    for (uint32_t i = 0; i < count; i++) {
        note(&pairs, &points[i]);
    }
    return missing(&pairs, &unused, &a, &b);
}

void grid_options(const struct grid_point *point, uint32_t prompt, uint32_t gen,
                  struct engine_options *o)
{
    static const enum io_engine engines[] = {IO_URING, IO_PREAD, IO_SIM, IO_SIM};
    enum grid_io io = (enum grid_io)point->level[GRID_IO];
    *o = (struct engine_options){
        .slice_bytes = 2 * MIB, /* so that there are several */
        .ram_bytes = grid_value(point, GRID_RAM),
        .io_depth = (uint32_t)grid_value(point, GRID_DEPTH),
        .io_size_bytes = grid_value(point, GRID_SIZE),
        .policy = policy_table[grid_value(point, GRID_POLICY)]->name,
        .threads = (uint32_t)grid_value(point, GRID_THREADS),
        .isa = (enum isa)grid_value(point, GRID_ISA),
        .io = engines[io],
        .sim = {.seed = point->seed, .threads = io != GRID_STEPPED},
        .stepped = io == GRID_STEPPED,
        .context = prompt + gen,
        .chunk = grid_value(point, GRID_CHUNK),
        .pin_bytes = point->level[GRID_PIN] == PIN_WHOLE ? PLAN_ALL : 0,
        .pin_percent = point->level[GRID_PIN] == PIN_HALF ? 50.0 : -1.0,
        .pin_order = (enum plan_pin_order)grid_value(point, GRID_PIN_ORDER),
        .expert_slots = grid_value(point, GRID_SLOTS),
        .tile_bytes = grid_value(point, GRID_TILE),
        .prompt_tokens = prompt,
    };
    if (o->stepped) { /* a drive of moods as well */
        o->sim.short_every = 7;
        o->sim.again_every = 11;
        o->sim.intr_every = 13;
    }
}

static void put_number(char *text, size_t size, uint64_t value)
{
    if (value == PLAN_ALL || value == PLAN_AUTO) {
        snprintf(text, size, "%s", value == PLAN_ALL ? "all" : "auto");
    } else {
        snprintf(text, size, "%llu", (unsigned long long)value);
    }
}

static void put_value(const struct grid_point *point, enum grid_dim dim, uint64_t ram_bytes,
                      char *text, size_t size)
{
    static const char *const pins[] = {"0", "50%", "all"};
    static const char *const backends[] = {"uring", "pread", "sim", "sim"};
    if (dim == GRID_PIN) {
        snprintf(text, size, "%s", pins[point->level[dim]]);
    } else if (dim == GRID_IO) {
        snprintf(text, size, "%s", backends[point->level[dim]]);
    } else if (dim == GRID_THREADS && grid_value(point, dim) == 0) {
        snprintf(text, size, "auto");
    } else if (dim == GRID_PIN_ORDER) {
        snprintf(text, size, "%s", point->level[dim] == PIN_PREFIX ? "prefix" : "spread");
    } else if (dim == GRID_ISA) {
        snprintf(text, size, "%s", kernels_select((enum isa)grid_value(point, dim))->name);
    } else if (dim == GRID_POLICY) {
        snprintf(text, size, "%s", policy_table[grid_value(point, dim)]->name);
    } else {
        put_number(text, size, dim == GRID_RAM ? ram_bytes : grid_value(point, dim));
    }
}

void grid_floor(const char *dir, struct engine_options *o)
{
    struct model *model = NULL;
    struct plan *plan = NULL;
    if (o->ram_bytes != 0) {
        return;
    }
    o->ram_bytes = 512 * MIB;
    tiny_need(engine_plan(dir, o, &model, &plan) == 0, err_message());
    o->ram_bytes = plan->floor_bytes;
    plan_free(plan);
    model_close(model);
}

void grid_command(const struct grid_point *point, uint64_t ram_bytes, uint32_t gen, char *text,
                  size_t text_bytes)
{
    enum grid_io io = (enum grid_io)point->level[GRID_IO];
    size_t at = (size_t)snprintf(text, text_bytes, "k3ring run TINY --ids "
                                 "3,141,59,26,53,58,97,93 --gen %u", gen);
    for (int dim = 0; dim < GRID_DIMS && at < text_bytes; dim++) {
        char value[32];
        put_value(point, (enum grid_dim)dim, ram_bytes, value, sizeof value);
        at += (size_t)snprintf(text + at, text_bytes - at, " --%s %s", table[dim].option, value);
    }
    if (io >= GRID_SIM && at < text_bytes) {
        snprintf(text + at, text_bytes - at, " --sim-seed %llu%s",
                 (unsigned long long)point->seed,
                 io == GRID_STEPPED ? " (stepped, which only tests can ask for)" : "");
    }
}
