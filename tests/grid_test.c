/* SPDX-License-Identifier: Apache-2.0 */

/* Is the engine always the same? RAM, pins, slots, depth, request size, policy, threads,
 * instruction set, backend, chunk and tile must not move a bit of any logit. Points of the grid
 * run on the tiny model: a set in which every two settings meet, random ones, and simulated drives
 * that reorder everything. Each point also proves that its settings were in force, by bytes and
 * counters.
 *
 *   grid_test [SEED [POINT]]   other random points; only one of them */

#include <check.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"
#include "core/base/nondet.h"
#include "kernels/kernels.h"
#include "tests/support/account.h"
#include "tests/support/amount.h"
#include "tests/support/farm.h"
#include "tests/support/grid.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define RANDOM_POINTS AMOUNT(300, 120, 20)
#define STEPPED_POINTS AMOUNT(50, 20, 8)
#define LIMIT_SECONDS AMOUNT(600, 300, 600)
#define COVER_MAX 120
#define POINTS_MAX (COVER_MAX + RANDOM_POINTS + STEPPED_POINTS)
#define WORKERS 4
#define GEN 4
#define POSITIONS (GOLDEN_PROMPT + GEN - 1)
#define SHOWN_MAX 8
#define ALL_POINTS UINT32_MAX

/* What every point must give, from a run with the plainest settings; shared with the jobs. */
struct truth {
    uint64_t step[GEN];   /* digests of single steps, to name the first that differs */
    unsigned char hash[LOGITS_HASH_BYTES];
    struct account_routes routes;
};

/* What a point did besides its verdict. */
struct outcome {
    uint64_t ram_bytes;   /* really given */
    bool raised;          /* the point's own ram was too small */
    bool no_uring;        /* the kernel refused the ring */
    uint64_t evictions;
    uint64_t taken_ns;
};

struct trial {
    struct grid_point point[POINTS_MAX];
    uint32_t count, cover;
    struct truth *truth;
    struct outcome *outcome;
    uint32_t first;       /* job 0 is this point */
};

static struct tiny tiny; /* on a drive */
static struct tiny fast; /* the same in memory, where there is such a folder */
static struct trial trial;
static uint64_t seed = 20260;
static uint32_t only = ALL_POINTS;

/* The ids fed at each position: the prompt, then what was made of it. */
static void fed_ids(uint32_t ids[POSITIONS])
{
    for (uint32_t i = 0; i < POSITIONS; i++) {
        ids[i] = (uint32_t)(i < GOLDEN_PROMPT ? golden_prompt[i] : golden_ids[i - GOLDEN_PROMPT]);
    }
}

/* ---- the truth ---- */

/* Scalar, one thread, one read at a time, everything resident, one token a pass. */
static void find_truth(void *ctx, uint32_t job, char *why, size_t why_bytes)
{
    struct truth *truth = ctx;
    struct engine_options options = tiny_options(GEN);
    struct engine *e = NULL;
    struct sha256_ctx sha;
    uint32_t ids[POSITIONS];
    const float *logits = NULL;
    (void)job;
    options.isa = ISA_SCALAR;
    options.io = IO_PREAD;
    options.threads = options.io_depth = 1;
    options.chunk = 1;
    fed_ids(ids);
    sha256_init(&sha);
    bool good = engine_open(&e, tiny.dir, &options) == 0 &&
                engine_begin(e, GOLDEN_PROMPT, GEN - 1) == 0;
    for (uint32_t at = 0; good && at < POSITIONS; at++) {
        struct engine_trace trace;
        good = engine_pass(e, &ids[at], 1, &logits) == 0;
        engine_trace(e, &trace);
        memcpy(truth->routes.expert[at], trace.route_ids, sizeof truth->routes.expert[at]);
        if (good && at + 1 >= GOLDEN_PROMPT) {
            uint32_t step = at + 1 - GOLDEN_PROMPT;
            truth->step[step] = tiny_digest(logits);
            sha256_update(&sha, REF_VOCAB * sizeof *logits, (const uint8_t *)logits);
            if ((int)argmax(logits, REF_VOCAB) != golden_ids[step]) {
                snprintf(why, why_bytes, "id %u is wrong in the plainest run", step);
            }
        }
    }
    sha256_digest(&sha, sizeof truth->hash, truth->hash);
    if (!good || engine_end(e) < 0) {
        snprintf(why, why_bytes, "the plainest run failed: %s", err_message());
    }
    engine_close(e);
}

