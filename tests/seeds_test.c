/* SPDX-License-Identifier: Apache-2.0 */

/* The engine as steps of one thread over the simulated drive: a seed fixes the settings, the order
 * of everything and the faults of the drive. Whatever the seed, the logits are the same, or, where
 * it dooms a read, the run ends by naming it. The engine itself asserts on the way that the drive
 * is never idle while it could read.
 *
 *   seeds_test [COUNT [FIRST]]   so many seeds (`make nightly`: 10,000), from this one on */

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nondet.h"
#include "tests/support/amount.h"
#include "tests/support/farm.h"
#include "tests/support/grid.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define SEEDS AMOUNT(1000, 300, 16)
#define LIMIT_SECONDS AMOUNT(600, 300, 600)
#define WORKERS 4
#define GEN 2
#define SHOWN_MAX 8

struct outcome {
    bool doomed, failed; /* the seed wants a read to fail; it did */
    uint64_t retries, short_reads;
};

struct trial {
    uint64_t first;
    struct outcome *outcome;
    char *hash; /* of a run with the plainest settings */
};

static struct tiny tiny;
static struct trial trial = {.first = 1};
static uint32_t count = SEEDS;

static void find_hash(void *ctx, uint32_t job, char *why, size_t why_bytes)
{
    static struct tiny_run run;
    struct engine_options options = tiny_options(GEN);
    (void)job;
    options.io = IO_PREAD;
    options.isa = ISA_SCALAR;
    options.threads = options.io_depth = 1;
    tiny_generate(&tiny, &options, GEN, NULL, &run);
    memcpy(ctx, run.hash, sizeof run.hash);
    if (run.rc < 0 || !tiny_golden_so_far(&run)) {
        snprintf(why, why_bytes, "the plainest run is wrong: %s", run.message);
    }
}

static void describe_plain(void *ctx, uint32_t job, char *text, size_t text_bytes)
{
    (void)ctx;
    (void)job;
    snprintf(text, text_bytes, "one thread, pread, scalar");
}

/* The least memory of a seed's settings, or 0 with a reason. */
static uint64_t floor_bytes(const struct engine_options *options, char *why, size_t why_bytes)
{
    struct engine_options large = *options;
    struct model *model;
    struct plan *plan;
    large.ram_bytes = 256 * MIB;
    if (engine_plan(tiny.dir, &large, &model, &plan) < 0) {
        snprintf(why, why_bytes, "no plan: %s", err_message());
        return 0;
    }
    uint64_t bytes = plan->floor_bytes;
    plan_free(plan);
    model_close(model);
    return bytes;
}

/* Every other seed has the least memory its settings can do with: one tile, one slot. Every fifth
 * has a drive without faults, and of four others one a read that fails. */
static void settle(uint64_t seed, uint64_t least_bytes, struct engine_options *options)
{
    static const int errors[] = {EIO, ENODATA, EINVAL, EAGAIN, EINTR, ECANCELED};
    struct rng rng = rng_seed(rng_mix(~seed));
    struct io_sim_options *sim = &options->sim;
    options->ram_bytes = seed % 2 == 0 ? least_bytes : max_u64(options->ram_bytes, least_bytes);
    sim->short_every = sim->again_every = sim->intr_every = 0;
    if (seed % 5 == 0) {
        return;
    }
    sim->short_every = (uint32_t)rng_below(&rng, 12);
    sim->again_every = (uint32_t)rng_below(&rng, 12);
    sim->intr_every = (uint32_t)rng_below(&rng, 12);
    if (rng_below(&rng, 4) == 0) {
        sim->fail_read = 1 + rng_below(&rng, 800);
        sim->fail_errno = errors[rng_below(&rng, countof(errors))];
        sim->fail_from_there = rng_below(&rng, 2) == 0;
    }
}

