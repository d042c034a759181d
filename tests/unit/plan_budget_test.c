/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "planner/plan.h"
#include "tests/support/checkpoint.h"
#include "tests/support/paper.h"
#include "tests/support/suite.h"

#define TIB (1024 * GIB)
#define AMPLE_RAM (64 * TIB)
#ifdef K3RING_SANITIZED
#define SEEDS 40 /* nothing here has threads; the plain build takes all */
#else
#define SEEDS 200
#endif

static struct model *k3, *tiny;

static void open_models(void)
{
    struct model_config c;
    fake_config_k3(&c);
    k3 = paper_model(&c);
    fake_config_tiny(&c);
    tiny = paper_model(&c);
}

static void close_models(void)
{
    model_close(k3);
    model_close(tiny);
}

static struct plan *build(const struct model *model, const struct plan_request *request)
{
    struct plan *plan = NULL;
    err_clear();
    ck_assert_msg(plan_build(model, request, &plan) == 0, "%s", err_message());
    return plan;
}

static uint64_t trunk_windows(const struct plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        bytes += plan->tiles[i].window_bytes;
    }
    return bytes;
}

static uint64_t pinned_windows(const struct plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        bytes += plan->tiles[i].pinned ? plan->tiles[i].window_bytes : 0;
    }
    return bytes;
}

/* The account is complete, within the RAM, and made of what is in force. */
static void expect_account(const struct plan *plan)
{
    const struct plan_account *a = &plan->account;
    uint64_t sum = a->reserve + a->index + a->schedule + a->small + a->state + a->kv +
                   a->routing + a->activations + a->scratch + a->rows + a->ring + a->working +
                   a->cached + a->cache_heap + a->pins;
    ck_assert_uint_eq(a->total, sum);
    ck_assert_uint_le(a->total + plan->page_tables_bytes, plan->request.ram_bytes);
    ck_assert_uint_le(plan->floor_bytes, plan->request.ram_bytes);
    ck_assert_uint_eq(a->ring, plan->ring_bytes);
    ck_assert_uint_eq(a->working, plan->working_slots * plan->slot_bytes);
    ck_assert_uint_eq(a->cached, plan->cache_slots * plan->slot_bytes);
    ck_assert_uint_eq(a->pins, plan->pin_area_bytes);
    ck_assert_uint_ge(plan->working_slots, 1);
    ck_assert_uint_le(plan->working_slots, PLAN_WORKING_SLOTS);
}

/* No more ring than is streamed, room for the largest streamed tile, and depth before size. */
static void expect_ring(const struct plan *plan)
{
    uint64_t streamed = trunk_windows(plan) - pinned_windows(plan);
    ck_assert_uint_le(plan->ring_bytes, streamed);
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        if (!plan->tiles[i].pinned && plan->tiles[i].window_bytes > plan->ring_bytes) {
            ck_abort_msg("tile %u does not fit the ring", i);
        }
    }
    ck_assert_uint_le(plan->io_size_bytes, plan->request.io_size_bytes);
    ck_assert_uint_eq(plan->io_size_bytes % 4096, 0);
    ck_assert_uint_ge(plan->io_size_bytes, 4096);
    if (streamed > 0 && plan->io_size_bytes > 4096) {
        ck_assert_uint_le(plan->request.io_depth * plan->io_size_bytes, plan->ring_bytes);
    }
}

static void expect_pins(const struct plan *plan)
{
    uint64_t slice = plan->request.pin_slice_bytes;
    uint64_t end = 0;
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        const struct plan_tile *tile = &plan->tiles[i];
        if (tile->pinned) {
            uint64_t last = tile->pin_offset_bytes + tile->window_bytes - 1;
            if (tile->pin_offset_bytes < end || tile->pin_offset_bytes / slice != last / slice) {
                ck_abort_msg("tile %u overlaps another or crosses a slice", i);
            }
            end = last + 1;
        }
    }
    ck_assert_uint_eq(end, plan->pin_area_bytes);
}