static void describe_truth(void *ctx, uint32_t job, char *text, size_t text_bytes)
{
    (void)ctx;
    (void)job;
    snprintf(text, text_bytes, "--isa scalar --io pread --io-depth 1 --threads 1 --chunk 1");
}

/* ---- a point ---- */

struct listener {
    const struct truth *truth;
    uint32_t first_wrong; /* step; GEN = none */
};

static void on_logits(void *ctx, uint32_t step, const float *logits)
{
    struct listener *listener = ctx;
    if (tiny_digest(logits) != listener->truth->step[step] && listener->first_wrong == GEN) {
        listener->first_wrong = step;
    }
}

/* A busy drive must not make a long test of a short one: the covering points and every eighth
 * random one read from it, the others from memory, as the simulated drive always does. */
static const char *dir_of(const struct grid_point *point)
{
    bool simulated = point->level[GRID_IO] >= GRID_SIM;
    bool covering = point < trial.point + trial.cover;
    return !simulated && (covering || point->seed % 8 == 0) ? tiny.dir : fast.dir;
}

/* Fills in the floor, and raises a ram that the point's pins and slots do not fit in. */
static bool settle_ram(const char *dir, struct engine_options *options, struct outcome *outcome,
                       char *why, size_t why_bytes)
{
    struct engine_options large = *options;
    struct model *model;
    struct plan *plan;
    large.ram_bytes = 256 * MIB;
    if (engine_plan(dir, &large, &model, &plan) < 0) {
        snprintf(why, why_bytes, "no plan: %s", err_message());
        return false;
    }
    outcome->raised = options->ram_bytes != 0 && options->ram_bytes < plan->floor_bytes;
    if (options->ram_bytes < plan->floor_bytes) {
        options->ram_bytes = plan->floor_bytes;
    }
    outcome->ram_bytes = options->ram_bytes;
    plan_free(plan);
    model_close(model);
    return true;
}

static const char *wrong_plan(const struct grid_point *point, const struct engine_options *o,
                              const struct plan *p)
{
    uint64_t pinned = 0;
    uint64_t streamed = 0;
    for (int i = 0; i < TRAFFIC_KINDS; i++) {
        pinned += p->traffic[i].pinned_bytes;
        streamed += p->traffic[i].streamed_bytes;
    }
    uint64_t share = 100 * pinned / (pinned + streamed);
    uint64_t wanted = grid_value(point, GRID_PIN);
    bool tile = o->tile_bytes == PLAN_AUTO || p->tile_bytes == o->tile_bytes;
    bool slots = o->expert_slots == PLAN_ALL ? p->cache_slots == 192
                                             : p->cache_slots == o->expert_slots;
    return p->account.total > o->ram_bytes                          ? "account exceeds ram"
           : p->request.ram_bytes != o->ram_bytes                   ? "ram"
           : p->request.io_depth != o->io_depth                     ? "io-depth"
           : p->io_size_bytes > o->io_size_bytes                    ? "io-size"
           : p->chunk != o->chunk                                   ? "chunk"
           : share > wanted || share + 2 < wanted                   ? "pin"
           : !tile                                                  ? "tile"
           : !slots                                                 ? "expert-slots"
           : p->working_slots == 0                                  ? "working slots"
                                                                    : NULL;
}

static const char *wrong_facts(const struct engine_options *o, const struct engine_facts *f,
                               struct outcome *outcome)
{
    static const char *const names[] = {"io_uring", "pread", "sim"};
    outcome->no_uring = o->io == IO_URING && strcmp(f->io_engine, names[IO_PREAD]) == 0;
    return strcmp(f->isa, kernels_select(o->isa)->name) != 0                      ? "isa"
           : strcmp(f->io_engine, names[o->io]) != 0 && !outcome->no_uring        ? "io"
           : strcmp(f->policy, o->policy) != 0                              ? "cache-policy"
           : f->threads != (o->threads > 0 ? o->threads : memory_processors()) ? "threads"
           : f->workers < 1 || f->workers > f->threads                      ? "workers"
           : f->ram_bytes != o->ram_bytes                                   ? "ram"
                                                                            : NULL;
}

