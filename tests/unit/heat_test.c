/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/heat.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache/cache.h"
#include "core/base/err.h"
#include "core/base/nondet.h"
#include "tests/support/suite.h"
#include "tests/support/trace_model.h"

#define FILE_BYTES_MAX 65536

static const char *const names[] = {"lar", "lfu", "lhr"}; /* those that learn */

#define NAMES ((int)countof(names))

static const struct trace_model routing = {
    .seed = 11, .layers = 6, .experts = 40, .top_k = 4, .tokens = 80};
static const struct policy_shape shape = {6, 40, 4, 30};

/* A heat file in memory. */
struct image {
    unsigned char bytes[FILE_BYTES_MAX];
    size_t size;
};

static struct cache *open_as(const char *name, const struct policy_shape *as)
{
    struct cache *cache;
    ck_assert_int_eq(cache_open(&cache, policy_find(name), as, 1), 0);
    return cache;
}

static struct cache *fresh(const char *name)
{
    return open_as(name, &shape);
}

/* Hits of the tokens from .. to-1. */
static uint64_t feed(struct cache *cache, uint32_t from, uint32_t to)
{
    struct trace trace;
    uint64_t before = cache_stats(cache)->hits;
    ck_assert_int_eq(trace_model_make(&trace, &routing), 0);
    for (uint64_t i = from * routing.layers; i < (uint64_t)to * routing.layers; i++) {
        cache_demand(cache, trace.layer[i], trace_ids(&trace, i), 1);
    }
    trace_fini(&trace);
    return cache_stats(cache)->hits - before;
}

static void write_image(struct cache *cache, struct image *image)
{
    FILE *file = fmemopen(image->bytes, sizeof image->bytes, "wb");
    ck_assert_int_eq(cache_heat_write(cache, file), 0);
    image->size = (size_t)ftell(file);
    ck_assert_int_eq(fclose(file), 0);
}

static int load_image(struct cache *cache, const struct image *image)
{
    char path[64];
    int fd = memfd_create("heat", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, image->bytes, image->size, 0), (ssize_t)image->size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    err_clear();
    int rc = cache_heat_load(cache, path);
    close(fd);
    return rc;
}

/* What the policy learned from the first 40 tokens. */
static void learned_image(const char *name, struct image *image)
{
    struct cache *cache = fresh(name);
    feed(cache, 0, 40);
    write_image(cache, image);
    cache_close(cache);
}

static int load_fresh(const char *name, const struct image *image)
{
    struct cache *cache = fresh(name);
    int rc = load_image(cache, image);
    cache_close(cache);
    return rc;
}

static void expect_refused(const char *name, const struct image *image, int code, const char *part)
{
    int rc = load_fresh(name, image);
    ck_assert_msg(rc == code, "%d, not %d: %s", rc, code, err_message());
    ck_assert_msg(strstr(err_message(), part) != NULL, "no \"%s\" in: %s", part, err_message());
}

START_TEST(what_is_loaded_is_written_again_bit_for_bit)
{
    static struct image first, second;
    learned_image(names[_i], &first);
    struct cache *cache = fresh(names[_i]);
    ck_assert_int_eq(load_image(cache, &first), 1);
    write_image(cache, &second);
    ck_assert_uint_eq(first.size, second.size);
    ck_assert_mem_eq(first.bytes, second.bytes, first.size);
    feed(cache, 40, 50); /* and goes on learning from it */
    write_image(cache, &second);
    ck_assert_mem_ne(first.bytes, second.bytes, first.size);
    cache_close(cache);
}
END_TEST

/* Counted over the tokens right after those it learned from, both caches empty at first. Counts
 * kept for ever make lfu slow to follow: it differs, not always for the better. */
START_TEST(heat_changes_hits_and_brings_some_where_the_past_fades)
{
    static struct image image;
    learned_image(names[_i], &image);
    struct cache *cold = fresh(names[_i]), *warm = fresh(names[_i]);
    ck_assert_int_eq(load_image(warm, &image), 1);
    uint64_t cold_hits = feed(cold, 40, 80), warm_hits = feed(warm, 40, 80);
    bool fades = strcmp(names[_i], "lfu") != 0;
    ck_assert_msg(fades ? warm_hits > cold_hits : warm_hits != cold_hits,
                  "%s: %llu cold, %llu warm", names[_i], (unsigned long long)cold_hits,
                  (unsigned long long)warm_hits);
    cache_close(cold);
    cache_close(warm);
}
END_TEST

/* A policy that learned, lost its residents and was loaded goes on as one that kept them would
 * once both have been fed enough to agree on the residents: it knows the same. */
START_TEST(a_loaded_policy_knows_what_the_writer_knew)
{
    static struct image image, a, b;
    struct cache *writer = fresh(names[_i]), *loaded = fresh(names[_i]);
    feed(writer, 0, 40);
    write_image(writer, &image);
    ck_assert_int_eq(load_image(loaded, &image), 1);
    feed(writer, 40, 80);
    feed(loaded, 40, 80);
    write_image(writer, &a);
    write_image(loaded, &b);
    ck_assert_mem_eq(a.bytes, b.bytes, a.size);
    cache_close(writer);
    cache_close(loaded);
}
END_TEST

START_TEST(without_a_file_nothing_is_known)
{
    struct cache *cache = fresh(names[_i]);
    ck_assert_int_eq(cache_heat_load(cache, "/nowhere/heat"), 0);
    cache_close(cache);
}
END_TEST

