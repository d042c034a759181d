/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/exec/tune.h"
#include "io/probe.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define SEEDS 200
#define DATA_BYTES (96 * MIB)

static struct tune_request request_for(uint32_t depth, uint64_t size)
{
    return (struct tune_request){.io = IO_PREAD, .depth = depth, .size_bytes = size,
                                 .size_max_bytes = TUNE_SIZE_MAX,
                                 .flight_max_bytes = TUNE_FLIGHT_MAX};
}

/* ---- which settings are tried ---- */

START_TEST(settings_stay_within_what_was_given)
{
    static const uint32_t depths[] = {0, 1, 3, 8, 64, 1024};
    static const uint64_t sizes[] = {0, 4 * KIB, 1 * MIB, 4 * MIB, GIB};
    static const uint64_t flights[] = {1 * MIB, 5 * MIB, TUNE_FLIGHT_MAX, 10 * GIB};
    for (size_t i = 0; i < countof(depths) * countof(sizes) * countof(flights); i++) {
        struct tune_point points[TUNE_POINTS_MAX];
        struct tune_request r = request_for(depths[i % countof(depths)],
                                            sizes[i / countof(depths) % countof(sizes)]);
        r.flight_max_bytes = flights[i / countof(depths) / countof(sizes)];
        uint32_t count = tune_points(&r, points);
        ck_assert(count >= 1 && count <= TUNE_POINTS_MAX);
        uint64_t before = 0;
        for (uint32_t k = 0; k < count; k++) {
            uint64_t flight = points[k].depth * points[k].size_bytes;
            ck_assert(r.depth == 0 || points[k].depth == r.depth);
            ck_assert(points[k].size_bytes <= (r.size_bytes > 0 ? r.size_bytes : TUNE_SIZE_MAX));
            ck_assert(points[k].size_bytes % PAGE_BYTES == 0 && points[k].size_bytes > 0);
            ck_assert(flight <= max_u64(r.flight_max_bytes, points[k].depth * PAGE_BYTES));
            ck_assert_uint_ge(flight, before);
            before = flight;
        }
    }
}
END_TEST

START_TEST(with_all_free_many_settings_are_tried_the_default_among_them)
{
    struct tune_point points[TUNE_POINTS_MAX];
    struct tune_request r = request_for(0, 0);
    uint32_t count = tune_points(&r, points);
    bool usual = false;
    for (uint32_t i = 0; i < count; i++) {
        usual = usual || (points[i].depth == 8 && points[i].size_bytes == 4 * MIB);
    }
    ck_assert(usual);
    ck_assert_uint_ge(count, 12);
    r.size_max_bytes = MIB;
    count = tune_points(&r, points);
    ck_assert_uint_ge(count, 4);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_le(points[i].size_bytes, MIB);
    }
}
END_TEST

/* ---- which one is taken ---- */

/* A drive that needs `knee` bytes in flight and gives `top` from there on. */
static double drive(const struct tune_point *point, uint64_t knee, double top)
{
    uint64_t flight = point->depth * point->size_bytes;
    return flight >= knee ? top : top * (double)flight / (double)knee;
}

/* Rounds over a drive whose own level drifts; spread: of each sample. */
static uint32_t measure(struct tune_point *points, uint32_t count, uint64_t knee, double spread,
                        struct rng *rng)
{
    double level = 7;
    for (uint32_t round = 0; round < TUNE_ROUNDS; round++) {
        for (uint32_t i = 0; i < count; i++) {
            double noise = 1 + spread * ((double)rng_below(rng, 2001) / 1000 - 1);
            points[i].sample[round] = drive(&points[i], knee, level) * noise;
        }
        level *= 0.7 + (double)rng_below(rng, 601) / 1000; /* from 0.7 to 1.3 */
        if (round == 0) {
            tune_drop(points, count);
        }
    }
    return TUNE_ROUNDS;
}

static const uint64_t knees[] = {4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB};

