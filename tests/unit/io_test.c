/* SPDX-License-Identifier: Apache-2.0 */

/* What all engines share, each test once per engine: bytes, depth, waking, sleeping, closing;
 * then what only a ring can show: signals and registration. */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "io/io.h"
#include "tests/support/suite.h"

#define FILE_BYTES (6 * MIB + 1234)
#define SLOT_BYTES (256 * KIB)
#define DEPTH 8U
#define MAP_BYTES (DEPTH * SLOT_BYTES + HUGE_PAGE_BYTES)
#define SECOND_NS 1000000000ULL
#define MS_NS 1000000ULL

static const enum io_engine engines[] = {IO_URING, IO_PREAD, IO_SIM};

static char path[64]; /* of the file all tests share */
static struct io_files files;
static unsigned char *memory; /* DEPTH slots, 2 MiB aligned, inside map */
static void *map;
static struct io_req reqs[DEPTH];
static struct io *io;
static uint32_t ended;
static struct io_req *idle[DEPTH];
static uint32_t idle_count;

/* ---- the file: byte i is a function of i alone ---- */

static unsigned char byte_at(uint64_t offset_bytes)
{
    return (unsigned char)(rng_mix(offset_bytes / 8 + 1) >> (offset_bytes % 8 * 8));
}

static void make_file(char *name, size_t name_bytes)
{
    snprintf(name, name_bytes, "/tmp/k3ring-io-test-XXXXXX");
    int fd = mkstemp(name);
    ck_assert_int_ge(fd, 0);
    unsigned char *bytes = malloc(FILE_BYTES);
    ck_assert_ptr_nonnull(bytes);
    for (uint64_t i = 0; i < FILE_BYTES; i++) {
        bytes[i] = byte_at(i);
    }
    ck_assert_int_eq(write(fd, bytes, FILE_BYTES), (ssize_t)FILE_BYTES);
    ck_assert_int_eq(fsync(fd), 0);
    close(fd);
    free(bytes);
}

static void check_bytes(const struct io_req *req)
{
    uint64_t left = FILE_BYTES - req->offset_bytes;
    ck_assert_int_eq(req->res, (int32_t)min_u64(left, req->size_bytes));
    const unsigned char *bytes = req->target;
    for (uint64_t i = 0; i < (uint64_t)req->res; i++) {
        if (bytes[i] != byte_at(req->offset_bytes + i)) {
            ck_abort_msg("byte %llu is wrong",
                         (unsigned long long)(req->offset_bytes + i));
        }
    }
}

/* ---- fixture ---- */

static void to_idle(struct io_req *req)
{
    ck_assert_uint_ne(req->magic, IO_REQ_MAGIC);
    idle[idle_count++] = req;
    ended++;
}

static void setup_once(void)
{
    make_file(path, sizeof path);
}

static void teardown_once(void)
{
    unlink(path);
}

static void open_files(const char *name)
{
    const char *paths[] = {name};
    ck_assert_int_eq(io_files_open(&files, paths, NULL, 1), 0);
}

static void setup(void)
{
    open_files(path);
    map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    memory = (unsigned char *)align_up((uintptr_t)map, HUGE_PAGE_BYTES);
    ended = 0;
    idle_count = 0;
    for (uint32_t i = 0; i < DEPTH; i++) {
        reqs[i] = (struct io_req){.target = memory + i * SLOT_BYTES,
                                  .buffer = IO_NO_BUFFER,
                                  .done = to_idle};
        idle[idle_count++] = &reqs[i];
    }
}

static void teardown(void)
{
    io_close(io);
    io = NULL;
    io_files_close(&files);
    munmap(map, MAP_BYTES);
}

/* Where there is no ring, its turn is taken by pread, and a line says so. */
static void open_engine(enum io_engine engine, uint32_t buffer_count)
{
    struct io_options options = {.engine = engine,
                                 .depth = DEPTH,
                                 .buffer_count = buffer_count,
                                 .sim = {.seed = 7, .threads = true}};
    int rc = io_open(&io, &options, &files);
    if (engine == IO_URING && rc == ERR_RUN) {
        fprintf(stderr, "skipped: %s\n", err_message());
        err_clear();
        options.engine = IO_PREAD;
        rc = io_open(&io, &options, &files);
    }
    ck_assert_msg(rc == 0, "%s", err_message());
}

/* A ring with three buffer slots, or false. */
static bool open_ring(void)
{
    open_engine(IO_URING, 3);
    return strcmp(io_engine_name(io), "io_uring") == 0;
}

