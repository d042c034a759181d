/* SPDX-License-Identifier: Apache-2.0 */

/* Conversations as JSON: read strictly, written so that they can be read again; and JSON as text,
 * digit by digit as Python writes it. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/model/chat.h"
#include "tests/support/suite.h"

static struct chat chat;

static void setup(void)
{
    err_clear();
    chat_init(&chat);
}

static void teardown(void)
{
    chat_fini(&chat);
}

static int read_json(const char *text)
{
    return chat_read_json(&chat, text, strlen(text), "talk.json");
}

/* ---- texts ---- */

static void expect_text(const char *text, unsigned flags, const char *expected)
{
    cJSON *tree = json_parse_exact(text, strlen(text), "x");
    ck_assert_msg(tree != NULL, "%s", err_message());
    char *shown = json_text(tree, flags);
    ck_assert_str_eq(shown, expected);
    free(shown);
    cJSON_Delete(tree);
}

START_TEST(json_is_written_as_python_writes_it)
{
    const char *text = "{\"b\" : [1, 2.0 ,{}, []], \"a\":{\"\u00E9\":null,\"e\":true}, \"A\":\"\"}";
    expect_text(text, 0, "{\"b\":[1,2.0,{},[]],\"a\":{\"\u00E9\":null,\"e\":true},\"A\":\"\"}");
    expect_text(text, JSON_SORTED | JSON_SPACED,
                "{\"A\": \"\", \"a\": {\"e\": true, \"\u00E9\": null}, \"b\": [1, 2.0, {}, []]}");
    expect_text("\"\\u0001\\n\\t\\r\\b\\f\\\\\\\"/\\/\x7F\\u00e9\\ud83c\\udf89\"", 0,
                "\"\\u0001\\n\\t\\r\\b\\f\\\\\\\"//\x7F\u00E9\U0001F389\"");
}
END_TEST

START_TEST(numbers_lose_nothing_and_floats_are_the_shortest)
{
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"0", "0"}, {"-0", "0"}, {"-7", "-7"}, {"123456789012345678901234567890",
         "123456789012345678901234567890"}, {"1.0", "1.0"}, {"-0.0", "-0.0"}, {"0.1", "0.1"},
        {"1.50", "1.5"}, {"1e3", "1000.0"}, {"1E15", "1000000000000000.0"}, {"1e16", "1e+16"},
        {"123456789.25e0", "123456789.25"}, {"0.0001", "0.0001"}, {"0.00001", "1e-05"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"}, {"5e-324", "5e-324"},
        {"0.1e-6", "1e-07"}, {"3.141592653589793", "3.141592653589793"},
        {"2.5e-3", "0.0025"}, {"9007199254740993.0", "9007199254740992.0"}, {"1e999", "1e999"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        expect_text(rows[i].text, 0, rows[i].expected);
    }
}
END_TEST

START_TEST(texts_that_cannot_be_passed_on_are_refused)
{
    static const char *const texts[] = {"\"a\\u0000b\"", "\"\xFF\"", "\"\\\\\\u0000\"",
    "\"\xE4\xBD\""};
    for (size_t i = 0; i < countof(texts); i++) {
        err_clear();
        ck_assert_ptr_null(json_parse_exact(texts[i], strlen(texts[i]), "x"));
        ck_assert_ptr_nonnull(strstr(err_message(), "x: not usable JSON at byte"));
    }
    expect_text("\"\\\\u0000\"", 0, "\"\\\\u0000\"");
}
END_TEST

/* ---- conversations ---- */

START_TEST(what_is_written_is_read_again)
{
    const char *text =
        "{\"thinking\": false, \"reasoning_effort\": \"low\", \"tools\": "
        "[{\"a\":1.5,\"b\":\"\\n\"}], "
        "\"tool_choice\": \"required\", \"response_format\": {\"type\": \"json_schema\", "
        "\"json_schema\": {\"schema\": {\"x\":[]}}}, \"messages\": [{\"role\": \"system\", "
        "\"content\": \"s\"}, {\"role\": \"system\", \"tools\": [{}]}, {\"role\": \"user\", "
        "\"name\": "
        "\"n\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", "
        "\"text\": "
        "\"b\"}]}, {\"role\": \"assistant\", \"reasoning_content\": \"r\", \"content\": null, "
        "\"tool_calls\": [{\"id\": \"i\", \"type\": \"function\", \"function\": {\"name\": \"f\", "
        "\"arguments\": \"{\\\"k\\\": [1, 12345678901234567890], \\\"s\\\": \\\"\\\"}\"}}, "
        "{\"id\": "
        "\"j\", \"type\": \"function\", \"function\": {\"name\": \"g\", \"arguments\": \"[\"}}]}, "
        "{\"role\": \"tool\", \"content\": \"\", \"tool_call_id\": \"i\"}, {\"role\": "
        "\"assistant\", "
        "\"content\": \"done\"}]}";
    ck_assert_msg(read_json(text) == 0, "%s", err_message());
    ck_assert_uint_eq(chat.count, 6);
    ck_assert_uint_eq(chat.message[3].call[0].argument_count, 2);
    ck_assert_str_eq(chat.message[3].call[1].raw, "[");
    char *written = chat_json_text(&chat);
    ck_assert_str_eq(written, text);
    chat_fini(&chat);
    ck_assert_int_eq(read_json(written), 0);
    char *again = chat_json_text(&chat);
    ck_assert_str_eq(again, text);
    free(again);
    free(written);
}
END_TEST

