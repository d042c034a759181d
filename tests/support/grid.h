/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_GRID_H
#define TESTS_SUPPORT_GRID_H

/* The settings that must not change a bit, as a grid: one level per dimension is a point. Arrays
 * of points that cover every pair of levels, and random ones. */

#include "core/exec/engine.h"

enum grid_dim {
    GRID_PIN, GRID_SLOTS, GRID_DEPTH, GRID_SIZE, GRID_POLICY, GRID_THREADS, GRID_ISA, GRID_IO,
    GRID_CHUNK, GRID_RAM, GRID_TILE, GRID_PIN_ORDER, GRID_DIMS
};

enum grid_pin { PIN_NONE, PIN_HALF, PIN_WHOLE };
enum grid_io { GRID_URING, GRID_PREAD, GRID_SIM, GRID_STEPPED };

#define GRID_RAM_FLOOR 0 /* level of GRID_RAM: the least the point's plan can do with */

struct grid_point {
    unsigned char level[GRID_DIMS];
    uint64_t seed; /* of the simulated drive and, stepped, of all order */
};

/* Levels of a dimension on this machine (instruction sets it lacks are none). */
uint32_t grid_levels(enum grid_dim dim);

/* The value of a level as its option takes it: a count, bytes, PLAN_ALL. PIN in percent. */
uint64_t grid_value(const struct grid_point *point, enum grid_dim dim);

struct grid_point grid_random(uint64_t seed);

/* Points in which every two levels of any two dimensions meet. Deterministic. Returns how many
 * were needed, at most capacity. */
uint32_t grid_cover(struct grid_point *points, uint32_t capacity);

/* Pairs of levels that meet in none of the points. */
uint32_t grid_uncovered(const struct grid_point *points, uint32_t count);

/* Everything but ram_bytes, which is left 0 at GRID_RAM_FLOOR. */
void grid_options(const struct grid_point *point, uint32_t prompt, uint32_t gen,
                  struct engine_options *options);

/* Makes ram_bytes the floor of the model in dir where it is 0. Aborts when there is no plan. */
void grid_floor(const char *dir, struct engine_options *options);

/* The point as arguments of `k3ring run`. */
void grid_command(const struct grid_point *point, uint64_t ram_bytes, uint32_t gen, char *text,
                  size_t text_bytes);

#endif
