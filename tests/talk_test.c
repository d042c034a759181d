/* SPDX-License-Identifier: Apache-2.0 */

/* Conversations on an engine: a turn reads its own tokens only, and every logit is the one of a run
 * over the whole list of ids, whatever ended the answers before it. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/chat_talk.h"
#include "tests/support/amount.h"
#include "tests/support/suite.h"
#include "tests/support/talker.h"

#define CONTEXT 700U
#define STEPS_MAX 2048U
#define COMPARED AMOUNT(STEPS_MAX, STEPS_MAX, 6U) /* steps compared with one run of all */

static struct tiny babbler, scripted;
static struct engine *engine;
static struct tokenizer *t;
static struct talk talk;
static struct talk_answer answer;

/* Logits of every step, and the position they follow. */
static uint64_t digest[STEPS_MAX];
static uint32_t position[STEPS_MAX], steps;
static uint32_t interrupt_after; /* tokens of this answer; 0: never */
static char said[4096];

static struct engine *open_model(const struct tiny *model, uint32_t context, uint64_t chunk)
{
    struct engine_options options = tiny_options(1);
    struct engine *e = NULL;
    options.context = context;
    options.prompt_tokens = context;
    options.chunk = chunk;
    ck_assert_msg(engine_open(&e, model->dir, &options) == 0, "%s", err_message());
    return e;
}

static void start(const struct tiny *model, uint32_t context)
{
    err_clear();
    engine = open_model(model, context, 16);
    ck_assert_int_eq(tokenizer_open(model->dir, &t), 0);
    talk_init(&talk, t);
    talk.chat.effort = CHAT_EFFORT_NONE;
    steps = interrupt_after = 0;
}

static void stop(void)
{
    talk_fini(&talk);
    tokenizer_close(t);
    engine_close(engine);
}

static void on_text(void *ctx, enum chat_channel channel, const char *text, size_t size)
{
    (void)ctx;
    (void)channel;
    ck_assert_uint_lt(strlen(said) + size, sizeof said);
    strncat(said, text, size);
}

static void on_logits(void *ctx, uint32_t step, const float *logits)
{
    uint32_t *first = ctx;
    ck_assert_uint_lt(steps, STEPS_MAX);
    position[steps] = *first + step; /* filled in when the answer begins */
    digest[steps++] = tiny_digest(logits);
    if (interrupt_after != 0 && step + 1 == interrupt_after) {
        engine_interrupt(engine);
    }
}

static int turn(const char *text, uint32_t gen)
{
    uint32_t first = 0, before = steps;
    const struct chat_events events = {.on_text = on_text};
    const struct talk_request request = {.gen = gen, .events = &events, .on_logits = on_logits,
                                         .ctx = &first};
    said[0] = '\0';
    ck_assert_int_eq(chat_add(&talk.chat, CHAT_USER, text), 0);
    engine_interrupt_clear(engine);
    int rc = talk_answer(&talk, engine, &request, &answer);
    for (uint32_t i = before; i < steps; i++) {
        position[i] += answer.prompt_tokens - 1;
    }
    talk_answer_fini(&answer);
    return rc;
}

/* Feeds the whole list to a fresh engine, token by token. */
static void expect_one_run(const struct tiny *model)
{
    struct engine *e = open_model(model, (uint32_t)talk.ids.count, 1);
    uint32_t seen = 0;
    uint32_t wanted = steps < COMPARED ? steps : COMPARED;
    ck_assert_int_eq(engine_begin(e, 1, (uint32_t)talk.ids.count - 1), 0);
    for (uint32_t at = 0; at < talk.ids.count && seen < wanted; at++) {
        const float *logits = NULL;
        ck_assert_msg(engine_pass(e, &talk.ids.ids[at], 1, &logits) == 0, "%s", err_message());
        if (seen < steps && position[seen] == at) {
            ck_assert_msg(digest[seen] == tiny_digest(logits), "step %u, position %u", seen, at);
            seen++;
        }
    }
    ck_assert_uint_eq(seen, wanted);
    engine_end(e);
    engine_close(e);
}

