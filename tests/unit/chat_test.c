/* SPDX-License-Identifier: Apache-2.0 */

/* Conversations as ids: `chat_test [FILE]`, with the tiktoken.model of Kimi K3 instead of one made
 * here. Either way the ids are the published ones. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/model/chat.h"
#include "tests/support/kimi.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define THINK "163587,39964,163589"
#define END_MESSAGE "163588,2778,163589,163586"
#define OPEN_USER "163587,2778,6244,878,2482,1,163589"
#define OPEN_ASSISTANT "163587,2778,6244,878,69702,1,163589"
#define USER_HI OPEN_USER ",18699," END_MESSAGE
#define EFFORT                                                                                    \
    "163587,2778,6244,878,14062,1,1798,878,130400,59991,470,1,163589,63,130400,123074,470,63,"     \
    "28560,418,1632,2455,308,2704,306,651,9545,8491,347,2976,3411,276,4503,8491,904,9141,4661,"    \
    "3867,1268,1332,5713,1268,50004,5713,1268,19421,5713,316,1268,5354,16518,10048,276,2403,387,"  \
    "42070,472,1268,130400,123074,470,"

static const char *given; /* the real file, or NULL */
static struct tiny folder;
static struct tokenizer *t;
static struct chat chat;

static void open_once(void)
{
    char path[TINY_PATH_BYTES];
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "tiktoken.model", path);
    if (given == NULL) {
        kimi_write(path);
    }
    ck_assert_msg(tokenizer_open(given != NULL ? given : path, &t) == 0, "%s", err_message());
}

static void close_once(void)
{
    tokenizer_close(t);
    tiny_remove(&folder);
}

static void setup(void)
{
    err_clear();
    chat_init(&chat);
}

static void teardown(void)
{
    chat_fini(&chat);
}

static void say(enum chat_role role, const char *text)
{
    ck_assert_int_eq(chat_add(&chat, role, text), 0);
}

static struct token_list render(void)
{
    struct token_list ids = {.ids = NULL};
    ck_assert_msg(chat_render(&chat, t, &ids) == 0, "%s", err_message());
    return ids;
}

static void expect_ids(const char *expected)
{
    struct token_list ids = render();
    ck_assert_str_eq(kimi_join(ids.ids, ids.count), expected);
    free(ids.ids);
}

/* ---- published lists ---- */

START_TEST(texts_have_their_published_ids)
{
    static const struct {
        const char *text, *ids;
    } rows[] = {
        {"The capital of France is", "1008,10484,318,15383,387"},
        {"Hello", "19180"},
        {" Paris", "17374"},
        {"You are helpful.", "3900,554,13205,13"},
        {"You are terse.", "3900,554,93330,13"},
        {"2+2?", "17,10,17,30"},
        {"473, 921, 235", "42780,11,220,49114,11,220,23782"},
        {"What were the other two?", "5376,1646,276,1356,2069,30"},
        {"a&b \"q\" \u65E5\u672C\u8A9E \U0001F389\nsecond line",
         "64,5,65,414,80,1,220,4546,63011,17137,236,231,198,8959,2470"},
        {"What does [EOS] mean vs [PAD] and [UNK]?",
         "5376,2354,793,85521,60,4992,12583,793,54904,60,316,793,57780,87795"},
    };
    char expected[512];
    snprintf(expected, sizeof expected, "%s,%s,%s,%s,%s", OPEN_USER, rows[_i].ids, END_MESSAGE,
             OPEN_ASSISTANT, THINK);
    chat.effort = CHAT_EFFORT_NONE;
    say(CHAT_USER, rows[_i].text);
    expect_ids(expected);
}
END_TEST

START_TEST(a_first_turn_thinking_and_not)
{
    chat.effort = CHAT_EFFORT_NONE;
    say(CHAT_USER, "Hi");
    expect_ids(USER_HI "," OPEN_ASSISTANT "," THINK);
    chat.thinking = false;
    expect_ids(USER_HI "," OPEN_ASSISTANT ",163587,12092,163589");
    chat.effort = CHAT_EFFORT_MAX; /* of what? it does not think */
    expect_ids(USER_HI "," OPEN_ASSISTANT ",163587,12092,163589");
}
END_TEST