START_TEST(without_noise_the_fewest_bytes_in_flight_that_suffice_are_taken)
{
    struct tune_point points[TUNE_POINTS_MAX];
    struct tune_request r = request_for(0, 0);
    struct rng rng = rng_seed(1);
    uint32_t best;
    bool noisy;
    uint32_t count = tune_points(&r, points);
    uint32_t rounds = measure(points, count, knees[_i], 0, &rng);
    uint32_t chosen = tune_choose(points, count, rounds, &best, &noisy);
    ck_assert_uint_eq(points[chosen].depth * points[chosen].size_bytes, knees[_i]);
    ck_assert(!noisy);
    ck_assert(points[best].rate >= points[chosen].rate);
    ck_assert(points[chosen].rate >= TUNE_CLOSE * points[best].rate);
}
END_TEST

/* Samples scatter by 8 % either way. No choice loses more than a tenth of the drive, and one in a
 * hundred may ask for more than it needs. */
START_TEST(with_noise_the_choice_is_near_the_best_and_not_the_largest)
{
    uint64_t knee = knees[_i];
    int large = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct tune_point points[TUNE_POINTS_MAX];
        struct tune_request r = request_for(0, 0);
        struct rng rng = rng_seed(seed);
        uint32_t best;
        bool noisy;
        uint32_t count = tune_points(&r, points);
        uint32_t rounds = measure(points, count, knee, 0.08, &rng);
        uint32_t chosen = tune_choose(points, count, rounds, &best, &noisy);
        double share = drive(&points[chosen], knee, 1);
        ck_assert_msg(share >= 0.9, "seed %d: %.3f of the drive", (int)seed, share);
        large += points[chosen].depth * points[chosen].size_bytes > 4 * knee;
        ck_assert(!noisy);
    }
    ck_assert_int_le(large, SEEDS / 100);
}
END_TEST

START_TEST(a_drive_that_jumps_about_is_called_noisy)
{
    struct tune_point points[TUNE_POINTS_MAX];
    struct tune_request r = request_for(0, 0);
    struct rng rng = rng_seed(5);
    uint32_t best;
    bool noisy;
    uint32_t count = tune_points(&r, points);
    uint32_t rounds = measure(points, count, MIB, 0.9, &rng);
    tune_choose(points, count, rounds, &best, &noisy);
    ck_assert(noisy);
}
END_TEST

START_TEST(what_is_far_behind_is_dropped_and_never_taken)
{
    struct tune_point points[3] = {{.depth = 1, .size_bytes = 4096, .sample = {0.1, 9, 9}},
                                   {.depth = 2, .size_bytes = 4096, .sample = {5, 5, 5}},
                                   {.depth = 4, .size_bytes = 4096, .sample = {5.1, 5.1, 5.1}}};
    uint32_t best;
    bool noisy;
    tune_drop(points, 3);
    ck_assert(points[0].dropped && !points[1].dropped && !points[2].dropped);
    ck_assert_uint_eq(tune_choose(points, 3, 3, &best, &noisy), 1);
    ck_assert_uint_eq(best, 2);
}
END_TEST

/* ---- places and reads ---- */

static struct tiny folder;

/* A file of DATA_BYTES without a pattern, or of holes. */
static void make_file(const char *name, bool data)
{
    char path[TINY_PATH_BYTES];
    tiny_path(&folder, name, path);
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
    uint64_t *words = calloc(1, MIB);
    struct rng rng = rng_seed(1);
    ck_assert(fd >= 0 && words != NULL && ftruncate(fd, DATA_BYTES) == 0);
    for (uint64_t at = 0; data && at < DATA_BYTES; at += MIB) {
        for (uint64_t i = 0; i < MIB / sizeof *words; i++) {
            words[i] = rng_next(&rng);
        }
        ck_assert_int_eq(pwrite(fd, words, MIB, (off_t)at), (ssize_t)MIB);
    }
    fsync(fd);
    close(fd);
    free(words);
}

