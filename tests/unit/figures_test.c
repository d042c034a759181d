/* SPDX-License-Identifier: Apache-2.0 */

/* Logs with known answers: what belongs to a stretch, time busy, depth, batches, and the identity
 * between rates and shares. Then a log that the ring itself has written. */

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/nondet.h"
#include "io/figures.h"
#include "io/io.h"
#include "tests/support/suite.h"

#define PAGE ((uint32_t)PAGE_BYTES)

static struct io_log log_;
static struct io_figures figures;

static void setup(void)
{
    ck_assert_int_eq(io_log_open(&log_, 4096), 0);
}

static void teardown(void)
{
    io_log_close(&log_);
}

static struct io_record *add(uint64_t begun, uint64_t sent, uint64_t ended, uint32_t size)
{
    struct io_record *r = &log_.record[log_.count];
    *r = (struct io_record){.begun_ns = begun, .sent_ns = sent, .ended_ns = ended,
                            .size_bytes = size, .res = (int32_t)size,
                            .begun_round = log_.count, .ended_round = log_.count};
    log_.count++;
    return r;
}

static void look(uint64_t from, uint64_t to)
{
    struct io_slice slice = {from, to, IO_ANY, IO_ANY};
    ck_assert_int_eq(io_figures(&log_, &slice, &figures), 0);
}

START_TEST(reads_belong_to_the_stretch_they_end_in)
{
    add(10, 11, 20, PAGE);
    add(15, 16, 40, PAGE);
    add(50, 51, 60, PAGE);
    look(20, 60);
    ck_assert_uint_eq(figures.requests, 2); /* an end at `to` is outside, one at `from` inside */
    ck_assert_uint_eq(figures.bytes, 2 * PAGE_BYTES);
    ck_assert_uint_eq(figures.wall_ns, 40);
    ck_assert_uint_eq(figures.lat.least, 10);
    ck_assert_uint_eq(figures.lat.most, 25);
    ck_assert_uint_eq(figures.slat.most, 1);
    ck_assert_uint_eq(figures.clat.most, 24);
}
END_TEST

START_TEST(busy_is_the_union_of_what_is_under_way)
{
    add(10, 11, 20, PAGE);
    add(15, 16, 40, PAGE);
    add(50, 51, 0, PAGE); /* has not ended */
    look(0, 100);
    ck_assert_uint_eq(figures.busy_ns, 30 + 50);
    ck_assert_uint_eq(figures.flight_bytes_max, 2 * PAGE_BYTES);
    ck_assert_double_eq_tol(figures.flight_bytes_mean, PAGE * (5 + 10 + 20 + 50) / 80.0, 1e-6);
    look(17, 18);
    ck_assert_uint_eq(figures.busy_ns, 1);
    ck_assert_uint_eq(figures.requests, 0);
    look(41, 49);
    ck_assert_uint_eq(figures.busy_ns, 0);
}
END_TEST

START_TEST(a_place_given_back_and_taken_at_once_is_not_two)
{
    add(10, 10, 20, PAGE);
    add(20, 20, 30, PAGE);
    add(30, 30, 30, PAGE); /* took no time */
    look(0, 100);
    ck_assert_uint_eq(figures.depth[0], 3);
    ck_assert_uint_eq(figures.depth[1], 0);
    ck_assert_uint_eq(figures.busy_ns, 20);
}
END_TEST

START_TEST(levels_are_those_of_fio)
{
    const uint64_t depths[] = {1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 1000};
    const uint32_t level[] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6};
    for (size_t i = 0; i < countof(depths); i++) {
        ck_assert_uint_eq(io_depth_level(depths[i]), level[i]);
    }
    const uint64_t batches[] = {0, 1, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65};
    const uint32_t of[] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6};
    for (size_t i = 0; i < countof(batches); i++) {
        ck_assert_uint_eq(io_batch_level(batches[i]), of[i]);
    }
}
END_TEST