START_TEST(effort_is_said_before_everything)
{
    say(CHAT_USER, "Hi");
    ck_assert_int_eq(chat.effort, CHAT_EFFORT_MAX);
    expect_ids(EFFORT "105281,11369," END_MESSAGE "," USER_HI "," OPEN_ASSISTANT "," THINK);
    struct token_list ids = render();
    ck_assert_uint_eq(ids.count, 89);
    free(ids.ids);
    chat.effort = CHAT_EFFORT_LOW;
    expect_ids(EFFORT "28,1332,11369," END_MESSAGE "," USER_HI "," OPEN_ASSISTANT "," THINK);
}
END_TEST

START_TEST(earlier_reasoning_is_read_again)
{
    struct chat_message answer = {.role = CHAT_ASSISTANT, .reasoning = strdup("because")};
    chat.effort = CHAT_EFFORT_NONE;
    say(CHAT_USER, "q1");
    ck_assert_int_eq(chat_message_part(&answer, "a1"), 0);
    ck_assert_int_eq(chat_take(&chat, &answer), 0);
    say(CHAT_USER, "q2");
    expect_ids(OPEN_USER ",80,16," END_MESSAGE "," OPEN_ASSISTANT "," THINK
               ",47221,163588,39964,163589,163587,12092,163589,64,16,163588,12092,163589,"
               END_MESSAGE "," OPEN_USER ",80,17," END_MESSAGE "," OPEN_ASSISTANT "," THINK);
    chat.thinking = false;
    expect_ids(OPEN_USER ",80,16," END_MESSAGE "," OPEN_ASSISTANT
               ",163587,12092,163589,64,16,163588,12092,163589," END_MESSAGE "," OPEN_USER
               ",80,17," END_MESSAGE "," OPEN_ASSISTANT ",163587,12092,163589");
}
END_TEST

#define CALL                                                                                      \
    "163587,25385,163589,163587,10257,4453,878,618,21055,2800,1,4002,878,16,1,163589,163587,"      \
    "47185,2355,878,37666,1,1798,878,2033,1,163589,113476,163588,47185,163589,163587,47185,2355,"  \
    "878,21030,1,1798,878,10006,1,163589,18,163588,47185,163589,163588,10257,163589,163588,"       \
    "25385,163589"

START_TEST(a_call_of_a_tool)
{
    struct chat_message answer = {.role = CHAT_ASSISTANT};
    chat.effort = CHAT_EFFORT_NONE;
    answer.call = calloc(1, sizeof *answer.call);
    answer.call_count = 1;
    answer.call->name = strdup("get_weather");
    ck_assert_int_eq(chat_call_arguments(answer.call, "{\"city\": \"Paris\", \"days\": 3}"), 0);
    ck_assert_int_eq(chat_take(&chat, &answer), 0);
    expect_ids(OPEN_ASSISTANT "," THINK ",163588,39964,163589,163587,12092,163589,163588,12092,"
               "163589," CALL "," END_MESSAGE "," OPEN_ASSISTANT "," THINK);
}
END_TEST

/* ---- the rest, as text: control tokens are written out, texts are decoded ---- */

static void expect_text(const char *expected)
{
    struct token_list ids = render();
    struct byte_list text = {.bytes = NULL};
    ck_assert_int_eq(tokenizer_decode(t, ids.ids, ids.count, 0, &text), 0);
    text.bytes = realloc(text.bytes, text.count + 1);
    text.bytes[text.count] = '\0';
    ck_assert_str_eq((char *)text.bytes, expected);
    free(text.bytes);
    free(ids.ids);
}

static void read_json(const char *text)
{
    chat_fini(&chat);
    err_clear();
    ck_assert_msg(chat_read_json(&chat, text, strlen(text), "test") == 0, "%s", err_message());
}

#define NEXT "<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|>"
#define END "<|close|>message<|sep|><|end_of_msg|>"

