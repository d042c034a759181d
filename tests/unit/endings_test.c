/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/model/endings.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define CONFIG "config.json"
#define GENERATION "generation_config.json"
#define TOKENIZER "tokenizer_config.json"
#define TABLE "\"added_tokens_decoder\": {\"6\": {\"content\": \"a\"}, \"9\": {\"content\": \"b\"}}"

static struct tiny folder;

static void setup(void)
{
    err_clear();
    tiny_folder(&folder, TINY_MEMORY);
}

static void teardown(void)
{
    tiny_remove(&folder);
}

static void put(const char *name, const char *text)
{
    tiny_put(&folder, name, text, strlen(text));
}

/* Ids as a text, "7 9". */
static void expect(const char *wanted)
{
    struct token_list ids = {.ids = NULL};
    char text[256] = "";
    ck_assert_msg(model_endings(folder.dir, ENDINGS_ANY, &ids) == 0, "%s", err_message());
    for (size_t i = 0; i < ids.count; i++) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, i == 0 ? "%u" : " %u", ids.ids[i]);
    }
    free(ids.ids);
    ck_assert_str_eq(text, wanted);
}

START_TEST(each_file_names_some_by_itself)
{
    static const struct {
        const char *name, *text, *ids;
    } rows[] = {
        {CONFIG, "{\"eos_token_id\": 7}", "7"},
        {CONFIG, "{\"eos_token_id\": [7, 9, 7]}", "7 9"},
        {CONFIG, "{\"eos_token_id\": []}", ""},
        {CONFIG, "{\"eos_token_id\": null}", ""},
        {CONFIG, "{\"eos_token_id\": 2147483647}", "2147483647"},
        {CONFIG, "{\"text_config\": {\"eos_token_id\": 8}}", "8"},
        {CONFIG, "{\"eos_token_id\": 7, \"text_config\": {\"eos_token_id\": [8, 7]}}", "7 8"},
        {CONFIG, "{\"vision_config\": {\"eos_token_id\": 8}}", ""},
        {CONFIG, "{\"EOS_TOKEN_ID\": 8}", ""},
        {GENERATION, "{\"eos_token_id\": 7}", "7"},
        {GENERATION, "{\"eos_token_id\": [9, 7]}", "9 7"},
        {GENERATION, "{\"text_config\": {\"eos_token_id\": 8}}", ""},
        {TOKENIZER, "{\"eos_token\": \"b\", " TABLE "}", "9"},
        {TOKENIZER, "{\"eos_token\": {\"content\": \"b\"}, " TABLE "}", "9"},
        {TOKENIZER, "{\"eos_token\": \"c\", " TABLE "}", ""},
        {TOKENIZER, "{\"eos_token\": null, " TABLE "}", ""},
        {TOKENIZER, "{\"eos_token\": {\"contents\": \"b\"}, " TABLE "}", ""},
        {TOKENIZER, "{" TABLE "}", ""},
        {TOKENIZER, "{\"eos_token\": \"b\"}", ""},
        {TOKENIZER, "{\"eos_token_id\": 8}", ""},
        {"other.json", "{\"eos_token_id\": 8}", ""},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        put(rows[i].name, rows[i].text);
        expect(rows[i].ids);
        put(rows[i].name, "{}");
    }
}
END_TEST

START_TEST(all_files_count_and_none_need_be_there)
{
    expect("");
    put(TOKENIZER, "{\"eos_token\": \"b\", " TABLE "}");
    put(GENERATION, "{\"eos_token_id\": [7, 9]}");
    put(CONFIG, "{\"eos_token_id\": 3}");
    expect("3 7 9");
}
END_TEST

START_TEST(what_is_no_id_is_refused_with_the_name_of_the_file)
{
    static const struct {
        const char *name, *text, *said;
    } rows[] = {
        {CONFIG, "{\"eos_token_id\": -1}", "must be a token id"},
        {CONFIG, "{\"eos_token_id\": 2147483648}", "must be a token id"},
        {CONFIG, "{\"eos_token_id\": 1.5}", "must be a token id"},
        {CONFIG, "{\"eos_token_id\": \"7\"}", "must be a token id"},
        {CONFIG, "{\"eos_token_id\": [7, null]}", "must be a token id"},
        {CONFIG, "{\"eos_token_id\": {\"a\": 7}}", "must be a token id"},
        {CONFIG, "{\"text_config\": {\"eos_token_id\": true}}", "must be a token id"},
        {GENERATION, "{\"eos_token_id\": [[7]]}", "must be a token id"},
        {TOKENIZER, "{\"eos_token\": \"b\", \"added_tokens_decoder\": {\"12x\": {\"content\": "
         "\"b\"}}}", "'12x' in added_tokens_decoder is no token id"},
        {TOKENIZER, "{\"eos_token\": \"b\", \"added_tokens_decoder\": {\"\": {\"content\": "
         "\"b\"}}}", "is no token id"},
        {TOKENIZER, "{\"eos_token\": \"b\", \"added_tokens_decoder\": {\"-1\": {\"content\": "
         "\"b\"}}}", "is no token id"},
        {TOKENIZER, "{\"eos_token\": \"b\", \"added_tokens_decoder\": {\" 9\": {\"content\": "
         "\"b\"}}}", "is no token id"},
        {TOKENIZER, "{\"eos_token\": \"b\", \"added_tokens_decoder\": {\"2147483648\": "
         "{\"content\": \"b\"}}}", "is no token id"},
        {GENERATION, "{", GENERATION},
        {GENERATION, "", GENERATION},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        struct token_list ids = {.ids = NULL};
        put(rows[i].name, rows[i].text);
        ck_assert_msg(model_endings(folder.dir, ENDINGS_ANY, &ids) == ERR_MODEL, "row %zu", i);
        ck_assert_msg(strstr(err_message(), rows[i].name) != NULL &&
                          strstr(err_message(), rows[i].said) != NULL,
                      "row %zu: %s", i, err_message());
        free(ids.ids);
        err_clear();
        put(rows[i].name, "{}");
    }
}
END_TEST

START_TEST(an_id_beyond_the_vocabulary_is_refused_with_the_name_of_the_file)
{
    struct token_list ids = {.ids = NULL};
    put(CONFIG, "{\"eos_token_id\": 255}");
    ck_assert_int_eq(model_endings(folder.dir, 256, &ids), 0);
    put(GENERATION, "{\"eos_token_id\": [9, 256]}");
    ck_assert_int_eq(model_endings(folder.dir, 256, &ids), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(err_message(), GENERATION ": the end id 256 is not of this"));
    free(ids.ids);
    err_clear();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("endings");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, each_file_names_some_by_itself);
    tcase_add_test(all, an_id_beyond_the_vocabulary_is_refused_with_the_name_of_the_file);
    tcase_add_test(all, all_files_count_and_none_need_be_there);
    tcase_add_test(all, what_is_no_id_is_refused_with_the_name_of_the_file);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