static struct plan_request random_request(struct rng *rng, bool full)
{
    static const uint64_t tiles[] = {PLAN_AUTO, 512 * KIB, 1 * MIB, 3 * MIB, 4 * MIB, 16 * MIB};
    struct plan_request r = paper_request(AMPLE_RAM);
    r.io_depth = (uint32_t)(1 + rng_below(rng, 64));
    r.io_size_bytes = PAGE_BYTES << rng_below(rng, 13);
    r.workers = (uint32_t)(1 + rng_below(rng, 64));
    r.tile_bytes = full ? tiles[rng_below(rng, countof(tiles))]
                        : PAGE_BYTES << rng_below(rng, 13);
    r.prompt_tokens = (uint32_t)(1 + rng_below(rng, 2000));
    r.chunk = rng_below(rng, 2) == 0 ? PLAN_AUTO : 1 + rng_below(rng, 600);
    r.context = r.prompt_tokens + (uint32_t)rng_below(rng, 100000);
    r.pin_slice_bytes = rng_below(rng, 4) == 0 ? 20 * MIB : 256 * MIB;
    r.ahead_bytes = rng_below(rng, 2) * rng_below(rng, 200 * MIB);
    r.pin_order = rng_below(rng, 2) == 0 ? PIN_SPREAD : PIN_PREFIX;
    switch (rng_below(rng, 5)) {
    case 0:
        r.pin_percent = (double)rng_below(rng, 101);
        break;
    case 1:
        r.pin_bytes = rng_next(rng) >> (20 + rng_below(rng, 30));
        r.pin_bytes = rng_below(rng, 4) == 0 ? PLAN_ALL : r.pin_bytes;
        break;
    default:
        break;
    }
    if (rng_below(rng, 3) == 0) {
        r.expert_slots = rng_below(rng, 4) == 0 ? PLAN_ALL : rng_below(rng, 90000);
    }
    return r;
}

/* Refused with the two numbers that are right, and with a cure that works. */
static void expect_refusal(const struct model *model, struct plan_request r, uint64_t ram,
                           uint64_t floor_bytes)
{
    struct plan *plan = NULL;
    unsigned long long needs = 0;
    unsigned long long allows = 0;
    unsigned long long cure_mib = 0;
    r.ram_bytes = ram;
    err_clear();
    ck_assert_int_eq(plan_build(model, &r, &plan), ERR_FIT);
    ck_assert_ptr_null(plan);
    const char *allowed = strstr(err_message(), "allows ");
    const char *cure = strstr(err_message(), "give --ram ");
    ck_assert_msg(allowed != NULL && cure != NULL, "%s", err_message());
    ck_assert_int_eq(sscanf(err_message(), "needs %llu", &needs), 1);
    ck_assert_int_eq(sscanf(allowed, "allows %llu", &allows), 1);
    ck_assert_int_eq(sscanf(cure, "give --ram %lluM", &cure_mib), 1);
    ck_assert_uint_eq(needs, floor_bytes);
    ck_assert_uint_eq(allows, ram);
    ck_assert_uint_ge(cure_mib * MIB, floor_bytes);
    ck_assert_uint_lt(cure_mib * MIB, floor_bytes + MIB);
}

START_TEST(any_request_fits_its_ram_or_is_refused_below_its_floor)
{
    struct rng rng = rng_seed((uint64_t)_i);
    bool full = _i % 4 == 0;
    const struct model *model = full ? k3 : tiny;
    struct plan_request r = random_request(&rng, full);
    struct plan *plan = build(model, &r);
    uint64_t floor_bytes = plan->floor_bytes;
    plan_free(plan);
    expect_refusal(model, r, floor_bytes - 1, floor_bytes);
    expect_refusal(model, r, 1 + rng_below(&rng, floor_bytes - 1), floor_bytes);
    const uint64_t span = max_u64(floor_bytes + GIB, 4 * TIB) - floor_bytes;
    const uint64_t more = rng_below(&rng, span >> rng_below(&rng, 30));
    const uint64_t rams[] = {floor_bytes, floor_bytes + more};
    for (size_t i = 0; i < countof(rams); i++) {
        r.ram_bytes = rams[i];
        err_clear();
        int rc = plan_build(model, &r, &plan);
        ck_assert_msg(rc == 0, "seed %d, ram %llu, floor %llu: %s", _i,
                      (unsigned long long)rams[i], (unsigned long long)floor_bytes, err_message());
        ck_assert_uint_eq(plan->floor_bytes, floor_bytes);
        expect_account(plan);
        expect_ring(plan);
        expect_pins(plan);
        ck_assert(plan->chunk >= 1 && plan->chunk <= r.prompt_tokens);
        plan_free(plan);
    }
}
END_TEST

