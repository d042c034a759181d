/* SPDX-License-Identifier: Apache-2.0 */

/* Files on several devices: each has a queue of its own, to the full depth and never beyond it, and
 * one that is slow lets the others pass. Devices are told apart by number here, since a test has
 * one drive. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "io/io.h"
#include "tests/support/suite.h"

#define DEVICES 3U
#define PER_DEVICE 40U
#define READS (DEVICES * PER_DEVICE)
#define DEPTH 4U

static char paths[DEVICES][64];
static struct io_files files;
static unsigned char *memory;
static struct io_req reqs[READS];
static uint32_t order[READS];
static uint32_t ended;

static void setup_once(void)
{
    const char *names[DEVICES];
    memory = aligned_alloc(PAGE_BYTES, READS * PAGE_BYTES);
    ck_assert_ptr_nonnull(memory);
    for (uint32_t d = 0; d < DEVICES; d++) {
        snprintf(paths[d], sizeof paths[d], "/tmp/k3ring-lane-test-XXXXXX");
        int fd = mkstemp(paths[d]);
        ck_assert_int_ge(fd, 0);
        memset(memory, (int)d + 1, PER_DEVICE * PAGE_BYTES);
        ck_assert_int_eq(write(fd, memory, PER_DEVICE * PAGE_BYTES),
                         (ssize_t)(PER_DEVICE * PAGE_BYTES));
        close(fd);
        names[d] = paths[d];
    }
    ck_assert_int_eq(io_files_open(&files, names, NULL, DEVICES), 0);
    ck_assert_uint_eq(files.device_count, 1); /* all of one file system */
    ck_assert_uint_eq(io_devices_of(names, DEVICES), 1);
}

static void teardown_once(void)
{
    io_files_close(&files);
    for (uint32_t d = 0; d < DEVICES; d++) {
        unlink(paths[d]);
    }
    free(memory);
}

static void divide(uint32_t devices)
{
    for (uint32_t d = 0; d < DEVICES; d++) {
        files.file[d].device = d % devices;
    }
    files.device_count = devices;
}

static void note(struct io_req *req)
{
    order[ended++] = (uint32_t)(req - reqs);
}

/* Read number i is of device i % DEVICES. */
static void queue(struct io *io, uint32_t i, bool urgent)
{
    reqs[i] = (struct io_req){.offset_bytes = i / DEVICES * PAGE_BYTES,
                              .size_bytes = (uint32_t)PAGE_BYTES,
                              .file = i % DEVICES, .target = memory + i * PAGE_BYTES,
                              .buffer = IO_NO_BUFFER, .urgent = urgent, .done = note};
    io_read(io, &reqs[i]);
}

static struct io *open_io(enum io_engine engine, uint64_t seed)
{
    struct io_options options = {.engine = engine, .depth = DEPTH, .sim = {.seed = seed}};
    struct io *io;
    int rc = io_open(&io, &options, &files);
    if (rc < 0 && engine == IO_URING) {
        options.engine = IO_PREAD; /* not allowed here */
        err_clear();
        rc = io_open(&io, &options, &files);
    }
    ck_assert_int_eq(rc, 0);
    ended = 0;
    memset(memory, 0, READS * PAGE_BYTES);
    return io;
}

static void finish(struct io *io)
{
    while (io_in_flight(io) > 0) {
        ck_assert_int_ge(io_run(io, IO_WAIT_FOREVER), 0);
    }
}

START_TEST(each_device_is_driven_to_its_depth_and_no_further)
{
    static const enum io_engine engines[] = {IO_URING, IO_PREAD, IO_SIM};
    divide(DEVICES);
    for (size_t e = 0; e < countof(engines); e++) {
        struct io *io = open_io(engines[e], 3);
        uint32_t begun = 0;
        ck_assert_uint_gt(io_room(io), DEPTH * DEVICES);
        while (ended < READS) {
            for (; begun < READS && io_room(io) > 0; begun++) {
                queue(io, begun, false);
            }
            ck_assert_int_ge(io_run(io, IO_WAIT_FOREVER), 0);
        }
        for (uint32_t d = 0; d < DEVICES; d++) {
            ck_assert_uint_eq(io_stats(io)->device_max[d], DEPTH);
        }
        ck_assert_uint_eq(io_stats(io)->in_flight_max, DEPTH * DEVICES);
        for (uint32_t i = 0; i < READS; i++) {
            ck_assert_int_eq(reqs[i].res, (int)PAGE_BYTES);
            ck_assert_uint_eq(memory[i * PAGE_BYTES + 77], i % DEVICES + 1);
        }
        io_close(io);
    }
}
END_TEST