static void queue_random(struct rng *rng, int32_t buffer)
{
    struct io_req *req = idle[--idle_count];
    uint64_t pages = div_ceil(FILE_BYTES, PAGE_BYTES);
    uint64_t first = rng_below(rng, 8) == 0 ? pages - 1 - rng_below(rng, 3)
                                            : rng_below(rng, pages);
    uint64_t most = min_u64(pages - first, SLOT_BYTES / PAGE_BYTES);
    req->offset_bytes = first * PAGE_BYTES;
    req->size_bytes = (uint32_t)((1 + rng_below(rng, most)) * PAGE_BYTES);
    req->buffer = buffer;
    memset(req->target, 0xEE, req->size_bytes);
    io_read(io, req);
}

/* Reads count random ranges at full depth and compares every byte. */
static void read_and_compare(uint32_t count, int32_t buffer)
{
    struct rng rng = rng_seed(count);
    uint32_t begun = 0;
    uint64_t bytes = 0;
    while (ended < count) {
        while (begun < count && io_room(io) > 0) {
            queue_random(&rng, buffer);
            bytes += idle[idle_count]->size_bytes;
            begun++;
        }
        ck_assert_uint_le(io_in_flight(io), DEPTH);
        ck_assert_uint_eq(io_in_flight(io), begun - ended);
        uint32_t before = idle_count;
        uint32_t ended_before = ended;
        int rc = io_run(io, 5 * SECOND_NS);
        ck_assert_msg(rc >= 0, "%s", err_message());
        ck_assert_uint_eq((uint32_t)rc, ended - ended_before);
        for (uint32_t i = before; i < idle_count; i++) {
            check_bytes(idle[i]);
        }
    }
    const struct io_stats *stats = io_stats(io);
    ck_assert_uint_eq(stats->requests, count);
    ck_assert_uint_eq(stats->bytes, bytes);
    ck_assert_uint_eq(stats->in_flight_max, DEPTH);
    ck_assert_uint_gt(stats->submits, 0);
    ck_assert_uint_ge(stats->latency_ns_sum, stats->busy_ns);
    ck_assert_uint_le(stats->latency_ns_sum, stats->busy_ns * DEPTH);
}

/* ---- every engine ---- */

START_TEST(random_ranges_arrive_whole_at_full_depth)
{
    open_engine(engines[_i], 0);
    read_and_compare(300, IO_NO_BUFFER);
}
END_TEST

START_TEST(polling_alone_makes_progress)
{
    open_engine(engines[_i], 0);
    struct rng rng = rng_seed(3);
    for (uint32_t i = 0; i < DEPTH; i++) {
        queue_random(&rng, IO_NO_BUFFER);
    }
    uint64_t begin_ns = nondet_now_ns();
    while (ended < DEPTH && nondet_now_ns() - begin_ns < 10 * SECOND_NS && io_run(io, 0) >= 0) {
        sched_yield();
    }
    ck_assert_uint_eq(ended, DEPTH);
}
END_TEST

static uint32_t chain_left;

static void read_again(struct io_req *req)
{
    check_bytes(req);
    ended++;
    if (chain_left > 0) {
        chain_left--;
        req->offset_bytes += req->size_bytes;
        io_read(io, req);
    }
}

START_TEST(done_may_ask_for_the_next_read)
{
    open_engine(engines[_i], 0);
    chain_left = 20;
    reqs[0].size_bytes = 32768;
    reqs[0].done = read_again;
    io_read(io, &reqs[0]);
    while (io_in_flight(io) > 0) {
        ck_assert_int_ge(io_run(io, SECOND_NS), 0);
    }
    ck_assert_uint_eq(ended, 21);
}
END_TEST

START_TEST(a_sleep_without_reads_lasts_as_long_as_asked)
{
    open_engine(engines[_i], 0);
    uint64_t begin_ns = nondet_now_ns();
    ck_assert_int_eq(io_run(io, 20 * MS_NS), 0);
    uint64_t slept_ns = nondet_now_ns() - begin_ns;
    ck_assert_uint_ge(slept_ns, 20 * MS_NS);
    ck_assert_uint_lt(slept_ns, 3 * SECOND_NS);
}
END_TEST

static void *wake_later(void *arg)
{
    nanosleep(&(struct timespec){.tv_nsec = 20 * (long)MS_NS}, NULL);
    io_wake(arg);
    return NULL;
}

START_TEST(another_thread_ends_a_sleep)
{
    open_engine(engines[_i], 0);
    uint64_t begin_ns = nondet_now_ns();
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, wake_later, io), 0);
    ck_assert_int_eq(io_run(io, 10 * SECOND_NS), 0);
    uint64_t slept_ns = nondet_now_ns() - begin_ns;
    pthread_join(thread, NULL);
    ck_assert_uint_ge(slept_ns, 15 * MS_NS);
    ck_assert_uint_lt(slept_ns, 5 * SECOND_NS);
}
END_TEST

