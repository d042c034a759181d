/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of others on their way out. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/cli/text.h"
#include "tests/support/suite.h"

START_TEST(a_terminal_gets_no_control_characters)
{
    char clean[64];
    text_clean(clean, sizeof clean, "a\033[2Jb\u202ec\xff" "d\u00e9");
    ck_assert_str_eq(clean, "a?[2Jb???c?d\u00e9");
    text_clean(clean, 4, "ab\u00e9");
    ck_assert_str_eq(clean, "ab"); /* no half characters */
}
END_TEST

START_TEST(plain_words_stay_as_they_are)
{
    char word[64];
    ck_assert_uint_eq(text_shell(word, sizeof word, "/a-b/c_1.x,y:z@2%=+"), 19);
    ck_assert_str_eq(word, "/a-b/c_1.x,y:z@2%=+");
}
END_TEST

/* A shell takes the word for what it was. */
START_TEST(a_shell_reads_back_what_was_quoted)
{
    static const char *const texts[] = {"", "two words", "it's", "'", "''''", "$HOME `id` \\ \"",
                                        "a\nb", "*?[x]", "~", "#x", "a;b|c&d", "caf\u00e9"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char word[TEXT_SHELL_BYTES(64)];
        char command[512];
        char got[128] = "";
        size_t size = text_shell(word, sizeof word, texts[i]);
        ck_assert_uint_eq(size, strlen(word));
        snprintf(command, sizeof command, "printf %%s %s", word);
        FILE *shell = popen(command, "re");
        ck_assert_ptr_nonnull(shell);
        ck_assert_uint_eq(fread(got, 1, sizeof got - 1, shell), strlen(texts[i]));
        ck_assert_int_eq(pclose(shell), 0);
        ck_assert_str_eq(got, texts[i]);
    }
}
END_TEST

START_TEST(a_word_that_is_too_long_is_cut_with_its_quotes_closed)
{
    char word[12];
    ck_assert_uint_eq(text_shell(word, sizeof word, "a 'b' and more of it"), strlen(word));
    ck_assert_uint_lt(strlen(word), sizeof word);
    ck_assert_int_eq(word[strlen(word) - 1], '\'');
}
END_TEST

static const struct {
    const char *bytes;
    size_t size;
    const char *json;
} cases[] = {
    {"", 0, "\"\""},
    {"plain", 5, "\"plain\""},
    {"a\"b\\c", 5, "\"a\\\"b\\\\c\""},
    {"a\nb\tc\x7F", 6, "\"a\\nb\\u0009c\\u007f\""},
    {"a\0b", 3, "\"a\xEF\xBF\xBD" "b\""},
    {"\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80", 9, "\"\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80\""},
    {"\xC2\x85", 2, "\"\\u0085\""},
    {"a\xFF" "b\xE4\xBD", 5, "\"a\xEF\xBF\xBD" "b\xEF\xBF\xBD\""},
};

START_TEST(any_bytes_become_a_json_string)
{
    char *json = text_json(cases[_i].bytes, cases[_i].size);
    ck_assert_ptr_nonnull(json);
    ck_assert_str_eq(json, cases[_i].json);
    free(json);
}
END_TEST

START_TEST(every_byte_alone_is_valid_json)
{
    for (int byte = 0; byte < 256; byte++) {
        unsigned char one = (unsigned char)byte;
        char *json = text_json(&one, 1);
        ck_assert_ptr_nonnull(json);
        cJSON *tree = json_parse(json, strlen(json), "text", false);
        ck_assert_msg(cJSON_IsString(tree), "byte %d: %s", byte, err_message());
        ck_assert(byte == 0 || byte >= 0x80 ||
                  strcmp(tree->valuestring, (char[]){(char)byte, 0}) == 0);
        cJSON_Delete(tree);
        free(json);
    }
}
END_TEST

START_TEST(what_a_model_makes_is_shown_and_steers_nothing)
{
    static const char made[] = "a\033[2J\n\tb\xC2\x9B" "c\xFF" "d\xE2\x82\xAC\xE2\x80\xAE";
    char *shown = NULL;
    size_t size;
    FILE *out = open_memstream(&shown, &size);
    ck_assert_ptr_nonnull(out);
    text_show(out, made, sizeof made - 1);
    fclose(out);
    ck_assert_str_eq(shown, "a?[2J\n\tb?c?d\xE2\x82\xAC?");
    free(shown);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("text");
    TCase *tcase = tcase_create("text");
    tcase_add_test(tcase, a_terminal_gets_no_control_characters);
    tcase_add_test(tcase, what_a_model_makes_is_shown_and_steers_nothing);
    tcase_add_test(tcase, plain_words_stay_as_they_are);
    tcase_add_test(tcase, a_shell_reads_back_what_was_quoted);
    tcase_add_test(tcase, a_word_that_is_too_long_is_cut_with_its_quotes_closed);
    tcase_add_loop_test(tcase, any_bytes_become_a_json_string, 0, (int)countof(cases));
    tcase_add_test(tcase, every_byte_alone_is_valid_json);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
