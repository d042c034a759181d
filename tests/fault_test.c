/* SPDX-License-Identifier: Apache-2.0 */
/* The engine over drives that fail and files that lie: the answer is the right one or an error
 * that names what is wrong. Never a wrong token, never a stand-still. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/amount.h"
#include "tests/support/rewrite.h"
#include "tests/support/suite.h"

#define WATCHDOG_SECONDS 120
#define SAMPLES AMOUNT(70, 70, 8)

static struct tiny original; /* never changed by a test */

static void watch(void)
{
    alarm(WATCHDOG_SECONDS);
}

static void unwatch(void)
{
    alarm(0);
}

/* ---- reads that fail ---- */

enum scene { SCENE_STEPPED, SCENE_THREADS, SCENE_COUNT };

/* Everything is streamed, with four working slots and two tokens: about 700 reads. */
static struct engine_options streaming(enum scene scene)
{
    struct engine_options o = tiny_options(2);
    o.io = IO_SIM;
    o.stepped = scene == SCENE_STEPPED;
    o.pin_bytes = 0;
    o.expert_slots = 0;
    o.sim.seed = 7;
    return o;
}

static bool names_the_place(const char *message)
{
    bool part = strstr(message, "layer ") != NULL || strstr(message, "lm_head") != NULL ||
                strstr(message, "embedding row") != NULL;
    return part && strstr(message, ".safetensors") != NULL && strstr(message, "offset ") != NULL;
}

static void expect_read_error(const struct tiny_run *run, uint64_t victim)
{
    ck_assert_msg(run->rc == ERR_IO, "read %llu: rc %d, '%s'", (unsigned long long)victim,
                  run->rc, run->message);
    ck_assert_msg(names_the_place(run->message), "read %llu: '%s'", (unsigned long long)victim,
                  run->message);
    ck_assert_msg(tiny_golden_so_far(run), "read %llu: a wrong token", (unsigned long long)victim);
}

static void expect_clean(const struct tiny_run *run, const char *hash)
{
    ck_assert_msg(run->rc == 0, "rc %d, '%s'", run->rc, run->message);
    ck_assert(tiny_golden_so_far(run));
    ck_assert_str_eq(run->hash, hash);
}

/* The reads of a run in which none fails, and its hash. */
static uint64_t count_reads(struct engine_options o, uint32_t gen, char hash[65])
{
    static struct tiny_run run;
    tiny_generate(&original, &o, gen, NULL, &run);
    ck_assert_msg(run.rc == 0, "%s", run.message);
    ck_assert_uint_eq(run.count, gen);
    ck_assert(tiny_golden_so_far(&run));
    memcpy(hash, run.hash, sizeof run.hash);
    return run.stats.io.requests;
}

START_TEST(a_failed_read_ends_the_run_whichever_it_is)
{
    static struct tiny_run run;
    char hash[65];
    struct engine_options o = streaming((enum scene)_i);
    uint64_t reads = count_reads(o, 2, hash);
    uint64_t stride = max_u64(reads / SAMPLES, 1);
    ck_assert_uint_gt(reads, 300);
    for (uint64_t victim = 1; victim <= reads; victim += victim < 8 ? 1 : stride) {
        o.sim.fail_read = victim;
        o.sim.fail_errno = EIO;
        tiny_generate(&original, &o, 2, NULL, &run);
        expect_read_error(&run, victim);
    }
    o.sim.fail_read = reads;
    tiny_generate(&original, &o, 2, NULL, &run);
    expect_read_error(&run, reads);
    o.sim.fail_read = reads + 1;
    tiny_generate(&original, &o, 2, NULL, &run);
    expect_clean(&run, hash);
}
END_TEST