START_TEST(a_policy_that_learns_nothing_is_refused)
{
    static const char *const others[] = {"arc", "arc-global", "lru", "none"};
    for (size_t i = 0; i < countof(others); i++) {
        struct cache *cache = fresh(others[i]);
        err_clear();
        ck_assert_int_eq(cache_heat_load(cache, "/nowhere/heat"), ERR_USAGE);
        ck_assert_ptr_nonnull(strstr(err_message(), "lar, lfu, lhr"));
        ck_assert_int_eq(cache_heat_write(cache, stdout), ERR_USAGE);
        cache_close(cache);
    }
}
END_TEST

START_TEST(a_file_of_another_policy_or_geometry_is_refused)
{
    static struct image image;
    learned_image(names[_i], &image);
    expect_refused(names[(_i + 1) % NAMES], &image, ERR_USAGE, names[_i]);
    static const struct policy_shape others[] = {{5, 40, 4, 30}, {6, 41, 4, 30}, {6, 40, 3, 30},
                                                 {5, 48, 4, 30}};
    for (size_t i = 0; i < countof(others); i++) {
        struct cache *cache = open_as(names[_i], &others[i]);
        ck_assert_int_eq(load_image(cache, &image), ERR_USAGE);
        ck_assert_ptr_nonnull(strstr(err_message(), "6 layers of 40 experts, 4 a token"));
        cache_close(cache);
    }
    struct policy_shape slots = shape; /* how many slots there are is no matter */
    slots.slots = 7;
    struct cache *cache = open_as(names[_i], &slots);
    ck_assert_int_eq(load_image(cache, &image), 1);
    cache_close(cache);
}
END_TEST

START_TEST(a_file_with_any_byte_changed_is_refused)
{
    static struct image image;
    struct rng rng = rng_seed((uint64_t)_i);
    learned_image(names[_i], &image);
    for (uint32_t turn = 0; turn < 600; turn++) {
        size_t at = turn < 64 ? turn : (size_t)rng_below(&rng, image.size);
        unsigned char change = (unsigned char)(1 + rng_below(&rng, 255));
        image.bytes[at] ^= change;
        int rc = load_fresh(names[_i], &image);
        ck_assert_msg(rc == ERR_MODEL || rc == ERR_USAGE, "byte %zu: %d", at, rc);
        image.bytes[at] ^= change;
    }
    ck_assert_int_eq(load_fresh(names[_i], &image), 1);
}
END_TEST

START_TEST(a_file_cut_or_lengthened_is_refused)
{
    static struct image image;
    learned_image(names[_i], &image);
    size_t whole = image.size;
    for (size_t size = 0; size < whole; size += size < 80 ? 1 : 97) {
        image.size = size;
        ck_assert_int_eq(load_fresh(names[_i], &image), ERR_MODEL);
    }
    image.size = whole + 1;
    expect_refused(names[_i], &image, ERR_MODEL, "longer");
}
END_TEST

/* A checksum made to fit, as a hand might: numbers no policy could have learned stay outside. */
static void seal(struct image *image)
{
    uint64_t sum = 0xcbf29ce484222325U;
    for (size_t i = 0; i < image->size; i++) {
        if (i < 32 || i >= 40) {
            sum = (sum ^ image->bytes[i]) * 0x100000001b3U;
        }
    }
    for (int i = 0; i < 8; i++) {
        image->bytes[32 + i] = (unsigned char)(sum >> (8 * i));
    }
}

START_TEST(numbers_that_cannot_be_learned_are_refused)
{
    static struct image image, good;
    learned_image(names[_i], &good);
    image = good;
    seal(&image);
    ck_assert_mem_eq(image.bytes, good.bytes, good.size);
    uint32_t refused = 0;
    for (size_t at = 64; at + 8 <= good.size; at += 244) {
        image = good;
        memset(image.bytes + at, 0xff, 8); /* NaN, or a count beyond all others */
        seal(&image);
        int rc = load_fresh(names[_i], &image);
        refused += rc == ERR_MODEL;
        ck_assert(rc == ERR_MODEL || rc == 1);
    }
    ck_assert_uint_ge(refused, 12);
}
END_TEST

START_TEST(an_unknown_version_and_a_stranger_are_named)
{
    static struct image image;
    learned_image("lhr", &image);
    image.bytes[4] = 2;
    expect_refused("lhr", &image, ERR_MODEL, "version 2");
    image.bytes[0] = 'X';
    expect_refused("lhr", &image, ERR_MODEL, "K3RH");
    struct cache *cache = fresh("lhr");
    err_clear();
    ck_assert_int_eq(cache_heat_load(cache, "/dev"), ERR_USAGE);
    cache_close(cache);
}
END_TEST

static Suite *heat_suite(void)
{
    Suite *suite = suite_create("heat");
    TCase *tcase = tcase_create("heat");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, what_is_loaded_is_written_again_bit_for_bit, 0, NAMES);
    tcase_add_loop_test(tcase, heat_changes_hits_and_brings_some_where_the_past_fades, 0,
                        NAMES);
    tcase_add_loop_test(tcase, a_loaded_policy_knows_what_the_writer_knew, 0, NAMES);
    tcase_add_loop_test(tcase, without_a_file_nothing_is_known, 0, NAMES);
    tcase_add_test(tcase, a_policy_that_learns_nothing_is_refused);
    tcase_add_loop_test(tcase, a_file_of_another_policy_or_geometry_is_refused, 0, NAMES);
    tcase_add_loop_test(tcase, a_file_with_any_byte_changed_is_refused, 0, NAMES);
    tcase_add_loop_test(tcase, a_file_cut_or_lengthened_is_refused, 0, NAMES);
    tcase_add_loop_test(tcase, numbers_that_cannot_be_learned_are_refused, 0, NAMES);
    tcase_add_test(tcase, an_unknown_version_and_a_stranger_are_named);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return suite_run(heat_suite()) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