static void open_file(const char *name, struct io_files *files)
{
    char path[TINY_PATH_BYTES];
    tiny_path(&folder, name, path);
    const char *paths[] = {path};
    err_clear();
    ck_assert_msg(io_files_open(files, paths, NULL, 1) == 0, "%s", err_message());
}

static void setup(void)
{
    tiny_folder(&folder, TINY_DISK);
    make_file("data", true);
    make_file("holes", false);
}

static void teardown(void)
{
    tiny_remove(&folder);
}

/* Where /tmp cannot be read directly or lies in memory there is no drive to measure. */
static bool no_drive(const struct io_files *files)
{
    struct io_place place;
    io_probe(files->file[0].fd, &place);
    bool none = files->direct_count == 0 || strcmp(place.file_system, "tmpfs") == 0;
    if (none) {
        printf("skip: no drive below /tmp\n");
    }
    return none;
}

START_TEST(places_hold_data_and_come_once)
{
    struct io_files files;
    struct tune_places places;
    open_file("data", &files);
    if (!no_drive(&files)) {
        ck_assert_int_eq(tune_find_places(&files, MIB, 7, &places), 0);
        ck_assert_uint_eq(places.count, DATA_BYTES / MIB);
        bool seen[DATA_BYTES / MIB] = {false};
        for (uint32_t i = 0; i < places.count; i++) {
            ck_assert_uint_eq(places.window[i].offset_bytes % MIB, 0);
            bool *one = &seen[places.window[i].offset_bytes / MIB];
            ck_assert(!*one);
            *one = true;
        }
        free(places.window);
        ck_assert_int_eq(tune_find_places(&files, GIB, 7, &places), 0);
        ck_assert_uint_eq(places.count, 0);
        free(places.window);
    }
    io_files_close(&files);
}
END_TEST

START_TEST(of_several_devices_the_first_one_is_measured)
{
    struct io_files files;
    struct tune_places places;
    char path[TINY_PATH_BYTES];
    tiny_path(&folder, "data", path);
    const char *paths[] = {path, path, path};
    ck_assert_int_eq(io_files_open(&files, paths, NULL, countof(paths)), 0);
    if (!no_drive(&files)) {
        files.file[0].direct = false; /* reads of it say nothing */
        files.file[2].device = files.file[1].device + 1;
        ck_assert_int_eq(tune_find_places(&files, MIB, 3, &places), 0);
        ck_assert_uint_eq(places.count, DATA_BYTES / MIB);
        for (uint32_t i = 0; i < places.count; i++) {
            ck_assert_uint_eq(places.window[i].file, 1);
        }
        free(places.window);
    }
    io_files_close(&files);
}
END_TEST

START_TEST(a_drive_is_measured_within_the_settings_given)
{
    static const enum io_engine engines[] = {IO_PREAD, IO_URING};
    struct io_files files;
    struct tune_result result;
    struct tune_request r = request_for(4, 0);
    r.io = engines[_i];
    r.size_max_bytes = 2 * MIB;
    open_file("data", &files);
    err_clear();
    ck_assert_msg(tune_measure(&files, &r, &result) == 0, "%s", err_message());
    if (!no_drive(&files)) {
        ck_assert_msg(result.measured, "%s", result.why_not);
        ck_assert_uint_eq(result.depth, 4);
        ck_assert(result.size_bytes == MIB || result.size_bytes == 2 * MIB);
        ck_assert(result.gbps > 0 && result.best_gbps >= result.gbps);
        ck_assert_uint_gt(result.read_bytes, 4 * MIB);
        ck_assert_uint_gt(result.took_ns, 0);
    }
    io_files_close(&files);
}
END_TEST

static void expect_refusal(const char *name, const struct tune_request *r, const char *why)
{
    struct io_files files;
    struct tune_result result;
    open_file(name, &files);
    if (!no_drive(&files)) {
        ck_assert_int_eq(tune_measure(&files, r, &result), 0);
        ck_assert(!result.measured);
        ck_assert_msg(strstr(result.why_not, why) != NULL, "%s", result.why_not);
    }
    io_files_close(&files);
}