START_TEST(a_failed_read_ends_a_run_with_pins_and_cache)
{
    static struct tiny_run run;
    char hash[65];
    struct engine_options o = tiny_options(GOLDEN_STEPS);
    o.io = IO_SIM;
    o.stepped = _i == SCENE_STEPPED;
    uint64_t reads = count_reads(o, GOLDEN_STEPS, hash);
    ck_assert_str_eq(hash, TINY_HASH);
    for (uint64_t victim = 1; victim <= reads; victim += reads / AMOUNT(24, 24, 4)) {
        o.sim.fail_read = victim;
        o.sim.fail_errno = EIO;
        tiny_generate(&original, &o, GOLDEN_STEPS, NULL, &run);
        expect_read_error(&run, victim);
    }
}
END_TEST

START_TEST(a_failed_read_ends_a_run_with_the_smallest_tiles)
{
    static struct tiny_run run;
    char hash[65];
    struct engine_options o = streaming((enum scene)_i);
    o.tile_bytes = 4096;
    o.io_depth = 64;
    uint64_t reads = count_reads(o, 2, hash);
    uint64_t runs = AMOUNT(3, 3, 1); /* the simulated drive takes its time */
    if (_i == SCENE_STEPPED) {
        runs = AMOUNT(16, 16, 4);
    }
    for (uint64_t victim = 1; victim <= reads / 2; victim += reads / 2 / runs) {
        o.sim.fail_read = victim;
        o.sim.fail_errno = EIO;
        tiny_generate(&original, &o, 2, NULL, &run);
        expect_read_error(&run, victim);
    }
}
END_TEST

START_TEST(a_drive_that_stays_gone_ends_the_run)
{
    static const int errors[] = {EIO, ENODATA, EREMOTEIO, ENXIO, EINVAL, ENOMEM, ESTALE};
    static const uint64_t victims[] = {1, 9, 100, 333};
    static struct tiny_run run;
    struct engine_options o = streaming((enum scene)_i);
    o.sim.fail_from_there = true;
    for (size_t i = 0; i < countof(errors); i++) {
        for (size_t k = 0; k < countof(victims); k++) {
            o.sim.fail_read = victims[k];
            o.sim.fail_errno = errors[i];
            tiny_generate(&original, &o, 2, NULL, &run);
            expect_read_error(&run, victims[k]);
        }
    }
}
END_TEST

/* EAGAIN and EINTR are transient: for ever is not. */
START_TEST(a_drive_that_is_always_busy_ends_the_run)
{
    static const int errors[] = {EAGAIN, EINTR};
    static struct tiny_run run;
    struct engine_options o = streaming((enum scene)_i);
    o.sim.fail_from_there = true;
    for (size_t i = 0; i < countof(errors); i++) {
        o.sim.fail_read = 20;
        o.sim.fail_errno = errors[i];
        tiny_generate(&original, &o, 2, NULL, &run);
        expect_read_error(&run, 20);
    }
}
END_TEST

START_TEST(a_failed_engine_refuses_more_work)
{
    struct engine *e = NULL;
    struct engine_options o = streaming((enum scene)_i);
    const uint32_t ids[GOLDEN_PROMPT] = {3, 141, 59, 26, 53, 58, 97, 93};
    const float *logits;
    o.sim.fail_read = 40;
    o.sim.fail_errno = EIO;
    ck_assert_int_eq(engine_open(&e, original.dir, &o), 0);
    ck_assert_int_eq(engine_begin(e, GOLDEN_PROMPT, 1), 0);
    ck_assert_int_eq(engine_pass(e, ids, GOLDEN_PROMPT, &logits), ERR_IO);
    ck_assert_int_eq(engine_end(e), ERR_IO);
    ck_assert_int_eq(engine_begin(e, GOLDEN_PROMPT, 1), ERR_IO);
    engine_close(e);
    err_clear();
}
END_TEST

START_TEST(an_engine_closes_with_reads_in_flight)
{
    struct engine_options o = streaming((enum scene)_i);
    for (int i = 0; i < 8; i++) {
        struct engine *e = NULL;
        o.io_depth = 1U << i;
        o.sim.seed = (uint64_t)i;
        ck_assert_int_eq(engine_open(&e, original.dir, &o), 0);
        ck_assert_int_eq(engine_begin(e, GOLDEN_PROMPT, 1), 0);
        engine_close(e);
    }
}
END_TEST