static void judge(const struct tiny_run *run, const struct engine_options *options,
                  const char *hash, char *why, size_t why_bytes)
{
    bool named = strstr(run->message, ".safetensors") != NULL &&
                 strstr(run->message, "offset ") != NULL;
    if (!tiny_golden_so_far(run)) {
        snprintf(why, why_bytes, "a wrong token");
    } else if (run->rc == 0 && strcmp(run->hash, hash) != 0) {
        snprintf(why, why_bytes, "other logits");
    } else if (run->rc < 0 && (options->sim.fail_read == 0 || run->rc != ERR_IO || !named)) {
        snprintf(why, why_bytes, "rc %d, %s", run->rc, run->message);
    } else if (run->rc == 0 && options->sim.fail_read != 0 &&
               options->sim.fail_read <= run->stats.io.requests) {
        snprintf(why, why_bytes, "a failed read went unnoticed");
    }
}

static void run_seed(void *ctx, uint32_t job, char *why, size_t why_bytes)
{
    static struct tiny_run run;
    const struct trial *t = ctx;
    uint64_t seed = t->first + job;
    struct grid_point point = grid_random(seed);
    struct engine_options options;
    err_clear();
    point.level[GRID_IO] = GRID_STEPPED;
    grid_options(&point, GOLDEN_PROMPT, GEN, &options);
    uint64_t least_bytes = floor_bytes(&options, why, why_bytes);
    if (least_bytes == 0) {
        return;
    }
    settle(seed, least_bytes, &options);
    tiny_generate(&tiny, &options, GEN, NULL, &run);
    judge(&run, &options, t->hash, why, why_bytes);
    t->outcome[job] = (struct outcome){.doomed = options.sim.fail_read != 0,
                                       .failed = run.rc < 0,
                                       .retries = run.stats.io.retries,
                                       .short_reads = run.stats.io.short_reads};
}

static void describe_seed(void *ctx, uint32_t job, char *text, size_t text_bytes)
{
    const struct trial *t = ctx;
    snprintf(text, text_bytes, "repeat: seeds_test 1 %llu", (unsigned long long)(t->first + job));
}

static void print_outcome(double seconds)
{
    uint32_t doomed = 0;
    uint32_t failed = 0;
    uint64_t retries = 0;
    uint64_t short_reads = 0;
    for (uint32_t i = 0; i < count; i++) {
        doomed += trial.outcome[i].doomed;
        failed += trial.outcome[i].failed;
        retries += trial.outcome[i].retries;
        short_reads += trial.outcome[i].short_reads;
    }
    printf("note: %u seeds from %llu in %.1f s: %u doomed a read, %u of these runs came to it and "
           "named it; %llu repeats, %llu short reads\n", count, (unsigned long long)trial.first,
           seconds, doomed, failed, (unsigned long long)retries, (unsigned long long)short_reads);
    fflush(stdout);
}

START_TEST(every_seed_gives_the_same_logits_or_names_the_read_that_failed)
{
    trial.outcome = farm_memory(count * sizeof *trial.outcome);
    trial.hash = farm_memory(sizeof ((struct tiny_run *)0)->hash);
    struct farm plain = {.jobs = 1, .workers = 1, .limit_seconds = LIMIT_SECONDS,
                         .run = find_hash, .describe = describe_plain, .ctx = trial.hash};
    ck_assert_uint_eq(farm_run(&plain, 1), 0);
    struct farm farm = {.jobs = count, .workers = WORKERS, .limit_seconds = LIMIT_SECONDS,
                        .run = run_seed, .describe = describe_seed, .ctx = &trial};
    uint64_t begun_ns = nondet_now_ns();
    uint32_t failed = farm_run(&farm, SHOWN_MAX);
    print_outcome((double)(nondet_now_ns() - begun_ns) / 1e9);
    ck_assert_msg(failed == 0, "%u seeds failed, listed above", failed);
}
END_TEST

int main(int argc, char **argv)
{
    count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : count;
    trial.first = argc > 2 ? strtoull(argv[2], NULL, 0) : trial.first;
    if (count == 0) {
        fprintf(stderr, "usage: seeds_test [COUNT [FIRST]]\n");
        return EXIT_FAILURE;
    }
    tiny_make(&tiny, TINY_MEMORY);
    Suite *suite = suite_create("seeds");
    TCase *tcase = tcase_create("seeds");
    tcase_set_timeout(tcase, 0); /* the farm has limits of its own */
    tcase_add_test(tcase, every_seed_gives_the_same_logits_or_names_the_read_that_failed);
    suite_add_tcase(suite, tcase);
    int failed = suite_run(suite);
    tiny_remove(&tiny);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
