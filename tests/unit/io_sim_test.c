/* SPDX-License-Identifier: Apache-2.0 */

/* The simulated drive: what a seed repeats, and what each kind of fault does to a set of reads
 * that together cover a file. */

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "io/io.h"
#include "tests/support/suite.h"

#define READS 24U
#define READ_BYTES ((uint32_t)(8 * PAGE_BYTES))
#define FILE_BYTES ((READS - 1) * (uint64_t)READ_BYTES + 2 * PAGE_BYTES + 1234)
#define DEPTH 5U
#define POISON 0xA5

static char path[64];
static struct io_files files;
static unsigned char *memory;
static struct io_req reqs[READS];
static uint32_t order[READS]; /* of completion */
static uint32_t ended;
static struct io_stats stats;

static unsigned char byte_at(uint64_t offset_bytes)
{
    return (unsigned char)(rng_mix(offset_bytes / 8 + 1) >> (offset_bytes % 8 * 8));
}

static void setup_once(void)
{
    snprintf(path, sizeof path, "/tmp/k3ring-sim-test-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    memory = aligned_alloc(PAGE_BYTES, READS * READ_BYTES);
    ck_assert_ptr_nonnull(memory);
    for (uint64_t i = 0; i < FILE_BYTES; i++) {
        memory[i] = byte_at(i);
    }
    ck_assert_int_eq(write(fd, memory, FILE_BYTES), (ssize_t)FILE_BYTES);
    ck_assert_int_eq(fsync(fd), 0);
    close(fd);
    const char *paths[] = {path};
    ck_assert_int_eq(io_files_open(&files, paths, NULL, 1), 0);
}

static void teardown_once(void)
{
    io_files_close(&files);
    unlink(path);
    free(memory);
}

static void note(struct io_req *req)
{
    order[ended++] = (uint32_t)(req - reqs);
}

static uint32_t fill(struct io *io, uint32_t begun)
{
    for (; begun < READS && io_room(io) > 0; begun++) {
        reqs[begun] = (struct io_req){.offset_bytes = begun * (uint64_t)READ_BYTES,
                                      .size_bytes = READ_BYTES,
                                      .target = memory + begun * READ_BYTES,
                                      .buffer = IO_NO_BUFFER,
                                      .done = note};
        io_read(io, &reqs[begun]);
    }
    return begun;
}

/* Reads the whole file; every third call of io_run() only polls. */
static void read_all(struct io_sim_options sim)
{
    struct io_options options = {.engine = IO_SIM, .depth = DEPTH, .sim = sim};
    struct io *io;
    ck_assert_int_eq(io_open(&io, &options, &files), 0);
    memset(memory, 0, READS * READ_BYTES);
    ended = 0;
    uint32_t begun = 0;
    for (uint32_t turn = 0; ended < READS; turn++) {
        ck_assert_uint_lt(turn, 100000);
        begun = fill(io, begun);
        uint32_t before = ended;
        bool poll = turn % 3 == 2;
        int rc = io_run(io, poll ? 0 : 1);
        ck_assert_int_eq(rc, (int)(ended - before));
        ck_assert(poll || rc > 0); /* a sleep ends with a completion */
        ck_assert(!poll || rc <= 1);
    }
    stats = *io_stats(io);
    ck_assert_uint_eq(stats.requests, READS);
    ck_assert_uint_eq(stats.bytes, READS * (uint64_t)READ_BYTES);
    ck_assert_uint_eq(stats.in_flight_max, DEPTH);
    ck_assert_uint_eq(io_in_flight(io), 0);
    io_close(io);
}

static void check_read(uint32_t index)
{
    const struct io_req *req = &reqs[index];
    uint64_t size_bytes = min_u64(READ_BYTES, FILE_BYTES - req->offset_bytes);
    ck_assert_int_eq(req->res, (int32_t)size_bytes);
    const unsigned char *bytes = req->target;
    for (uint64_t i = 0; i < READ_BYTES; i++) {
        unsigned char right = i < size_bytes ? byte_at(req->offset_bytes + i) : POISON;
        if (bytes[i] != right) { /* an assertion per byte would be slow */
            ck_abort_msg("read %u, byte %llu", index, (unsigned long long)i);
        }
    }
}

static void check_all(void)
{
    for (uint32_t i = 0; i < READS; i++) {
        check_read(i);
    }
}

START_TEST(a_seed_repeats_order_and_counters_exactly)
{
    struct io_sim_options sim = {.seed = (uint64_t)_i, .short_every = 3, .again_every = 5};
    read_all(sim);
    uint32_t first_order[READS];
    memcpy(first_order, order, sizeof order);
    struct io_stats first = stats;
    ck_assert_uint_gt(first.busy_ns, 0);
    read_all(sim);
    ck_assert_mem_eq(first_order, order, sizeof order);
    ck_assert_mem_eq(&first, &stats, sizeof stats);
    sim.seed += 1000;
    read_all(sim);
    ck_assert_mem_ne(first_order, order, sizeof order);
}
END_TEST

START_TEST(completions_leave_the_order_of_submission)
{
    read_all((struct io_sim_options){.seed = (uint64_t)_i});
    uint32_t overtaken = 0;
    for (uint32_t i = 1; i < READS; i++) {
        overtaken += order[i] < order[i - 1];
    }
    ck_assert_uint_gt(overtaken, 2);
    ck_assert_uint_eq(stats.retries, 0);
    ck_assert_uint_eq(stats.short_reads, 0);
    check_all();
}
END_TEST

START_TEST(only_the_doomed_read_fails)
{
    uint32_t victim = (uint32_t)_i; /* from 1 */
    struct io_sim_options sim = {.seed = 9, .fail_read = victim, .fail_errno = EIO};
    read_all(sim);
    for (uint32_t i = 0; i < READS; i++) {
        if (i + 1 == victim) {
            ck_assert_int_eq(reqs[i].res, -EIO);
        } else {
            check_read(i);
        }
    }
    ck_assert_uint_eq(stats.retries, 1); /* the second chance */
}
END_TEST

START_TEST(a_dying_drive_fails_every_later_read)
{
    uint32_t victim = (uint32_t)_i;
    read_all((struct io_sim_options){
        .seed = 4, .fail_read = victim, .fail_errno = EBADF, .fail_from_there = true});
    for (uint32_t i = 0; i < READS; i++) {
        if (i + 1 >= victim) {
            ck_assert_int_eq(reqs[i].res, -EBADF);
        } else {
            check_read(i);
        }
    }
    ck_assert_uint_eq(stats.retries, 0);
}
END_TEST

START_TEST(endless_again_becomes_an_error_the_caller_may_see)
{
    read_all((struct io_sim_options){.seed = 4, .fail_read = 2, .fail_errno = EAGAIN});
    ck_assert_int_eq(reqs[1].res, -EBUSY);
    ck_assert_uint_eq(stats.retries, 16);
}
END_TEST

START_TEST(storms_of_shorts_and_interruptions_bring_the_same_bytes)
{
    uint32_t every = 1 + (uint32_t)_i % 4;
    struct io_sim_options sim = {.seed = (uint64_t)_i,
                                 .short_every = _i % 2 == 0 ? every : 0,
                                 .again_every = _i % 3 == 0 ? every + 1 : 0,
                                 .intr_every = _i % 5 == 0 ? every + 2 : 0};
    read_all(sim);
    check_all();
    ck_assert((stats.short_reads > 0) == (sim.short_every > 0));
    ck_assert((stats.retries > 0) == (sim.again_every > 0 || sim.intr_every > 0));
}
END_TEST

static uint32_t poison_count(const unsigned char *bytes, uint32_t size_bytes)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < size_bytes; i++) {
        count += bytes[i] == POISON;
    }
    return count;
}