START_TEST(a_second_turn_reads_its_own_tokens_and_computes_what_one_run_does)
{
    struct token_list whole = {.ids = NULL};
    start(&babbler, CONTEXT);
    ck_assert_int_eq(turn("Who are you?", 12), 0);
    ck_assert_uint_eq(answer.read_tokens, answer.prompt_tokens);
    uint32_t before = (uint32_t)talk.ids.count, known = talk.known;
    ck_assert_uint_eq(known, answer.prompt_tokens + answer.result.count - 1);
    ck_assert_int_eq(turn("And now?", 12), 0);
    ck_assert_uint_eq(answer.read_tokens, answer.prompt_tokens - known);
    ck_assert_uint_lt(answer.read_tokens, before); /* the first turn is not among them */
    ck_assert_int_eq(turn("Really?", 12), 0);
    ck_assert_uint_eq(talk.chat.count, 6);
    expect_one_run(&babbler);
    ck_assert_int_eq(chat_render_head(&talk.chat, t, &whole), 0);
    free(whole.ids);
    stop();
}
END_TEST

START_TEST(an_answer_that_was_stopped_is_kept_and_the_next_turn_goes_on)
{
    start(&babbler, CONTEXT);
    ck_assert_int_eq(turn("first", 8), 0);
    interrupt_after = (uint32_t)_i;
    ck_assert_int_eq(turn("second", 50), 0);
    if (_i > 0) {
        ck_assert_int_eq(answer.result.finish, FINISH_INTERRUPTED);
        ck_assert_uint_eq(answer.result.count, (uint32_t)_i);
    }
    interrupt_after = 0;
    ck_assert_int_eq(turn("third", 8), 0);
    expect_one_run(&babbler);
    stop();
}
END_TEST

START_TEST(a_turn_interrupted_before_its_first_token_is_kept_too)
{
    start(&babbler, CONTEXT);
    const struct chat_events events = {.on_text = on_text};
    const struct talk_request request = {.gen = 5, .events = &events};
    ck_assert_int_eq(chat_add(&talk.chat, CHAT_USER, "first"), 0);
    engine_interrupt(engine);
    ck_assert_int_eq(talk_answer(&talk, engine, &request, &answer), 0);
    ck_assert_int_eq(answer.result.finish, FINISH_INTERRUPTED);
    ck_assert_uint_eq(answer.result.count, 0);
    talk_answer_fini(&answer);
    ck_assert_uint_eq(talk.chat.count, 2);
    ck_assert_uint_eq(talk.known, 0);
    ck_assert_int_eq(turn("second", 8), 0);
    expect_one_run(&babbler);
    stop();
}
END_TEST

/* The model's [EOS] becomes the end that histories have, and what it left open is closed: the ids
 * are those of the messages rendered anew. */
START_TEST(a_conversation_reads_as_its_messages_do)
{
    struct token_list whole = {.ids = NULL};
    start(&scripted, CONTEXT);
    talk.chat.thinking = _i == 0;
    ck_assert_int_eq(turn("Hello", 40), 0);
    ck_assert_int_eq(answer.result.finish, FINISH_STOP);
    ck_assert_uint_eq(answer.result.count, 4);
    ck_assert_str_eq(said, "Hi!");
    ck_assert_int_eq(turn("Hello?", 40), 0);
    ck_assert_str_eq(said, "Hi!");
    ck_assert_int_eq(chat_render_head(&talk.chat, t, &whole), 0);
    ck_assert_int_eq(chat_render_messages(&talk.chat, 0, t, &whole), 0);
    ck_assert_uint_eq(whole.count, talk.ids.count);
    ck_assert_int_eq(memcmp(whole.ids, talk.ids.ids, whole.count * sizeof *whole.ids), 0);
    free(whole.ids);
    expect_one_run(&scripted);
    stop();
}
END_TEST

START_TEST(a_conversation_that_was_changed_is_read_again)
{
    start(&scripted, CONTEXT);
    ck_assert_int_eq(turn("Hello", 40), 0);
    talk.chat.thinking = false;
    talk_restart(&talk);
    steps = 0;
    ck_assert_int_eq(turn("Hello?", 40), 0);
    ck_assert_uint_eq(answer.read_tokens, answer.prompt_tokens);
    expect_one_run(&scripted);
    stop();
}
END_TEST

