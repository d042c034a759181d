/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "tests/support/suite.h"

static cJSON *parse(const char *text, bool integers_only)
{
    err_clear();
    return json_parse(text, strlen(text), "x.json", integers_only);
}

static void expect_refusal(const char *text, bool integers_only, const char *part)
{
    const cJSON *tree = parse(text, integers_only);
    ck_assert_msg(tree == NULL, "%s", text);
    ck_assert_ptr_nonnull(strstr(err_message(), "x.json"));
    ck_assert_msg(strstr(err_message(), part) != NULL, "%s", err_message());
}

static bool whole(const char *text, uint64_t *value)
{
    cJSON *tree = parse(text, false);
    ck_assert_msg(tree != NULL, "%s", err_message());
    const bool good = json_u64(tree, value);
    cJSON_Delete(tree);
    return good;
}

START_TEST(a_tree_holds_what_the_text_says)
{
    cJSON *tree = parse("{\"a\":[1,2.5,\"x\"],\"b\":{\"c\":null}} \n", false);
    ck_assert_ptr_nonnull(tree);
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(tree, "a");
    ck_assert_int_eq(cJSON_GetArraySize(a), 3);
    ck_assert_double_eq(cJSON_GetArrayItem(a, 1)->valuedouble, 2.5);
    cJSON_Delete(tree);
}
END_TEST

START_TEST(refusals_name_the_file_the_byte_and_the_reason)
{
    expect_refusal("{\"a\":1,}", false, "byte 7");
    expect_refusal("[1] 2", false, "something follows");
    expect_refusal("", false, "byte 0");
    expect_refusal("version https://x", false, "byte 0");
}
END_TEST

START_TEST(other_encodings_are_named_with_what_to_do)
{
    static const struct {
        const char *text;
        size_t size_bytes;
        const char *said;
    } rows[] = {{"\xEF\xBB\xBF{}", 5, "begins with a byte order mark"},
                {"\xFF\xFE{\0}\0", 6, "UTF-16"},
                {"\xFE\xFF\0{\0}", 6, "UTF-16"},
                {"{\0}\0", 4, "UTF-16"},
                {"\0{\0}", 4, "UTF-16"}};
    for (size_t i = 0; i < countof(rows); i++) {
        for (int exact = 0; exact < 2; exact++) {
            err_clear();
            const size_t size = rows[i].size_bytes;
            ck_assert_ptr_null(exact ? json_parse_exact(rows[i].text, size, "x.json")
                                     : json_parse(rows[i].text, size, "x.json", false));
            ck_assert_msg(strstr(err_message(), rows[i].said) != NULL &&
                              strstr(err_message(), "save it as UTF-8 without") != NULL,
                          "row %zu: %s", i, err_message());
        }
    }
    expect_refusal("\xEF\xBB", false, "a value was expected");
    expect_refusal("nothing", false, "a value was expected");
}
END_TEST

START_TEST(only_the_given_bytes_are_parsed)
{
    cJSON *tree = json_parse("[1]garbage", 3, "x.json", false);
    ck_assert_ptr_nonnull(tree);
    cJSON_Delete(tree);
    err_clear();
    ck_assert_ptr_null(json_parse("[1]\0", 4, "x.json", false));
}
END_TEST

START_TEST(nesting_beyond_the_bound_is_refused)
{
    char text[2 * JSON_DEPTH_MAX + 3];
    memset(text, '[', JSON_DEPTH_MAX);
    memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    text[2 * JSON_DEPTH_MAX] = '\0';
    cJSON *tree = parse(text, false);
    ck_assert_ptr_nonnull(tree);
    cJSON_Delete(tree);
    memset(text, '[', JSON_DEPTH_MAX + 1);
    memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    text[2 * JSON_DEPTH_MAX + 2] = '\0';
    expect_refusal(text, false, "nested too deep");
}
END_TEST

START_TEST(a_key_that_occurs_twice_is_refused_at_any_depth)
{
    expect_refusal("{\"a\":1,\"b\":2,\"a\":3}", false, "'a'");
    expect_refusal("[{\"x\":{\"key\":1,\"key\":1}}]", false, "'key'");
    expect_refusal("{\"a\":1,\"\\u0061\":1}", false, "'a'");
    cJSON *tree = parse("{\"a\":{\"a\":1},\"A\":{\"a\":1},\"b\":[{\"a\":1},{\"a\":1}]}", false);
    ck_assert_ptr_nonnull(tree);
    cJSON_Delete(tree);
}
END_TEST

START_TEST(integers_only_refuses_what_is_not_made_of_digits)
{
    expect_refusal("{\"a\":[1e3]}", true, "sign, fraction or exponent");
    expect_refusal("{\"a\":[128.0]}", true, "sign, fraction or exponent");
    expect_refusal("{\"a\":[-1]}", true, "sign, fraction or exponent");
    cJSON *tree = parse("{\"-1.5\":\"1e3\",\"b\":17}", true);
    ck_assert_ptr_nonnull(tree);
    cJSON_Delete(tree);
}
END_TEST

