/* SPDX-License-Identifier: Apache-2.0 */
/* With a path as its argument, writes the small trace of the other tests there instead. */

#include "cache/trace.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "tests/support/suite.h"
#include "tests/support/trace_model.h"

#define FILE_BYTES_MAX 4096

/* A file in memory, with a name trace_load() can open. */
struct memory_file {
    int fd;
    char path[64];
};

static struct memory_file memory_file(const unsigned char *bytes, size_t size_bytes)
{
    struct memory_file file = {.fd = memfd_create("trace", MFD_CLOEXEC)};
    ck_assert_int_ge(file.fd, 0);
    snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.fd);
    if (size_bytes > 0) {
        ck_assert_int_eq(pwrite(file.fd, bytes, size_bytes, 0), (ssize_t)size_bytes);
    }
    return file;
}

static int load_bytes(struct trace *trace, const unsigned char *bytes, size_t size_bytes)
{
    struct memory_file file = memory_file(bytes, size_bytes);
    err_clear();
    int rc = trace_load(trace, file.path);
    close(file.fd);
    return rc;
}

static const struct trace_model tiny_model = {
    .seed = 3, .layers = 3, .experts = 20, .top_k = 4, .tokens = 12};

/* The bytes of the tiny model's file. */
static size_t tiny_bytes(unsigned char *bytes)
{
    struct trace trace;
    struct memory_file file = memory_file(NULL, 0);
    ck_assert_int_eq(trace_model_make(&trace, &tiny_model), 0);
    ck_assert_int_eq(trace_save(&trace, file.path), 0);
    trace_fini(&trace);
    ssize_t size_bytes = pread(file.fd, bytes, FILE_BYTES_MAX, 0);
    close(file.fd);
    ck_assert_int_eq(size_bytes, 8 + 3 * 12 * 4 * 4);
    return (size_t)size_bytes;
}

static void assert_sound(const struct trace *trace)
{
    ck_assert_uint_ge(trace->layers, 1);
    ck_assert_uint_ge(trace->top_k, 1);
    ck_assert_uint_eq(trace->group_count, trace->group_capacity);
    for (uint64_t group = 0; group < trace->group_count; group++) {
        const uint16_t *ids = trace_ids(trace, group);
        ck_assert_uint_lt(trace->layer[group], trace->layers);
        for (uint32_t i = 0; i < trace->top_k; i++) {
            ck_assert_uint_lt(ids[i], trace->experts);
            for (uint32_t j = 0; j < i; j++) {
                ck_assert_uint_ne(ids[i], ids[j]);
            }
        }
    }
}

static void assert_same(const struct trace *a, const struct trace *b)
{
    ck_assert_uint_eq(a->layers, b->layers);
    ck_assert_uint_eq(a->top_k, b->top_k);
    ck_assert_uint_eq(a->experts, b->experts);
    ck_assert_uint_eq(a->group_count, b->group_count);
    size_t groups = (size_t)a->group_count;
    ck_assert_mem_eq(a->layer, b->layer, groups * sizeof *a->layer);
    ck_assert_mem_eq(a->ids, b->ids, groups * a->top_k * sizeof *a->ids);
}

START_TEST(the_small_trace_is_what_its_seeded_model_makes)
{
    struct trace made, loaded;
    ck_assert_int_eq(trace_model_make(&made, &trace_model_small), 0);
    ck_assert_msg(trace_load(&loaded, TRACE_MODEL_SMALL_PATH) == 0, "%s", err_message());
    assert_sound(&loaded);
    ck_assert_uint_eq(loaded.experts, trace_model_small.experts);
    assert_same(&made, &loaded);
    trace_fini(&made);
    trace_fini(&loaded);
}
END_TEST

START_TEST(the_bytes_are_those_of_version_one)
{
    const unsigned char expected[] = {'K', '3', 'R', 'T', 1, 2, 0x2c, 0x01,
                                      0x2b, 0x01, 0xff, 0xff, 0x2b, 0x01, 3, 0};
    const uint16_t ids[] = {65535, 3};
    unsigned char bytes[32];
    struct trace trace;
    struct memory_file file = memory_file(NULL, 0);
    ck_assert_int_eq(trace_init(&trace, 300, 2, 1), 0);
    ck_assert_uint_eq(trace_add(&trace, 299, ids, 1), 1);
    ck_assert_int_eq(trace_save(&trace, file.path), 0);
    ck_assert_int_eq(pread(file.fd, bytes, sizeof bytes, 0), (ssize_t)sizeof expected);
    ck_assert_mem_eq(bytes, expected, sizeof expected);
    close(file.fd);
    trace_fini(&trace);
}
END_TEST