/* What is asked of an answer stands before that one, and nowhere later. */
START_TEST(a_choice_is_of_one_answer)
{
    struct token_list whole = {.ids = NULL};
    start(&scripted, CONTEXT);
    talk.chat.choice = CHAT_CHOICE_NONE;
    ck_assert_int_eq(turn("Hello", 40), 0);
    uint32_t asked = answer.prompt_tokens;
    steps = 0;
    ck_assert_int_eq(turn("Hello?", 40), 0);
    ck_assert_int_eq(talk.chat.choice, CHAT_CHOICE_AUTO);
    ck_assert_uint_eq(answer.read_tokens, answer.prompt_tokens); /* the first turn once more */
    ck_assert_int_eq(chat_render_head(&talk.chat, t, &whole), 0);
    ck_assert_int_eq(chat_render_messages(&talk.chat, 0, t, &whole), 0);
    ck_assert_uint_eq(whole.count, talk.ids.count);
    ck_assert_int_eq(memcmp(whole.ids, talk.ids.ids, whole.count * sizeof *whole.ids), 0);
    free(whole.ids);
    expect_one_run(&scripted);
    ck_assert_int_eq(turn("Hello.", 40), 0);
    ck_assert_uint_lt(answer.read_tokens, asked); /* from then on as ever */
    stop();
}
END_TEST

START_TEST(what_does_not_fit_changes_nothing)
{
    start(&scripted, 200);
    ck_assert_int_eq(turn("Hello", 40), 0);
    size_t ids = talk.ids.count;
    uint32_t known = talk.known;
    char text[300];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ck_assert_int_eq(turn(text, 40), ERR_FIT);
    ck_assert_ptr_nonnull(strstr(err_message(), "of 200 positions, and an answer more"));
    ck_assert_uint_eq(talk.ids.count, ids);
    ck_assert_uint_eq(talk.known, known);
    chat_cut(&talk.chat, 1);
    err_clear();
    stop();
}
END_TEST

START_TEST(an_answer_ends_where_the_context_does)
{
    start(&babbler, 100);
    ck_assert_int_eq(turn("Hello", 1000), 0);
    ck_assert_int_eq(answer.result.finish, FINISH_CONTEXT);
    ck_assert_uint_eq(answer.prompt_tokens + answer.result.count, 100);
    ck_assert_uint_eq(talk.known, 99);
    ck_assert_int_eq(turn("Hello", 1000), ERR_FIT);
    err_clear();
    stop();
}
END_TEST

START_TEST(results_are_asked_for_in_the_order_of_the_calls)
{
    const struct chat_call *call;
    const char *text = "[{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"a\", \"function\": "
                       "{\"name\": \"f\", \"arguments\": {}}}, {\"id\": \"b\", \"function\": "
                       "{\"name\": \"g\", \"arguments\": {}}}]}]";
    start(&scripted, CONTEXT);
    ck_assert_uint_eq(talk_calls_open(&talk, &call), 0);
    ck_assert_int_eq(chat_read_json(&talk.chat, text, strlen(text), "x"), 0);
    ck_assert_uint_eq(talk_calls_open(&talk, &call), 2);
    ck_assert_str_eq(call->name, "f");
    ck_assert_int_eq(talk_add_result(&talk, "1"), 0);
    ck_assert_uint_eq(talk_calls_open(&talk, &call), 1);
    ck_assert_str_eq(call->name, "g");
    ck_assert_int_eq(talk_add_result(&talk, "2"), 0);
    ck_assert_uint_eq(talk_calls_open(&talk, &call), 0);
    ck_assert_str_eq(talk.chat.message[2].call_id, "b");
    stop();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("talk");
    TCase *all = tcase_create("all");
    talker_make(&babbler, TINY_MEMORY);
    talker_scripted(&scripted, TINY_MEMORY, "Hi!", false);
    tcase_set_timeout(all, 300);
    tcase_add_test(all, a_second_turn_reads_its_own_tokens_and_computes_what_one_run_does);
    tcase_add_loop_test(all, an_answer_that_was_stopped_is_kept_and_the_next_turn_goes_on, 0, 4);
    tcase_add_test(all, a_turn_interrupted_before_its_first_token_is_kept_too);
    tcase_add_loop_test(all, a_conversation_reads_as_its_messages_do, 0, 2);
    tcase_add_test(all, a_conversation_that_was_changed_is_read_again);
    tcase_add_test(all, a_choice_is_of_one_answer);
    tcase_add_test(all, what_does_not_fit_changes_nothing);
    tcase_add_test(all, an_answer_ends_where_the_context_does);
    tcase_add_test(all, results_are_asked_for_in_the_order_of_the_calls);
    suite_add_tcase(suite, all);
    int failed = suite_run(suite);
    tiny_remove(&babbler);
    tiny_remove(&scripted);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