START_TEST(batches_are_rounds)
{
    for (uint32_t i = 0; i < 10; i++) {
        struct io_record *r = add(100, 120, 200 + i, PAGE);
        r->begun_round = i < 6 ? 1 : 2;  /* six together, then four */
        r->ended_round = i < 1 ? 3 : 4;  /* one, then nine */
    }
    look(0, 1000);
    ck_assert_uint_eq(figures.submit[2], 1);
    ck_assert_uint_eq(figures.submit[1], 1);
    ck_assert_uint_eq(figures.complete[1], 1);
    ck_assert_uint_eq(figures.complete[3], 1);
}
END_TEST

START_TEST(errors_and_held_up_hand_overs_are_told_apart)
{
    add(10, 10 + 2 * IO_BLOCKED_NS, 3 * IO_BLOCKED_NS, PAGE)->repeats = 3;
    add(20, 21, 40, PAGE)->res = -5;
    look(0, UINT64_MAX);
    ck_assert_uint_eq(figures.errors, 1);
    ck_assert_uint_eq(figures.requests, 1);
    ck_assert_uint_eq(figures.repeats, 3);
    ck_assert_uint_eq(figures.blocked, 1);
    ck_assert_uint_eq(figures.blocked_ns, 2 * IO_BLOCKED_NS);
}
END_TEST

START_TEST(a_slice_is_of_a_label_and_a_device)
{
    add(10, 11, 20, PAGE)->label = 1;
    add(12, 13, 30, PAGE)->device = 2;
    struct io_slice one = {0, 100, 1, IO_ANY};
    ck_assert_int_eq(io_figures(&log_, &one, &figures), 0);
    ck_assert_uint_eq(figures.requests, 1);
    ck_assert_uint_eq(figures.busy_ns, 10);
    struct io_slice two = {0, 100, IO_ANY, 2};
    ck_assert_int_eq(io_figures(&log_, &two, &figures), 0);
    ck_assert_uint_eq(figures.busy_ns, 18);
}
END_TEST

START_TEST(random_logs_keep_the_identity_and_agree_with_a_count_by_hand)
{
    struct rng rng = rng_seed(7);
    for (int round = 0; round < 50; round++) {
        log_.count = 0;
        uint64_t at = 1; /* an end at 0 is none */
        for (int i = 0; i < 60; i++) {
            at += rng_below(&rng, 4);
            add(at, at, at + rng_below(&rng, 12), (uint32_t)(1 + rng_below(&rng, 3)) * PAGE);
        }
        uint64_t from = rng_below(&rng, 60);
        look(from, from + 1 + rng_below(&rng, 200));
        uint64_t busy = 0;
        for (uint64_t t = from; t < from + figures.wall_ns; t++) {
            bool any = false;
            for (uint32_t i = 0; i < log_.count; i++) {
                any = any || (log_.record[i].begun_ns <= t && t < log_.record[i].ended_ns);
            }
            busy += any;
        }
        ck_assert_uint_eq(figures.busy_ns, busy);
        uint64_t spread = 0;
        for (int i = 0; i < IO_LEVELS; i++) {
            spread += figures.flight_ns[i];
        }
        ck_assert_uint_eq(spread, busy);
    }
}
END_TEST

/* ---- a log of the ring ---- */

#define READS 200U

static uint32_t ended;

static void count(struct io_req *req)
{
    (void)req;
    ended++;
}

static void fill_file(char *path, unsigned char *page)
{
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    memset(page, 7, PAGE_BYTES);
    for (uint32_t i = 0; i < READS; i++) {
        ck_assert_int_eq(write(fd, page, PAGE_BYTES), (ssize_t)PAGE_BYTES);
    }
    close(fd);
}

