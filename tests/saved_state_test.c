/* SPDX-License-Identifier: Apache-2.0 */

/* Files that claim to be a saved state: whatever is wrong with one, it is refused in one line and
 * the engine is what it was. Never a crash, never half a state. */

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "core/base/nondet.h"
#include "core/exec/saved_state.h"
#include "tests/support/amount.h"
#include "tests/support/packed.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define FLIPS AMOUNT(400, 200, 30)
#define TRUNCATION_STRIDE AMOUNT(7, 13, 199)
#define CONTEXT 64U
#define PENDING 2U /* ids of the file that its state does not hold */
#define NOTES "what the owner keeps: \"\x01\xff\" and more"

static struct tiny tiny, files;
static char path[TINY_PATH_BYTES];
static unsigned char *good;  /* a whole file ... */
static size_t good_bytes;
static uint32_t good_ids[GOLDEN_PROMPT + PENDING];
static uint64_t good_digest; /* ... and the logits after its first pending id */

static struct engine *open_engine(const char *dir, uint32_t context)
{
    struct engine_options options = tiny_options(1);
    struct engine *e = NULL;
    options.context = context;
    ck_assert_msg(engine_open(&e, dir, &options) == 0, "%s", err_message());
    return e;
}

/* Feeds ids in one sequence; returns the digest of the last logits. */
static uint64_t feed(struct engine *e, const uint32_t *ids, uint32_t count)
{
    const float *logits = NULL;
    bool first = engine_position(e) == 0;
    ck_assert_msg((first ? engine_begin(e, count, 0) : engine_resume(e, count, 0)) == 0, "%s",
                  err_message());
    ck_assert_msg(engine_pass(e, ids, count, &logits) == 0, "%s", err_message());
    uint64_t digest = tiny_digest(logits);
    ck_assert_int_eq(engine_end(e), 0);
    return digest;
}

static void put_file(const void *bytes, size_t count)
{
    tiny_put(&files, "state", bytes, count);
}

static void save(struct engine *e, const struct saved_extra *extra)
{
    FILE *file = fopen(path, "wbe");
    ck_assert_ptr_nonnull(file);
    ck_assert_msg(saved_state_write(e, extra, file) == 0, "%s", err_message());
    ck_assert_int_eq(fclose(file), 0);
}

static void make_good(void)
{
    struct engine *e = open_engine(tiny.dir, CONTEXT);
    for (uint32_t i = 0; i < GOLDEN_PROMPT; i++) {
        good_ids[i] = (uint32_t)golden_prompt[i];
    }
    good_ids[GOLDEN_PROMPT] = (uint32_t)golden_ids[0];
    good_ids[GOLDEN_PROMPT + 1] = (uint32_t)golden_ids[1];
    struct saved_extra extra = {.tag = SAVED_CHAT, .ids = good_ids,
                                .id_count = countof(good_ids), .notes = NOTES,
                                .notes_bytes = sizeof NOTES - 1};
    feed(e, good_ids, GOLDEN_PROMPT);
    save(e, &extra);
    good = tiny_read(&files, "state", &good_bytes);
    good_digest = feed(e, good_ids + GOLDEN_PROMPT, 1);
    engine_close(e);
}

/* One line that names the file. */
static void check_message(const char *part)
{
    ck_assert_ptr_nonnull(strstr(err_message(), path));
    ck_assert_ptr_null(strchr(err_message(), '\n'));
    ck_assert_msg(part == NULL || strstr(err_message(), part) != NULL, "'%s' is not in: %s", part,
                  err_message());
    err_clear();
}

static void expect_no_open(int code, const char *part)
{
    struct saved_state s;
    int rc = saved_state_open(&s, path);
    saved_state_close(&s);
    ck_assert_msg(rc == code, "%d, not %d: %s", rc, code, err_message());
    check_message(part);
}