START_TEST(a_wake_up_outlives_polls_and_ends_the_next_sleep_only)
{
    open_engine(engines[_i], 0);
    io_wake(io);
    io_wake(io);
    ck_assert_int_eq(io_run(io, 0), 0);
    uint64_t begin_ns = nondet_now_ns();
    ck_assert_int_eq(io_run(io, 10 * SECOND_NS), 0);
    ck_assert_uint_lt(nondet_now_ns() - begin_ns, 5 * SECOND_NS);
    begin_ns = nondet_now_ns();
    ck_assert_int_eq(io_run(io, 20 * MS_NS), 0);
    ck_assert_uint_ge(nondet_now_ns() - begin_ns, 20 * MS_NS);
}
END_TEST

/* The ring has a path of its own; pread and sim sleep alike. */
#ifdef K3RING_SANITIZED
static const unsigned wakes[] = {2000, 1000, 1000};
#else
static const unsigned wakes[] = {20000, 5000, 5000};
#endif

static unsigned wake_count;

static atomic_uint posted;
static atomic_uint seen;

/* Posts the next number only when the last one was seen, after a seeded pause: so each wake-up
 * meets another moment of the owner's way to sleep, and each one counts. */
static void *post_many(void *arg)
{
    struct rng rng = rng_seed(11);
    for (unsigned i = 1; i <= wake_count; i++) {
        while (atomic_load(&seen) != i - 1) {
            sched_yield();
        }
        for (uint64_t spin = rng_below(&rng, 300); spin > 0; spin--) {
            atomic_signal_fence(memory_order_seq_cst);
        }
        atomic_store(&posted, i);
        io_wake(arg);
    }
    return NULL;
}

START_TEST(of_many_wake_ups_none_is_lost)
{
    open_engine(engines[_i], 0);
    wake_count = wakes[_i];
    atomic_store(&posted, 0);
    atomic_store(&seen, 0);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, post_many, io), 0);
    bool lost = false;
    while (!lost && atomic_load(&seen) < wake_count) {
        uint64_t begin_ns = nondet_now_ns();
        lost = io_run(io, 20 * SECOND_NS) != 0 || nondet_now_ns() - begin_ns > 19 * SECOND_NS;
        atomic_store(&seen, atomic_load(&posted));
    }
    ck_assert(!lost);
    pthread_join(thread, NULL);
    /* A sleep ends before one is missed for long. It may end just between flag and call, when the
     * other thread has no processor at that moment. */
    ck_assert_uint_le(io_stats(io)->late_wakes, 1 + wake_count / 5000);
}
END_TEST

START_TEST(close_waits_for_the_kernel_and_tells_nobody)
{
    open_engine(engines[_i], 0);
    struct rng rng = rng_seed(5);
    for (uint32_t i = 0; i < DEPTH / 2; i++) {
        queue_random(&rng, IO_NO_BUFFER);
    }
    int rc = io_run(io, 0);
    ck_assert_int_ge(rc, 0);
    for (uint32_t i = 0; i < DEPTH / 2; i++) {
        queue_random(&rng, IO_NO_BUFFER); /* never submitted */
    }
    io_wake(io);
    io_close(io);
    io = NULL;
    ck_assert_uint_eq(ended, (uint32_t)rc);
    for (uint32_t i = 0; i < DEPTH; i++) {
        ck_assert_uint_ne(reqs[i].magic, IO_REQ_MAGIC);
    }
    memset(memory, 0x5A, DEPTH * SLOT_BYTES);
    nanosleep(&(struct timespec){.tv_nsec = 5 * (long)MS_NS}, NULL);
    for (uint64_t i = 0; i < DEPTH * SLOT_BYTES; i += PAGE_BYTES) {
        if (memory[i] != 0x5A) {
            ck_abort_msg("bytes still arrive after io_close()");
        }
    }
}
END_TEST

START_TEST(a_file_that_shrinks_fails_the_read_with_enodata)
{
    char own[sizeof path];
    make_file(own, sizeof own);
    io_files_close(&files);
    open_files(own);
    open_engine(engines[_i], 0);
    ck_assert_int_eq(truncate(own, 2 * MIB + 100), 0);
    unlink(own);
    for (uint32_t i = 0; i < 3; i++) { /* across the new end, right at it, past it */
        struct io_req *req = idle[--idle_count];
        req->offset_bytes = 2 * MIB - 64 * KIB + i * 64 * KIB;
        req->size_bytes = 128 * KIB;
        io_read(io, req);
    }
    while (io_in_flight(io) > 0) {
        ck_assert_int_ge(io_run(io, SECOND_NS), 0);
    }
    for (uint32_t i = idle_count - 3; i < idle_count; i++) {
        ck_assert_int_eq(idle[i]->res, -ENODATA);
    }
}
END_TEST