static void read_all(enum io_engine engine, uint32_t depth, uint32_t again_every)
{
    char path[] = "/tmp/k3ring-figures-test-XXXXXX";
    const char *paths[] = {path};
    unsigned char *memory = aligned_alloc(PAGE_BYTES, READS * PAGE_BYTES);
    static struct io_req reqs[READS];
    struct io_files files;
    struct io *io;
    fill_file(path, memory);
    ck_assert_int_eq(io_files_open(&files, paths, NULL, 1), 0);
    struct io_options options = {.engine = engine, .depth = depth, .log = &log_,
                                 .sim = {.seed = 3, .again_every = again_every}};
    ck_assert_int_eq(io_open(&io, &options, &files), 0);
    uint32_t begun = 0;
    ended = 0;
    while (ended < READS) {
        for (; begun < READS && io_room(io) > 0; begun++) {
            reqs[begun] = (struct io_req){.offset_bytes = begun * PAGE_BYTES, .size_bytes = PAGE,
                                          .target = memory + begun * PAGE_BYTES,
                                          .buffer = IO_NO_BUFFER, .done = count,
                                          .label = (uint8_t)(begun % 4)};
            io_read(io, &reqs[begun]);
        }
        ck_assert_int_ge(io_run(io, IO_WAIT_FOREVER), 0);
    }
    ck_assert_uint_eq(io_stats(io)->requests, READS);
    io_close(io);
    io_files_close(&files);
    unlink(path);
    free(memory);
}

static void check_log(uint32_t depth)
{
    ck_assert_uint_eq(log_.count, READS);
    ck_assert_uint_eq(log_.missed, 0);
    for (uint32_t i = 0; i < READS; i++) {
        const struct io_record *r = &log_.record[i];
        ck_assert_uint_eq(r->offset_bytes, i * PAGE_BYTES); /* in the order of the reads */
        ck_assert_uint_eq(r->label, i % 4);
        ck_assert(r->begun_ns <= r->sent_ns && r->sent_ns <= r->ended_ns);
        ck_assert_int_eq(r->res, (int32_t)PAGE_BYTES);
    }
    look(0, UINT64_MAX);
    ck_assert_uint_eq(figures.requests, READS);
    ck_assert_uint_le(figures.flight_bytes_max, depth * PAGE_BYTES);
    uint64_t at_depth = 0;
    for (int i = 0; i < IO_LEVELS; i++) {
        at_depth += figures.depth[i];
    }
    ck_assert_uint_eq(at_depth, READS);
}

START_TEST(every_engine_writes_down_every_read_once)
{
    const enum io_engine engines[] = {IO_URING, IO_PREAD, IO_SIM};
    read_all(engines[_i], 8, 0);
    check_log(8);
    ck_assert_uint_eq(figures.repeats, 0);
}
END_TEST

START_TEST(repeats_are_part_of_their_read)
{
    read_all(IO_SIM, 4, 3);
    check_log(4);
    ck_assert_uint_gt(figures.repeats, 0);
    ck_assert_uint_eq(figures.shorts, 0); /* one page comes whole or not at all */
}
END_TEST

START_TEST(a_full_log_counts_what_it_misses)
{
    log_.capacity = 50;
    read_all(IO_SIM, 4, 0);
    ck_assert_uint_eq(log_.count, 50);
    ck_assert_uint_eq(log_.missed, READS - 50);
    io_log_clear(&log_);
    ck_assert_uint_eq(log_.count, 0);
    log_.capacity = 4096;
}
END_TEST

/* Of one log looked at whole, and in two stretches between which nothing was in flight. */
/* Half seconds of 3, none and 1 reads, and half of one more. */
START_TEST(rates_are_sampled_every_half_second)
{
    const uint64_t half = IO_SAMPLE_NS;
    const uint64_t begin = 7 * half + 1234;
    add(begin - 10, begin - 9, begin - 5, PAGE); /* before */
    add(begin, begin + 1, begin + 2, PAGE);
    add(begin, begin + 1, begin + half / 2, PAGE);
    add(begin, begin + 1, begin + half - 1, 2 * PAGE);
    add(begin, begin + 1, begin + 2 * half, 8 * PAGE);
    add(begin, begin + 1, begin + 2 * half + 5, 8 * PAGE)->res = -5;
    add(begin, begin + 1, begin + 3 * half, 8 * PAGE); /* in the part that is left out */
    look(begin, begin + 3 * half + half / 2);
    ck_assert_uint_eq(figures.rate.count, 3);
    ck_assert_double_eq_tol(figures.rate.least, 0, 1e-12);
    ck_assert_double_eq_tol(figures.rate.most, 16.0 * PAGE, 1e-9);
    ck_assert_double_eq_tol(io_samples_mean(&figures.rate), 8.0 * PAGE, 1e-9);
    ck_assert_double_eq_tol(io_samples_deviation(&figures.rate), 8.0 * PAGE, 1e-6);
    ck_assert_double_eq_tol(figures.iops.most, 6, 1e-9);
    ck_assert_double_eq_tol(io_samples_mean(&figures.iops), 8.0 / 3, 1e-9);
    look(begin, begin + half - 1);
    ck_assert_uint_eq(figures.rate.count, 0);
    ck_assert_double_eq_tol(io_samples_mean(&figures.rate), 0, 1e-12);
    ck_assert_double_eq_tol(io_samples_deviation(&figures.rate), 0, 1e-12);
}
END_TEST

