/* SPDX-License-Identifier: Apache-2.0 */

/* Packing moves no bit: a model whose tiles have escapes, packed whole, without experts, in small
 * tiles and over two drives, through the points of the grid in which every two settings of a run
 * meet. One hash, that of the plainest run on the source.
 *
 *   pack_grid_test [POINT]   only one of them */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/packed.h"
#include "tests/support/amount.h"
#include "tests/support/farm.h"
#include "tests/support/grid.h"
#include "tests/support/packed.h"
#include "tests/support/suite.h"

#define POINTS_MAX 200
#define WORKERS 4
#define GEN 4
#define FORMS 5
#define ALL_POINTS UINT32_MAX
#define LIMIT_SECONDS 300

enum form { SOURCE, WHOLE, TRUNK, SMALL_TILES, TWO_DRIVES };

static struct tiny form[FORMS];
static struct tiny second;
static struct grid_point point[POINTS_MAX];
static uint32_t count, first;
static uint32_t only = ALL_POINTS;
static char *truth; /* the hash, as text; shared with the jobs */

static const char *const form_names[FORMS] = {"the source", "a pack", "a pack of the trunk",
                                              "a pack of small tiles", "a pack on two drives"};

static void find_truth(void *ctx, uint32_t job, char *why, size_t why_bytes)
{
    static struct tiny_run run;
    struct engine_options o = tiny_options(GEN);
    (void)ctx;
    (void)job;
    o.isa = ISA_SCALAR;
    o.io = IO_PREAD;
    o.threads = o.io_depth = 1;
    o.chunk = 1;
    tiny_generate(&form[SOURCE], &o, GEN, NULL, &run);
    snprintf(truth, 65, "%s", run.hash);
    if (run.rc < 0) {
        snprintf(why, why_bytes, "%s", run.message);
    }
}

static enum form form_of(uint32_t index)
{
    return (enum form)(1 + index % (FORMS - 1));
}

static void options_of(uint32_t index, struct engine_options *o)
{
    struct model *model;
    struct plan *plan;
    grid_options(&point[index], GOLDEN_PROMPT, GEN, o);
    o->tile_bytes = PLAN_AUTO; /* the pack's own */
    uint64_t wanted = o->ram_bytes;
    o->ram_bytes = 256 * MIB;
    tiny_need(engine_plan(form[form_of(index)].dir, o, &model, &plan) == 0, "a plan");
    o->ram_bytes = wanted < plan->floor_bytes ? plan->floor_bytes : wanted;
    plan_free(plan);
    model_close(model);
}

static void run_point(void *ctx, uint32_t job, char *why, size_t why_bytes)
{
    static struct tiny_run run;
    struct engine_options o;
    (void)ctx;
    options_of(first + job, &o);
    tiny_generate(&form[form_of(first + job)], &o, GEN, NULL, &run);
    if (run.rc < 0) {
        snprintf(why, why_bytes, "%s", run.message);
    } else if (strcmp(run.hash, truth) != 0) {
        snprintf(why, why_bytes, "other logits");
    } else {
        for (uint32_t i = 0; i < IO_DEVICES_MAX; i++) {
            if (run.stats.io.device_max[i] > o.io_depth) {
                snprintf(why, why_bytes, "more reads in flight than --io-depth");
            }
        }
    }
}

static void describe(void *ctx, uint32_t job, char *text, size_t text_bytes)
{
    (void)ctx;
    size_t at = (size_t)snprintf(text, text_bytes, "%s; repeat: pack_grid_test %u, or ",
                                 form_names[form_of(first + job)], first + job);
    grid_command(&point[first + job], 0, GEN, text + at, text_bytes - at);
}

START_TEST(tiles_of_the_packs_are_coded_and_have_escapes)
{
    struct model *model;
    uint32_t tiles;
    ck_assert_int_eq(model_open(form[WHOLE].dir, NULL, &model), 0);
    const struct model_tile *tile = model_tiles(model, TENSOR_MODEL_LEVEL, T_LM_HEAD, &tiles);
    ck_assert(tile != NULL && tile->coded);
    ck_assert_uint_gt(tile->size_bytes, packed_tile_bytes(tile->row_count, 128, 0));
    model_close(model);
}
END_TEST

START_TEST(no_packing_moves_a_bit_in_any_setting)
{
    truth = farm_memory(65);
    struct farm plain = {.jobs = 1, .workers = 1, .limit_seconds = LIMIT_SECONDS,
                         .run = find_truth, .describe = describe};
    ck_assert_uint_eq(farm_run(&plain, 1), 0);
    ck_assert_uint_eq(strlen(truth), 64);
    ck_assert_str_ne(truth, TINY_HASH); /* the sprinkled values count */
    struct farm farm = {.jobs = count, .workers = WORKERS, .limit_seconds = LIMIT_SECONDS,
                        .run = run_point, .describe = describe};
    if (only != ALL_POINTS) {
        ck_assert_uint_lt(only, count);
        first = only;
        farm.jobs = 1;
    }
    uint32_t failed = farm_run(&farm, 8);
    printf("note: %u points, each form of pack in turn\n", farm.jobs);
    ck_assert_msg(failed == 0, "%u points failed, listed above", failed);
}
END_TEST

static void make_forms(void)
{
    static const struct packed_form whole = {.tile_bytes = 0};
    static const struct packed_form trunk = {.trunk_only = true};
    static const struct packed_form small = {.tile_bytes = 4096};
    const struct packed_form two = {.second = &second};
    tiny_make(&form[SOURCE], TINY_MEMORY);
    packed_sprinkle(&form[SOURCE]);
    tiny_folder(&second, TINY_DISK);
    packed_make(&form[WHOLE], &form[SOURCE], TINY_MEMORY, &whole);
    packed_make(&form[TRUNK], &form[SOURCE], TINY_DISK, &trunk);
    packed_make(&form[SMALL_TILES], &form[SOURCE], TINY_MEMORY, &small);
    packed_make(&form[TWO_DRIVES], &form[SOURCE], TINY_MEMORY, &two);
}

static Suite *grid_suite(void)
{
    Suite *suite = suite_create("pack grid");
    TCase *tcase = tcase_create("grid");
    tcase_set_timeout(tcase, 0); /* the farm has limits of its own */
    tcase_add_test(tcase, tiles_of_the_packs_are_coded_and_have_escapes);
    tcase_add_test(tcase, no_packing_moves_a_bit_in_any_setting);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    only = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : ALL_POINTS;
    make_forms();
    count = grid_cover(point, POINTS_MAX / 2);
    uint32_t covering = count;
    while (count < covering + AMOUNT(100, 40, 0)) { /* each form meets each setting more often */
        point[count] = grid_random(count);
        count++;
    }
    int failed = suite_run(grid_suite());
    for (int i = 0; i < FORMS; i++) {
        tiny_remove(&form[i]);
    }
    tiny_remove(&second);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
