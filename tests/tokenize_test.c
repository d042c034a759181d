/* SPDX-License-Identifier: Apache-2.0 */

/* `k3ring tokenize` as a user meets it: text in, ids out, and back. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/nondet.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"
#include "tests/support/vocabulary.h"

static const char *const merges[] = {"he", "ll", "hell", "hello", "\xE4\xBD"};
static char model[TINY_PATH_BYTES];

static void give(const void *bytes, size_t size_bytes)
{
    tiny_put(&folder, "in", bytes, size_bytes);
}

static void give_text(const char *text)
{
    give(text, strlen(text));
}

START_TEST(text_becomes_ids_and_pieces)
{
    give_text("hello, 2+2?\n");
    k3ring("tokenize %s", model);
    expect(0, "note: 517 tokens, Kimi K3 has 163840");
    ck_assert_str_eq(process.out, "259 11 220 17 10 17 30 198\n");
    k3ring("tokenize --json %s", folder.dir);
    ck_assert_str_eq(process.out, "[259,11,220,17,10,17,30,198]\n");
    k3ring("tokenize %s --split", model);
    expect(0, NULL);
    ck_assert_str_eq(process.out, "[\"hello\",\",\",\" \",\"2\",\"+\",\"2\",\"?\\n\"]\n");
}
END_TEST

START_TEST(added_tokens_are_text_unless_allowed)
{
    give_text("[EOS]");
    k3ring("tokenize %s", model);
    ck_assert_str_eq(process.out, "58 36 46 50 60\n");
    k3ring("tokenize --allow-special %s", model);
    ck_assert_str_eq(process.out, "262\n");
    k3ring("tokenize --allow-special --split %s", model);
    ck_assert_str_eq(process.out, "[\"[EOS]\"]\n");
}
END_TEST

START_TEST(nothing_becomes_nothing)
{
    give_text("");
    k3ring("tokenize %s", model);
    ck_assert_str_eq(process.out, "\n");
    k3ring("tokenize %s --json", model);
    ck_assert_str_eq(process.out, "[]\n");
    k3ring("tokenize %s --split", model);
    ck_assert_str_eq(process.out, "[]\n");
    static const char *const nothing[] = {"", " \n", "[]", " [ ]\n"};
    for (size_t i = 0; i < countof(nothing); i++) {
        give_text(nothing[i]);
        k3ring("tokenize %s --decode", model);
        expect(0, NULL);
        ck_assert_str_eq(process.out, "");
    }
}
END_TEST

START_TEST(pieces_are_valid_json)
{
    give("a\"\\\t\x01\xFF\x7F\xC2\x85", 9);
    k3ring("tokenize %s --split", model);
    expect(0, NULL);
    ck_assert_str_eq(process.out, "[\"a\",\"\\\"\\\\\",\"\\u0009\",\"\\u0001\uFFFD\\u007f\","
                     "\"\\u0085\"]\n");
}
END_TEST

START_TEST(ids_become_bytes_however_they_are_separated)
{
    static const char *const lists[] = {"259 11", "[259,11]\n", " 259,\n\t11 ", "[ 259 , 11 ]"};
    for (size_t i = 0; i < countof(lists); i++) {
        give_text(lists[i]);
        k3ring("tokenize %s --decode", model);
        expect(0, NULL);
        ck_assert_str_eq(process.out, "hello,");
    }
}
END_TEST

START_TEST(wrong_ids_are_refused_by_place_or_value)
{
    static const struct {
        const char *ids, *part;
    } rows[] = {{"259 x", "byte 4 (0x78) belongs to no list of ids"},
                {"259 -1", "byte 4 (0x2D)"},
                {"259 517", "517 is no token id: they end at 516"},
                {"4294967296", "ends before byte 10 is too large"},
                {"99999999999999999999999 ", "is too large"},
                {"[3,4", "ends at byte 4 without its ']'"},
                {"3,4,", "ends at byte 4 behind a comma"},
                {"3,,4", "byte 2 (',') stands where"},
                {",3", "byte 0 (',') stands where"},
                {"[3][4]", "byte 3 ('[') stands where"},
                {"[[3]]", "byte 1 ('[') stands where"},
                {"3 [4]", "byte 2 ('[') stands where"},
                {"[3] 4", "byte 4 ('4') stands where"},
                {"[3,]", "byte 3 (']') stands where"},
                {"3]", "byte 1 (']') stands where"},
                {"[", "without its ']'"}};
    for (size_t i = 0; i < countof(rows); i++) {
        give_text(rows[i].ids);
        k3ring("tokenize %s --decode", model);
        expect(2, rows[i].part);
        if (strlen(rows[i].ids) > 6) { /* short ones end inside or behind a list */
            ck_assert_str_eq(process.out, rows[i].ids[3] == ' ' ? "hello" : "");
        }
    }
}
END_TEST

/* More than one cut, not all of it UTF-8. */
START_TEST(a_long_text_of_any_bytes_comes_back)
{
    const size_t size = 5000000;
    unsigned char *text = malloc(size);
    struct rng rng = rng_seed(3);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < size; i++) {
        uint64_t chance = rng_next(&rng);
        text[i] = (unsigned char)(chance % 4 == 0 ? chance >> 8
                                                  : (uint64_t)"hello \n\xE4\xBD"[i % 9]);
    }
    give(text, size);
    k3ring("tokenize %s", model);
    expect(0, NULL);
    size_t ids_size, back_size;
    unsigned char *ids = tiny_read(&folder, "out", &ids_size);
    give(ids, ids_size);
    k3ring("tokenize %s --decode", model);
    expect(0, NULL);
    unsigned char *back = tiny_read(&folder, "out", &back_size);
    ck_assert_uint_eq(back_size, size);
    ck_assert_int_eq(memcmp(back, text, size), 0);
    free(back);
    free(ids);
    free(text);
}
END_TEST

START_TEST(wrong_use_is_refused)
{
    give_text("");
    k3ring("tokenize %s", "");
    expect(2, "tokenize");
    k3ring("tokenize %s --decode --split", model);
    expect_refusal(2, "--decode goes with neither");
    k3ring("tokenize %s --decode --allow-special", model);
    expect_refusal(2, "--decode goes with neither");
    k3ring("tokenize %s/nowhere", folder.dir);
    expect_refusal(3, "nowhere");
    k3ring("tokenize %s/in", folder.dir);
    expect_refusal(3, "is empty");
    unlink(model);
    k3ring("tokenize %s", folder.dir);
    expect_refusal(3, "holds no tiktoken.model");
}
END_TEST

static void setup(void)
{
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "tiktoken.model", model);
    vocabulary_write(model, merges, countof(merges));
}

static void teardown(void)
{
    tiny_remove(&folder);
}

int main(void)
{
    Suite *suite = suite_create("tokenize");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, text_becomes_ids_and_pieces);
    tcase_add_test(all, added_tokens_are_text_unless_allowed);
    tcase_add_test(all, nothing_becomes_nothing);
    tcase_add_test(all, pieces_are_valid_json);
    tcase_add_test(all, ids_become_bytes_however_they_are_separated);
    tcase_add_test(all, wrong_ids_are_refused_by_place_or_value);
    tcase_add_test(all, a_long_text_of_any_bytes_comes_back);
    tcase_add_test(all, wrong_use_is_refused);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