START_TEST(one_device_keeps_its_one_queue)
{
    divide(1);
    struct io *io = open_io(IO_SIM, 1);
    ck_assert_uint_eq(io_room(io), DEPTH);
    ck_assert_uint_eq(io_capacity(DEPTH, 1), DEPTH);
    for (uint32_t i = 0; i < DEPTH; i++) {
        queue(io, i, false);
    }
    ck_assert_uint_eq(io_room(io), 0);
    finish(io);
    ck_assert_uint_eq(io_stats(io)->in_flight_max, DEPTH);
    io_close(io);
}
END_TEST

/* All that can be queued is of device 0 but the last, which is of device 1. */
START_TEST(a_busy_device_lets_others_pass)
{
    divide(2);
    struct io *io = open_io(IO_SIM, (uint64_t)_i);
    uint32_t room = io_room(io);
    ck_assert_uint_gt(room, DEPTH + 1);
    uint32_t i = 0;
    for (uint32_t queued = 0; queued + 1 < room; i += DEVICES, queued++) {
        queue(io, i, false); /* file 0 */
    }
    queue(io, 1, false);
    ck_assert_int_ge(io_run(io, 0), 0);
    ck_assert_uint_eq(io_stats(io)->device_max[1], 1); /* handed in the first turn */
    ck_assert_uint_eq(io_stats(io)->device_max[0], DEPTH);
    finish(io);
    uint32_t place = 0;
    while (order[place] != 1) {
        place++;
    }
    ck_assert_uint_lt(place, room - 1); /* it need not wait for those before it */
    io_close(io);
}
END_TEST

START_TEST(urgent_reads_go_before_waiting_ones)
{
    divide(2);
    struct io *io = open_io(IO_SIM, (uint64_t)_i);
    uint32_t plain = 0;
    for (uint32_t queued = 0; queued < 3 * DEPTH; queued++) {
        queue(io, plain, false);
        plain += DEVICES;
    }
    ck_assert_int_ge(io_run(io, 0), 0); /* the first DEPTH are on their way */
    uint32_t urgent = plain;
    queue(io, urgent, true);
    finish(io);
    uint32_t place = 0;
    while (order[place] != urgent) {
        place++;
    }
    /* Only what had been handed over, or takes its turn at random with it, comes first. */
    uint32_t waiting_before = 0;
    for (uint32_t k = 0; k < place; k++) {
        waiting_before += order[k] / DEVICES >= 2 * DEPTH;
    }
    ck_assert_uint_lt(waiting_before, DEPTH);
    io_close(io);
}
END_TEST

START_TEST(closing_forgets_what_waits)
{
    divide(DEVICES);
    struct io *io = open_io(IO_PREAD, 0);
    uint32_t i = 0;
    for (; io_room(io) > 0; i++) {
        queue(io, i, i % 2 == 0);
    }
    ck_assert_int_ge(io_run(io, 0), 0);
    uint32_t told = ended;
    io_close(io);
    ck_assert_uint_eq(ended, told);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("io_lane");
    TCase *tcase = tcase_create("devices");
    tcase_add_unchecked_fixture(tcase, setup_once, teardown_once);
    tcase_add_test(tcase, each_device_is_driven_to_its_depth_and_no_further);
    tcase_add_test(tcase, one_device_keeps_its_one_queue);
    tcase_add_loop_test(tcase, a_busy_device_lets_others_pass, 0, 8);
    tcase_add_loop_test(tcase, urgent_reads_go_before_waiting_ones, 0, 8);
    tcase_add_test(tcase, closing_forgets_what_waits);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
