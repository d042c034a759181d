/* SPDX-License-Identifier: Apache-2.0 */

/* k3ring chat in a pipe, for programs, and kept in a session. The scripted model says "Hi!". */

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"
#include "tests/support/talker.h"

static struct tiny scripted, babbler;
static char in_path[TINY_PATH_BYTES], talk_path[TINY_PATH_BYTES], session[TINY_PATH_BYTES];

static void setup_once(void)
{
    talker_scripted(&scripted, TINY_MEMORY, "Hi!", false);
    talker_make(&babbler, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "in", in_path);
    tiny_path(&folder, "talk.json", talk_path);
    tiny_path(&folder, "session.k3", session);
}

static void teardown_once(void)
{
    tiny_remove(&scripted);
    tiny_remove(&babbler);
    tiny_remove(&folder);
}

static void say(const char *lines)
{
    tiny_put(&folder, "in", lines, strlen(lines));
}

static void forget_session(void)
{
    unlink(session);
}

START_TEST(every_line_of_a_pipe_is_a_turn_and_an_empty_line_ends_an_answer)
{
    say("Hello\n\n  \nAnd again\nlast");
    k3ring("chat %s --no-thinking --quiet", scripted.dir);
    expect(0, NULL);
    ck_assert_str_eq(process.out, "Hi!\n\nHi!\n\nHi!\n\n");
    ck_assert_str_eq(process.err, "");
}
END_TEST

START_TEST(reasoning_is_not_shown_in_a_pipe)
{
    say("Hello\n");
    k3ring("chat %s --quiet", scripted.dir);
    expect(0, NULL);
    ck_assert_str_eq(process.out, "\n"); /* it reasons, and responds nothing */
}
END_TEST

START_TEST(a_slash_in_a_pipe_is_text)
{
    say("/exit\n/help\n");
    k3ring("chat %s --effort off --quiet", scripted.dir);
    expect(0, NULL);
    ck_assert_str_eq(process.out, "Hi!\n\nHi!\n\n");
}
END_TEST

START_TEST(a_limit_ends_an_answer_and_says_so)
{
    say("Hello\n");
    k3ring("chat %s --no-thinking --gen 2", scripted.dir);
    expect(0, "as long as --gen allows");
    ck_assert_str_eq(process.out, "Hi\n\n");
    k3ring("chat %s --no-thinking --context 100", scripted.dir);
    expect(0, NULL);
    say("Hello\nsomething that is too long for so few positions, whichever way it is put\n");
    k3ring("chat %s --no-thinking --context 100 --quiet", scripted.dir);
    expect(4, "of 100 positions");
    ck_assert_str_eq(process.out, "Hi!\n\n");
}
END_TEST

START_TEST(a_zero_byte_is_no_text)
{
    tiny_put(&folder, "in", "a\0b\n", 4);
    k3ring("chat %s --quiet", scripted.dir);
    expect(2, "line 1 holds a zero byte");
}
END_TEST

/* ---- for programs ---- */

static cJSON *answer_with(int status, const char *messages, const char *more)
{
    tiny_put(&folder, "talk.json", messages, strlen(messages));
    k3ring("chat %s --messages %s --json - --quiet %s", scripted.dir, talk_path, more);
    expect(status, NULL);
    cJSON *root = json_parse(process.out, strlen(process.out), "answer", false);
    ck_assert_msg(root != NULL, "%s: %s", err_message(), process.out);
    return root;
}

static cJSON *answer_to(const char *messages, const char *more)
{
    return answer_with(0, messages, more);
}

static const cJSON *at(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    ck_assert_msg(item != NULL, "no %s", key);
    return item;
}

START_TEST(a_file_of_messages_is_answered_once)
{
    cJSON *root = answer_to("{\"thinking\": false, \"messages\": [{\"role\": \"user\", "
    "\"content\": "
                            "\"Hello\"}]}", "");
    ck_assert_str_eq(at(at(root, "message"), "content")->valuestring, "Hi!");
    ck_assert_str_eq(at(at(root, "message"), "role")->valuestring, "assistant");
    ck_assert_str_eq(at(root, "finish_reason")->valuestring, "stop");
    ck_assert_int_eq(cJSON_GetArraySize(at(root, "generated_ids")), 4);
    ck_assert_double_eq(at(root, "stop_id")->valuedouble, 257);
    ck_assert_double_eq(at(at(root, "usage"), "completion_tokens")->valuedouble, 4);
    ck_assert_double_eq(at(at(root, "usage"), "prompt_tokens")->valuedouble,
                        cJSON_GetArraySize(at(root, "prompt_ids")));
    ck_assert_uint_eq(strlen(at(root, "logits_hash")->valuestring), 64);
    ck_assert_double_eq(at(at(root, "sampling"), "temperature")->valuedouble, 1);
    cJSON_Delete(root);
    root = answer_with(1, "[{\"role\": \"user\", \"content\": \"Hello\"}]", "--gen 3");
    ck_assert_str_eq(at(at(root, "message"), "reasoning_content")->valuestring, "Hi!");
    ck_assert_str_eq(at(at(root, "message"), "content")->valuestring, "");
    ck_assert_str_eq(at(root, "finish_reason")->valuestring, "length");
    ck_assert_ptr_nonnull(strstr(at(root, "error")->valuestring, "cut before they said anything"));
    cJSON_Delete(root);
}
END_TEST