START_TEST(two_stretches_make_one)
{
    add(10, 11, 20, PAGE);
    struct io_record *r = add(15, 18, 40, 2 * PAGE);
    r->repeats = 3;
    r->shorts = 2;
    add(50, 51, 60, PAGE)->res = -5;
    add(52, 2000100, 2000200, 4 * PAGE);
    look(0, 3000000);
    struct io_figures whole = figures;
    look(0, 45);
    struct io_figures sum = figures;
    look(45, 3000000);
    io_figures_merge(&sum, &figures);
    ck_assert_uint_eq(sum.wall_ns, whole.wall_ns);
    ck_assert_uint_eq(sum.requests, 3);
    ck_assert_uint_eq(sum.bytes, 7 * PAGE_BYTES);
    ck_assert_uint_eq(sum.errors, 1);
    ck_assert_uint_eq(sum.repeats, 3);
    ck_assert_uint_eq(sum.shorts, 2);
    ck_assert_uint_eq(sum.busy_ns, whole.busy_ns);
    ck_assert_double_eq_tol(sum.flight_bytes_mean, whole.flight_bytes_mean, 1e-6);
    ck_assert_uint_eq(sum.flight_bytes_max, whole.flight_bytes_max);
    ck_assert_mem_eq(sum.flight_ns, whole.flight_ns, sizeof sum.flight_ns);
    ck_assert_mem_eq(sum.depth, whole.depth, sizeof sum.depth);
    ck_assert_mem_eq(sum.submit, whole.submit, sizeof sum.submit);
    ck_assert_mem_eq(sum.complete, whole.complete, sizeof sum.complete);
    ck_assert_uint_eq(sum.blocked, 1);
    ck_assert_uint_eq(sum.blocked_ns, whole.blocked_ns);
    ck_assert_mem_eq(sum.lat.bucket, whole.lat.bucket, sizeof sum.lat.bucket);
    ck_assert_uint_eq(sum.clat.most, whole.clat.most);
    ck_assert_uint_eq(sum.slat.least, whole.slat.least);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("figures");
    TCase *tcase = tcase_create("figures");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, reads_belong_to_the_stretch_they_end_in);
    tcase_add_test(tcase, busy_is_the_union_of_what_is_under_way);
    tcase_add_test(tcase, a_place_given_back_and_taken_at_once_is_not_two);
    tcase_add_test(tcase, levels_are_those_of_fio);
    tcase_add_test(tcase, batches_are_rounds);
    tcase_add_test(tcase, errors_and_held_up_hand_overs_are_told_apart);
    tcase_add_test(tcase, a_slice_is_of_a_label_and_a_device);
    tcase_add_test(tcase, random_logs_keep_the_identity_and_agree_with_a_count_by_hand);
    tcase_add_loop_test(tcase, every_engine_writes_down_every_read_once, 0, 3);
    tcase_add_test(tcase, repeats_are_part_of_their_read);
    tcase_add_test(tcase, a_full_log_counts_what_it_misses);
    tcase_add_test(tcase, rates_are_sampled_every_half_second);
    tcase_add_test(tcase, two_stretches_make_one);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