/* The one in path is refused by an engine, which is left as it was. */
static void expect_no_load(struct engine *e, int code, const char *part)
{
    struct saved_state s;
    uint32_t before = engine_position(e);
    ck_assert_msg(saved_state_open(&s, path) == 0, "%s", err_message());
    int rc = saved_state_load(&s, e);
    saved_state_close(&s);
    ck_assert_msg(rc == code, "%d, not %d: %s", rc, code, err_message());
    check_message(part);
    ck_assert_uint_eq(engine_position(e), before);
}

static void load(struct engine *e)
{
    struct saved_state s;
    ck_assert_msg(saved_state_open(&s, path) == 0, "%s", err_message());
    ck_assert_msg(saved_state_load(&s, e) == 0, "%s", err_message());
    saved_state_close(&s);
}

/* ---- what a file holds ---- */

START_TEST(a_saved_state_is_what_it_was_in_any_engine_of_the_model)
{
    struct tiny pack;
    struct saved_state s;
    put_file(good, good_bytes);
    ck_assert_int_eq(saved_state_open(&s, path), 0);
    ck_assert_uint_eq(s.tag, SAVED_CHAT);
    ck_assert_uint_eq(s.positions, GOLDEN_PROMPT);
    ck_assert_uint_eq(s.id_count, countof(good_ids));
    ck_assert_mem_eq(s.ids, good_ids, sizeof good_ids);
    ck_assert_str_eq(s.notes, NOTES);
    ck_assert_uint_eq(s.notes_bytes, sizeof NOTES - 1);
    saved_state_close(&s);
    packed_make(&pack, &tiny, TINY_MEMORY, &(struct packed_form){.trunk_only = _i == 1});
    const char *dirs[] = {tiny.dir, pack.dir};
    for (size_t i = 0; i < countof(dirs); i++) {
        struct engine *e = open_engine(dirs[i], CONTEXT);
        feed(e, good_ids, 3); /* which the file's takes the place of */
        load(e);
        ck_assert_uint_eq(feed(e, good_ids + GOLDEN_PROMPT, 1), good_digest);
        /* And a pack writes what the checkpoint would. */
        load(e);
        struct saved_extra extra = {.tag = SAVED_CHAT, .ids = good_ids,
                                    .id_count = countof(good_ids), .notes = NOTES,
                                    .notes_bytes = sizeof NOTES - 1};
        size_t bytes;
        save(e, &extra);
        unsigned char *again = tiny_read(&files, "state", &bytes);
        ck_assert_uint_eq(bytes, good_bytes);
        ck_assert_mem_eq(again, good, bytes);
        free(again);
        engine_close(e);
    }
    tiny_remove(&pack);
}
END_TEST

START_TEST(a_state_of_no_positions_and_one_of_the_whole_context_are_states)
{
    struct engine *e = open_engine(tiny.dir, GOLDEN_PROMPT);
    struct saved_extra extra = {.tag = SAVED_IDS, .ids = good_ids, .id_count = GOLDEN_PROMPT};
    save(e, &extra);
    feed(e, good_ids, 3);
    load(e);
    ck_assert_uint_eq(engine_position(e), 0);
    ck_assert_int_eq(engine_resume(e, GOLDEN_PROMPT, 0), 0); /* as if begun */
    const float *logits;
    ck_assert_int_eq(engine_pass(e, good_ids, GOLDEN_PROMPT, &logits), 0);
    uint64_t digest = tiny_digest(logits);
    ck_assert_int_eq(engine_end(e), 0);
    save(e, &extra);
    load(e);
    ck_assert_uint_eq(engine_position(e), GOLDEN_PROMPT);
    ck_assert_int_eq(engine_resume(e, 1, 0), ERR_FIT);
    err_clear();
    ck_assert_int_eq(engine_begin(e, GOLDEN_PROMPT, 0), 0);
    ck_assert_int_eq(engine_pass(e, good_ids, GOLDEN_PROMPT, &logits), 0);
    ck_assert_uint_eq(tiny_digest(logits), digest);
    ck_assert_int_eq(engine_end(e), 0);
    engine_close(e);
}
END_TEST

