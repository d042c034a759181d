/* SPDX-License-Identifier: Apache-2.0 */

/* Answers taken apart. They are written as text here, control tokens by their names, every other
 * byte being a token of its own. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/base/utf8.h"
#include "core/model/chat_parse.h"
#include "tests/support/amount.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"
#include "tests/support/vocabulary.h"

#define TEXT_BYTES 16384

static struct tiny folder;
static struct tokenizer *t;

/* What the events told, and what the answer was in the end. */
static struct {
    char reasoning[TEXT_BYTES], response[TEXT_BYTES], calls[TEXT_BYTES];
    uint32_t broken_characters;
    bool over;
    size_t taken; /* tokens */
    struct chat_message message;
    struct token_list ids; /* taken, without those that end an answer, and then closed */
} seen;

static void on_text(void *ctx, enum chat_channel channel, const char *text, size_t size)
{
    char *to = channel == CHAT_REASONING ? seen.reasoning : seen.response;
    ck_assert_ptr_null(ctx);
    ck_assert_uint_gt(size, 0);
    strncat(to, text, size);
    for (size_t at = 0; at < size;) {
        uint32_t code;
        size_t step = utf8_read((const unsigned char *)text + at, size - at, &code);
        seen.broken_characters += step == 0;
        at += step > 0 ? step : 1;
    }
}

static void on_call(void *ctx, const struct chat_call *call)
{
    char *arguments = chat_call_text(call);
    ck_assert_ptr_null(ctx);
    snprintf(seen.calls + strlen(seen.calls), 512, "%s(%s)\n", call->name, arguments);
    free(arguments);
}

static void forget(void)
{
    chat_message_fini(&seen.message);
    free(seen.ids.ids);
    memset(&seen, 0, sizeof seen);
}

static void run(const uint32_t *ids, size_t count, bool thinking)
{
    const struct chat_events events = {.on_text = on_text, .on_call = on_call};
    struct chat_tokens control = chat_tokens(t);
    struct chat_parser *p;
    forget();
    seen.ids.ids = malloc((count + 1) * sizeof *ids);
    seen.ids.capacity = count + 1;
    ck_assert_int_eq(chat_parser_open(&p, t, thinking, &events), 0);
    while (seen.taken < count && !seen.over) {
        uint32_t id = ids[seen.taken++];
        int rc = chat_parser_push(p, id);
        ck_assert_int_ge(rc, 0);
        seen.over = rc == 1;
        ck_assert_int_eq(chat_parser_over(p), seen.over);
        if (id != control.end && id != control.eos) {
            seen.ids.ids[seen.ids.count++] = id;
        }
    }
    ck_assert_int_eq(chat_parser_finish(p, &seen.ids), 0);
    ck_assert_int_eq(chat_parser_end(p, &seen.message), 0);
    chat_parser_close(p);
    ck_assert_str_eq(err_message(), "");
}

static struct token_list encode(const char *text)
{
    struct token_list ids = {.ids = NULL};
    ck_assert_int_eq(tokenizer_encode(t, text, strlen(text), TOKENIZE_ADDED, &ids), 0);
    return ids;
}

static void read_answer(const char *text)
{
    struct token_list ids = encode(text);
    run(ids.ids, ids.count, true);
    free(ids.ids);
}

static void expect(const char *reasoning, const char *response, const char *calls)
{
    ck_assert_str_eq(seen.reasoning, reasoning);
    ck_assert_str_eq(seen.response, response);
    ck_assert_str_eq(seen.calls, calls);
    ck_assert_uint_eq(seen.message.part_count, 1);
    ck_assert_str_eq(seen.message.part[0], response);
    ck_assert_str_eq(seen.message.reasoning != NULL ? seen.message.reasoning : "", reasoning);
    ck_assert_uint_eq(seen.broken_characters, 0);
}

/* The whole turn as a history has it. */
static void expect_closed(const char *text)
{
    struct byte_list out = {.bytes = NULL};
    ck_assert_int_eq(tokenizer_decode(t, seen.ids.ids, seen.ids.count, 0, &out), 0);
    ck_assert_uint_eq(out.count, strlen(text));
    ck_assert_msg(memcmp(out.bytes, text, out.count) == 0, "%.*s\ninstead of\n%s", (int)out.count,
                  (char *)out.bytes, text);
    free(out.bytes);
}

#define THOUGHT "<|close|>think<|sep|><|open|>response<|sep|>"
#define SAID "<|close|>response<|sep|>"
#define OVER "<|close|>message<|sep|>"
#define END "<|end_of_msg|>"
#define CITY "<|open|>argument key=\"city\" type=\"string\"<|sep|>Paris<|close|>argument<|sep|>"
#define CALL_OPEN "<|open|>call tool=\"get\" index=\"1\"<|sep|>"
#define CALL CALL_OPEN CITY "<|close|>call<|sep|>"