START_TEST(the_floor_of_the_real_geometry_is_near_0_58_gib)
{
    const struct plan_request r = paper_request(1 * GIB);
    struct plan *plan = build(k3, &r);
    ck_assert_uint_gt(plan->floor_bytes, GIB / 2);
    ck_assert_uint_lt(plan->floor_bytes, GIB / 10 * 6);
    plan_free(plan);
}
END_TEST

START_TEST(the_real_geometry_runs_in_one_gib)
{
    const struct plan_request r = paper_request(1 * GIB);
    struct plan *plan = build(k3, &r);
    expect_account(plan);
    expect_ring(plan);
    ck_assert_uint_eq(plan->working_slots, 4);
    ck_assert_uint_eq(plan->cache_slots, 0);
    ck_assert_uint_eq(plan->io_size_bytes, 4 * MIB);
    ck_assert_uint_ge(plan->ring_bytes, 96 * MIB);
    ck_assert_uint_eq(plan->account.state, 69ULL * (96 * 128 * 128 + 3 * 3 * 12288) * 4);
    ck_assert_uint_eq(plan->account.kv, 5 * 55296);
    plan_free(plan);
}
END_TEST

START_TEST(at_its_floor_a_plan_has_one_ring_tile_and_one_working_slot)
{
    struct plan_request r = paper_request(1 * GIB);
    struct plan *plan = build(k3, &r);
    r.ram_bytes = plan->floor_bytes;
    plan_free(plan);
    plan = build(k3, &r);
    ck_assert_uint_eq(plan->working_slots, 1);
    ck_assert_uint_eq(plan->ring_bytes, plan->tile_window_max);
    ck_assert_uint_eq(plan->chunk, 1);
    ck_assert_uint_eq(plan->pin_area_bytes, 0);
    ck_assert_uint_eq(plan->account.total, plan->floor_bytes);
    plan_free(plan);
}
END_TEST

START_TEST(a_ring_may_reach_further_than_what_is_in_flight)
{
    struct plan_request r = paper_request(1 * GIB);
    r.io_depth = 2;
    r.io_size_bytes = 1 * MIB;
    struct plan *plan = build(k3, &r);
    uint64_t floor_bytes = plan->floor_bytes;
    ck_assert_uint_lt(plan->ring_bytes, 16 * MIB);
    plan_free(plan);
    r.ahead_bytes = 96 * MIB;
    plan = build(k3, &r);
    ck_assert_uint_eq(plan->ring_bytes, 96 * MIB);
    ck_assert_uint_eq(plan->io_size_bytes, 1 * MIB);
    ck_assert_uint_eq(plan->floor_bytes, floor_bytes);
    expect_account(plan);
    expect_ring(plan);
    plan_free(plan);
    r.ram_bytes = floor_bytes;
    plan = build(k3, &r);
    ck_assert_uint_eq(plan->ring_bytes, plan->tile_window_max);
    plan_free(plan);
}
END_TEST

/* Page tables that a control group of the RAM and 64 MiB may have no room for. */
static uint64_t tables_beyond(const struct plan_request *r)
{
    uint64_t tables = r->ram_bytes / 512;
    return tables > 32 * MIB ? tables - 32 * MIB : 0;
}

