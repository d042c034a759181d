/* SPDX-License-Identifier: Apache-2.0 */

/* The reads of a recorded run, against what the engine itself wrote down when it made that run: of
 * every class the same reads in the same order, whatever budget, policy and sizes. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/exec/walk_reads.h"
#include "tests/support/amount.h"
#include "tests/support/packed.h"
#include "tests/support/rewrite.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define TOKENS AMOUNT(24U, 24U, 6U)
#define RECORDS (1U << 18)
#define MOE (REF_LAYERS - 1U)

static struct tiny tiny, scattered, pack;

/* A run that made everything there is to compare. */
struct recorded {
    struct engine *engine;
    struct trace trace;
    struct io_log log;
    struct engine_stats stats;
    uint32_t ids[TOKENS];
};

static void record_pass(struct recorded *r, uint32_t at)
{
    struct engine_routes routes;
    const float *logits;
    r->ids[at] = (at * 37 + 5) % REF_VOCAB;
    ck_assert_int_eq(engine_pass(r->engine, &r->ids[at], 1, &logits), 0);
    engine_routes(r->engine, &routes);
    ck_assert_uint_eq(routes.layers, MOE);
    for (uint32_t layer = 0; layer < MOE; layer++) {
        ck_assert_uint_eq(trace_add(&r->trace, layer, routes.ids + layer * routes.width, 1), 1);
    }
}

static void record(struct recorded *r, const struct tiny *model, struct engine_options options)
{
    *r = (struct recorded){.engine = NULL};
    ck_assert_int_eq(io_log_open(&r->log, RECORDS), 0);
    ck_assert_int_eq(trace_init(&r->trace, MOE, REF_TOP, (uint64_t)MOE * TOKENS), 0);
    options.routing = ROUTING_EXPERTS;
    options.log = &r->log;
    options.prompt_tokens = 1;
    options.chunk = 1;
    options.context = TOKENS;
    ck_assert_msg(engine_open(&r->engine, model->dir, &options) == 0, "%s", err_message());
    ck_assert_int_eq(engine_begin(r->engine, 1, TOKENS - 1), 0);
    for (uint32_t i = 0; i < TOKENS; i++) {
        record_pass(r, i);
    }
    ck_assert_int_eq(engine_end(r->engine), 0);
    engine_stats(r->engine, &r->stats);
    ck_assert_uint_eq(r->log.missed, 0);
}

static void forget(struct recorded *r)
{
    engine_close(r->engine);
    trace_fini(&r->trace);
    io_log_close(&r->log);
}

static struct walk_reads *open_reads(const struct recorded *r, const char *policy,
                                     const uint32_t *ids)
{
    struct walk_reads *w;
    struct walk_reads_options options = {
        .model = engine_model(r->engine), .plan = engine_plan_of(r->engine),
        .policy = policy_find(policy), .trace = &r->trace, .positions = TOKENS, .ids = ids};
    ck_assert_int_eq(walk_reads_open(&w, &options), 0);
    return w;
}

/* The next read of a class in a log, from *at on. */
static const struct io_record *seek(const struct io_log *log, uint32_t class, uint32_t *at)
{
    while (*at < log->count && log->record[*at].label != class) {
        (*at)++;
    }
    return *at < log->count ? &log->record[(*at)++] : NULL;
}