START_TEST(tools_are_declared_sorted_and_compact)
{
    read_json("{\"reasoning_effort\": \"none\", \"tools\": [{\"type\": \"function\", \"function\": "
              "{\"parameters\": {\"b\": 1.50, \"a\": [1, 12345678901234567890, -0]}, \"name\": "
              "\"\u65E5\\u0008\"}}], \"messages\": [{\"role\": \"system\", \"tools\": "
              "[{\"z\": true, \"y\": null}]}]}");
    expect_text("<|open|>message role=\"system\" type=\"tool-declare\"<|sep|># Tools\nHere are the "
                "available tools, described in JSONSchema.\n\n```json\n[{\"function\":{\"name\":"
                "\"\u65E5\\b\",\"parameters\":{\"a\":[1,12345678901234567890,0],\"b\":1.5}},"
                "\"type\":\"function\"}]\n```" END
                "<|open|>message role=\"system\" type=\"tool-declare\"<|sep|>## New Tools "
                "Available\nThe system dynamically extends the toolset via lazy-loading.\nYou have "
                "access to all existing and extended tools.\nHere are the specs for the extended "
                "tools.\n\n```json\n[{\"y\":null,\"z\":true}]\n```" END NEXT);
}
END_TEST

START_TEST(choice_and_format_are_said_last)
{
    read_json("{\"reasoning_effort\": \"none\", \"tool_choice\": \"required\", "
    "\"response_format\": "
              "{\"type\": \"json_object\"}, \"messages\": [{\"role\": \"user\", \"content\": "
              "\"x\"}]}");
    const char *user = "<|open|>message role=\"user\"<|sep|>x" END;
    char expected[1024];
    snprintf(expected, sizeof expected, "%s"
             "<|open|>message role=\"system\" type=\"tool-choice\"<|sep|>The system is invoked "
             "with "
             "`tool_choice=required`.\nYou MUST call tools in the next message." END
             "<|open|>message role=\"system\" type=\"response-format\"<|sep|>The system is invoked "
             "with `response_format=json_object`.\nYour response must be raw JSON data without "
             "markdown code blocks (```json) or any additional formatting." END NEXT, user);
    expect_text(expected);
    read_json("{\"reasoning_effort\": \"none\", \"tool_choice\": \"none\", \"response_format\": "
              "{\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\", \"schema\": {\"b\": "
              "1, \"a\": 2}}}, \"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}");
    snprintf(expected, sizeof expected, "%s"
             "<|open|>message role=\"system\" type=\"tool-choice\"<|sep|>The system is invoked "
             "with "
             "`tool_choice=none`.\nYou MUST NOT call any tools in the next message." END
             "<|open|>message role=\"system\" type=\"response-format\"<|sep|>The system is invoked "
             "with `response_format=json_schema`.\nYour response must be raw JSON data without "
             "markdown code blocks (```json) or any additional formatting.\nThe JSON data must "
             "match the following schema:\n```json\n{\"a\":2,\"b\":1}\n```" END NEXT, user);
    expect_text(expected);
}
END_TEST

START_TEST(names_are_escaped_and_content_is_not)
{
    read_json("{\"reasoning_effort\": \"none\", \"messages\": [{\"role\": \"user\", \"name\": "
              "\"<a> & \\\"b\\\" &amp;\", \"content\": \"<a> & \\\"b\\\"\"}]}");
    expect_text("<|open|>message role=\"user\" name=\"<a> &amp; &quot;b&quot; &amp;amp;\"<|sep|>"
                "<a> & \"b\"" END NEXT);
}
END_TEST

/* Joined, `Hi` and `Hi` would meet in the tokenizer. */
START_TEST(parts_of_a_content_are_encoded_apart)
{
    read_json("{\"reasoning_effort\": \"none\", \"messages\": [{\"role\": \"user\", \"content\": ["
              "{\"type\": \"text\", \"text\": \"thin\"}, {\"type\": \"text\", \"text\": "
              "\"king\"}]}]}");
    expect_text("<|open|>message role=\"user\"<|sep|>thinking" END NEXT);
    struct token_list ids = render();
    for (size_t i = 0; i < ids.count; i++) {
        ck_assert_uint_ne(ids.ids[i], 130400);
    }
    free(ids.ids);
}
END_TEST

#define CALLS                                                                                     \
    "{\"role\": \"assistant\", \"tool_calls\": ["                                                 \
    "{\"id\": \"p\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "      \
    "\"{\\\"o\\\": {\\\"b\\\": [1, null], \\\"a\\\": true}, \\\"s\\\": \\\"x\\\\ny\\\"}\"}}, "    \
    "{\"id\": \"q\", \"function\": {\"name\": \"g\", \"arguments\": \"not json\"}}, "             \
    "{\"id\": \"r\", \"function\": {\"name\": \"h\", \"arguments\": {}}}]}"