START_TEST(an_answer_has_reasoning_and_a_response)
{
    read_answer("because\n" THOUGHT "\u4F60 is \U0001F389." SAID OVER END);
    expect("because\n", "\u4F60 is \U0001F389.", "");
    ck_assert(seen.over);
    expect_closed("because\n" THOUGHT "\u4F60 is \U0001F389." SAID OVER END);
}
END_TEST

START_TEST(any_of_three_ends_it)
{
    static const char *const ends[] = {OVER, END, "[EOS]", OVER END};
    char text[256];
    snprintf(text, sizeof text, THOUGHT "x" SAID "%s", ends[_i]);
    struct token_list whole = encode(text);
    size_t before = whole.count - (_i == 3);
    free(whole.ids);
    strcat(text, "more");
    read_answer(text);
    expect("", "x", "");
    ck_assert(seen.over);
    ck_assert_uint_eq(seen.taken, before);
    expect_closed(THOUGHT "x" SAID OVER END);
}
END_TEST

START_TEST(without_thinking_it_begins_with_the_response)
{
    struct token_list ids = encode("x" SAID OVER);
    run(ids.ids, ids.count, false);
    expect("", "x", "");
    ck_assert_ptr_null(seen.message.reasoning);
    expect_closed("x" SAID OVER END);
    free(ids.ids);
}
END_TEST

START_TEST(calls_have_a_name_and_typed_arguments)
{
    read_answer(THOUGHT SAID "<|open|>tools<|sep|>\n" CALL_OPEN CITY " \n"
                "<|open|>argument key=\"n\" type=\"number\"<|sep|>3<|close|>argument<|sep|>"
                "<|open|>argument key=\"o &quot;&amp;amp;\" type=\"object\"<|sep|>{\"b\":[1,null]}"
                "<|close|>argument<|sep|><|close|>call<|sep|>\n<|open|>call tool=\"h\" index=\"2\""
                "<|sep|><|open|>json type=\"object\"<|sep|>{oh}<|close|>json<|sep|><|close|>call"
                "<|sep|><|open|>call tool=\"i\" index=\"3\"<|sep|><|close|>call<|sep|>"
                "<|close|>tools<|sep|>" OVER);
    expect("", "", "get({\"city\": \"Paris\", \"n\": 3, \"o \\\"&amp;\": {\"b\": [1, null]}})\n"
           "h({oh})\ni({})\n");
    ck_assert_uint_eq(seen.message.call_count, 3);
    ck_assert_uint_eq(seen.message.call[0].argument_count, 3);
    ck_assert_int_eq(seen.message.call[0].argument[1].type, CHAT_NUMBER);
    ck_assert_str_eq(seen.message.call[1].raw, "{oh}");
}
END_TEST

START_TEST(a_value_that_is_not_of_its_type_is_a_string)
{
    static const struct {
        const char *type, *value, *shown;
    } rows[] = {
        {"number", "three", "\"three\""}, {"number", "\"3\"", "\"\\\"3\\\"\""},
        {"object", "[1]", "\"[1]\""},     {"colour", "3", "\"3\""},
        {"boolean", "true", "true"},      {"null", "null", "null"},
        {"array", "[ 1,2 ]", "[1, 2]"},   {"number", "1e2", "100.0"},
        {"number", "", "\"\""},
    };
    char text[512], expected[64];
    snprintf(text, sizeof text, THOUGHT SAID "<|open|>tools<|sep|>" CALL_OPEN "<|open|>argument "
             "key=\"k\" type=\"%s\"<|sep|>%s<|close|>argument<|sep|><|close|>call<|sep|>",
             rows[_i].type, rows[_i].value);
    snprintf(expected, sizeof expected, "get({\"k\": %s})\n", rows[_i].shown);
    read_answer(text);
    expect("", "", expected);
}
END_TEST

START_TEST(what_is_none_of_the_grammar_is_text)
{
    static const struct {
        const char *answer, *reasoning, *response;
    } rows[] = {
        {"a<|sep|>b" THOUGHT "c<|sep|>", "a<|sep|>b", "c<|sep|>"},
        {"a<|open|>aside x=\"1\"<|sep|>b" THOUGHT "c", "a<|open|>aside x=\"1\"<|sep|>b", "c"},
        {"a<|close|>response<|sep|>b", "a<|close|>response<|sep|>b", ""},
        {"a<|open|>call tool=\"f\"<|sep|>b", "a<|open|>call tool=\"f\"<|sep|>b", ""},
        {THOUGHT "a<|open|>re_", "", "a<|open|>re_"},
        {THOUGHT "a<|close|>think", "", "a<|close|>think"}, /* it is closed */
        {THOUGHT "a<|open|><|close|>response<|sep|>", "", "a<|open|>"},
        {THOUGHT "a" SAID "b" OVER, "", "ab"},
        {"a<|open|>response<|sep|>b" SAID OVER, "a", "b"}, /* the end of thinking was left out */
        {THOUGHT "a<|open|>think<|sep|>b<|close|>think<|sep|>", "b", "a"},
        {"a[PAD]<|media_pad|>" THOUGHT "b[BOS]", "a[PAD]<|media_pad|>", "b[BOS]"},
        {"a" OVER, "a", ""},
        {"[EOS]", "", ""},
    };
    read_answer(rows[_i].answer);
    expect(rows[_i].reasoning, rows[_i].response, "");
}
END_TEST