static void check_reads(const struct recorded *r, struct walk_reads *w)
{
    uint32_t at[READ_CLASSES] = {0};
    uint64_t bytes[READ_CLASSES] = {0};
    struct reader_read read;
    while (walk_reads_next(w, &read)) {
        ck_assert_uint_lt(read.label, READ_CLASSES);
        const struct io_record *record = seek(&r->log, read.label, &at[read.label]);
        ck_assert_msg(record != NULL, "class %u has more reads than the engine made", read.label);
        ck_assert_uint_eq(read.file, record->file);
        ck_assert_uint_eq(read.offset_bytes, record->offset_bytes);
        ck_assert_uint_eq(read.size_bytes, record->size_bytes);
        bytes[read.label] += read.size_bytes;
    }
    for (uint32_t class = 0; class < READ_CLASSES; class++) {
        ck_assert_ptr_null(seek(&r->log, class, &at[class]));
        ck_assert_uint_eq(bytes[class], r->stats.class[class].bytes);
    }
    ck_assert_uint_eq(walk_reads_done(w), TOKENS);
    ck_assert_uint_eq(walk_reads_cache(w)->demands, r->stats.cache_demands);
    ck_assert_uint_eq(walk_reads_cache(w)->hits, r->stats.cache_hits);
    ck_assert_uint_eq(walk_reads_cache(w)->evictions, r->stats.cache_evictions);
}

/* ---- budgets, policies, sizes ---- */

/* Zero leaves what tiny_options() has; slots and pins count from 1. */
static const struct way {
    const char *policy;
    uint64_t pin_1, slots_1, io_size, tile, ram;
    uint32_t depth;
    enum plan_pin_order order;
} ways[] = {
    {.policy = "arc"},
    {.policy = "arc", .pin_1 = 1, .slots_1 = 1},
    {.policy = "arc", .pin_1 = 1, .slots_1 = 41, .io_size = 4096, .tile = 8192},
    {.policy = "lar", .pin_1 = 1, .slots_1 = 41, .io_size = 8192},
    {.policy = "arc-global", .pin_1 = 1, .slots_1 = 31, .tile = 4096},
    {.policy = "lru", .pin_1 = 1, .slots_1 = 5, .io_size = 4096},
    {.policy = "lfu", .pin_1 = 1000001, .slots_1 = 61, .tile = 16384},
    {.policy = "lhr", .pin_1 = 2000001, .slots_1 = 23, .order = PIN_PREFIX},
    {.policy = "none", .pin_1 = 1, .slots_1 = 31},
    {.policy = "lar", .pin_1 = 500001, .slots_1 = 2, .depth = 1},
    {.policy = "arc", .ram = 24 * MIB},
    {.policy = "lru", .ram = 26 * MIB, .io_size = 12288, .depth = 64},
};

static struct engine_options options_of(const struct way *way)
{
    struct engine_options o = tiny_options(TOKENS);
    o.policy = way->policy;
    o.pin_bytes = way->pin_1 > 0 ? way->pin_1 - 1 : o.pin_bytes;
    o.expert_slots = way->slots_1 > 0 ? way->slots_1 - 1 : o.expert_slots;
    o.io_size_bytes = way->io_size > 0 ? way->io_size : o.io_size_bytes;
    o.tile_bytes = way->tile > 0 ? way->tile : o.tile_bytes;
    o.ram_bytes = way->ram > 0 ? way->ram : o.ram_bytes;
    o.io_depth = way->depth > 0 ? way->depth : o.io_depth;
    o.pin_order = way->order;
    return o;
}

static void compare(const struct tiny *model, const struct way *way)
{
    struct recorded r;
    record(&r, model, options_of(way));
    struct walk_reads *w = open_reads(&r, way->policy, r.ids);
    check_reads(&r, w);
    walk_reads_close(w);
    forget(&r);
}

START_TEST(they_are_those_the_engine_wrote_down)
{
    compare(&tiny, &ways[_i]);
}
END_TEST

START_TEST(also_where_an_expert_lies_in_six_files)
{
    compare(&scattered, &ways[_i]);
}
END_TEST

START_TEST(also_of_a_pack)
{
    struct way way = ways[_i];
    way.tile = 0; /* it was cut when it was made */
    compare(&pack, &way);
}
END_TEST

/* ---- figures of the plan ---- */