START_TEST(page_tables_have_room_beside_large_plans)
{
    static const uint64_t ram_gib[] = {1, 16, 39, 64, 105, 128, 1024};
    for (size_t i = 0; i < countof(ram_gib); i++) {
        const struct plan_request r = paper_request(ram_gib[i] * GIB);
        struct plan *plan = build(k3, &r);
        ck_assert_uint_eq(plan->page_tables_bytes, tables_beyond(&r));
        ck_assert_uint_le(plan->account.total, r.ram_bytes - tables_beyond(&r));
        plan_free(plan);
    }
}
END_TEST

START_TEST(with_auto_the_cache_waits_for_the_whole_trunk)
{
    static const struct {
        uint64_t ram_bytes;
        bool whole;
    } cases[] = {{1 * GIB, false}, {64 * GIB, false}, {102 * GIB, false}, {106 * GIB, true},
                 {128 * GIB, true}, {4 * TIB, true}};
    for (size_t i = 0; i < countof(cases); i++) {
        const struct plan_request r = paper_request(cases[i].ram_bytes);
        struct plan *plan = build(k3, &r);
        bool whole = pinned_windows(plan) == trunk_windows(plan);
        ck_assert_msg(whole == cases[i].whole, "at %llu GiB",
                      (unsigned long long)(cases[i].ram_bytes / GIB));
        ck_assert(whole == (plan->cache_slots > 0));
        ck_assert(whole == (plan->ring_bytes == 0));
        if (whole) {
            uint64_t rest = cases[i].ram_bytes - plan->account.total - tables_beyond(&r);
            ck_assert(plan->cache_slots == 82432 || rest < plan->slot_bytes + 200);
        }
        plan_free(plan);
    }
    const struct plan_request r = paper_request(4 * TIB);
    struct plan *plan = build(k3, &r);
    ck_assert_uint_eq(plan->cache_slots, 82432);
    plan_free(plan);
}
END_TEST

/* Largest difference, over every stretch of 64 tiles, between the bytes pinned and the share that
 * the stretch would have if pins were liquid. */
static double unevenness(const struct plan *plan)
{
    double share = (double)pinned_windows(plan) / (double)trunk_windows(plan);
    double worst = 0;
    for (uint32_t first = 0; first + 64 <= plan->tile_count; first++) {
        double pinned = 0;
        double walked = 0;
        for (uint32_t i = first; i < first + 64; i++) {
            walked += plan->tiles[i].window_bytes;
            pinned += plan->tiles[i].pinned ? plan->tiles[i].window_bytes : 0;
        }
        worst = fmax(worst, fabs(pinned - share * walked));
    }
    return worst;
}

START_TEST(pins_are_spread_evenly_over_the_walk)
{
    static const double percents[] = {10, 50, 90};
    struct plan_request r = paper_request(256 * GIB);
    r.pin_percent = percents[_i];
    struct plan *plan = build(k3, &r);
    double share = 100.0 * (double)pinned_windows(plan) / (double)trunk_windows(plan);
    ck_assert_msg(share <= percents[_i] && share > percents[_i] - 0.1, "%f%%", share);
    double tiles = unevenness(plan) / (double)plan->tile_window_max;
    ck_assert_msg(tiles <= 2.0, "a stretch is %f tiles off", tiles);
    plan_free(plan);
    r = paper_request((uint64_t)(111.2e9 * percents[_i] / 100) + GIB);
    plan = build(k3, &r);
    tiles = unevenness(plan) / (double)plan->tile_window_max;
    ck_assert_msg(tiles <= 2.0, "with auto, a stretch is %f tiles off", tiles);
    plan_free(plan);
}
END_TEST