/* The end of an answer may cut a tag: that is no text of anybody. */
START_TEST(a_tag_that_was_cut_is_not_shown)
{
    static const struct {
        const char *answer, *reasoning, *response;
    } rows[] = {
        {"a<|close|>", "a", ""},
        {"a<|close|>thi", "a", ""},
        {THOUGHT "a<|close|>", "", "a"},
        {THOUGHT "a<|close|>response", "", "a"},
        {THOUGHT "a<|close|>resp[EOS]", "", "a"},
        {THOUGHT "a" SAID "<|open|>to", "", "a"},
        {THOUGHT "a" SAID "<|open|>tools<|sep|><|open|>", "", "a"},
        {THOUGHT "a" SAID "<|close|>message" END, "", "a"},
    };
    read_answer(rows[_i].answer);
    expect(rows[_i].reasoning, rows[_i].response, "");
}
END_TEST

/* What is between two ends of a call that is none, is text as it was written. */
START_TEST(a_call_that_is_not_whole_is_text)
{
    static const char *const bodies[] = {
        CALL_OPEN CITY,
        CALL_OPEN CITY "stray<|close|>call<|sep|>",
        CALL_OPEN CITY CITY "<|close|>call<|sep|>",
        CALL_OPEN "<|open|>argument key=\"city\"<|sep|>P<|close|>argument<|sep|>"
        "<|close|>call<|sep|>",
        "<|open|>call index=\"1\"<|sep|><|close|>call<|sep|>",
        CALL_OPEN "<|open|>argument key=\"a\" type=\"string\"<|sep|>Par",
        CALL_OPEN "<|open|>argument key=\"a\" type=\"string\"<|sep|>P<|close|>call<|sep|>",
        CALL_OPEN CITY "<|open|>json type=\"object\"<|sep|>{}<|close|>json<|sep|>"
        "<|close|>call<|sep|>",
        CALL_OPEN "<|open|>arg",
    };
    char text[1024];
    snprintf(text, sizeof text, THOUGHT "a" SAID "<|open|>tools<|sep|>%s", bodies[_i]);
    read_answer(text);
    snprintf(text, sizeof text, "a%s", bodies[_i]);
    expect("", text, "");
    ck_assert_uint_eq(seen.message.call_count, 0);
}
END_TEST

START_TEST(a_broken_call_harms_no_other)
{
    read_answer(THOUGHT SAID "<|open|>tools<|sep|>" CALL_OPEN "<|open|>argument key=\"a\" "
                "type=\"string\"<|sep|>P" CALL "<|close|>tools<|sep|>" OVER);
    expect("", CALL_OPEN "<|open|>argument key=\"a\" type=\"string\"<|sep|>P",
           "get({\"city\": \"Paris\"})\n");
}
END_TEST

START_TEST(zero_bytes_and_broken_characters_are_replaced)
{
    struct token_list ids = encode(THOUGHT "a\xE4\xBD");
    uint32_t extra[64];
    size_t count = ids.count;
    memcpy(extra, ids.ids, count * sizeof *extra);
    extra[count++] = chat_tokens(t).sep;   /* the character will not be completed */
    extra[count++] = 188;                  /* a zero byte */
    extra[count++] = tokenizer_count(t);   /* no token at all */
    ck_assert_uint_eq(vocabulary_byte(188), 0);
    run(extra, count, true);
    expect("", "a\uFFFD<|sep|>\uFFFD\uFFFD", "");
    free(ids.ids);
}
END_TEST

