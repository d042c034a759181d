/* SPDX-License-Identifier: Apache-2.0 */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "tests/support/suite.h"

static size_t read_text(const char *text, uint32_t *code)
{
    return utf8_read((const unsigned char *)text, strlen(text), code);
}

static bool comes_back(uint32_t code)
{
    unsigned char text[4];
    size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    uint32_t back = 0;
    utf8_write(text, size, code);
    bool good = utf8_read(text, size, &back) == size && back == code &&
                utf8_unfinished(text, size) == 0;
    for (size_t part = 1; part < size; part++) {
        good = good && utf8_read(text, part, &back) == 0 && utf8_unfinished(text, part) == part;
    }
    return good;
}

START_TEST(every_character_is_read_as_it_was_written)
{
    for (uint32_t code = 0; code < 0x110000; code++) {
        bool surrogate = code >= 0xD800 && code < 0xE000;
        if (comes_back(code) == surrogate) {
            ck_abort_msg("U+%04X", code);
        }
    }
}
END_TEST

START_TEST(ill_formed_bytes_are_no_character)
{
    static const char *const bad[] = {
        "\x80", "\xBF", "\xC0\xAF", "\xC1\xBF", "\xC3(", "\xE0\x80\xAF", "\xE0\x9F\xBF",
        "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x80\x80\xAF", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFE", "\xFF"};
    uint32_t code = 77;
    for (size_t i = 0; i < countof(bad); i++) {
        ck_assert_msg(read_text(bad[i], &code) == 0, "number %zu", i);
    }
    ck_assert_uint_eq(code, 77);
}
END_TEST

START_TEST(only_what_more_bytes_could_complete_is_unfinished)
{
    static const struct {
        const char *text;
        size_t unfinished;
    } rows[] = {{"", 0},           {"a", 0},         {"a\xC3", 1},       {"\xC3\xA4", 0},
                {"a\xE4\xBD", 2},  {"a\xE4(", 0},    {"\xE0\x80", 0},    {"\xED\xA0", 0},
                {"\xF0\x9F", 2},   {"\xF0\x9F\x98", 3}, {"\xF4\x90", 0}, {"\x80\x80\x80", 0},
                {"\xC3\xA4\xA4", 0}, {"\xF0\x9F\x98\x80\xF0", 1}, {"\xFF", 0}};
    for (size_t i = 0; i < countof(rows); i++) {
        const unsigned char *text = (const unsigned char *)rows[i].text;
        ck_assert_msg(utf8_unfinished(text, strlen(rows[i].text)) == rows[i].unfinished,
                      "number %zu", i);
    }
}
END_TEST

START_TEST(one_sign_stands_for_the_longest_beginning_of_a_character)
{
    static const struct {
        const char *text;
        size_t bytes;
    } rows[] = {{"\x80\x80", 1}, {"\xFFz", 1}, {"\xC3z", 1}, {"\xE4\xBDz", 2}, {"\xE0\x80\x80", 1},
                {"\xF0\x9F\x98z", 3}, {"\xF4\x90\x80", 1}, {"\xED\xA0\x80", 1}, {"\xE4\xBD", 2}};
    for (size_t i = 0; i < countof(rows); i++) {
        const unsigned char *text = (const unsigned char *)rows[i].text;
        ck_assert_msg(utf8_bad_bytes(text, strlen(rows[i].text)) == rows[i].bytes, "number %zu",
                      i);
    }
}
END_TEST

START_TEST(what_is_no_character_is_mended_byte_by_byte)
{
    char text[] = "a\xFF\xC3\xA4\xE4\xBDz\xC3";
    ck_assert_uint_eq(utf8_whole_bytes(text, strlen(text)), 1);
    utf8_mend(text);
    ck_assert_str_eq(text, "a?\xC3\xA4??z?");
    ck_assert(utf8_whole(text, strlen(text)));
    utf8_mend(text);
    ck_assert_str_eq(text, "a?\xC3\xA4??z?");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("utf8");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, every_character_is_read_as_it_was_written);
    tcase_add_test(all, ill_formed_bytes_are_no_character);
    tcase_add_test(all, only_what_more_bytes_could_complete_is_unfinished);
    tcase_add_test(all, one_sign_stands_for_the_longest_beginning_of_a_character);
    tcase_add_test(all, what_is_no_character_is_mended_byte_by_byte);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