START_TEST(too_many_notes_are_refused)
{
    struct engine *e = open_engine(tiny.dir, CONTEXT);
    struct saved_extra extra = {.tag = SAVED_CHAT, .notes_bytes = SAVED_NOTES_BYTES_MAX + 1};
    FILE *file = fopen("/dev/null", "we");
    ck_assert_int_eq(saved_state_write(e, &extra, file), ERR_FIT);
    fclose(file);
    err_clear();
    engine_close(e);
}
END_TEST

/* ---- files of something else ---- */

START_TEST(what_is_no_regular_file_is_not_opened)
{
    char good_path[TINY_PATH_BYTES];
    memcpy(good_path, path, sizeof good_path);
    snprintf(path, sizeof path, "%s", "/dev/null");
    expect_no_open(ERR_USAGE, "not a regular file");
    snprintf(path, sizeof path, "%s", files.dir);
    expect_no_open(ERR_USAGE, "not a regular file");
    tiny_path(&files, "pipe", path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    expect_no_open(ERR_USAGE, "not a regular file");
    tiny_path(&files, "nothing", path);
    expect_no_open(ERR_IO, "No such file");
    memcpy(path, good_path, sizeof path);
    put_file("", 0);
    expect_no_open(ERR_MODEL, "too short");
    unsigned char zeros[4096] = {0};
    put_file(zeros, sizeof zeros);
    expect_no_open(ERR_MODEL, "K3RSTATE");
}
END_TEST

START_TEST(a_state_of_another_model_is_refused)
{
    struct tiny other;
    struct engine *e;
    static const float one = 1.0F;
    put_file(good, good_bytes);
    /* The same headers, other weights. */
    tiny_copy(&other, &tiny, TINY_MEMORY);
    tiny_poke(&other, "language_model.model.layers.1.self_attn.dt_bias", 0, &one, sizeof one);
    e = open_engine(other.dir, CONTEXT);
    feed(e, good_ids, 3);
    expect_no_load(e, ERR_MODEL, "another model");
    ck_assert_uint_ne(feed(e, good_ids + 3, 1), 0);
    engine_close(e);
    tiny_remove(&other);
    /* Another header. */
    tiny_copy(&other, &tiny, TINY_MEMORY);
    tiny_pad_header(&other, 1, 1 << 20);
    e = open_engine(other.dir, CONTEXT);
    expect_no_load(e, ERR_MODEL, "another model");
    engine_close(e);
    tiny_remove(&other);
}
END_TEST

START_TEST(more_positions_than_the_context_are_refused)
{
    struct engine *e = open_engine(tiny.dir, GOLDEN_PROMPT - 1);
    put_file(good, good_bytes);
    feed(e, good_ids, 3);
    expect_no_load(e, ERR_FIT, "--context");
    ck_assert_uint_ne(feed(e, good_ids + 3, 1), 0);
    engine_close(e);
    e = open_engine(tiny.dir, GOLDEN_PROMPT);
    load(e);
    ck_assert_uint_eq(engine_position(e), GOLDEN_PROMPT);
    engine_close(e);
}
END_TEST

/* ---- damage ---- */

START_TEST(every_length_but_its_own_is_refused)
{
    unsigned char *longer = calloc(1, good_bytes + 4096);
    ck_assert_ptr_nonnull(longer);
    memcpy(longer, good, good_bytes);
    put_file(good, good_bytes);
    for (size_t bytes = good_bytes - 1;; bytes -= bytes > 1024 && bytes < good_bytes - 1024
                                                      ? min_u64(TRUNCATION_STRIDE, bytes) : 1) {
        ck_assert_int_eq(truncate(path, (off_t)bytes), 0);
        expect_no_open(ERR_MODEL, bytes < 120 ? "too short" : "cut short");
        if (bytes == 0) {
            break;
        }
    }
    for (size_t more = 1; more <= 4096; more *= 8) {
        put_file(longer, good_bytes + more);
        expect_no_open(ERR_MODEL, "too long");
    }
    free(longer);
}
END_TEST

START_TEST(every_flipped_bit_is_refused)
{
    struct rng rng = rng_seed(31);
    unsigned char *bad = malloc(good_bytes);
    ck_assert_ptr_nonnull(bad);
    for (uint32_t i = 0; i < SAVED_HEADER_BYTES + FLIPS; i++) {
        size_t at = i < SAVED_HEADER_BYTES ? i
                    : i % 4 == 0           ? good_bytes - 1 - rng_below(&rng, 200)
                                           : rng_below(&rng, good_bytes);
        memcpy(bad, good, good_bytes);
        bad[at] ^= (unsigned char)(1U << rng_below(&rng, 8));
        put_file(bad, good_bytes);
        expect_no_open(ERR_MODEL, at < 8 ? "K3RSTATE" : at < 12 ? "version" : NULL);
    }
    free(bad);
}
END_TEST

/* ---- checksums that are right over what is wrong ---- */

static void put4(unsigned char *at, uint32_t value)
{
    memcpy(at, &value, sizeof value);
}

static uint32_t get4(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void seal(const unsigned char *from, uint64_t bytes, unsigned char *to)
{
    uint64_t sum = XXH3_64bits(from, bytes);
    memcpy(to, &sum, sizeof sum);
}

/* Makes all checksums right, with the sections where the good file has them. */
static void seal_all(unsigned char *file)
{
    uint64_t ids = 4ULL * countof(good_ids);
    uint64_t notes = sizeof NOTES - 1;
    uint64_t kda = (uint64_t)(get4(good + 48) - get4(good + 52)) * get4(good + 56) *
                   get4(good + 60) * get4(good + 60) * 4;
    uint64_t conv = (uint64_t)(get4(good + 48) - get4(good + 52)) * 3 * get4(good + 56) *
                    (get4(good + 64) - 1) * get4(good + 60) * 4;
    uint64_t latents = (uint64_t)get4(good + 52) * GOLDEN_PROMPT *
                       (get4(good + 68) + get4(good + 72)) * 4;
    uint64_t sections[] = {ids, notes, kda, conv, latents};
    uint64_t at = SAVED_HEADER_BYTES;
    seal(file, 112, file + 112);
    for (size_t i = 0; i < countof(sections); i++) {
        seal(file + at, sections[i], file + at + sections[i]);
        at += sections[i] + 8;
    }
    seal(file, at, file + at);
    ck_assert_uint_eq(at + 8, good_bytes);
}

START_TEST(the_format_is_as_written_down)
{
    unsigned char *copy = malloc(good_bytes);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, good, good_bytes);
    memset(copy + 112, 0, 8);
    memset(copy + good_bytes - 8, 0, 8);
    seal_all(copy);
    ck_assert_mem_eq(copy, good, good_bytes);
    free(copy);
}
END_TEST

/* Whatever a field claims under a right checksum, the file is refused or means what it did. */
START_TEST(a_field_of_the_header_that_lies_is_refused)
{
    static const uint32_t values[] = {0, 1, 2, 3, 7, 255, 65535, 0x7FFFFFFF, 0x80000000,
                                      0xFFFFFFFF};
    struct engine *e = open_engine(tiny.dir, CONTEXT);
    unsigned char *bad = malloc(good_bytes);
    uint32_t tried = 0;
    ck_assert_ptr_nonnull(bad);
    for (uint32_t at = 8; at < 112; at += 4) {
        for (size_t i = 0; i < countof(values); i++) {
            struct saved_state s;
            memcpy(bad, good, good_bytes);
            put4(bad + at, values[i]);
            if (values[i] == get4(good + at) || (at == 12 && values[i] < SAVED_TAGS)) {
                continue; /* what it says, or another owner */
            }
            seal_all(bad);
            put_file(bad, good_bytes);
            int rc = saved_state_open(&s, path);
            rc = rc < 0 ? rc : saved_state_load(&s, e);
            saved_state_close(&s);
            ck_assert_msg(rc == ERR_MODEL, "byte %u as %u: %d", at, values[i], rc);
            check_message(NULL);
            ck_assert_uint_eq(engine_position(e), 0);
            tried++;
        }
    }
    ck_assert_uint_gt(tried, 200);
    free(bad);
    engine_close(e);
}
END_TEST

START_TEST(an_id_out_of_the_vocabulary_and_a_nan_are_refused)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    unsigned char *bad = malloc(good_bytes);
    ck_assert_ptr_nonnull(bad);
    for (uint32_t i = 0; i < countof(good_ids); i++) {
        memcpy(bad, good, good_bytes);
        put4(bad + SAVED_HEADER_BYTES + (size_t)4 * i, REF_VOCAB);
        seal_all(bad);
        put_file(bad, good_bytes);
        expect_no_open(ERR_MODEL, "vocabulary");
    }
    for (size_t i = 0; i < countof(values); i++) {
        memcpy(bad, good, good_bytes);
        memcpy(bad + good_bytes - 20 - 4 * i * 1000, &values[i], sizeof values[i]);
        seal_all(bad);
        put_file(bad, good_bytes);
        expect_no_open(ERR_MODEL, "not finite");
    }
    free(bad);
}
END_TEST