START_TEST(reads_in_parts_and_interrupted_give_the_golden_hash)
{
    static const struct {
        uint32_t part, again, intr;
    } every[] = {{1, 0, 0}, {3, 0, 0}, {0, 1, 0}, {0, 5, 0}, {0, 0, 1}, {0, 0, 7}, {2, 3, 5},
                 {1, 1, 1}};
    static struct tiny_run run;
    struct engine_options o = streaming((enum scene)_i);
    o.context = GOLDEN_PROMPT + GOLDEN_STEPS;
    o.expert_slots = 24;
    o.pin_bytes = MIB;
    for (size_t i = _i == SCENE_STEPPED ? 0 : countof(every) - 2; i < countof(every); i++) {
        o.sim.short_every = every[i].part;
        o.sim.again_every = every[i].again;
        o.sim.intr_every = every[i].intr;
        tiny_generate(&original, &o, GOLDEN_STEPS, NULL, &run);
        expect_clean(&run, TINY_HASH);
        ck_assert_uint_eq(run.stats.io.short_reads > 0, every[i].part > 0);
        ck_assert_uint_eq(run.stats.io.retries > 0, every[i].again + every[i].intr > 0);
    }
}
END_TEST

/* ---- files that change under the engine ---- */

struct cut {
    const struct tiny *tiny;
    uint32_t shard;
    int64_t change_bytes;
};

static void cut_shard(void *ctx)
{
    const struct cut *cut = ctx;
    tiny_truncate(cut->tiny, tiny_shard(cut->shard), cut->change_bytes);
}

static void expect_cut_noticed(enum io_engine engine, bool stepped, uint32_t shard, int64_t change)
{
    static struct tiny_run run;
    struct tiny copy;
    tiny_copy(&copy, &original, TINY_MEMORY);
    struct cut cut = {&copy, shard, change};
    struct tiny_events events = {.between = cut_shard, .ctx = &cut};
    struct engine_options o = streaming(SCENE_THREADS);
    o.io = engine;
    o.stepped = stepped;
    o.context = GOLDEN_PROMPT + GOLDEN_STEPS;
    tiny_generate(&copy, &o, GOLDEN_STEPS, &events, &run);
    tiny_remove(&copy);
    ck_assert_msg(run.rc == ERR_IO, "shard %u by %lld: rc %d '%s'", shard + 1, (long long)change,
                  run.rc, run.message);
    ck_assert_msg(strstr(run.message, tiny_shard(shard)) != NULL, "%s", run.message);
    ck_assert(tiny_golden_so_far(&run));
}

START_TEST(a_shard_cut_by_one_byte_after_open_is_named)
{
    for (uint32_t shard = 0; shard < 2; shard++) {
        expect_cut_noticed(IO_URING, false, shard, -1);
        expect_cut_noticed(IO_PREAD, false, shard, -1);
        expect_cut_noticed(IO_SIM, true, shard, -1);
    }
}
END_TEST

START_TEST(a_shard_cut_in_the_middle_after_open_is_named)
{
    for (uint32_t shard = 0; shard < TINY_SHARDS; shard++) {
        expect_cut_noticed(IO_URING, false, shard, shard == 2 ? -100000 : -1000000);
        expect_cut_noticed(IO_PREAD, false, shard, shard == 2 ? -100000 : -1000000);
    }
}
END_TEST

/* ---- headers that lie ---- */

/* Opening the damaged copy must fail, with every one of the words. */
static void expect_refusal(struct tiny *copy, const char *word, const char *other_word)
{
    static struct tiny_run run;
    struct engine_options o = tiny_options(1);
    tiny_generate(copy, &o, 1, NULL, &run);
    tiny_remove(copy);
    ck_assert_msg(run.rc == ERR_MODEL, "rc %d '%s'", run.rc, run.message);
    ck_assert_msg(strstr(run.message, word) != NULL, "no '%s' in '%s'", word, run.message);
    ck_assert_msg(strstr(run.message, other_word) != NULL, "no '%s' in '%s'", other_word,
                  run.message);
}

