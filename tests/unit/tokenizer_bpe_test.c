/* SPDX-License-Identifier: Apache-2.0 */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nondet.h"
#include "core/model/tokenizer_bpe.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"
#include "tests/support/vocabulary.h"

#define MERGES 400U
#define PIECE_MAX 2000U

static struct tiny folder;
static struct bpe bpe;

static struct ranks read_merges(const char *const *merges, size_t count)
{
    struct ranks ranks;
    char path[TINY_PATH_BYTES];
    tiny_path(&folder, "tiktoken.model", path);
    vocabulary_write(path, merges, count);
    ck_assert_msg(ranks_read(&ranks, path) == 0, "%s", err_message());
    return ranks;
}

static const char *encoded(const struct ranks *ranks, const char *piece)
{
    static char text[256];
    ck_assert_int_eq(bpe_encode(&bpe, ranks, (const unsigned char *)piece, strlen(piece)), 0);
    text[0] = '\0';
    for (size_t i = 0; i < bpe.id_count; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%u", i > 0 ? " " : "",
                 bpe.ids[i]);
    }
    return text;
}

START_TEST(the_pair_of_lowest_rank_is_merged_first_and_the_leftmost_of_equals)
{
    static const char *const merges[] = {"bc", "ab", "aa", "abc", "zzzz"};
    struct ranks ranks = read_merges(merges, countof(merges));
    ck_assert_str_eq(encoded(&ranks, "a"), "64");
    ck_assert_str_eq(encoded(&ranks, "ab"), "257");
    ck_assert_str_eq(encoded(&ranks, "abc"), "259");
    ck_assert_str_eq(encoded(&ranks, "xabc"), "87 259"); /* bc first, then a + bc */
    ck_assert_str_eq(encoded(&ranks, "aabc"), "258 256");
    ck_assert_str_eq(encoded(&ranks, "aaa"), "258 64");
    ck_assert_str_eq(encoded(&ranks, "aab"), "64 257");
    ck_assert_str_eq(encoded(&ranks, "zzzz"), "260"); /* a whole piece needs no merges */
    ck_assert_str_eq(encoded(&ranks, "zzzzz"), "89 89 89 89 89");
    ranks_free(&ranks);
}
END_TEST

/* As it is defined: every pair looked up again for every merge. */
static size_t slow(const struct ranks *ranks, const unsigned char *piece, size_t size,
                   uint32_t *ids)
{
    uint32_t end[PIECE_MAX];
    size_t count = size;
    for (size_t i = 0; i < size; i++) {
        end[i] = (uint32_t)i + 1;
    }
    for (;;) {
        uint32_t best = RANKS_NONE;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            uint32_t begin = i > 0 ? end[i - 1] : 0;
            uint32_t rank = ranks_find(ranks, piece + begin, end[i + 1] - begin);
            at = rank < best ? i : at;
            best = rank < best ? rank : best;
        }
        if (best == RANKS_NONE) {
            break;
        }
        memmove(end + at, end + at + 1, (count - at - 1) * sizeof *end);
        count--;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t begin = i > 0 ? end[i - 1] : 0;
        ids[i] = ranks_find(ranks, piece + begin, end[i] - begin);
    }
    return count;
}

/* Merges of merges over few letters, so that nearly every pair is one. */
static struct ranks random_ranks(struct rng *rng)
{
    static char text[MERGES][40];
    static const char *merges[MERGES];
    uint32_t count = 0;
    while (count < MERGES) {
        char joined[80];
        const char *a = count > 0 && rng_below(rng, 2) ? text[rng_below(rng, count)] : "a";
        const char *b = count > 0 && rng_below(rng, 2) ? text[rng_below(rng, count)] : "b";
        snprintf(joined, sizeof joined, "%s%s%s", rng_below(rng, 3) == 0 ? "c" : "", a, b);
        bool known = strlen(joined) >= sizeof text[0];
        for (uint32_t i = 0; i < count; i++) {
            known = known || strcmp(text[i], joined) == 0;
        }
        if (!known) {
            strcpy(text[count], joined);
            merges[count] = text[count];
            count++;
        }
    }
    return read_merges(merges, count);
}

