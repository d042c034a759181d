/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8

#include <check.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/base/utf8.h"
#include "core/model/tokenizer_split.h"
#include "tests/support/amount.h"
#include "tests/support/pieces.h"
#include "tests/support/suite.h"

#define TEXT_MAX 64U

/* Every character takes seconds; under sanitizers every eleventh does. */
#define STRIDE AMOUNT(1U, 1U, 31U)

static struct splitter *splitter; /* the one in use */
static struct splitter *splitters[2]; /* the interpreter's, and machine code where it is allowed */

/* Pieces of a text of one slice, joined with '|'. */
static const char *pieces_of(const char *text, size_t size_bytes)
{
    static char joined[1024];
    struct split split;
    size_t used = 0, end;
    ck_assert_int_eq(split_start(&split, splitter, text, size_bytes), 0);
    ck_assert_int_eq(split_slice(&split), 1);
    for (size_t at = 0; at < size_bytes; at = end) {
        ck_assert_msg(split_piece(&split, at, size_bytes, &end) == 0, "%s", err_message());
        if (at > 0) {
            joined[used++] = '|';
        }
        memcpy(joined + used, text + at, end - at);
        used += end - at;
    }
    joined[used] = '\0';
    split_end(&split);
    return joined;
}

START_TEST(text_falls_apart_as_the_examples_say)
{
    static const char *const examples[] = {
        "don't| can't| IT'S| we'LL", "HTTPServer| camel|Case| XMLs", " | two| | spaces| ",
        "a|\tb|\n\n| | c|\r\n|d", "123|45| |007", "你好| world|你好|abc", "第|123|页|。",
        "hello|,world|/path|//|x|\n\n", "x| =| y|+|1|;\n", "日本語|かな|漢字|ｶﾅ", "!⺀⺁| ok",
        "\u3000|你", "'s't|'Re", "...'|s", "   \n| | x", "👩\u200D💻| ok",
        "The| capital| of| France| is", "2|+|2|?", "473|,| |921|,| |235",
        "a|&b| \"|q|\"| |日本語| 🎉\n|second| line", "It'\u017F|x", "A\u0301| A\u0301b",
        "\u4E00\u3007|1\u3007", "x|\u180E|1", "\u180E\u180E|x", "\t\u00A0|\u00A0x",
    };
    splitter = splitters[_i];
    for (size_t i = 0; i < countof(examples); i++) {
        char text[256];
        size_t size = 0;
        for (const char *c = examples[i]; *c != '\0'; c++) {
            text[size] = *c;
            size += *c != '|';
        }
        ck_assert_str_eq(pieces_of(text, size), examples[i]);
    }
}
END_TEST

/* ---- every character ---- */

static uint8_t class_of(uint32_t code)
{
    return pieces_class(split_stand_in(code));
}

/* The splitter against the second opinion, on a text of characters. */
static void compare(const uint32_t *codes, size_t count)
{
    unsigned char text[4 * TEXT_MAX];
    size_t place[TEXT_MAX + 1] = {0};
    struct split split;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = codes[i] < 0x80 ? 1 : codes[i] < 0x800 ? 2 : codes[i] < 0x10000 ? 3 : 4;
        utf8_write(text + place[i], bytes, codes[i]);
        place[i + 1] = place[i] + bytes;
    }
    bool good = split_start(&split, splitter, text, place[count]) == 0 &&
                split_slice(&split) == 1 && split.end_bytes == place[count];
    for (size_t at = 0; good && at < count;) {
        size_t end = 0, chars = pieces_next(codes + at, count - at, class_of);
        good = split_piece(&split, place[at], place[count], &end) == 0 &&
               end == place[at + chars];
        at += chars;
    }
    if (!good) {
        ck_abort_msg("U+%04X U+%04X U+%04X ...: other pieces", codes[0], count > 1 ? codes[1] : 0,
                     count > 2 ? codes[2] : 0);
    }
    split_end(&split);
}