/* Version 2: two of five candidates of nine experts taken, then a second group. */
static const unsigned char scored[] = {
    'K', '3', 'R', 'T', 2, 2, 4, 0, 5, 0, 0, 0, 9, 0, 0, 0,
    3, 0, 7, 0, 0, 0, 0x80, 0x3f, 1, 0, 0, 0, 0, 0x3f, 8, 0, 0, 0, 0, 0x3f, 0, 0, 0, 0, 0, 0,
    2, 0, 0, 0, 0x80, 0xbf,
    0, 0, 4, 0, 0, 0, 0x40, 0x40, 3, 0, 0, 0, 0, 0x40, 2, 0, 0, 0, 0, 0x40, 1, 0, 0, 0, 0, 0,
    5, 0, 0, 0, 0, 0};

START_TEST(scored_groups_are_written_as_version_two_and_load_as_their_best)
{
    const struct trace_format format = {.layers = 4, .top_k = 2, .experts = 9, .candidates = 5};
    const uint16_t ids[2][5] = {{7, 1, 8, 0, 2}, {4, 3, 2, 1, 5}};
    const float scores[2][5] = {{1.0F, 0.5F, 0.5F, 0, -1.0F}, {3.0F, 2.0F, 2.0F, 0, 0}};
    unsigned char *bytes = NULL;
    size_t size_bytes = 0;
    FILE *file = open_memstream((char **)&bytes, &size_bytes);
    ck_assert_ptr_nonnull(file);
    trace_write_head(file, &format);
    trace_write_group(file, &format, 3, ids[0], scores[0]);
    trace_write_group(file, &format, 0, ids[1], scores[1]);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_uint_eq(size_bytes, sizeof scored);
    ck_assert_mem_eq(bytes, scored, sizeof scored);
    struct trace trace;
    ck_assert_msg(load_bytes(&trace, bytes, size_bytes) == 0, "%s", err_message());
    assert_sound(&trace);
    ck_assert_uint_eq(trace.experts, 9);
    ck_assert_uint_eq(trace.group_count, 2);
    ck_assert_uint_eq(trace.layer[0], 3);
    ck_assert_uint_eq(trace_ids(&trace, 0)[1], 1);
    ck_assert_uint_eq(trace_ids(&trace, 1)[0], 4);
    trace_fini(&trace);
    free(bytes);
}
END_TEST

START_TEST(a_scored_file_cut_or_changed_is_refused_or_sound)
{
    unsigned char bytes[sizeof scored];
    struct trace trace;
    struct rng rng = rng_seed(12);
    for (size_t size = 0; size < sizeof scored; size++) {
        bool whole = size == 16 || size == 16 + 32;
        ck_assert_int_eq(load_bytes(&trace, scored, size), whole ? 0 : ERR_MODEL);
        trace_fini(&trace);
    }
    for (int turn = 0; turn < 4000; turn++) {
        memcpy(bytes, scored, sizeof bytes);
        bytes[rng_below(&rng, sizeof bytes)] = (unsigned char)rng_next(&rng);
        if (load_bytes(&trace, bytes, sizeof bytes) == 0) {
            assert_sound(&trace);
            trace_fini(&trace);
        }
    }
}
END_TEST

struct bad_byte {
    uint32_t at;
    unsigned char value;
    const char *says;
};

static const struct bad_byte bad_bytes[] = {
    {8, 1, "1 candidates of 9"},  {8, 10, "10 candidates of 9"}, {10, 1, "damaged head"},
    {15, 1, "damaged head"},      {16, 4, "below 4"},            {18, 9, "group 0"},
    {18, 1, "group 0"},           {23, 0x7f, "group 0"},         {23, 0, "group 0"},
    {47, 0x3f, "best score first"},
};

START_TEST(a_damaged_scored_file_is_refused_with_its_reason)
{
    unsigned char bytes[sizeof scored];
    struct trace trace;
    const struct bad_byte *bad = &bad_bytes[_i];
    memcpy(bytes, scored, sizeof bytes);
    bytes[bad->at] = bad->value;
    ck_assert_int_eq(load_bytes(&trace, bytes, sizeof bytes), ERR_MODEL);
    ck_assert_msg(strstr(err_message(), bad->says) != NULL, "%s", err_message());
}
END_TEST

START_TEST(what_is_saved_is_loaded)
{
    struct trace made, loaded;
    struct memory_file file = memory_file(NULL, 0);
    ck_assert_int_eq(trace_model_make(&made, &tiny_model), 0);
    ck_assert_int_eq(trace_save(&made, file.path), 0);
    ck_assert_int_eq(trace_load(&loaded, file.path), 0);
    assert_same(&made, &loaded);
    close(file.fd);
    trace_fini(&made);
    trace_fini(&loaded);
}
END_TEST