/* ---- the kernel's part ---- */

static atomic_uint alarms;

static void on_alarm(int number)
{
    (void)number;
    atomic_fetch_add(&alarms, 1);
}

static void storm(long interval_us)
{
    struct itimerval timer = {.it_interval = {.tv_usec = interval_us},
                              .it_value = {.tv_usec = interval_us}};
    ck_assert_int_eq(setitimer(ITIMER_REAL, &timer, NULL), 0);
}

START_TEST(a_storm_of_signals_changes_nothing)
{
    open_engine(engines[_i], 0);
    struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART: the worst case */
    struct sigaction old;
    sigaction(SIGALRM, &action, &old);
    atomic_store(&alarms, 0);
    storm(5000);
    uint64_t begin_ns = nondet_now_ns();
    ck_assert_int_eq(io_run(io, 50 * MS_NS), 0);
    ck_assert_uint_ge(nondet_now_ns() - begin_ns, 50 * MS_NS);
    read_and_compare(300, IO_NO_BUFFER);
    storm(0);
    sigaction(SIGALRM, &old, NULL);
    ck_assert_uint_gt(atomic_load(&alarms), 0);
}
END_TEST

START_TEST(registered_buffers_bring_the_same_bytes)
{
    if (!open_ring()) {
        return;
    }
    ck_assert_ptr_null(strstr(io_features(io), "FIXED_BUFFERS"));
    int rc = io_register_buffer(io, 1, memory, DEPTH * SLOT_BYTES);
    if (rc < 0) {
        fprintf(stderr, "skipped: registration refused: %s\n", strerror(-rc));
        return;
    }
    ck_assert_ptr_nonnull(strstr(io_features(io), "FIXED_BUFFERS"));
    read_and_compare(200, 1);
}
END_TEST

START_TEST(a_slot_that_holds_nothing_is_read_plainly)
{
    if (open_ring()) {
        read_and_compare(50, 2);
    }
}
END_TEST

START_TEST(a_refused_registration_turns_fixed_reads_off)
{
    if (!open_ring() || io_register_buffer(io, 0, memory, DEPTH * SLOT_BYTES) < 0) {
        return;
    }
    ck_assert_int_lt(io_register_buffer(io, 1, memory, 2 * GIB), 0); /* over the kernel's most */
    ck_assert_ptr_null(strstr(io_features(io), "FIXED_BUFFERS"));
    ck_assert_int_lt(io_register_buffer(io, 2, memory, SLOT_BYTES), 0);
    read_and_compare(50, 0);
}
END_TEST

START_TEST(engines_without_registration_say_so)
{
    open_engine(engines[_i], 3);
    ck_assert_int_eq(io_register_buffer(io, 0, memory, SLOT_BYTES), -ENOTSUP);
    ck_assert_str_eq(io_features(io), "");
}
END_TEST

/* ---- */

static void add_every_engine(TCase *tcase)
{
    int count = (int)countof(engines);
    tcase_add_loop_test(tcase, random_ranges_arrive_whole_at_full_depth, 0, count);
    tcase_add_loop_test(tcase, polling_alone_makes_progress, 0, count);
    tcase_add_loop_test(tcase, done_may_ask_for_the_next_read, 0, count);
    tcase_add_loop_test(tcase, a_sleep_without_reads_lasts_as_long_as_asked, 0, count);
    tcase_add_loop_test(tcase, another_thread_ends_a_sleep, 0, count);
    tcase_add_loop_test(tcase, a_wake_up_outlives_polls_and_ends_the_next_sleep_only, 0, count);
    tcase_add_loop_test(tcase, of_many_wake_ups_none_is_lost, 0, count);
    tcase_add_loop_test(tcase, close_waits_for_the_kernel_and_tells_nobody, 0, count);
    tcase_add_loop_test(tcase, a_file_that_shrinks_fails_the_read_with_enodata, 0, count);
    tcase_add_loop_test(tcase, a_storm_of_signals_changes_nothing, 0, count);
}

static void add_kernel(TCase *tcase)
{
    tcase_add_test(tcase, registered_buffers_bring_the_same_bytes);
    tcase_add_test(tcase, a_slot_that_holds_nothing_is_read_plainly);
    tcase_add_test(tcase, a_refused_registration_turns_fixed_reads_off);
    tcase_add_loop_test(tcase, engines_without_registration_say_so, 1, (int)countof(engines));
}

int main(void)
{
    Suite *suite = suite_create("io");
    TCase *tcase = tcase_create("engines");
    tcase_add_unchecked_fixture(tcase, setup_once, teardown_once);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 240);
    add_every_engine(tcase);
    add_kernel(tcase);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