/* The drive does not stand still while the experts of a layer are computed from the cache. */
START_TEST(the_ring_holds_a_layer_s_experts_when_most_of_them_stay)
{
    const struct model_config *c = &k3->config;
    uint64_t all = (uint64_t)(c->layers - c->first_dense) * c->experts;
    for (uint64_t more = 0; more <= 1; more++) {
        struct plan_request r = paper_request(1800 * GIB);
        r.pin_percent = 50;
        r.expert_slots = all / 2 + more;
        struct plan *plan = build(k3, &r);
        uint64_t experts = c->experts_per_token * plan->slot_bytes;
        expect_account(plan);
        expect_ring(plan);
        if (more > 0) {
            ck_assert_uint_ge(plan->ring_bytes, experts);
        } else {
            ck_assert_uint_lt(plan->ring_bytes, experts);
        }
        plan_free(plan);
    }
}
END_TEST

/* Tiles up to the first that streams. */
static uint32_t pinned_front(const struct plan *plan)
{
    uint32_t i = 0;
    while (i < plan->tile_count && plan->tiles[i].pinned) {
        i++;
    }
    return i;
}

static uint32_t pinned_tiles(const struct plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        count += plan->tiles[i].pinned;
    }
    return count;
}

START_TEST(prefix_pins_are_the_first_tiles_of_the_walk_at_equal_ram)
{
    static const uint64_t rams[] = {8 * GIB, 64 * GIB, 100 * GIB};
    struct plan_request r = paper_request(rams[_i]);
    struct plan *spread = build(k3, &r);
    r.pin_order = PIN_PREFIX;
    struct plan *prefix = build(k3, &r);
    expect_account(prefix);
    expect_ring(prefix);
    expect_pins(prefix);
    ck_assert_uint_gt(pinned_tiles(prefix), 0);
    ck_assert_uint_eq(pinned_front(prefix), pinned_tiles(prefix));
    ck_assert_uint_lt(pinned_front(spread), pinned_tiles(spread) / 4);
    ck_assert_uint_eq(prefix->ring_bytes, spread->ring_bytes);
    ck_assert_uint_eq(prefix->working_slots, spread->working_slots);
    uint64_t a = pinned_windows(prefix);
    uint64_t b = pinned_windows(spread);
    /* What differs is what the last bytes of each slice could not hold. */
    uint64_t slices = rams[_i] / r.pin_slice_bytes + 1;
    ck_assert_uint_le(max_u64(a, b) - min_u64(a, b), slices * prefix->tile_window_max);
    plan_free(spread);
    plan_free(prefix);
}
END_TEST

START_TEST(the_order_of_pins_changes_nothing_when_all_or_none_are_pinned)
{
    struct plan_request r = paper_request(200 * GIB);
    r.pin_order = PIN_PREFIX;
    r.pin_bytes = PLAN_ALL;
    struct plan *plan = build(k3, &r);
    ck_assert_uint_eq(pinned_tiles(plan), plan->tile_count);
    plan_free(plan);
    r.pin_bytes = 0;
    plan = build(k3, &r);
    ck_assert_uint_eq(pinned_tiles(plan), 0);
    plan_free(plan);
}
END_TEST

START_TEST(pins_given_are_pinned_and_no_more)
{
    struct plan_request r = paper_request(200 * GIB);
    r.pin_bytes = 7 * GIB;
    r.pin_order = _i == 0 ? PIN_SPREAD : PIN_PREFIX;
    struct plan *plan = build(k3, &r);
    ck_assert_uint_le(pinned_windows(plan), 7 * GIB);
    ck_assert_uint_gt(pinned_windows(plan), 7 * GIB - 3 * plan->tile_window_max);
    ck_assert_uint_eq(plan->cache_slots, 0);
    plan_free(plan);
    r.pin_bytes = 0;
    plan = build(k3, &r);
    ck_assert_uint_eq(plan->pin_area_bytes, 0);
    plan_free(plan);
    r.pin_bytes = PLAN_ALL;
    plan = build(k3, &r);
    ck_assert_uint_eq(pinned_windows(plan), trunk_windows(plan));
    ck_assert_uint_eq(plan->ring_bytes, 0);
    plan_free(plan);
    r.pin_bytes = PLAN_AUTO;
    r.pin_percent = 0;
    plan = build(k3, &r);
    ck_assert_uint_eq(plan->pin_area_bytes, 0);
    plan_free(plan);
}
END_TEST