START_TEST(every_character_is_what_the_second_opinion_says)
{
    /* Of the planes without characters and those for private use, a few will do. */
    for (uint32_t c = 0; c < PIECES_CODES; c += c < 0x34000 ? STRIDE : 97) {
        const uint32_t text[] = {c,   'a', c, 'B', c, 'b', '1', c,   ' ',  c,   c,   '!', c,
                                 '\n', c,  0x4E00, c, ' ', ' ', c,  '\'', 's', c, 0x301, c, 'A', c};
        if (c < 0xD800 || c > 0xDFFF) {
            compare(text, countof(text));
        }
    }
}
END_TEST

START_TEST(random_text_falls_apart_as_the_second_opinion_says)
{
    static const uint32_t alphabet[] = {
        'A', 'b', 's', 'T', 'r', 'e', 'l', '\'', '\'', 0x17F, 0x1C5, 0x2B0, 0x5D0, 0x3042, 0x4E00,
        0x3005, 0x3007, 0x2E80, 0x16FF0, 0x20000, 0x31350, '1', 0xB2, 0x2167, 0x301, 0x903, 0x20DD,
        ' ', ' ', '\t', '\n', '\r', 0x0B, 0x1C, 0x85, 0xA0, 0x2003, 0x2028, 0x3000, 0x180E, 0x200B,
        '!', '/', '_', 0, 0x7F, 0x3002, 0x1F600, 0x200D, 0xFFFD, 0xE000, 0x378, 0x295, 0x16D40};
    struct rng rng = rng_seed((uint64_t)_i);
    splitter = splitters[_i % 2];
    for (int round = 0; round < 30000 / (int)STRIDE; round++) {
        uint32_t text[TEXT_MAX];
        size_t count = 1 + rng_below(&rng, TEXT_MAX);
        for (size_t i = 0; i < count; i++) {
            text[i] = alphabet[rng_below(&rng, countof(alphabet))];
        }
        compare(text, count);
    }
}
END_TEST

static pcre2_code *compile(const char *set)
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)set, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_ANCHORED, &error, &at, NULL);
    ck_assert_ptr_nonnull(code);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    return code;
}

/* An intersection in three ways: as one class without the others, as a look-ahead before the union,
 * and by asking for each property alone. */
static void same_set(const char *without, const char *look_ahead, uint8_t in)
{
    pcre2_code *one = compile(without), *other = compile(look_ahead);
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    for (uint32_t c = 0; c < PIECES_CODES; c++) {
        unsigned char text[4];
        size_t size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        if (c >= 0xD800 && c <= 0xDFFF) {
            continue;
        }
        utf8_write(text, size, c);
        bool belongs = (pieces_class(c) & in) != 0 && (pieces_class(c) & PIECES_HAN) == 0;
        bool a = pcre2_match(one, text, size, 0, PCRE2_NO_UTF_CHECK, match, NULL) > 0;
        bool b = pcre2_match(other, text, size, 0, PCRE2_NO_UTF_CHECK, match, NULL) > 0;
        if (a != belongs || b != belongs) { /* an assertion that holds costs more than a match */
            ck_abort_msg("U+%04X: %d %d %d", c, belongs, a, b);
        }
    }
    pcre2_match_data_free(match);
    pcre2_code_free(one);
    pcre2_code_free(other);
}

START_TEST(an_intersection_is_the_same_set_however_it_is_written)
{
    same_set("[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]",
             "(?!\\p{sc:Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]",
             PIECES_UPPER | PIECES_LETTER | PIECES_MARK);
    same_set("[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]",
             "(?!\\p{sc:Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]",
             PIECES_LOWER | PIECES_LETTER | PIECES_MARK);
}
END_TEST