START_TEST(options_win_over_the_file)
{
    cJSON *root = answer_to("{\"reasoning_effort\": \"low\", \"messages\": [{\"role\": \"user\", "
                            "\"content\": \"Hello\"}]}", "--effort off");
    ck_assert_str_eq(at(at(root, "message"), "content")->valuestring, "Hi!");
    cJSON_Delete(root);
}
END_TEST

START_TEST(an_answer_goes_to_standard_output_or_a_file)
{
    char path[TINY_PATH_BYTES];
    struct stat st;
    tiny_path(&folder, "answer.json", path);
    cJSON_Delete(answer_to("{\"thinking\": false, \"messages\": [{\"role\": \"user\", \"content\": "
                           "\"Hello\"}]}", ""));
    k3ring("chat %s --messages %s --quiet --json %s", scripted.dir, talk_path, path);
    expect(0, NULL);
    ck_assert_str_eq(process.out, "Hi!\n\n");
    ck_assert_int_eq(stat(path, &st), 0);
}
END_TEST

START_TEST(what_makes_no_sense_is_refused)
{
    static const struct {
        int status;
        const char *arguments, *part;
    } rows[] = {
        {2, "--json -", "give --messages FILE too"},
        {2, "--messages %s --system x", "leave --system out"},
        {2, "--messages %s --session x", "leave --session out"},
        {2, "--thinking --no-thinking", "say different things"},
        {2, "--thinking --effort off", "say different things"},
        {2, "--no-thinking --effort low", "say different things"},
        {2, "--effort medium", "low|high|max|off"},
        {2, "--messages %s", "message 1: has no \"role\""},
        {2, "--tools /nonexistent", "/nonexistent"},
        {2, "--tools %s", "\"tools\" is not a list of objects"},
        {3, "--tokenizer /nonexistent", "/nonexistent"},
    };
    char arguments[TINY_PATH_BYTES];
    const char *broken = _i == 9 ? "[1]" : "[{}]";
    tiny_put(&folder, "talk.json", broken, strlen(broken));
    say("");
    snprintf(arguments, sizeof arguments, "%s", rows[_i].arguments);
    char *slot = strstr(arguments, "%s");
    if (slot != NULL) {
        snprintf(slot, sizeof arguments - (size_t)(slot - arguments), "%s%s", talk_path,
                 strstr(rows[_i].arguments, "%s") + 2);
    }
    k3ring("chat %s %s", scripted.dir, arguments);
    expect_refusal(rows[_i].status, rows[_i].part);
}
END_TEST

START_TEST(a_tokenizer_of_more_tokens_than_the_model_has_is_refused)
{
    struct tiny plain;
    char path[TINY_PATH_BYTES];
    tiny_make(&plain, TINY_MEMORY);
    tiny_path(&scripted, "tiktoken.model", path);
    say("Hello\n");
    k3ring("chat %s --tokenizer %s --quiet", plain.dir, path);
    expect_refusal(3, "the tokenizer has 512 tokens and the model 256");
    tiny_remove(&plain);
}
END_TEST