#define NORM "language_model.model.norm.weight"
#define OUT_NORM "language_model.model.output_attn_res_norm.weight"

START_TEST(overlapping_tensors_are_refused)
{
    struct tiny copy;
    tiny_copy(&copy, &original, TINY_MEMORY);
    tiny_edit_header(&copy, 2, "[131072,131328]", "[131070,131326]");
    expect_refusal(&copy, tiny_shard(2), "overlap");
}
END_TEST

START_TEST(a_tensor_beyond_the_file_is_refused)
{
    struct tiny copy;
    tiny_copy(&copy, &original, TINY_MEMORY);
    tiny_truncate(&copy, tiny_shard(1), -1);
    expect_refusal(&copy, tiny_shard(1), "model.layers.12.");
}
END_TEST

START_TEST(a_tensor_described_twice_is_refused)
{
    struct tiny copy;
    tiny_copy(&copy, &original, TINY_MEMORY);
    tiny_edit_header(&copy, 2, OUT_NORM, NORM);
    expect_refusal(&copy, tiny_shard(2), NORM);
}
END_TEST

START_TEST(a_tensor_of_the_wrong_shape_is_refused)
{
    static const char *const shapes[] = {"[64,2]", "[127]", "[1,128]", "[]", "[128,1,1]"};
    struct tiny copy;
    for (size_t i = 0; i < countof(shapes); i++) {
        char before[200];
        char after[200];
        tiny_copy(&copy, &original, TINY_MEMORY);
        snprintf(before, sizeof before, "\"%s\":{\"dtype\":\"BF16\",\"shape\":[128]", NORM);
        snprintf(after, sizeof after, "\"%s\":{\"dtype\":\"BF16\",\"shape\":%s", NORM, shapes[i]);
        tiny_edit_header(&copy, 2, before, after);
        expect_refusal(&copy, tiny_shard(2), NORM);
    }
}
END_TEST

START_TEST(an_absurd_header_length_is_refused)
{
    static const unsigned char lengths[][8] = {{0, 0, 0, 0, 0, 0, 0, 0x80},
                                               {255, 255, 255, 255, 255, 255, 255, 255},
                                               {0xF8, 255, 255, 255, 255, 255, 255, 255},
                                               {0, 0, 0, 0, 0, 0, 0, 0},
                                               {1, 0, 0, 0, 0, 0, 0, 0}};
    for (size_t i = 0; i < countof(lengths); i++) {
        struct tiny copy;
        size_t size_bytes;
        tiny_copy(&copy, &original, TINY_MEMORY);
        unsigned char *file = tiny_read(&copy, tiny_shard(0), &size_bytes);
        memcpy(file, lengths[i], 8);
        tiny_put(&copy, tiny_shard(0), file, size_bytes);
        free(file);
        expect_refusal(&copy, tiny_shard(0), "header");
    }
}
END_TEST

/* 64 KiB in the middle of a shard that were never written. */
static void punch(const struct tiny *tiny)
{
    char path[TINY_PATH_BYTES];
    size_t size_bytes;
    unsigned char *file = tiny_read(tiny, tiny_shard(0), &size_bytes);
    const size_t from = 1 << 20;
    const size_t until = from + (1 << 16);
    tiny_path(tiny, tiny_shard(0), path);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    tiny_need(fd >= 0 && pwrite(fd, file, from, 0) == (ssize_t)from, path);
    tiny_need(pwrite(fd, file + until, size_bytes - until, (off_t)until) ==
              (ssize_t)(size_bytes - until), path);
    tiny_need(fsync(fd) == 0, path);
    close(fd);
    free(file);
}