START_TEST(what_is_open_is_closed_for_the_history)
{
    static const struct {
        const char *answer, *closings;
    } rows[] = {
        {"", THOUGHT SAID OVER END},
        {"a", THOUGHT SAID OVER END},
        {"a<|close|>", "think<|sep|><|open|>response<|sep|>" SAID OVER END},
        {"a<|close|>think", "<|sep|><|open|>response<|sep|>" SAID OVER END},
        {"a<|close|>think<|sep|>", "<|open|>response<|sep|>" SAID OVER END},
        {"a<|close|>think<|sep|><|open|>", "response<|sep|>" SAID OVER END},
        {"a<|open|>", "response<|sep|>" SAID OVER END},
        {"a<|close|>thi", "<|sep|>" THOUGHT SAID OVER END},
        {THOUGHT "b", SAID OVER END},
        {THOUGHT "b" SAID, OVER END},
        {THOUGHT "b" SAID "<|open|>", "tools<|sep|><|close|>tools<|sep|>" OVER END},
        {THOUGHT SAID "<|open|>tools<|sep|><|open|>", "call<|sep|><|close|>call<|sep|>"
         "<|close|>tools<|sep|>" OVER END},
        {THOUGHT SAID "<|open|>tools<|sep|>" CALL_OPEN "<|open|>argument key=\"a\" type=\"string\""
         "<|sep|>P", "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>" OVER END},
        {THOUGHT "b" SAID OVER, END},
    };
    char text[1024];
    read_answer(rows[_i].answer);
    snprintf(text, sizeof text, "%s%s", rows[_i].answer, rows[_i].closings);
    expect_closed(text);
}
END_TEST

static size_t count_marks(const char *text)
{
    size_t count = 0;
    for (; (text = strchr(text, 'z')) != NULL; text++) {
        count++;
    }
    return count;
}

/* Whatever comes: no mark of the text is lost or shown twice,
and a closed turn is one that ends. */
START_TEST(no_answer_breaks_it)
{
    static const char *const pieces[] = {
        "<|open|>", "<|close|>", "<|sep|>", "think", "response", "tools", "call", "argument",
        "json",
        " tool=\"f\"", " key=\"k\"", " type=\"string\"", "z", "z", "z", "\u4F60", " ", "message",
        CALL, THOUGHT, SAID, "<|open|>tools<|sep|>", CALL_OPEN, "\xE4", "<|open|>argument "
        "key=\"k\" "
        "type=\"string\"<|sep|>", "<|close|>argument<|sep|>", "<|close|>call<|sep|>"};
    struct rng rng = rng_seed((uint64_t)_i);
    for (int round = 0; round < AMOUNT(300, 300, 30); round++) {
        char text[4096] = "";
        for (uint64_t i = rng_below(&rng, 40); i > 0; i--) {
            strcat(text, pieces[rng_below(&rng, countof(pieces))]);
        }
        struct token_list ids = encode(text);
        run(ids.ids, ids.count, true);
        size_t marks = 0;
        for (size_t i = 0; i < seen.taken; i++) {
            marks += ids.ids[i] < VOCABULARY_BYTES && vocabulary_byte(ids.ids[i]) == 'z';
        }
        free(ids.ids);
        size_t shown = count_marks(seen.reasoning) + count_marks(seen.response) +
                       count_marks(seen.calls);
        ck_assert_msg(marks == shown, "seed %d, round %d: %zu of %zu marks\n%s", _i, round, shown,
                      marks, text);
        ck_assert_uint_eq(seen.broken_characters, 0);
        struct token_list closed = seen.ids;
        seen.ids.ids = NULL;
        run(closed.ids, closed.count, true);
        ck_assert_msg(seen.over, "seed %d, round %d\n%s", _i, round, text);
        free(closed.ids);
    }
}
END_TEST

static void setup(void)
{
    char path[TINY_PATH_BYTES];
    err_clear();
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "tiktoken.model", path);
    vocabulary_write(path, NULL, 0);
    ck_assert_msg(tokenizer_open(path, &t) == 0, "%s", err_message());
}

static void teardown(void)
{
    forget();
    tokenizer_close(t);
    tiny_remove(&folder);
}

int main(void)
{
    Suite *suite = suite_create("chat_parse");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, an_answer_has_reasoning_and_a_response);
    tcase_add_loop_test(all, any_of_three_ends_it, 0, 4);
    tcase_add_test(all, without_thinking_it_begins_with_the_response);
    tcase_add_test(all, calls_have_a_name_and_typed_arguments);
    tcase_add_loop_test(all, a_value_that_is_not_of_its_type_is_a_string, 0, 9);
    tcase_add_loop_test(all, what_is_none_of_the_grammar_is_text, 0, 13);
    tcase_add_loop_test(all, a_tag_that_was_cut_is_not_shown, 0, 8);
    tcase_add_loop_test(all, a_call_that_is_not_whole_is_text, 0, 9);
    tcase_add_test(all, a_broken_call_harms_no_other);
    tcase_add_test(all, zero_bytes_and_broken_characters_are_replaced);
    tcase_add_loop_test(all, what_is_open_is_closed_for_the_history, 0, 14);
    tcase_add_loop_test(all, no_answer_breaks_it, 0, 8);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