/* Depth is never exceeded, and reached when the ring has room for it. */
static const char *wrong_depth(const struct engine_options *o, const struct plan *p,
                               const struct engine_stats *s)
{
    bool roomy = p->ring_bytes == 0 || p->ring_bytes >= o->io_depth * p->tile_window_max;
    uint64_t max = s->io.in_flight_max;
    return max > o->io_depth                        ? "more reads in flight than io-depth"
           : o->io_depth > 1 && max < 2             ? "never two reads in flight"
           : roomy && max != o->io_depth            ? "io-depth was not reached"
                                                    : NULL;
}

static const char *wrong_evictions(const struct engine_options *o, const struct engine_stats *s)
{
    bool few = o->expert_slots > 0 && o->expert_slots <= 40 && strcmp(o->policy, "none") != 0;
    return few == (s->cache_evictions > 0) ? NULL : "evictions where none can be, or none";
}

/* Settings in force and every figure. */
static void judge(struct engine *e, const struct grid_point *point,
                  const struct engine_options *options, struct outcome *outcome, char *why,
                  size_t why_bytes)
{
    struct engine_stats stats;
    struct engine_facts facts;
    struct account account;
    uint32_t ids[POSITIONS];
    const struct plan *plan = engine_plan_of(e);
    engine_stats(e, &stats);
    engine_facts(e, &facts);
    fed_ids(ids);
    outcome->evictions = stats.cache_evictions;
    account_run(plan, engine_model(e), options->policy, &trial.truth->routes, ids, GOLDEN_PROMPT,
                POSITIONS, &account);
    const char *wrong = wrong_plan(point, options, plan);
    wrong = wrong == NULL ? wrong_facts(options, &facts, outcome) : wrong;
    wrong = wrong == NULL ? wrong_depth(options, plan, &stats) : wrong;
    wrong = wrong == NULL ? wrong_evictions(options, &stats) : wrong;
    if (wrong != NULL) {
        snprintf(why, why_bytes, "not in force: %s (%llu in flight, %llu evictions)", wrong,
                 (unsigned long long)stats.io.in_flight_max,
                 (unsigned long long)stats.cache_evictions);
    } else {
        account_agrees(&account, &stats, why, why_bytes);
    }
}

static void run_point(void *ctx, uint32_t job, char *why, size_t why_bytes)
{
    const struct trial *t = ctx;
    const struct grid_point *point = &t->point[t->first + job];
    struct outcome *outcome = &t->outcome[t->first + job];
    struct listener listener = {t->truth, GEN};
    struct engine_options options;
    struct engine *e = NULL;
    uint32_t ids[POSITIONS];
    uint32_t made[GEN];
    uint64_t begun = nondet_now_ns();
    err_clear();
    fed_ids(ids);
    grid_options(point, GOLDEN_PROMPT, GEN, &options);
    if (!settle_ram(dir_of(point), &options, outcome, why, why_bytes)) {
        return;
    }
    struct generate_request request = {.ids = ids, .id_count = GOLDEN_PROMPT, .gen = GEN,
                                       .on_logits = on_logits, .ctx = &listener};
    struct generate_result result = {.ids = made};
    if (engine_open(&e, dir_of(point), &options) < 0 || generate(e, &request, &result) < 0) {
        snprintf(why, why_bytes, "%s", err_message());
    } else if (memcmp(result.hash, t->truth->hash, sizeof result.hash) != 0) {
        snprintf(why, why_bytes, "other logits, first at step %u", listener.first_wrong);
    } else {
        judge(e, point, &options, outcome, why, why_bytes);
    }
    engine_close(e);
    outcome->taken_ns = nondet_now_ns() - begun;
}

static void describe_point(void *ctx, uint32_t job, char *text, size_t text_bytes)
{
    const struct trial *t = ctx;
    uint32_t index = t->first + job;
    size_t at = (size_t)snprintf(text, text_bytes, "repeat: grid_test %llu %u, or ",
                                 (unsigned long long)seed, index);
    grid_command(&t->point[index], t->outcome[index].ram_bytes, GEN, text + at, text_bytes - at);
}

/* ---- the trial ---- */