START_TEST(holes_and_simulations_are_no_drive)
{
    struct tune_request r = request_for(0, 0);
    expect_refusal("holes", &r, "only 0.0 MiB hold data");
    r.io = IO_SIM;
    expect_refusal("data", &r, "simulated");
}
END_TEST

START_TEST(files_in_memory_are_no_drive)
{
    struct tiny memory;
    struct io_files files;
    struct io_place place;
    struct tune_result result;
    char path[TINY_PATH_BYTES];
    tiny_folder(&memory, TINY_MEMORY);
    tiny_put(&memory, "x", "x", 1);
    tiny_path(&memory, "x", path);
    const char *paths[] = {path};
    ck_assert_int_eq(io_files_open(&files, paths, NULL, 1), 0);
    struct tune_request r = request_for(0, 0);
    ck_assert_int_eq(tune_measure(&files, &r, &result), 0);
    ck_assert(!result.measured);
    io_probe(files.file[0].fd, &place);
    if (strcmp(place.file_system, "tmpfs") == 0) {
        ck_assert_str_eq(result.why_not, "files lie in memory");
    }
    io_files_close(&files);
    tiny_remove(&memory);
}
END_TEST

static int questions;

static bool stop_soon(void)
{
    return ++questions > 20;
}

START_TEST(a_measurement_can_be_stopped)
{
    struct io_files files;
    struct tune_result result;
    struct tune_request r = request_for(0, 0);
    r.stop = stop_soon;
    open_file("data", &files);
    if (!no_drive(&files)) {
        err_clear();
        ck_assert_int_eq(tune_measure(&files, &r, &result), ERR_STOPPED);
        ck_assert(!result.measured);
    }
    io_files_close(&files);
}
END_TEST

START_TEST(places_behind_the_end_of_a_cut_file_are_not_read)
{
    struct io_files files;
    struct tune_places places;
    open_file("data", &files);
    if (!no_drive(&files)) {
        files.file[0].size_bytes = 2 * DATA_BYTES;
        ck_assert_int_eq(tune_find_places(&files, MIB, 3, &places), 0);
        ck_assert_uint_eq(places.count, DATA_BYTES / MIB);
        free(places.window);
    }
    io_files_close(&files);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tune");
    TCase *choice = tcase_create("choice");
    tcase_add_test(choice, settings_stay_within_what_was_given);
    tcase_add_test(choice, with_all_free_many_settings_are_tried_the_default_among_them);
    tcase_add_loop_test(choice, without_noise_the_fewest_bytes_in_flight_that_suffice_are_taken,
                        0, (int)countof(knees));
    tcase_add_loop_test(choice, with_noise_the_choice_is_near_the_best_and_not_the_largest, 0,
                        (int)countof(knees));
    tcase_add_test(choice, a_drive_that_jumps_about_is_called_noisy);
    tcase_add_test(choice, what_is_far_behind_is_dropped_and_never_taken);
    suite_add_tcase(suite, choice);
    TCase *reads = tcase_create("reads");
    tcase_set_timeout(reads, 120);
    tcase_add_unchecked_fixture(reads, setup, teardown);
    tcase_add_test(reads, places_hold_data_and_come_once);
    tcase_add_test(reads, of_several_devices_the_first_one_is_measured);
    tcase_add_loop_test(reads, a_drive_is_measured_within_the_settings_given, 0, 2);
    tcase_add_test(reads, holes_and_simulations_are_no_drive);
    tcase_add_test(reads, files_in_memory_are_no_drive);
    tcase_add_test(reads, a_measurement_can_be_stopped);
    tcase_add_test(reads, places_behind_the_end_of_a_cut_file_are_not_read);
    suite_add_tcase(suite, reads);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