START_TEST(a_file_cut_anywhere_is_refused_or_a_whole_number_of_groups)
{
    unsigned char bytes[FILE_BYTES_MAX];
    size_t whole = tiny_bytes(bytes);
    for (size_t size = 0; size < whole; size++) {
        struct trace trace;
        int rc = load_bytes(&trace, bytes, size);
        if (size >= 8 && (size - 8) % 16 == 0) {
            ck_assert_int_eq(rc, 0);
            ck_assert_uint_eq(trace.group_count, (size - 8) / 16);
            trace_fini(&trace);
        } else {
            ck_assert_int_eq(rc, ERR_MODEL);
            ck_assert_str_ne(err_message(), "");
            ck_assert_ptr_null(trace.ids);
        }
    }
}
END_TEST

START_TEST(any_changed_byte_gives_a_sound_trace_or_an_error)
{
    unsigned char bytes[FILE_BYTES_MAX];
    size_t whole = tiny_bytes(bytes);
    struct rng rng = rng_seed(11);
    int refused = 0;
    for (size_t at = 0; at < whole; at++) {
        struct trace trace;
        unsigned char was = bytes[at];
        bytes[at] = (unsigned char)rng_next(&rng);
        int rc = load_bytes(&trace, bytes, whole);
        if (rc == 0) {
            assert_sound(&trace);
            trace_fini(&trace);
        } else {
            ck_assert_int_eq(rc, ERR_MODEL);
            refused++;
        }
        bytes[at] = was;
    }
    ck_assert_int_gt(refused, (int)whole / 2);
}
END_TEST

struct bad_file {
    const char *why;
    unsigned char bytes[16];
    const char *says;
};

static const struct bad_file bad_files[] = {
    {"magic", {'K', '3', 'R', 'X', 1, 2, 9, 0, 1, 0, 5, 0, 1, 0, 6, 0}, "K3RT"},
    {"version", {'K', '3', 'R', 'T', 3, 2, 9, 0, 1, 0, 5, 0, 1, 0, 6, 0}, "version 3"},
    {"no top-k", {'K', '3', 'R', 'T', 1, 0, 9, 0, 1, 0, 5, 0, 1, 0, 6, 0}, "top-k 0"},
    {"no layers", {'K', '3', 'R', 'T', 1, 2, 0, 0, 1, 0, 5, 0, 1, 0, 6, 0}, "0 layers"},
    {"part of a group", {'K', '3', 'R', 'T', 1, 3, 9, 0, 1, 0, 5, 0, 1, 0, 6, 0}, "inside"},
    {"layer too high", {'K', '3', 'R', 'T', 1, 2, 9, 0, 9, 0, 5, 0, 9, 0, 6, 0}, "group 0"},
    {"two layers", {'K', '3', 'R', 'T', 1, 2, 9, 0, 1, 0, 5, 0, 2, 0, 6, 0}, "group 0"},
    {"an expert twice", {'K', '3', 'R', 'T', 1, 2, 9, 0, 1, 0, 5, 0, 1, 0, 5, 0}, "group 0"},
};

START_TEST(a_damaged_file_is_refused_with_its_reason)
{
    struct trace trace;
    const struct bad_file *bad = &bad_files[_i];
    ck_assert_msg(load_bytes(&trace, bad->bytes, sizeof bad->bytes) == ERR_MODEL, "%s", bad->why);
    ck_assert_msg(strstr(err_message(), bad->says) != NULL, "%s: %s", bad->why, err_message());
}
END_TEST

START_TEST(a_sparse_giant_is_refused_before_memory_is_taken)
{
    struct trace trace;
    const unsigned char header[] = {'K', '3', 'R', 'T', 1, 1, 1, 0};
    struct memory_file file = memory_file(header, sizeof header);
    ck_assert_int_eq(ftruncate(file.fd, (off_t)1 << 40), 0);
    err_clear();
    ck_assert_int_eq(trace_load(&trace, file.path), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(err_message(), "longer"));
    close(file.fd);
}
END_TEST

