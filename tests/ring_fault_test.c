/* SPDX-License-Identifier: Apache-2.0 */
/* The engine over a ring and a drive in disorder: reads that fail, come short, late, in another
 * order or twice, wake-ups that get lost, a kernel that takes nothing. The outcome is the right
 * tokens, or an error that names the place; never a wrong token, a stand-still or a leak.
 *
 *   ring_fault_test [SEEDS [FIRST]]   mixed faults of so many seeds, of this one on */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nondet.h"
#include "tests/faults/faults.h"
#include "tests/support/amount.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define READ_STRIDE AMOUNT(1, 3, 32)
#define MIXED_SEEDS AMOUNT(200, 40, 8)
#define SECOND_NS 1000000000ULL
#define MS_NS 1000000ULL
#define STEPS 2

static struct tiny memory; /* read through the page cache, where that is memory */
static struct tiny disk;   /* read directly, where the drive allows it */
static struct tiny_run run;
static struct drive_counts counts;
static unsigned seeds = MIXED_SEEDS, first_seed = 1;

enum scene { SCENE_RING, SCENE_RING_DIRECT, SCENE_POOL, SCENE_COUNT };

/* Everything is streamed, with four working slots: some 350 reads a token. */
static struct engine_options streaming(enum scene scene, uint32_t gen)
{
    struct engine_options o = tiny_options(gen);
    o.io = scene == SCENE_POOL ? IO_PREAD : IO_URING;
    o.pin_bytes = 0;
    o.expert_slots = 0;
    return o;
}

static void arm(void *ctx)
{
    drive_faults_arm(ctx);
}

/* A run whose reads are faulty, those of opening excepted. */
static void run_faulty(enum scene scene, const struct engine_options *o, uint32_t gen,
                       struct drive_faults faults)
{
    struct tiny_events events = {.between = arm, .ctx = &faults};
    unsigned files = faults_open_files();
    watch_note("scene %d, seed %llu, error %d every %u, doomed %llu, short %u of %u, refused %u",
               (int)scene, (unsigned long long)faults.seed, faults.error, faults.error_every,
               (unsigned long long)faults.doomed, faults.short_bytes, faults.short_every,
               faults.refuse_every);
    tiny_generate(scene == SCENE_RING_DIRECT ? &disk : &memory, o, gen, &events, &run);
    drive_faults_disarm(&counts);
    ck_assert_uint_eq(faults_open_files(), files);
}

/* The hash of STEPS tokens without faults. */
static const char *clean_hash(void)
{
    static char hash[65];
    struct engine_options o = streaming(SCENE_POOL, STEPS);
    tiny_generate(&memory, &o, STEPS, NULL, &run);
    ck_assert_msg(run.rc == 0 && tiny_golden_so_far(&run), "rc %d, '%s'", run.rc, run.message);
    memcpy(hash, run.hash, sizeof hash);
    return hash;
}

static void expect_clean(const char *hash)
{
    ck_assert_msg(run.rc == 0, "rc %d, '%s'", run.rc, run.message);
    ck_assert(tiny_golden_so_far(&run));
    ck_assert_str_eq(run.hash, hash);
}

static void expect_read_error(const char *errno_text)
{
    bool part = strstr(run.message, "layer ") != NULL || strstr(run.message, "lm_head") != NULL ||
                strstr(run.message, "embedding row") != NULL;
    ck_assert_msg(run.rc == ERR_IO, "rc %d, '%s'", run.rc, run.message);
    ck_assert_msg(part, "no part of the model in '%s'", run.message);
    ck_assert_msg(strstr(run.message, ".safetensors") != NULL, "no file in '%s'", run.message);
    ck_assert_msg(strstr(run.message, "offset ") != NULL, "no offset in '%s'", run.message);
    ck_assert_msg(strstr(run.message, errno_text) != NULL, "no '%s' in '%s'", errno_text,
                  run.message);
    ck_assert_msg(strchr(run.message, ';') != NULL, "no cure in '%s'", run.message);
    ck_assert_msg(tiny_golden_so_far(&run), "a wrong token before '%s'", run.message);
}

/* ---- transfers ---- */

START_TEST(an_error_that_passes_is_repeated_and_counted)
{
    static const struct {
        int error;
        uint32_t every;
    } rows[] = {{EINTR, 3},  {EAGAIN, 3}, {ECANCELED, 3},  {EBUSY, 3},
                {ENOMEM, 3}, {EIO, 41},   {ETIMEDOUT, 41}, {ENODATA, 41}};
    const char *hash = clean_hash();
    struct engine_options o = streaming((enum scene)_i, STEPS);
    for (size_t i = 0; i < countof(rows); i++) {
        run_faulty((enum scene)_i, &o, STEPS,
                   (struct drive_faults){.error = rows[i].error, .error_every = rows[i].every});
        expect_clean(hash);
        ck_assert_uint_gt(counts.failed, 10);
        ck_assert_uint_eq(run.stats.io.retries, counts.failed);
    }
}
END_TEST