START_TEST(slots_given_are_made_whatever_is_pinned)
{
    struct plan_request r = paper_request(20 * GIB);
    r.expert_slots = 500;
    struct plan *plan = build(k3, &r);
    ck_assert_uint_eq(plan->cache_slots, 500);
    ck_assert_uint_gt(plan->pin_area_bytes, 0);
    expect_account(plan);
    plan_free(plan);
    r.expert_slots = 0;
    r.ram_bytes = 200 * GIB;
    plan = build(k3, &r);
    ck_assert_uint_eq(plan->cache_slots, 0);
    plan_free(plan);
}
END_TEST

START_TEST(an_automatic_chunk_never_costs_the_fit)
{
    struct plan_request r = paper_request(AMPLE_RAM);
    r.prompt_tokens = 512;
    r.context = 600;
    r.pin_bytes = 3 * GIB;
    struct plan *plan = build(k3, &r);
    ck_assert_uint_eq(plan->chunk, 512);
    uint64_t floor_bytes = plan->floor_bytes;
    plan_free(plan);
    for (uint64_t more = 0; more < 256 * MIB; more += 16 * MIB) {
        r.ram_bytes = floor_bytes + more;
        plan = build(k3, &r);
        expect_account(plan);
        plan_free(plan);
    }
}
END_TEST

START_TEST(a_tile_larger_than_a_slice_is_refused)
{
    struct plan_request r = paper_request(2 * GIB);
    struct plan *plan = NULL;
    r.pin_slice_bytes = 1 * MIB;
    err_clear();
    ck_assert_int_eq(plan_build(k3, &r, &plan), ERR_FIT);
    ck_assert_ptr_nonnull(strstr(err_message(), "smaller --tile"));
}
END_TEST

static Suite *budget_suite(void)
{
    TCase *figures = tcase_create("figures");
    tcase_set_timeout(figures, 60);
    tcase_add_unchecked_fixture(figures, open_models, close_models);
    tcase_add_test(figures, the_floor_of_the_real_geometry_is_near_0_58_gib);
    tcase_add_test(figures, the_real_geometry_runs_in_one_gib);
    tcase_add_test(figures, at_its_floor_a_plan_has_one_ring_tile_and_one_working_slot);
    tcase_add_test(figures, a_ring_may_reach_further_than_what_is_in_flight);
    tcase_add_test(figures, page_tables_have_room_beside_large_plans);
    tcase_add_test(figures, with_auto_the_cache_waits_for_the_whole_trunk);
    tcase_add_loop_test(figures, pins_are_spread_evenly_over_the_walk, 0, 3);
    tcase_add_test(figures, the_ring_holds_a_layer_s_experts_when_most_of_them_stay);
    tcase_add_loop_test(figures, prefix_pins_are_the_first_tiles_of_the_walk_at_equal_ram, 0, 3);
    tcase_add_test(figures, the_order_of_pins_changes_nothing_when_all_or_none_are_pinned);
    tcase_add_loop_test(figures, pins_given_are_pinned_and_no_more, 0, 2);
    tcase_add_test(figures, slots_given_are_made_whatever_is_pinned);
    tcase_add_test(figures, an_automatic_chunk_never_costs_the_fit);
    tcase_add_test(figures, a_tile_larger_than_a_slice_is_refused);
    TCase *property = tcase_create("property");
    tcase_set_timeout(property, 60);
    tcase_add_unchecked_fixture(property, open_models, close_models);
    tcase_add_loop_test(property, any_request_fits_its_ram_or_is_refused_below_its_floor, 1,
                        SEEDS + 1);
    Suite *suite = suite_create("plan budget");
    suite_add_tcase(suite, figures);
    suite_add_tcase(suite, property);
    return suite;
}

int main(void)
{
    return suite_run(budget_suite()) == 0 ? 0 : 1;
}
