/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/run_text.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"
#include "tests/support/vocabulary.h"

#define THOUGHT "<|close|>think<|sep|><|open|>response<|sep|>"
#define CALL                                                                                      \
    "<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|>"

static struct tiny folder;
static struct tokenizer *tokenizer;

/* Whether text, cut there, is no answer. */
static bool unanswered(const char *text)
{
    static const struct option_list no_stops = {.count = 0};
    struct run_text t;
    struct token_list ids = {.ids = NULL};
    ck_assert_int_eq(run_text_open(&t, tokenizer, NULL, &no_stops, false), 0);
    ck_assert_int_eq(run_text_chat(&t, folder.dir, true), 0);
    ck_assert_int_eq(tokenizer_encode(tokenizer, text, strlen(text), TOKENIZE_ADDED, &ids), 0);
    for (size_t i = 0; i < ids.count; i++) {
        run_text_take(&t, &ids.ids[i]);
    }
    run_text_take(&t, NULL);
    ck_assert_int_eq(t.rc, 0);
    bool none = run_text_unanswered(&t);
    free(ids.ids);
    run_text_fini(&t);
    return none;
}

START_TEST(a_response_or_a_whole_call_is_an_answer)
{
    ck_assert(unanswered("hm"));
    ck_assert(unanswered("hm" THOUGHT));
    ck_assert(!unanswered("hm" THOUGHT "x"));
    ck_assert(!unanswered("hm" THOUGHT CALL "<|close|>call<|sep|>"));
}
END_TEST

/* A mark of the format ends tags, whatever a file of the model says of it. */
START_TEST(ids_that_end_an_answer_are_of_the_format_or_of_the_files)
{
    static const struct option_list no_stops = {.count = 0};
    static const char config[] = "{\"eos_token_id\": [7, 261]}";
    struct run_text t;
    const struct chat_tokens control = chat_tokens(tokenizer);
    tiny_put(&folder, "config.json", config, sizeof config - 1);
    ck_assert_uint_eq(control.sep, 261);
    ck_assert_int_eq(run_text_open(&t, tokenizer, NULL, &no_stops, false), 0);
    ck_assert(!run_text_ends_with(&t, 7)); /* it is no answer yet */
    ck_assert_int_eq(run_text_chat(&t, folder.dir, true), 0);
    ck_assert(run_text_ends_with(&t, 7));
    ck_assert(run_text_ends_with(&t, control.end));
    ck_assert(run_text_ends_with(&t, control.eos));
    ck_assert(!run_text_ends_with(&t, control.sep));
    ck_assert(!run_text_ends_with(&t, 8));
    run_text_fini(&t);
}
END_TEST

static void setup(void)
{
    char path[TINY_PATH_BYTES];
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "tiktoken.model", path);
    vocabulary_write(path, NULL, 0);
    ck_assert_msg(tokenizer_open(path, &tokenizer) == 0, "%s", err_message());
}

static void teardown(void)
{
    tokenizer_close(tokenizer);
    tiny_remove(&folder);
}

int main(void)
{
    Suite *suite = suite_create("run_text");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, a_response_or_a_whole_call_is_an_answer);
    tcase_add_test(all, ids_that_end_an_answer_are_of_the_format_or_of_the_files);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