START_TEST(han_is_the_script_in_unicode_16)
{
    static const uint32_t ranges[][2] = {
        {0x2E80, 0x2E99}, {0x2E9B, 0x2EF3}, {0x2F00, 0x2FD5}, {0x3005, 0x3005}, {0x3007, 0x3007},
        {0x3021, 0x3029}, {0x3038, 0x303B}, {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFA6D},
        {0xFA70, 0xFAD9}, {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF},
        {0x2A700, 0x2B739}, {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0},
        {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D}, {0x30000, 0x3134A}, {0x31350, 0x323AF}};
    for (uint32_t c = 0, at = 0; c < PIECES_CODES; c++) {
        at += at < countof(ranges) && c > ranges[at][1];
        bool listed = at < countof(ranges) && c >= ranges[at][0];
        if (((class_of(c) & PIECES_HAN) != 0) != listed) {
            ck_abort_msg("U+%04X", c);
        }
    }
}
END_TEST

START_TEST(white_space_is_what_unicode_says_and_runs_count_four_more)
{
    for (uint32_t c = 0; c < PIECES_CODES; c++) {
        bool space = (pieces_class(c) & PIECES_SPACE) != 0 || (c >= 0x1C && c <= 0x1F);
        if (split_is_space(c) != space) {
            ck_abort_msg("U+%04X", c);
        }
    }
}
END_TEST

START_TEST(a_stand_in_is_as_long_and_stands_for_itself)
{
    uint32_t moved = 0;
    for (uint32_t c = 0; c < PIECES_CODES; c++) {
        uint32_t other = split_stand_in(c);
        bool same_length = (c < 0x80) == (other < 0x80) && (c < 0x800) == (other < 0x800) &&
                           (c < 0x10000) == (other < 0x10000);
        if (split_stand_in(other) != other || !same_length) {
            ck_abort_msg("U+%04X: U+%04X", c, other);
        }
        moved += other != c;
    }
    ck_assert_uint_gt(moved, 10000); /* 4,192 + 622 ideographs and 3,995 hieroglyphs among them */
    ck_assert_uint_eq(class_of(0x31350), PIECES_HAN | PIECES_LETTER);
    ck_assert_uint_eq(class_of(0x295), PIECES_LOWER);
    ck_assert_uint_eq(class_of(0x1C89), PIECES_UPPER);
    ck_assert_uint_eq(class_of(0x16130), PIECES_NUMBER);
    ck_assert_uint_eq(class_of(0x323B0), 0);
}
END_TEST

/* ---- slices ---- */

/* Ends of slices in characters of one byte each. */
static void expect_slices(const char *text, size_t size, const size_t *ends, size_t count)
{
    struct split split;
    ck_assert_int_eq(split_start(&split, splitter, text, size), 0);
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(split_slice(&split), 1);
        ck_assert_uint_eq(split.end_bytes, ends[i]);
    }
    ck_assert_int_eq(split_slice(&split), 0);
    split_end(&split);
}

START_TEST(a_run_may_have_25000_characters_and_no_more)
{
    const size_t run = SPLIT_RUN_CHARACTERS, size = 3 * run + 2;
    char *text = malloc(size);
    ck_assert_ptr_nonnull(text);
    memset(text, 'a', size);
    expect_slices(text, run, &(size_t){run}, 1);
    expect_slices(text, run + 1, (size_t[]){run, run + 1}, 2);
    expect_slices(text, size, (size_t[]){run, 2 * run, 3 * run, size}, 4);
    memset(text, ' ', size);
    expect_slices(text, run + 1, (size_t[]){run, run + 1}, 2);
    memset(text, 'a', 10);
    text[run / 2] = 0x1C; /* a separator is white space here: the run goes on */
    expect_slices(text, run + 11, (size_t[]){run + 10, run + 11}, 2);
    text[run / 2] = 'x'; /* two short runs */
    expect_slices(text, run + 11, &(size_t){run + 11}, 1);
    expect_slices(text, 0, NULL, 0);
    free(text);
}
END_TEST