START_TEST(arguments_keep_their_types_and_what_is_no_json_stays_raw)
{
    read_json("{\"thinking\": false, \"messages\": [" CALLS "]}");
    expect_text("<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|><|close|>response"
                "<|sep|><|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>"
                "argument key=\"o\" type=\"object\"<|sep|>{\"b\": [1, null], \"a\": true}<|close|>"
                "argument<|sep|><|open|>argument key=\"s\" type=\"string\"<|sep|>x\ny<|close|>"
                "argument<|sep|><|close|>call<|sep|><|open|>call tool=\"g\" index=\"2\"<|sep|>"
                "<|open|>json type=\"object\"<|sep|>not "
                "json<|close|>json<|sep|><|close|>call<|sep|>"
                "<|open|>call tool=\"h\" "
                "index=\"3\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
                END "<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>");
}
END_TEST

static void expect_results(const char *results, const char *expected)
{
    char text[2048], whole[2048];
    snprintf(text, sizeof text, "{\"thinking\": false, \"messages\": [" CALLS ", %s]}", results);
    read_json(text);
    struct token_list ids = render();
    struct byte_list decoded = {.bytes = NULL};
    ck_assert_int_eq(tokenizer_decode(t, ids.ids, ids.count, 0, &decoded), 0);
    snprintf(whole, sizeof whole, "%.*s", (int)decoded.count, (const char *)decoded.bytes);
    const char *at = strstr(whole, "<|open|>message role=\"tool\"");
    ck_assert_msg(at != NULL && strncmp(at, expected, strlen(expected)) == 0, "%s", whole);
    free(decoded.bytes);
    free(ids.ids);
}

START_TEST(results_come_in_the_order_of_the_calls)
{
    expect_results("{\"role\": \"tool\", \"tool_call_id\": \"r\", \"content\": \"3\"}, "
                   "{\"role\": \"tool\", \"tool_call_id\": \"p\", \"content\": \"1\"}",
                   "<|open|>message role=\"tool\" tool=\"f\" index=\"1\"<|sep|>1" END
                   "<|open|>message role=\"tool\" tool=\"h\" index=\"2\"<|sep|>3" END
                   "<|open|>message role=\"assistant\"");
}
END_TEST

START_TEST(results_stay_in_place_when_not_all_of_them_can_be_told)
{
    expect_results("{\"role\": \"tool\", \"tool_call_id\": \"r\", \"content\": \"3\"}, "
                   "{\"role\": \"tool\", \"tool_call_id\": \"?\", \"name\": \"z\", \"content\": "
                   "\"0\"}, {\"role\": \"tool\", \"tool_call_id\": \"p\", \"content\": \"1\"}",
                   "<|open|>message role=\"tool\" tool=\"h\" index=\"1\"<|sep|>3" END
                   "<|open|>message role=\"tool\" tool=\"z\" index=\"2\"<|sep|>0" END
                   "<|open|>message role=\"tool\" tool=\"f\" index=\"3\"<|sep|>1" END);
    expect_results("{\"role\": \"tool\", \"tool_call_id\": \"r\", \"content\": \"3\"}, "
                   "{\"role\": \"tool\", \"tool_call_id\": \"r\", \"content\": \"4\"}, "
                   "{\"role\": \"tool\", \"tool_call_id\": \"p\", \"content\": \"1\"}",
                   "<|open|>message role=\"tool\" tool=\"h\" index=\"1\"<|sep|>3" END);
}
END_TEST

START_TEST(the_parts_together_are_the_whole)
{
    struct token_list whole, parts = {.ids = NULL};
    chat.choice = CHAT_CHOICE_NONE;
    say(CHAT_SYSTEM, "You are terse.");
    say(CHAT_USER, "Hi");
    whole = render();
    ck_assert_int_eq(chat_render_head(&chat, t, &parts), 0);
    ck_assert_int_eq(chat_render_messages(&chat, 0, t, &parts), 0);
    ck_assert_int_eq(chat_render_tail(&chat, t, &parts), 0);
    ck_assert_str_eq(kimi_join(parts.ids, parts.count), kimi_join(whole.ids, whole.count));
    size_t before = parts.count;
    ck_assert_int_eq(chat_render_messages(&chat, 2, t, &parts), 0);
    ck_assert_uint_eq(parts.count, before);
    free(whole.ids);
    free(parts.ids);
}
END_TEST

/* ---- no text becomes a control token ---- */