START_TEST(run_answers_one_turn)
{
    static const struct {
        int status;
        const char *arguments, *out, *part;
    } rows[] = {
        {0, "--chat --prompt Hello --effort off --quiet", "Hi!\n", NULL},
        {0, "--chat --prompt Hello --quiet", "\n", NULL}, /* all of it was reasoning */
        {0, "--chat --prompt Hello --effort off --gen 2", "Hi\n", "the answer was not over"},
        {1, "--chat --prompt Hello --gen 2", "\n", "anything, still thinking; give a larger --gen"},
        {1, "--chat --prompt Hello --effort off --gen 1 --logit-bias 259:100", "\n", /* <|open|> */
         "cut before it said anything; give a larger --gen or --context\n"},
        {0, "--chat --prompt Hello --effort off --stop-text i --quiet", "H\n", NULL},
        {2, "--chat --ids 1", "", "give --prompt or --prompt-file"},
        {2, "--chat --prompt Hello --load-state x", "", "leave --load-state out"},
        {2, "--chat", "", "a prompt is required"},
        {2, "--prompt Hello --effort low", "", "give --chat too"},
    };
    say("");
    k3ring("run %s %s", scripted.dir, rows[_i].arguments);
    expect(rows[_i].status, rows[_i].part);
    ck_assert_str_eq(process.out, rows[_i].out);
}
END_TEST

/* Reasoning that --gen cut is no answer: who reads a pipe learns that from the status. */
START_TEST(an_answer_that_was_cut_while_thinking_is_none)
{
    say("Hello\nHello\n");
    k3ring("chat %s --gen 2 --temperature 0 --quiet", scripted.dir);
    expect(1, "2 of 2 answers were cut before they said anything");
    ck_assert_str_eq(process.out, "\n\n");
}
END_TEST

/* The model says "Hi!" and [EOS]. */
START_TEST(a_file_of_a_model_may_name_ids_that_end_an_answer)
{
    static const struct {
        const char *name, *text, *out;
    } rows[] = {
        {"generation_config.json", "{\"temperature\": 0.5, \"eos_token_id\": [7, 0]}", "Hi\n"},
        {"generation_config.json", "{\"eos_token_id\": 72}", "H\n"},
        {"generation_config.json", "{\"eos_token_id\": null}", "Hi!\n"},
    };
    struct tiny copy;
    tiny_copy(&copy, &scripted, TINY_MEMORY);
    tiny_put(&copy, rows[_i].name, rows[_i].text, strlen(rows[_i].text));
    say("Hello\n");
    k3ring("run %s --chat --prompt Hello --effort off --quiet", copy.dir);
    expect(0, NULL);
    ck_assert_str_eq(process.out, rows[_i].out);
    k3ring("chat %s --effort off --temperature 0 --quiet", copy.dir);
    expect(0, NULL);
    ck_assert_int_eq(strncmp(process.out, rows[_i].out, strlen(rows[_i].out)), 0);
    tiny_put(&copy, "generation_config.json", "{\"eos_token_id\": \"x\"}", 21);
    k3ring("run %s --chat --prompt Hello --effort off --quiet", copy.dir);
    expect(3, "eos_token_id must be a token id");
    tiny_remove(&copy);
}
END_TEST

START_TEST(a_report_of_an_answer_has_its_reasoning)
{
    say("");
    k3ring("run %s --chat --prompt Hello --json - --quiet", scripted.dir);
    expect(0, NULL);
    cJSON *root = json_parse(process.out, strlen(process.out), "report", false);
    ck_assert_msg(root != NULL, "%s", err_message());
    ck_assert_str_eq(at(root, "reasoning")->valuestring, "Hi!");
    ck_assert_str_eq(at(root, "text")->valuestring, "");
    ck_assert_str_eq(at(root, "finish_reason")->valuestring, "stop");
    ck_assert_double_eq(at(root, "stop_id")->valuedouble, 257);
    cJSON_Delete(root);
}
END_TEST

/* It learned the format: it thinks, responds, and ends by closing its message. */
START_TEST(a_trained_model_thinks_responds_and_ends)
{
    const char *question = "[{\"role\": \"user\", \"content\": \"Who are you?\"}]";
    tiny_put(&folder, "talk.json", question, strlen(question));
    k3ring("chat tests/model --messages %s --json - --quiet --temperature 0 %s", talk_path,
           _i == 0 ? "" : "--effort off");
    expect(0, NULL);
    cJSON *root = json_parse(process.out, strlen(process.out), "answer", false);
    ck_assert_msg(root != NULL, "%s", err_message());
    const cJSON *message = at(root, "message");
    const cJSON *reasoning = cJSON_GetObjectItem(message, "reasoning_content");
    ck_assert_str_eq(at(root, "finish_reason")->valuestring, "stop");
    ck_assert_uint_gt(strlen(at(message, "content")->valuestring), 5);
    ck_assert(_i == 0 ? reasoning != NULL && strlen(reasoning->valuestring) > 5
                      : reasoning == NULL);
    ck_assert_ptr_null(strstr(at(message, "content")->valuestring, "<|")); /* no tag is text */
    ck_assert_ptr_null(cJSON_GetObjectItem(root, "stop_id"));
    cJSON_Delete(root);
    k3ring("run tests/model --chat --prompt %s --gen 200 --json - --quiet", "Hello");
    expect(0, NULL);
    root = json_parse(process.out, strlen(process.out), "report", false);
    ck_assert_str_eq(at(root, "finish_reason")->valuestring, "stop");
    ck_assert_ptr_null(cJSON_GetObjectItem(root, "stop_id"));
    cJSON_Delete(root);
}
END_TEST