START_TEST(a_text_is_cut_every_400000_characters)
{
    const size_t cut = SPLIT_CUT_CHARACTERS, count = 2 * cut + 7;
    unsigned char *text = malloc(count * 3);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < count; i++) {
        memcpy(text + 3 * i, i % 2 == 0 ? "\u4E00" : "\u3000", 3);
    }
    expect_slices((char *)text, 3 * count, (size_t[]){3 * cut, 6 * cut, 3 * count}, 3);
    ck_assert_uint_eq(split_cut(text, 3 * count), 3 * cut);
    ck_assert_uint_eq(split_cut(text, 3 * cut), 3 * cut);
    ck_assert_uint_eq(split_cut(text, 30), 30);
    for (size_t i = 0; i < count; i++) {
        memcpy(text + i, i % 2 == 0 ? "\xFF" : " ", 1); /* a stray byte is a character */
    }
    expect_slices((char *)text, count, (size_t[]){cut, 2 * cut, count}, 3);
    /* Runs begin anew at a cut. */
    memset(text + cut - 100, 'a', 25050);
    expect_slices((char *)text, cut + 25000, (size_t[]){cut, cut + 25000}, 2);
    free(text);
}
END_TEST

START_TEST(a_stray_byte_is_a_sign_of_its_own)
{
    ck_assert_str_eq(pieces_of("a\xFF\xFE!b", 5), "a|\xFF\xFE!|b");
    ck_assert_str_eq(pieces_of("1\x80\x80", 3), "1|\x80\x80");
    ck_assert_str_eq(pieces_of(" \xE4\xBD", 3), " \xE4\xBD");
    ck_assert_str_eq(pieces_of("x \xE4\xBDy", 5), "x| \xE4\xBD|y");
    ck_assert_str_eq(pieces_of("1\xF0y", 3), "1|\xF0y"); /* as any sign, it may begin a word */
}
END_TEST

/* No run of one character may exhaust what matching has: JIT stack, heap or patience. */
START_TEST(the_longest_runs_are_split)
{
    static const char *const units[] = {"A", "a", "\u4E00", "\u0301", "\u05D0", "!", "\n", " ",
                                        "\u3000", "1", "Aa", "A\u0301", " \n", "\xFF", "\u01C5"};
    char *text = malloc(2 * SPLIT_CUT_CHARACTERS * 3);
    ck_assert_ptr_nonnull(text);
    splitter = splitters[_i];
    for (size_t i = 0; i < countof(units); i++) {
        size_t unit = strlen(units[i]), size = 0, end = 0;
        struct split split;
        while (size < 900000) {
            memcpy(text + size, units[i], unit);
            size += unit;
        }
        ck_assert_int_eq(split_start(&split, splitter, text, size), 0);
        while (split_slice(&split) > 0) {
            for (size_t at = split.begin_bytes; at < split.end_bytes; at = end) {
                ck_assert_msg(split_piece(&split, at, split.end_bytes, &end) == 0, "%s: %s",
                              units[i], err_message());
            }
        }
        ck_assert_uint_eq(end, size);
        split_end(&split);
    }
    free(text);
}
END_TEST

static void setup(void)
{
    pieces_learn();
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(splitter_open(i == 1, &splitters[i]) == 0, "%s", err_message());
    }
    splitter = splitters[1];
}

static void teardown(void)
{
    splitter_close(splitters[0]);
    splitter_close(splitters[1]);
}

int main(void)
{
    Suite *suite = suite_create("tokenizer_split");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 240);
    tcase_add_unchecked_fixture(all, setup, teardown);
    tcase_add_loop_test(all, text_falls_apart_as_the_examples_say, 0, 2);
    tcase_add_test(all, every_character_is_what_the_second_opinion_says);
    tcase_add_loop_test(all, random_text_falls_apart_as_the_second_opinion_says, 0, 4);
    tcase_add_test(all, an_intersection_is_the_same_set_however_it_is_written);
    tcase_add_test(all, han_is_the_script_in_unicode_16);
    tcase_add_test(all, white_space_is_what_unicode_says_and_runs_count_four_more);
    tcase_add_test(all, a_stand_in_is_as_long_and_stands_for_itself);
    tcase_add_test(all, a_run_may_have_25000_characters_and_no_more);
    tcase_add_test(all, a_text_is_cut_every_400000_characters);
    tcase_add_test(all, a_stray_byte_is_a_sign_of_its_own);
    tcase_add_loop_test(all, the_longest_runs_are_split, 0, 2);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