/* Whether this file system tells of holes at all. */
static bool tells_holes(const struct tiny *tiny)
{
    char path[TINY_PATH_BYTES];
    tiny_path(tiny, tiny_shard(0), path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t end = lseek(fd, 0, SEEK_END);
    bool told = lseek(fd, 0, SEEK_HOLE) < end;
    close(fd);
    return told;
}

START_TEST(a_shard_with_a_hole_is_refused_unless_synthetic)
{
    static struct tiny_run run;
    struct engine_options o = tiny_options(1);
    struct tiny copy;
    char marker[TINY_PATH_BYTES];
    tiny_copy(&copy, &original, TINY_MEMORY);
    punch(&copy);
    if (!tells_holes(&copy)) {
        printf("this file system does not tell of holes: not tested\n");
        tiny_remove(&copy);
        return;
    }
    tiny_generate(&copy, &o, 1, NULL, &run);
    ck_assert_msg(run.rc == 0, "%s", run.message);
    tiny_path(&copy, MODEL_SYNTH_MARKER, marker);
    ck_assert_int_eq(unlink(marker), 0);
    expect_refusal(&copy, tiny_shard(0), "never written");
}
END_TEST

/* ---- experts in parts ---- */

START_TEST(a_failed_read_of_a_parted_expert_ends_the_run)
{
    static struct tiny_run run;
    struct tiny copy;
    struct engine_options o = streaming((enum scene)_i);
    const struct rewrite_options parted = {.seed = 12, .shards = 7, .odd_base = true};
    rewrite(&copy, &original, TINY_MEMORY, &parted);
    for (uint64_t victim = 3; victim < 1000; victim += AMOUNT(101, 101, 499)) {
        o.sim.fail_read = victim;
        o.sim.fail_errno = EIO;
        tiny_generate(&copy, &o, 2, NULL, &run);
        expect_read_error(&run, victim);
    }
    tiny_remove(&copy);
}
END_TEST

/* ---- the suite ---- */

static void add_reads(Suite *suite)
{
    TCase *tcase = suite_case(suite, "reads", WATCHDOG_SECONDS, watch, unwatch);
    tcase_add_loop_test(tcase, a_failed_read_ends_the_run_whichever_it_is, 0, SCENE_COUNT);
    tcase_add_loop_test(tcase, a_failed_read_ends_a_run_with_pins_and_cache, 0, SCENE_COUNT);
    tcase_add_loop_test(tcase, a_failed_read_ends_a_run_with_the_smallest_tiles, 0, SCENE_COUNT);
    tcase_add_loop_test(tcase, a_drive_that_stays_gone_ends_the_run, 0, SCENE_COUNT);
    tcase_add_loop_test(tcase, a_drive_that_is_always_busy_ends_the_run, 0, SCENE_COUNT);
    tcase_add_loop_test(tcase, a_failed_engine_refuses_more_work, 0, SCENE_COUNT);
    tcase_add_loop_test(tcase, an_engine_closes_with_reads_in_flight, 0, SCENE_COUNT);
    tcase_add_loop_test(tcase, reads_in_parts_and_interrupted_give_the_golden_hash, 0,
                        SCENE_COUNT);
    tcase_add_loop_test(tcase, a_failed_read_of_a_parted_expert_ends_the_run, 0, SCENE_COUNT);
}

static void add_files(Suite *suite)
{
    TCase *tcase = suite_case(suite, "files", WATCHDOG_SECONDS, watch, unwatch);
    tcase_add_test(tcase, a_shard_cut_by_one_byte_after_open_is_named);
    tcase_add_test(tcase, a_shard_cut_in_the_middle_after_open_is_named);
    tcase_add_test(tcase, overlapping_tensors_are_refused);
    tcase_add_test(tcase, a_tensor_beyond_the_file_is_refused);
    tcase_add_test(tcase, a_tensor_described_twice_is_refused);
    tcase_add_test(tcase, a_tensor_of_the_wrong_shape_is_refused);
    tcase_add_test(tcase, an_absurd_header_length_is_refused);
    tcase_add_test(tcase, a_shard_with_a_hole_is_refused_unless_synthetic);
}

int main(void)
{
    tiny_make(&original, TINY_MEMORY);
    Suite *suite = suite_create("faults");
    add_reads(suite);
    add_files(suite);
    int failed = suite_run(suite);
    tiny_remove(&original);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