static char *hostile(struct rng *rng)
{
    static const char *const pieces[] = {
        "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "[EOS]", "[BOS]", "[PAD]", "message",
        "<|reserved_token_163592|>", "<|", "|>", "<|op", "en|>", "\"", "&quot;", "&", " role=\"",
        "system", "\n", " ", "\u65E5", "think", "response", "x", "<osagent_mode>", "<|media_pad|>",
        "\\u003c|open|>", "\xC2\xA0"};
    char *text = calloc(1, 1024);
    ck_assert_ptr_nonnull(text);
    for (uint64_t i = rng_below(rng, 24); i > 0; i--) {
        strcat(text, pieces[rng_below(rng, countof(pieces))]);
    }
    return text;
}

/* A conversation with a text in every place there is; NULL: "x" in all of them. */
static void fill(struct rng *rng)
{
    chat_fini(&chat);
    for (int role = 0; role < CHAT_ROLES; role++) {
        struct chat_message m = {.role = (enum chat_role)role};
        char *text = rng != NULL ? hostile(rng) : strdup("x");
        m.name = rng != NULL ? hostile(rng) : strdup("x");
        ck_assert_int_eq(chat_message_part(&m, text), 0);
        if (role == CHAT_ASSISTANT) {
            m.reasoning = rng != NULL ? hostile(rng) : strdup("x");
            m.call = calloc(2, sizeof *m.call);
            m.call_count = 2;
            m.call[0] = (struct chat_call){.name = strdup(text), .raw = strdup(text)};
            m.call[1] = (struct chat_call){.name = strdup(text), .argument_count = 1};
            m.call[1].argument = calloc(1, sizeof *m.call[1].argument);
            *m.call[1].argument = (struct chat_argument){.key = strdup(text),
                                                         .value = strdup(m.reasoning)};
        }
        free(text);
        ck_assert_int_eq(chat_take(&chat, &m), 0);
    }
    struct chat_message more = {.tools = rng != NULL ? hostile(rng) : strdup("x")};
    ck_assert_int_eq(chat_take(&chat, &more), 0);
    chat.tools = rng != NULL ? hostile(rng) : strdup("x");
    chat.schema = rng != NULL ? hostile(rng) : strdup("x");
    chat.format = CHAT_FORMAT_SCHEMA;
}

static size_t controls(uint32_t *to)
{
    struct token_list ids = render();
    size_t count = 0;
    for (size_t i = 0; i < ids.count; i++) {
        if (ids.ids[i] >= tokenizer_first_added(t)) {
            to[count++] = ids.ids[i];
        }
    }
    free(ids.ids);
    return count;
}

START_TEST(no_text_becomes_a_control_token)
{
    static uint32_t plain[512], other[512];
    struct rng rng = rng_seed((uint64_t)_i);
    fill(NULL);
    size_t count = controls(plain);
    ck_assert_uint_gt(count, 60);
    for (int round = 0; round < 50; round++) {
        fill(&rng);
        ck_assert_msg(controls(other) == count && memcmp(plain, other, count * 4) == 0,
                      "seed %d, round %d", _i, round);
    }
}
END_TEST

int main(int argc, char **argv)
{
    given = argc > 1 ? argv[1] : NULL;
    Suite *suite = suite_create("chat");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_unchecked_fixture(all, open_once, close_once);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_loop_test(all, texts_have_their_published_ids, 0, 10);
    tcase_add_test(all, a_first_turn_thinking_and_not);
    tcase_add_test(all, effort_is_said_before_everything);
    tcase_add_test(all, earlier_reasoning_is_read_again);
    tcase_add_test(all, a_call_of_a_tool);
    tcase_add_test(all, tools_are_declared_sorted_and_compact);
    tcase_add_test(all, choice_and_format_are_said_last);
    tcase_add_test(all, names_are_escaped_and_content_is_not);
    tcase_add_test(all, parts_of_a_content_are_encoded_apart);
    tcase_add_test(all, arguments_keep_their_types_and_what_is_no_json_stays_raw);
    tcase_add_test(all, results_come_in_the_order_of_the_calls);
    tcase_add_test(all, results_stay_in_place_when_not_all_of_them_can_be_told);
    tcase_add_test(all, the_parts_together_are_the_whole);
    tcase_add_loop_test(all, no_text_becomes_a_control_token, 0, 8);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