START_TEST(settings_stay_where_nothing_is_said_of_them)
{
    chat.effort = CHAT_EFFORT_HIGH;
    chat.thinking = false;
    ck_assert_int_eq(read_json("[{\"role\": \"user\", \"content\": \"x\"}]"), 0);
    ck_assert_int_eq(chat.effort, CHAT_EFFORT_HIGH);
    ck_assert_int_eq(chat.thinking, false);
    ck_assert_int_eq(read_json("{\"messages\": [], \"thinking\": true}"), 0);
    ck_assert_int_eq(chat.thinking, true);
    ck_assert_uint_eq(chat.count, 1); /* it was added to */
    ck_assert_int_eq(chat_read_tools(&chat, "[{\"b\": 1, \"a\": 2}]", 18, "tools"), 0);
    ck_assert_str_eq(chat.tools, "[{\"a\":2,\"b\":1}]");
}
END_TEST

START_TEST(mistakes_are_named_with_their_message)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"[{\"role\": \"user\", \"content\": \"x\"}, {\"content\": \"y\"}]",
         "talk.json: message 2: has no \"role\""},
        {"[{\"role\": \"developer\", \"content\": \"x\"}]", "none of system, user, assistant, "
        "tool"},
        {"[{\"role\": \"user\", \"contents\": \"x\"}]", "of role user has no \"contents\""},
        {"[{\"role\": \"user\", \"tool_calls\": []}]", "of role user has no \"tool_calls\""},
        {"[{\"role\": \"user\"}]", "message 1: has no \"content\""},
        {"[{\"role\": \"user\", \"content\": null}]", "has no \"content\""},
        {"[{\"role\": \"user\", \"content\": 7}]", "neither a string nor a list"},
        {"[{\"role\": \"user\", \"content\": [7]}]", "a part of \"content\" is not"},
        {"[{\"role\": \"user\", \"content\": [[]]}]", "a part of \"content\" is not"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]",
         "of type \"image_url\"; only \"text\""},
        {"[{\"role\": \"user\", \"content\": \"x\", \"name\": 1}]", "\"name\" is not a string"},
        {"[{\"role\": \"tool\", \"content\": \"x\"}]", "needs the \"tool_call_id\""},
        {"[{\"role\": \"tool\", \"content\": \"x\", \"tool_call_id\": \"a\"}]", "right before it"},
        {"[{\"role\": \"system\", \"content\": \"x\", \"tools\": [{}]}]", "make two messages"},
        {"[{\"role\": \"system\", \"tools\": []}]", "\"tools\" is not a list of objects"},
        {"[{\"role\": \"assistant\", \"tool_calls\": {}}]", "\"tool_calls\" is not a list"},
        {"[{\"role\": \"assistant\", \"tool_calls\": [[]]}]", "a call is not"},
        {"[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"\"}}]}]",
         "a call is not"},
        {"[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\"}}]}]",
         "\"arguments\" of a call"},
        {"[{\"role\": \"assistant\", \"tool_calls\": [{\"x\": 1, \"function\": {\"name\": "
        "\"f\"}}]}]",
         "the key \"x\""},
        {"[7]", "message 1: is not an object"},
        {"7", "neither a list of messages nor"},
        {"{}", "neither a list of messages nor"},
        {"{\"messages\": [], \"temperature\": 1}", "the key \"temperature\""},
        {"{\"messages\": [], \"thinking\": 1}", "neither true nor false"},
        {"{\"messages\": [], \"reasoning_effort\": \"medium\"}", "\"low\", \"high\", \"max\""},
        {"{\"messages\": [], \"tool_choice\": {}}", "\"tool_choice\" is none of"},
        {"{\"messages\": [], \"response_format\": {\"type\": \"xml\"}}", "\"response_format\""},
        {"{\"messages\": [], \"response_format\": {\"type\": \"json_schema\"}}", "json_schema"},
        {"{\"messages\": [], \"tools\": [1]}", "\"tools\" is not a list of objects"},
        {"{\"messages\": [], \"messages\": []}", "twice"},
        {"[", "talk.json: not valid JSON"},
        {"", "talk.json"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        chat_fini(&chat);
        err_clear();
        ck_assert_msg(read_json(rows[i].text) == ERR_USAGE, "row %zu: %s", i, err_message());
        ck_assert_msg(strstr(err_message(), rows[i].part) != NULL, "no \"%s\" in: %s", rows[i].part,
                      err_message());
    }
}
END_TEST

START_TEST(messages_before_a_mistake_are_kept)
{
    ck_assert_int_eq(read_json("[{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"tool\", "
                               "\"content\": \"y\"}]"), ERR_USAGE);
    ck_assert_uint_eq(chat.count, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat_json");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, json_is_written_as_python_writes_it);
    tcase_add_test(all, numbers_lose_nothing_and_floats_are_the_shortest);
    tcase_add_test(all, texts_that_cannot_be_passed_on_are_refused);
    tcase_add_test(all, what_is_written_is_read_again);
    tcase_add_test(all, settings_stay_where_nothing_is_said_of_them);
    tcase_add_test(all, mistakes_are_named_with_their_message);
    tcase_add_test(all, messages_before_a_mistake_are_kept);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