START_TEST(an_error_that_stays_names_the_place)
{
    static const struct {
        int error;
        const char *text;
    } rows[] = {{EIO, "Input/output error"},        {EINTR, "resource busy"},
                {EAGAIN, "resource busy"},          {ECANCELED, "Operation canceled"},
                {ENOMEM, "Cannot allocate memory"}, {EINVAL, "Invalid argument"},
                {ENXIO, "No such device"},          {ESTALE, "Stale file handle"},
                {EOPNOTSUPP, "not supported"},      {ETIMEDOUT, "timed out"}};
    struct engine_options o = streaming((enum scene)_i, STEPS);
    for (size_t i = 0; i < countof(rows); i++) {
        run_faulty((enum scene)_i, &o, STEPS,
                   (struct drive_faults){.error = rows[i].error, .doomed = 20 + 29 * i,
                                         .doomed_later = i % 2 == 0});
        expect_read_error(rows[i].text);
    }
}
END_TEST

START_TEST(a_failed_read_ends_the_run_whichever_it_is)
{
    const char *hash = clean_hash();
    struct engine_options o = streaming((enum scene)_i, STEPS);
    uint64_t victim = 1;
    for (;; victim += _i == SCENE_RING ? READ_STRIDE : 4 * READ_STRIDE) {
        run_faulty((enum scene)_i, &o, STEPS,
                   (struct drive_faults){.error = EIO, .doomed = victim});
        if (counts.failed == 0) {
            break;
        }
        expect_read_error("Input/output error");
    }
    expect_clean(hash);
    ck_assert_uint_gt(victim, 300);
}
END_TEST

START_TEST(reads_may_come_short_at_every_length)
{
    static const uint32_t lengths[] = {1,     2,     511,   512,   513,   4095,   4096, 4097,
                                       5000,  8191,  8192,  8193,  12287, 12289,  16384, 20481,
                                       65535, 65536, 65537, 98304, 98305, 131071, 0};
    const char *hash = clean_hash();
    struct engine_options o = streaming((enum scene)_i, STEPS);
    for (size_t i = 0; i < countof(lengths); i++) {
        /* Less than a page is no progress: never may not be demanded of a drive that does it. */
        uint32_t every = lengths[i] < PAGE_BYTES ? 2 : 1;
        run_faulty((enum scene)_i, &o, STEPS,
                   (struct drive_faults){.seed = i, .short_bytes = lengths[i],
                                         .short_every = every});
        expect_clean(hash);
        ck_assert_msg(counts.shortened > 0 || lengths[i] > 65536, "length %u", lengths[i]);
    }
}
END_TEST

START_TEST(a_drive_that_never_brings_a_page_ends_the_run)
{
    struct engine_options o = streaming((enum scene)_i, STEPS);
    run_faulty((enum scene)_i, &o, STEPS,
               (struct drive_faults){.short_bytes = 1000, .short_every = 1});
    expect_read_error("No data available");
}
END_TEST

/* ---- time and order ---- */

START_TEST(completions_may_come_late_and_in_any_order)
{
    const char *hash = clean_hash();
    struct engine_options o = streaming((enum scene)_i, STEPS);
    for (uint32_t seed = 1; seed <= 6; seed++) {
        o.io_depth = 1U << seed;
        run_faulty((enum scene)_i, &o, STEPS,
                   (struct drive_faults){.seed = seed, .shuffle_ns = 2 * MS_NS,
                                         .late_every = 29, .late_ns = 20 * MS_NS});
        expect_clean(hash);
        ck_assert_uint_gt(counts.late, 0);
    }
}
END_TEST

START_TEST(a_drive_a_hundred_times_slower_only_takes_time)
{
    const char *hash = clean_hash();
    struct engine_options o = streaming((enum scene)_i, STEPS);
    run_faulty((enum scene)_i, &o, STEPS,
               (struct drive_faults){.late_every = 1, .late_ns = 10 * MS_NS});
    expect_clean(hash);
    ck_assert_uint_eq(counts.late, counts.transfers);
}
END_TEST