START_TEST(a_file_that_changes_while_it_is_loaded_leaves_an_empty_state)
{
    struct engine *e = open_engine(tiny.dir, CONTEXT);
    struct saved_state s;
    unsigned char byte = (unsigned char)(good[good_bytes - 40] ^ 1U);
    put_file(good, good_bytes);
    feed(e, good_ids, 3);
    ck_assert_int_eq(saved_state_open(&s, path), 0);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)good_bytes - 40), 1);
    close(fd);
    ck_assert_int_eq(saved_state_load(&s, e), ERR_MODEL);
    check_message("damaged");
    ck_assert_uint_eq(engine_position(e), 0);
    ck_assert_int_eq(truncate(path, 5000), 0);
    ck_assert_int_eq(saved_state_load(&s, e), ERR_IO);
    check_message(NULL);
    saved_state_close(&s);
    /* Empty, not half: going on from there is beginning. */
    const float *logits;
    ck_assert_int_eq(engine_resume(e, GOLDEN_PROMPT + 1, 0), 0);
    for (uint32_t at = 0; at < GOLDEN_PROMPT + 1; at += engine_plan_of(e)->chunk) {
        uint32_t count = (uint32_t)min_u64(engine_plan_of(e)->chunk, GOLDEN_PROMPT + 1 - at);
        ck_assert_int_eq(engine_pass(e, good_ids + at, count, &logits), 0);
    }
    ck_assert_uint_eq(tiny_digest(logits), good_digest);
    ck_assert_int_eq(engine_end(e), 0);
    engine_close(e);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("saved state");
    TCase *tests = tcase_create("files");
    tcase_set_timeout(tests, 300);
    tcase_add_unchecked_fixture(tests, make_good, NULL);
    tcase_add_loop_test(tests, a_saved_state_is_what_it_was_in_any_engine_of_the_model, 0, 2);
    tcase_add_test(tests, a_state_of_no_positions_and_one_of_the_whole_context_are_states);
    tcase_add_test(tests, too_many_notes_are_refused);
    tcase_add_test(tests, what_is_no_regular_file_is_not_opened);
    tcase_add_test(tests, a_state_of_another_model_is_refused);
    tcase_add_test(tests, more_positions_than_the_context_are_refused);
    tcase_add_test(tests, every_length_but_its_own_is_refused);
    tcase_add_test(tests, every_flipped_bit_is_refused);
    tcase_add_test(tests, the_format_is_as_written_down);
    tcase_add_test(tests, a_field_of_the_header_that_lies_is_refused);
    tcase_add_test(tests, an_id_out_of_the_vocabulary_and_a_nan_are_refused);
    tcase_add_test(tests, a_file_that_changes_while_it_is_loaded_leaves_an_empty_state);
    suite_add_tcase(suite, tests);
    tiny_make(&tiny, TINY_MEMORY);
    tiny_folder(&files, TINY_MEMORY);
    tiny_path(&files, "state", path);
    int failed = suite_run(suite);
    free(good);
    tiny_remove(&tiny);
    tiny_remove(&files);
    return failed == 0 ? 0 : 1;
}