START_TEST(whole_numbers_are_told_by_their_spelling)
{
    uint64_t value = 0;
    ck_assert(whole("7168", &value) && value == 7168);
    ck_assert(whole("0", &value) && value == 0);
    ck_assert(whole("9007199254740992", &value) && value == 9007199254740992U);
    ck_assert(!whole("9007199254740993", &value)); /* a double cannot tell it from 2^53 */
    ck_assert(!whole("18446744073709551616", &value));
    ck_assert(!whole("128.0", &value));
    ck_assert(!whole("1e3", &value));
    ck_assert(!whole("-1", &value));
    ck_assert(!whole("\"1\"", &value));
    ck_assert(!whole("true", &value));
    ck_assert(!json_u64(NULL, &value));
}
END_TEST

START_TEST(a_key_is_a_number_when_it_is_spelled_like_one)
{
    static const char *const none[] = {"", "-1", "+1", " 1", "1 ", "1x", "01", "1.0", "1e1",
                                       "9007199254740993", "99999999999999999999"};
    cJSON item = {.string = "163584"};
    uint64_t value = 0;
    ck_assert(json_key_u64(&item, &value) && value == 163584);
    item.string = "0";
    ck_assert(json_key_u64(&item, &value) && value == 0);
    item.string = "9007199254740992";
    ck_assert(json_key_u64(&item, &value) && value == 1ULL << 53);
    for (size_t i = 0; i < countof(none); i++) {
        item.string = (char *)(uintptr_t)none[i];
        ck_assert_msg(!json_key_u64(&item, &value), "'%s'", none[i]);
    }
    item.string = NULL;
    ck_assert(!json_key_u64(&item, &value) && !json_key_u64(NULL, &value));
}
END_TEST

START_TEST(each_number_of_a_tree_is_matched_with_its_own_spelling)
{
    static const bool expected[] = {true, false, true, false, true, true};
    cJSON *tree = parse("{\"9\":[1,2.0,{\"x-1\":3}],\"b\":\"7\",\"c\":[-4,5],\"d\":6}", false);
    ck_assert_ptr_nonnull(tree);
    const cJSON *nine = cJSON_GetObjectItemCaseSensitive(tree, "9");
    const cJSON *c = cJSON_GetObjectItemCaseSensitive(tree, "c");
    const cJSON *numbers[] = {
        cJSON_GetArrayItem(nine, 0), cJSON_GetArrayItem(nine, 1),
        cJSON_GetArrayItem(nine, 2)->child, cJSON_GetArrayItem(c, 0), cJSON_GetArrayItem(c, 1),
        cJSON_GetObjectItemCaseSensitive(tree, "d")};
    for (size_t i = 0; i < countof(numbers); i++) {
        uint64_t value = 0;
        ck_assert(cJSON_IsNumber(numbers[i]));
        ck_assert_msg(json_u64(numbers[i], &value) == expected[i], "number %zu", i);
    }
    cJSON_Delete(tree);
}
END_TEST

START_TEST(a_locale_with_a_decimal_comma_changes_nothing)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8"};
    for (size_t i = 0; i < countof(names); i++) {
        (void)setlocale(LC_ALL, names[i]); /* most machines have none of them */
        cJSON *tree = parse("[1e-05,1.5]", false);
        ck_assert_ptr_nonnull(tree);
        ck_assert_double_eq(cJSON_GetArrayItem(tree, 0)->valuedouble, 1e-05);
        ck_assert_double_eq(cJSON_GetArrayItem(tree, 1)->valuedouble, 1.5);
        cJSON_Delete(tree);
    }
    setlocale(LC_ALL, "C");
}
END_TEST

START_TEST(a_hundred_thousand_keys_are_compared_quickly)
{
    const size_t capacity = 2000000;
    char *text = malloc(capacity);
    ck_assert_ptr_nonnull(text);
    size_t used = 0;
    for (int i = 0; i < 100000; i++) {
        used += (size_t)snprintf(text + used, capacity - used, "%c\"%d\":0", i == 0 ? '{' : ',',
                                 i);
    }
    text[used++] = '}';
    cJSON *tree = json_parse(text, used, "x.json", true);
    ck_assert_msg(tree != NULL, "%s", err_message());
    cJSON_Delete(tree);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, a_tree_holds_what_the_text_says);
    tcase_add_test(all, refusals_name_the_file_the_byte_and_the_reason);
    tcase_add_test(all, other_encodings_are_named_with_what_to_do);
    tcase_add_test(all, only_the_given_bytes_are_parsed);
    tcase_add_test(all, nesting_beyond_the_bound_is_refused);
    tcase_add_test(all, a_key_that_occurs_twice_is_refused_at_any_depth);
    tcase_add_test(all, integers_only_refuses_what_is_not_made_of_digits);
    tcase_add_test(all, whole_numbers_are_told_by_their_spelling);
    tcase_add_test(all, a_key_is_a_number_when_it_is_spelled_like_one);
    tcase_add_test(all, each_number_of_a_tree_is_matched_with_its_own_spelling);
    tcase_add_test(all, a_locale_with_a_decimal_comma_changes_nothing);
    tcase_add_test(all, a_hundred_thousand_keys_are_compared_quickly);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