/* Nothing that such reads touch can be freed, and nothing is: no look at open files here. */
START_TEST(a_drive_that_ends_no_read_is_given_up)
{
    struct drive_faults faults = {.late_every = 1, .late_ns = 3600 * SECOND_NS};
    struct tiny_events events = {.between = arm, .ctx = &faults};
    struct engine_options o = streaming(SCENE_RING, STEPS);
    o.silence_ns = 3 * SECOND_NS;
    uint64_t begun_ns = nondet_now_ns();
    tiny_generate(&memory, &o, STEPS, &events, &run);
    drive_faults_disarm(NULL);
    expect_read_error("no read has ended for");
    ck_assert_uint_lt(nondet_now_ns() - begun_ns, 60 * SECOND_NS);
}
END_TEST

/* ---- the ring ---- */

START_TEST(a_completion_that_comes_twice_is_passed_over)
{
    const char *hash = clean_hash();
    struct engine_options o = streaming(SCENE_RING, STEPS);
    run_faulty(SCENE_RING, &o, STEPS,
               (struct drive_faults){.twice_every = 2, .shuffle_ns = MS_NS / 2});
    expect_clean(hash);
    ck_assert_uint_gt(run.stats.io.strays, 10);
    ck_assert_uint_le(run.stats.io.strays, counts.twice);
}
END_TEST

/* As demanded experts are announced by wake-ups, a ring without them stands still. */
START_TEST(a_wake_up_that_is_lost_costs_a_moment)
{
    const char *hash = clean_hash();
    struct engine_options o = streaming(SCENE_RING, STEPS);
    uint64_t begun_ns = nondet_now_ns();
    run_faulty(SCENE_RING, &o, STEPS, (struct drive_faults){.deaf_every = _i == 0 ? 1 : 3});
    expect_clean(hash);
    ck_assert_uint_gt(counts.deaf, 0);
    ck_assert_uint_lt(nondet_now_ns() - begun_ns, 60 * SECOND_NS);
}
END_TEST

START_TEST(a_completion_queue_that_overflows_loses_nothing)
{
    const char *hash = clean_hash();
    struct engine_options o = streaming(_i == 0 ? SCENE_RING : SCENE_RING_DIRECT, STEPS);
    run_faulty(_i == 0 ? SCENE_RING : SCENE_RING_DIRECT, &o, STEPS,
               (struct drive_faults){.flood_every = 3});
    expect_clean(hash);
    ck_assert_uint_gt(counts.overflows, 10);
}
END_TEST

START_TEST(a_kernel_that_now_and_then_takes_nothing_is_asked_again)
{
    static const int errors[] = {EAGAIN, EBUSY, EINTR, ENOMEM};
    const char *hash = clean_hash();
    struct engine_options o = streaming(SCENE_RING, STEPS);
    for (size_t i = 0; i < countof(errors); i++) {
        run_faulty(SCENE_RING, &o, STEPS,
                   (struct drive_faults){.refuse_every = 2, .refuse_error = errors[i]});
        expect_clean(hash);
        ck_assert_uint_gt(counts.refused, 10);
    }
}
END_TEST

START_TEST(a_kernel_that_takes_nothing_any_more_ends_the_run)
{
    static const int errors[] = {EAGAIN, ENOMEM, EBADF, ENXIO};
    struct engine_options o = streaming(SCENE_RING, STEPS);
    uint64_t begun_ns = nondet_now_ns();
    run_faulty(SCENE_RING, &o, STEPS,
               (struct drive_faults){.refuse_from = 40, .refuse_error = errors[_i]});
    ck_assert_msg(run.rc == ERR_RUN, "rc %d, '%s'", run.rc, run.message);
    ck_assert_msg(strstr(run.message, strerror(errors[_i])) != NULL, "%s", run.message);
    ck_assert_msg(strstr(run.message, "--io pread") != NULL, "%s", run.message);
    ck_assert(tiny_golden_so_far(&run));
    ck_assert_uint_lt(nondet_now_ns() - begun_ns, 60 * SECOND_NS);
}
END_TEST

/* ---- everything at once ---- */