START_TEST(only_regular_files_are_read)
{
    const char *paths[] = {"/", "/dev/zero", "/nonexistent/trace.k3rt"};
    struct trace trace;
    for (size_t i = 0; i < countof(paths); i++) {
        err_clear();
        ck_assert_int_eq(trace_load(&trace, paths[i]), ERR_MODEL);
        ck_assert_ptr_nonnull(strstr(err_message(), paths[i]));
    }
    int ends[2];
    char path[64];
    ck_assert_int_eq(pipe(ends), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    ck_assert_int_eq(trace_load(&trace, path), ERR_MODEL);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(a_full_disk_is_reported)
{
    struct trace trace;
    ck_assert_int_eq(trace_model_make(&trace, &tiny_model), 0);
    err_clear();
    ck_assert_int_eq(trace_save(&trace, "/dev/full"), ERR_OUTPUT);
    err_clear();
    ck_assert_int_eq(trace_save(&trace, "/nonexistent/trace.k3rt"), ERR_OUTPUT);
    ck_assert_ptr_nonnull(strstr(err_message(), "/nonexistent/trace.k3rt"));
    trace_fini(&trace);
}
END_TEST

START_TEST(a_shape_the_format_cannot_hold_is_refused)
{
    const uint32_t shapes[][2] = {{0, 1}, {65536, 1}, {1, 0}, {1, 256}};
    struct trace trace;
    for (size_t i = 0; i < countof(shapes); i++) {
        err_clear();
        ck_assert_int_eq(trace_init(&trace, shapes[i][0], shapes[i][1], 1), ERR_USAGE);
    }
    err_clear();
    ck_assert_int_eq(trace_init(&trace, 1, 16, UINT64_MAX), ERR_USAGE);
    ck_assert_int_eq(trace_init(&trace, 65535, 255, 0), 0);
    trace_fini(&trace);
}
END_TEST

START_TEST(groups_beyond_the_capacity_are_not_recorded)
{
    const uint16_t ids[] = {1, 2, 3, 4, 5, 6};
    struct trace trace;
    ck_assert_int_eq(trace_init(&trace, 4, 2, 4), 0);
    ck_assert_uint_eq(trace_add(&trace, 0, ids, 3), 3);
    ck_assert_uint_eq(trace_add(&trace, 1, ids, 3), 1);
    ck_assert_uint_eq(trace_add(&trace, 2, ids, 3), 0);
    ck_assert_uint_eq(trace.group_count, 4);
    ck_assert_uint_eq(trace_ids(&trace, 3)[1], 2);
    trace_fini(&trace);
}
END_TEST

START_TEST(a_run_is_the_neighbours_of_one_layer)
{
    const uint16_t ids[] = {1, 2, 3, 4, 5, 6};
    struct trace trace;
    ck_assert_int_eq(trace_init(&trace, 4, 2, 8), 0);
    trace_add(&trace, 0, ids, 3);
    trace_add(&trace, 3, ids, 1);
    trace_add(&trace, 0, ids, 2);
    ck_assert_uint_eq(trace_run(&trace, 0, 100), 3);
    ck_assert_uint_eq(trace_run(&trace, 0, 2), 2);
    ck_assert_uint_eq(trace_run(&trace, 3, 100), 1);
    ck_assert_uint_eq(trace_run(&trace, 4, 100), 2);
    ck_assert_uint_eq(trace_run(&trace, 6, 100), 0);
    trace_fini(&trace);
}
END_TEST

static Suite *trace_suite(void)
{
    Suite *suite = suite_create("trace");
    TCase *tcase = tcase_create("trace");
    tcase_add_test(tcase, the_small_trace_is_what_its_seeded_model_makes);
    tcase_add_test(tcase, the_bytes_are_those_of_version_one);
    tcase_add_test(tcase, scored_groups_are_written_as_version_two_and_load_as_their_best);
    tcase_add_test(tcase, a_scored_file_cut_or_changed_is_refused_or_sound);
    tcase_add_loop_test(tcase, a_damaged_scored_file_is_refused_with_its_reason, 0,
                        countof(bad_bytes));
    tcase_add_test(tcase, what_is_saved_is_loaded);
    tcase_add_test(tcase, a_file_cut_anywhere_is_refused_or_a_whole_number_of_groups);
    tcase_add_test(tcase, any_changed_byte_gives_a_sound_trace_or_an_error);
    tcase_add_loop_test(tcase, a_damaged_file_is_refused_with_its_reason, 0,
                        (int)countof(bad_files));
    tcase_add_test(tcase, a_sparse_giant_is_refused_before_memory_is_taken);
    tcase_add_test(tcase, only_regular_files_are_read);
    tcase_add_test(tcase, a_full_disk_is_reported);
    tcase_add_test(tcase, a_shape_the_format_cannot_hold_is_refused);
    tcase_add_test(tcase, groups_beyond_the_capacity_are_not_recorded);
    tcase_add_test(tcase, a_run_is_the_neighbours_of_one_layer);
    suite_add_tcase(suite, tcase);
    return suite;
}

static int write_small_trace(const char *path)
{
    struct trace trace;
    int rc = trace_model_make(&trace, &trace_model_small);
    if (rc == 0) {
        rc = trace_save(&trace, path);
        trace_fini(&trace);
    }
    return err_exit_status(rc);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return write_small_trace(argv[1]);
    }
    return suite_run(trace_suite()) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