START_TEST(with_all_in_place_only_rows_are_left)
{
    struct recorded r;
    struct reader_read read;
    uint64_t after_first = 0;
    struct engine_options options = tiny_options(TOKENS);
    options.pin_bytes = PLAN_ALL;
    options.expert_slots = PLAN_ALL;
    record(&r, &tiny, options);
    struct walk_reads *w = open_reads(&r, "lru", r.ids);
    while (walk_reads_next(w, &read)) {
        bool trunk = read.label == READ_TRUNK || read.label == READ_HEAD;
        after_first += trunk && walk_reads_done(w) > 0;
    }
    /* The last one of the first position is named when the second has begun. */
    ck_assert_uint_le(after_first, 1);
    walk_reads_close(w);
    forget(&r);
}
END_TEST

START_TEST(borders_lie_between_positions_and_bounds_hold)
{
    struct recorded r;
    struct reader_read read;
    uint64_t reads = 0;
    record(&r, &tiny, options_of(&ways[_i]));
    const struct plan *plan = engine_plan_of(r.engine);
    struct walk_reads *w = open_reads(&r, ways[_i].policy, NULL);
    for (uint32_t borders = 0;; reads++) {
        if (walk_reads_at_border(w)) {
            ck_assert_uint_eq(walk_reads_done(w), borders++);
            ck_assert_uint_le(reads, walk_reads_most(plan));
            reads = 0;
        }
        bool more = walk_reads_next(w, &read);
        ck_assert_int_eq(more, borders <= TOKENS);
        if (!more) {
            break;
        }
        ck_assert_uint_eq(read.label == READ_EMBED, reads == 0);
        ck_assert_uint_le(read.size_bytes, walk_reads_size_max(plan));
        ck_assert_uint_lt(read.file, engine_model(r.engine)->file_count);
    }
    walk_reads_close(w);
    forget(&r);
}
END_TEST

START_TEST(a_trace_in_another_order_is_refused)
{
    struct trace trace;
    uint32_t positions;
    const uint16_t ids[] = {1, 2, 3, 4};
    ck_assert_int_eq(trace_init(&trace, 2, 2, 4), 0);
    trace_add(&trace, 0, ids, 1);
    trace_add(&trace, 1, ids, 1);
    ck_assert_int_eq(walk_reads_positions(&trace, &positions), 0);
    ck_assert_uint_eq(positions, 1);
    trace_add(&trace, 0, ids, 1);
    ck_assert_int_eq(walk_reads_positions(&trace, &positions), ERR_MODEL);
    trace_add(&trace, 0, ids, 1);
    ck_assert_int_eq(walk_reads_positions(&trace, &positions), ERR_MODEL);
    trace_fini(&trace);
}
END_TEST

int main(void)
{
    const struct rewrite_options six = {.seed = 3, .shards = 7, .odd_base = true,
                                        .gap_bytes = 4000};
    Suite *suite = suite_create("walk_reads");
    TCase *tcase = tcase_create("walk_reads");
    tiny_make(&tiny, TINY_MEMORY);
    rewrite(&scattered, &tiny, TINY_MEMORY, &six);
    packed_make(&pack, &tiny, TINY_MEMORY, &(struct packed_form){.tile_bytes = 0});
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, they_are_those_the_engine_wrote_down, 0, (int)countof(ways));
    tcase_add_loop_test(tcase, also_where_an_expert_lies_in_six_files, 0, (int)countof(ways));
    tcase_add_loop_test(tcase, also_of_a_pack, 0, (int)countof(ways));
    tcase_add_test(tcase, with_all_in_place_only_rows_are_left);
    tcase_add_loop_test(tcase, borders_lie_between_positions_and_bounds_hold, 0,
                        (int)countof(ways));
    tcase_add_test(tcase, a_trace_in_another_order_is_refused);
    suite_add_tcase(suite, tcase);
    int failed = suite_run(suite);
    tiny_remove(&tiny);
    tiny_remove(&scattered);
    tiny_remove(&pack);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