static struct drive_faults mixed(struct rng *rng, uint64_t seed)
{
    static const int errors[] = {EINTR, EAGAIN, ECANCELED, ENOMEM, EBUSY};
    static const int refusals[] = {EAGAIN, EBUSY, EINTR};
    struct drive_faults f = {
        .seed = seed,
        .error = errors[rng_below(rng, countof(errors))],
        .error_every = (uint32_t)rng_below(rng, 8) * 2,
        .short_every = (uint32_t)rng_below(rng, 6),
        .short_bytes = (uint32_t)(rng_below(rng, 3) * 7777),
        .late_every = (uint32_t)rng_below(rng, 50),
        .late_ns = rng_below(rng, 5 * MS_NS),
        .shuffle_ns = rng_below(rng, MS_NS),
        .twice_every = (uint32_t)rng_below(rng, 8),
        .deaf_every = (uint32_t)rng_below(rng, 40),
        .flood_every = (uint32_t)rng_below(rng, 40),
        .refuse_every = (uint32_t)rng_below(rng, 20),
        .refuse_error = refusals[rng_below(rng, countof(refusals))],
        .doomed = rng_below(rng, 5) == 0 ? 1 + rng_below(rng, 700) : 0,
    };
    f.error_every += f.error_every == 2; /* not every repeat of a read, which is 17 tries */
    f.short_every += f.short_every == 1 && f.short_bytes == 0;
    f.refuse_every += f.refuse_every == 1;
    return f;
}

START_TEST(mixed_faults_give_the_right_tokens_or_an_error)
{
    const char *hash = clean_hash();
    uint32_t clean = 0;
    for (uint64_t seed = first_seed; seed < first_seed + (uint64_t)seeds; seed++) {
        struct rng rng = rng_seed(seed);
        enum scene scene = (enum scene)rng_below(&rng, SCENE_COUNT);
        struct engine_options o = streaming(scene, STEPS);
        o.io_depth = 1 + (uint32_t)rng_below(&rng, 32);
        o.threads = 1 + (uint32_t)rng_below(&rng, 3);
        o.tile_bytes = rng_below(&rng, 2) == 0 ? PLAN_AUTO : 16384;
        struct drive_faults faults = mixed(&rng, seed);
        run_faulty(scene, &o, STEPS, faults);
        bool right = run.rc == 0 && strcmp(run.hash, hash) == 0;
        bool refused = run.rc == ERR_IO && tiny_golden_so_far(&run) &&
                       (counts.failed > 0 || counts.shortened > 0);
        ck_assert_msg(right || refused, "seed %llu (ring_fault_test 1 %llu): rc %d, '%s'",
                      (unsigned long long)seed, (unsigned long long)seed, run.rc, run.message);
        clean += right;
    }
    printf("note: %u of %u runs with mixed faults gave the tokens, the others an error\n", clean,
           seeds);
    fflush(stdout);
    ck_assert_uint_ge(2 * clean, seeds);
}
END_TEST

/* ---- the suite ---- */

static void add_all(Suite *suite)
{
    TCase *reads = suite_case(suite, "reads", 900, NULL, NULL);
    tcase_add_loop_test(reads, an_error_that_passes_is_repeated_and_counted, 0, SCENE_COUNT);
    tcase_add_loop_test(reads, an_error_that_stays_names_the_place, 0, SCENE_COUNT);
    tcase_add_loop_test(reads, a_failed_read_ends_the_run_whichever_it_is, 0, SCENE_COUNT);
    tcase_add_loop_test(reads, reads_may_come_short_at_every_length, 0, SCENE_COUNT);
    tcase_add_loop_test(reads, a_drive_that_never_brings_a_page_ends_the_run, 0, SCENE_COUNT);
    tcase_add_loop_test(reads, completions_may_come_late_and_in_any_order, 0, SCENE_COUNT);
    tcase_add_loop_test(reads, a_drive_a_hundred_times_slower_only_takes_time, 0, SCENE_COUNT);
    tcase_add_test(reads, a_drive_that_ends_no_read_is_given_up);
    TCase *ring = suite_case(suite, "ring", 900, NULL, NULL);
    tcase_add_test(ring, a_completion_that_comes_twice_is_passed_over);
    tcase_add_loop_test(ring, a_wake_up_that_is_lost_costs_a_moment, 0, 2);
    tcase_add_loop_test(ring, a_completion_queue_that_overflows_loses_nothing, 0, 2);
    tcase_add_test(ring, a_kernel_that_now_and_then_takes_nothing_is_asked_again);
    tcase_add_loop_test(ring, a_kernel_that_takes_nothing_any_more_ends_the_run, 0, 4);
}

int main(int argc, char **argv)
{
    seeds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : seeds;
    first_seed = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : first_seed;
    tiny_make(&memory, TINY_MEMORY);
    tiny_make(&disk, TINY_DISK);
    Suite *suite = suite_create("ring faults");
    if (argc <= 1) {
        add_all(suite);
    }
    TCase *mix = suite_case(suite, "mixed", 0, NULL, NULL);
    tcase_add_test(mix, mixed_faults_give_the_right_tokens_or_an_error);
    int failed = suite_run(suite);
    tiny_remove(&memory);
    tiny_remove(&disk);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