static void choose_points(void)
{
    trial.cover = grid_cover(trial.point, COVER_MAX);
    trial.count = trial.cover;
    for (uint32_t i = 0; i < RANDOM_POINTS; i++) {
        trial.point[trial.count++] = grid_random(seed + i);
    }
    for (uint32_t i = 0; i < STEPPED_POINTS; i++) {
        struct grid_point point = grid_random(seed + RANDOM_POINTS + i);
        point.level[GRID_IO] = GRID_STEPPED;
        point.level[GRID_RAM] = i % 2 == 0 ? GRID_RAM_FLOOR : point.level[GRID_RAM];
        trial.point[trial.count++] = point;
    }
}

static void print_outcome(double seconds)
{
    uint32_t raised = 0;
    uint32_t refused = 0;
    uint32_t evicting = 0;
    uint32_t slowest = 0;
    for (uint32_t i = 0; i < trial.count; i++) {
        raised += trial.outcome[i].raised;
        refused += trial.outcome[i].no_uring;
        evicting += trial.outcome[i].evictions > 0;
        slowest = trial.outcome[i].taken_ns > trial.outcome[slowest].taken_ns ? i : slowest;
    }
    printf("note: %u points (%u cover all pairs, %u random from seed %llu, %u stepped) in %.1f s; "
           "%u evicted experts; slowest: %u in %.1f s\n", trial.count, trial.cover,
           (unsigned)RANDOM_POINTS, (unsigned long long)seed, (unsigned)STEPPED_POINTS, seconds,
           evicting, slowest, (double)trial.outcome[slowest].taken_ns / 1e9);
    if (raised > 0) {
        printf("note: ram was raised to the floor of %u points, whose pins and slots need more\n",
               raised);
    }
    if (refused > 0) {
        printf("note: io_uring is refused here: %u of its points ran on pread\n", refused);
    }
#ifdef K3RING_SANITIZED
    printf("note: sanitized build: fewer random and stepped points\n");
#endif
    fflush(stdout);
}

START_TEST(every_two_settings_meet_in_some_point)
{
    struct grid_point points[COVER_MAX];
    uint32_t count = grid_cover(points, COVER_MAX);
    ck_assert_uint_lt(count, COVER_MAX);
    ck_assert_uint_eq(grid_uncovered(points, count), 0);
    ck_assert_uint_gt(grid_uncovered(points, count - 1), 0);
    ck_assert_uint_gt(grid_uncovered(points + 1, count - 1), 0);
}
END_TEST

START_TEST(no_setting_moves_a_bit)
{
    trial.truth = farm_memory(sizeof *trial.truth);
    trial.outcome = farm_memory(POINTS_MAX * sizeof *trial.outcome);
    struct farm plain = {.jobs = 1, .workers = 1, .limit_seconds = LIMIT_SECONDS,
                         .run = find_truth, .describe = describe_truth, .ctx = trial.truth};
    ck_assert_uint_eq(farm_run(&plain, 1), 0);
    choose_points();
    struct farm farm = {.jobs = trial.count, .workers = WORKERS, .limit_seconds = LIMIT_SECONDS,
                        .run = run_point, .describe = describe_point, .ctx = &trial};
    if (only != ALL_POINTS) {
        ck_assert_uint_lt(only, trial.count);
        trial.first = only;
        farm.jobs = 1;
    }
    uint64_t begun = nondet_now_ns();
    uint32_t failed = farm_run(&farm, SHOWN_MAX);
    print_outcome((double)(nondet_now_ns() - begun) / 1e9);
    ck_assert_msg(failed == 0, "%u points failed, listed above", failed);
}
END_TEST

static Suite *grid_suite(void)
{
    Suite *suite = suite_create("grid");
    TCase *tcase = tcase_create("grid");
    tcase_set_timeout(tcase, 0); /* the farm has limits of its own */
    tcase_add_test(tcase, every_two_settings_meet_in_some_point);
    tcase_add_test(tcase, no_setting_moves_a_bit);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : seed;
    only = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : only;
    tiny_make(&tiny, TINY_DISK);
    tiny_make(&fast, TINY_MEMORY);
    int failed = suite_run(grid_suite());
    tiny_remove(&tiny);
    tiny_remove(&fast);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