START_TEST(short_and_long_pieces_give_what_the_definition_gives)
{
    struct rng rng = rng_seed((uint64_t)_i);
    struct ranks ranks = random_ranks(&rng);
    unsigned char piece[PIECE_MAX];
    uint32_t ids[PIECE_MAX];
    for (int round = 0; round < 60; round++) {
        size_t size = 1 + rng_below(&rng, round < 50 ? 150 : PIECE_MAX - 1);
        for (size_t i = 0; i < size; i++) {
            piece[i] = (unsigned char)"abcabcabx"[rng_below(&rng, 9)];
        }
        size_t count = slow(&ranks, piece, size, ids);
        ck_assert_int_eq(bpe_encode(&bpe, &ranks, piece, size), 0);
        ck_assert_msg(count == bpe.id_count && memcmp(ids, bpe.ids, count * sizeof *ids) == 0,
                      "seed %d, round %d: other ids for %.*s", _i, round, (int)size, piece);
    }
    bpe_free(&bpe); /* what it remembers is of these ranks */
    ranks_free(&ranks);
}
END_TEST

/* Pieces of one beginning, or of one end: what is remembered of one is not the others'. */
START_TEST(like_pieces_are_not_mistaken_for_one_another)
{
    static char text[MERGES][17];
    static const char *merges[MERGES];
    for (uint32_t i = 0; i < MERGES; i++) {
        snprintf(text[i], sizeof text[i], i % 2 == 0 ? "same----%08u" : "%08u----same", i);
        merges[i] = text[i];
    }
    struct ranks ranks = read_merges(merges, MERGES);
    for (uint32_t i = 0; i < 40 * MERGES; i++) {
        char piece[17];
        const uint32_t which = i * 7 % (20 * MERGES);
        snprintf(piece, sizeof piece, which % 2 == 0 ? "same----%08u" : "%08u----same", which);
        ck_assert_int_eq(bpe_encode(&bpe, &ranks, (const unsigned char *)piece, 16), 0);
        bool whole = bpe.id_count == 1;
        if (whole != (which < MERGES) || (whole && bpe.ids[0] != VOCABULARY_BYTES + which)) {
            ck_abort_msg("%s is taken for another", piece);
        }
    }
    ranks_free(&ranks);
}
END_TEST

/* Steps per byte of a piece of a megabyte. */
static double steps(const struct ranks *ranks, const char *unit)
{
    const size_t size = 1000000;
    unsigned char *piece = malloc(size);
    uint64_t before = bpe.steps;
    ck_assert_ptr_nonnull(piece);
    for (size_t i = 0; i < size; i++) {
        piece[i] = (unsigned char)unit[i % strlen(unit)];
    }
    ck_assert_int_eq(bpe_encode(&bpe, ranks, piece, size), 0);
    free(piece);
    return (double)(bpe.steps - before) / (double)size;
}

START_TEST(a_megabyte_of_one_letter_takes_some_forty_steps_a_byte)
{
    static const char *const merges[] = {"aa", "aaaa", "aaaaaaaa", "aaaaaaaaaaaaaaaa", "ab",
                                         "abab"};
    struct ranks ranks = read_merges(merges, countof(merges));
    ck_assert_double_lt(steps(&ranks, "a"), 64);
    ck_assert_uint_eq(bpe.ids[0], 259);
    ck_assert_uint_eq(bpe.id_count, 62500);
    ck_assert_double_lt(steps(&ranks, "ab"), 64);
    ck_assert_double_lt(steps(&ranks, "aab"), 64);
    ck_assert_double_lt(steps(&ranks, "x"), 64);
    ck_assert_uint_eq(bpe.id_count, 1000000);
    ranks_free(&ranks);
}
END_TEST

static void setup(void)
{
    tiny_folder(&folder, TINY_MEMORY);
    bpe = (struct bpe){.steps = 0};
}

static void teardown(void)
{
    bpe_free(&bpe);
    tiny_remove(&folder);
}

int main(void)
{
    Suite *suite = suite_create("tokenizer_bpe");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, the_pair_of_lowest_rank_is_merged_first_and_the_leftmost_of_equals);
    tcase_add_loop_test(all, short_and_long_pieces_give_what_the_definition_gives, 0, 8);
    tcase_add_test(all, like_pieces_are_not_mistaken_for_one_another);
    tcase_add_test(all, a_megabyte_of_one_letter_takes_some_forty_steps_a_byte);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