/* ---- sessions ---- */

/* On the random model few drafts are kept; none changes a token, whatever the turn before held. */
START_TEST(drafts_change_nothing)
{
    char plain[PROCESS_TEXT_BYTES];
    say("again again again again\nagain again again again\n");
    k3ring("chat %s --gen 30 --seed 3 --no-thinking --quiet", babbler.dir);
    expect(0, NULL);
    memcpy(plain, process.out, sizeof plain);
    k3ring("chat %s --gen 30 --seed 3 --no-thinking --quiet --draft ngram", babbler.dir);
    expect(0, NULL);
    ck_assert_str_eq(process.out, plain);
}
END_TEST

START_TEST(a_session_goes_on_where_it_was_left)
{
    char first[PROCESS_TEXT_BYTES], both[PROCESS_TEXT_BYTES];
    struct stat st;
    forget_session();
    say("Who are you?\nAnd now?\n");
    k3ring("chat %s --temperature 0 --gen 20 --no-thinking --quiet", babbler.dir);
    expect(0, NULL);
    memcpy(both, process.out, sizeof both);
    say("Who are you?\n");
    k3ring("chat %s --temperature 0 --gen 20 --no-thinking --quiet --session %s", babbler.dir,
           session);
    expect(0, NULL);
    memcpy(first, process.out, sizeof first);
    ck_assert_int_eq(stat(session, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    say("And now?\n");
    k3ring("chat %s --temperature 0 --gen 20 --quiet --session %s", babbler.dir, session);
    expect(0, NULL);
    strcat(first, process.out);
    ck_assert_str_eq(first, both);
}
END_TEST

START_TEST(a_session_that_does_not_fit_is_refused)
{
    forget_session();
    say("Hello\n");
    k3ring("chat %s --no-thinking --quiet --session %s", scripted.dir, session);
    expect(0, NULL);
    k3ring("chat %s --quiet --system x --session %s", scripted.dir, session);
    expect_refusal(2, "has begun; leave --system out");
    k3ring("chat %s --quiet --context 20 --session %s", scripted.dir, session);
    expect_refusal(4, "20");
    tiny_put(&folder, "session.k3", "hello", 5);
    k3ring("chat %s --quiet --session %s", scripted.dir, session);
    expect_refusal(3, "session.k3");
}
END_TEST

/* Kept as it is, no program could read the session again. */
START_TEST(what_is_no_utf_8_is_refused_and_a_session_stays_readable)
{
    forget_session();
    say("Hello\ncaf\xE9\n");
    k3ring("chat %s --no-thinking --quiet --session %s", scripted.dir, session);
    expect(2, "not UTF-8");
    ck_assert_str_eq(process.out, "Hi!\n\n");
    say("caf\xC3\xA9\n");
    k3ring("chat %s --no-thinking --quiet --session %s", scripted.dir, session);
    expect(0, NULL);
    say("Hello\n");
    k3ring("chat %s --no-thinking --quiet --session %s", scripted.dir, session);
    expect(0, NULL);
    k3ring("chat %s --quiet --system caf\xE9", scripted.dir);
    expect_refusal(2, "--system: is not UTF-8");
}
END_TEST

/* Told before the model is opened, not after the first answer. */
START_TEST(a_session_is_a_file_that_can_be_replaced)
{
    char link[TINY_PATH_BYTES];
    struct stat st;
    tiny_path(&folder, "link.k3", link);
    unlink(link);
    forget_session();
    say("Hello\n");
    k3ring("chat %s --quiet --session -", scripted.dir);
    expect_refusal(2, "--session: give a file");
    ck_assert_int_eq(symlink(session, link), 0);
    k3ring("chat %s --quiet --session %s", scripted.dir, link);
    expect_refusal(2, "not a link");
    ck_assert_int_ne(stat(session, &st), 0);
    k3ring("chat %s --quiet --session %s/session.k3", scripted.dir, scripted.dir);
    expect_refusal(2, "is in the model's folder"); /* the next start would not replace it */
    k3ring("chat %s --quiet --session %s/absent/session.k3", scripted.dir, folder.dir);
    expect_refusal(1, "absent");
}
END_TEST

/* Two at once: the second to keep a turn says so and replaces nothing. */
START_TEST(a_session_that_another_wrote_is_not_replaced)
{
    size_t size;
    forget_session();
    unlink(in_path);
    ck_assert_int_eq(mkfifo(in_path, 0600), 0);
    int line = open(in_path, O_RDWR | O_CLOEXEC);
    process_start(&process, folder.dir, process_binary(), "chat %s --quiet --session %s",
                  scripted.dir, session);
    ck_assert_int_eq(write(line, "Hello\n", 6), 6);
    for (int i = 0; i < 3000 && access(session, F_OK) != 0; i++) {
        usleep(10000);
    }
    tiny_put(&folder, "session.k3", "another's", 9);
    ck_assert_int_eq(write(line, "Hello\n", 6), 6);
    process_wait(&process);
    close(line);
    unlink(in_path);
    expect(1, "another process has written");
    unsigned char *kept = tiny_read(&folder, "session.k3", &size);
    ck_assert(size == 9 && memcmp(kept, "another's", 9) == 0);
    free(kept);
    forget_session();
}
END_TEST

static void nap(long milliseconds)
{
    usleep((useconds_t)milliseconds * 1000);
}

/* Killed whenever it may be, the session holds a number of whole turns, and goes on. */
START_TEST(a_session_survives_being_killed)
{
    char lines[4096] = "";
    forget_session();
    for (int i = 0; i < 200; i++) {
        strcat(lines, "again\n");
    }
    say(lines);
    for (int round = 0; round < 6; round++) {
        process_start(&process, folder.dir, process_binary(), "chat %s --no-thinking --quiet "
                      "--context 4000 --session %s", scripted.dir, session);
        for (int i = 0; i < 600 && access(session, R_OK) != 0; i++) {
            nap(100); /* the first turn is kept */
        }
        nap(17 + 23 * round);
        kill(process.pid, SIGKILL);
        process_wait(&process);
        ck_assert(process.status == 128 + SIGKILL || process.status == 4);
        say("");
        k3ring("chat %s --quiet --context 4000 --session %s", scripted.dir, session);
        expect(0, NULL);
        say(lines);
    }
    say("Hello\n");
    k3ring("chat %s --quiet --context 4096 --session %s", scripted.dir, session);
    expect(0, NULL);
    ck_assert_str_eq(process.out, "Hi!\n\n");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat_cli");
    TCase *all = tcase_create("all");
    if (process_binary() == NULL) {
        fprintf(stderr, "build k3ring first: this test runs it\n");
        return EXIT_FAILURE;
    }
    tcase_add_unchecked_fixture(all, setup_once, teardown_once);
    tcase_set_timeout(all, 300);
    tcase_add_test(all, every_line_of_a_pipe_is_a_turn_and_an_empty_line_ends_an_answer);
    tcase_add_test(all, reasoning_is_not_shown_in_a_pipe);
    tcase_add_test(all, a_slash_in_a_pipe_is_text);
    tcase_add_test(all, a_limit_ends_an_answer_and_says_so);
    tcase_add_test(all, a_zero_byte_is_no_text);
    tcase_add_test(all, a_file_of_messages_is_answered_once);
    tcase_add_test(all, options_win_over_the_file);
    tcase_add_test(all, an_answer_goes_to_standard_output_or_a_file);
    tcase_add_loop_test(all, what_makes_no_sense_is_refused, 0, 11);
    tcase_add_test(all, a_tokenizer_of_more_tokens_than_the_model_has_is_refused);
    tcase_add_loop_test(all, a_trained_model_thinks_responds_and_ends, 0, 2);
    tcase_add_loop_test(all, run_answers_one_turn, 0, 9);
    tcase_add_test(all, an_answer_that_was_cut_while_thinking_is_none);
    tcase_add_loop_test(all, a_file_of_a_model_may_name_ids_that_end_an_answer, 0, 3);
    tcase_add_test(all, a_report_of_an_answer_has_its_reasoning);
    tcase_add_test(all, drafts_change_nothing);
    tcase_add_test(all, a_session_goes_on_where_it_was_left);
    tcase_add_test(all, a_session_that_does_not_fit_is_refused);
    tcase_add_test(all, what_is_no_utf_8_is_refused_and_a_session_stays_readable);
    tcase_add_test(all, a_session_is_a_file_that_can_be_replaced);
    tcase_add_test(all, a_session_that_another_wrote_is_not_replaced);
    tcase_add_test(all, a_session_survives_being_killed);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