START_TEST(bytes_nobody_read_are_poison)
{
    read_all((struct io_sim_options){.seed = 1, .fail_read = 3, .fail_errno = EIO});
    ck_assert_uint_eq(poison_count(reqs[2].target, READ_BYTES), READ_BYTES);
    uint32_t size_bytes = (uint32_t)reqs[READS - 1].res;
    const unsigned char *tail = (const unsigned char *)reqs[READS - 1].target + size_bytes;
    ck_assert_uint_eq(poison_count(tail, READ_BYTES - size_bytes), READ_BYTES - size_bytes);
}
END_TEST

START_TEST(a_sleep_with_nothing_in_flight_passes_at_once)
{
    struct io_options options = {.engine = IO_SIM, .depth = DEPTH};
    struct io *io;
    ck_assert_int_eq(io_open(&io, &options, &files), 0);
    uint64_t begin_ns = nondet_now_ns();
    ck_assert_int_eq(io_run(io, 100 * (uint64_t)1000000000), 0);
    ck_assert_int_eq(io_run(io, IO_WAIT_FOREVER), 0);
    ck_assert_uint_lt(nondet_now_ns() - begin_ns, 5 * (uint64_t)1000000000);
    ck_assert_str_eq(io_engine_name(io), "sim");
    ck_assert_str_eq(io_features(io), "");
    io_close(io);
}
END_TEST

START_TEST(real_time_brings_the_same_bytes)
{
    struct io_sim_options sim = {
        .seed = 21, .threads = true, .short_every = 2, .again_every = 3, .intr_every = 7};
    struct io_options options = {.engine = IO_SIM, .depth = DEPTH, .sim = sim};
    struct io *io;
    ck_assert_int_eq(io_open(&io, &options, &files), 0);
    ended = 0;
    for (uint32_t begun = 0; ended < READS;) {
        begun = fill(io, begun);
        ck_assert_int_ge(io_run(io, 1000000000), 0);
    }
    io_close(io);
    check_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("io_sim");
    TCase *tcase = tcase_create("seeds");
    tcase_add_unchecked_fixture(tcase, setup_once, teardown_once);
    tcase_add_loop_test(tcase, a_seed_repeats_order_and_counters_exactly, 0, 5);
    tcase_add_loop_test(tcase, completions_leave_the_order_of_submission, 0, 5);
    tcase_add_loop_test(tcase, only_the_doomed_read_fails, 1, (int)READS + 1);
    tcase_add_loop_test(tcase, a_dying_drive_fails_every_later_read, 1, (int)READS + 1);
    tcase_add_test(tcase, endless_again_becomes_an_error_the_caller_may_see);
    tcase_add_loop_test(tcase, storms_of_shorts_and_interruptions_bring_the_same_bytes, 1, 31);
    tcase_add_test(tcase, bytes_nobody_read_are_poison);
    tcase_add_test(tcase, a_sleep_with_nothing_in_flight_passes_at_once);
    tcase_add_test(tcase, real_time_brings_the_same_bytes);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
