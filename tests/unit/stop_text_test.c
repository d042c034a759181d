/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/cli/stop_text.h"
#include "tests/support/suite.h"

static struct stop_text stop;
static struct byte_list shown;

static void begin(const struct option_list *texts)
{
    stop_text_fini(&stop);
    stop_text_start(&stop, texts);
    shown.count = 0;
}

/* Pushes pieces that a bar separates, and the end unless a text was found. */
static void push(const char *pieces)
{
    for (const char *at = pieces; stop.found == NULL;) {
        size_t length = strcspn(at, "|");
        ck_assert_int_eq(stop_text_push(&stop, (const unsigned char *)at, length, &shown), 0);
        if (at[length] == '\0') {
            break;
        }
        at += length + 1;
    }
}

static void expect_shown(const char *text)
{
    ck_assert_msg(shown.count == strlen(text) &&
                      (shown.count == 0 || memcmp(shown.bytes, text, shown.count) == 0),
                  "shown: '%.*s', not '%s'", (int)shown.count, (const char *)shown.bytes, text);
}

static const struct {
    struct option_list texts;
    const char *pieces, *shown, *found;
} cases[] = {
    {{{"END"}, 1}, "some text END and more", "some text ", "END"},
    {{{"END"}, 1}, "some text E|N|D", "some text ", "END"},
    {{{"END"}, 1}, "E|E|N|E|ND", "EEN", "END"},
    {{{"END"}, 1}, "EN", "EN", NULL},
    {{{"END"}, 1}, "", "", NULL},
    {{{"END"}, 1}, "END", "", "END"},
    {{{"aab"}, 1}, "a|a|a|b", "a", "aab"},
    {{{"abab", "ba"}, 2}, "xab|ab", "xa", "ba"}, /* complete first, though begun later */
    {{{"b", "ab"}, 2}, "xab", "x", "ab"},        /* of two that end together the longer */
    {{{"\n\n", "User:"}, 2}, "Hi.\n|User|: so", "Hi.\n", "User:"},
    {{{"\n\n", "User:"}, 2}, "Hi.\n|\nUser:", "Hi.", "\n\n"},
    {{{"\xC3\xA9"}, 1}, "caf\xC3|\xA9s", "caf", "\xC3\xA9"},
    {{{NULL}, 0}, "every|thing", "everything", NULL},
};

START_TEST(a_text_ends_the_output_wherever_tokens_begin)
{
    begin(&cases[_i].texts);
    push(cases[_i].pieces);
    if (cases[_i].found != NULL) {
        ck_assert_ptr_nonnull(stop.found);
        ck_assert_str_eq(stop.found, cases[_i].found);
    } else {
        ck_assert_ptr_null(stop.found);
        ck_assert_int_eq(stop_text_end(&stop, &shown), 0);
    }
    expect_shown(cases[_i].shown);
}
END_TEST

START_TEST(what_may_begin_a_text_is_held_back_and_nothing_else)
{
    static const struct option_list texts = {{"abc", "bd"}, 2};
    begin(&texts);
    push("xyz");
    expect_shown("xyz");
    push("a");
    expect_shown("xyz");
    push("b");
    expect_shown("xyz");
    push("a"); /* aba: neither goes on, but the last a may */
    expect_shown("xyzab");
    push("q");
    expect_shown("xyzabaq");
    ck_assert_int_eq(stop_text_end(&stop, &shown), 0);
    expect_shown("xyzabaq");
}
END_TEST

/* The definition, over the whole text at once. */
static const char *slow(const struct option_list *texts, const char *text, size_t *shown_bytes)
{
    for (size_t end = 1; end <= strlen(text); end++) {
        const char *best = NULL;
        for (uint32_t i = 0; i < texts->count; i++) {
            size_t length = strlen(texts->item[i]);
            if (length <= end && memcmp(text + end - length, texts->item[i], length) == 0 &&
                (best == NULL || length > strlen(best))) {
                best = texts->item[i];
            }
        }
        if (best != NULL) {
            *shown_bytes = end - strlen(best);
            return best;
        }
    }
    *shown_bytes = strlen(text);
    return NULL;
}

static void random_text(struct rng *rng, char *text, size_t most)
{
    size_t length = 1 + rng_below(rng, most - 1);
    for (size_t i = 0; i < length; i++) {
        text[i] = (char)('a' + rng_below(rng, 2));
    }
    text[length] = '\0';
}

START_TEST(any_cutting_shows_what_the_whole_text_would)
{
    struct rng rng = rng_seed(3);
    int found = 0;
    for (int round = 0; round < 20000; round++) {
        char item[3][8], text[24], expected[24];
        struct option_list texts = {.count = 1 + (uint32_t)rng_below(&rng, 3)};
        size_t shown_bytes;
        for (uint32_t i = 0; i < texts.count; i++) {
            random_text(&rng, item[i], 7);
            texts.item[i] = item[i];
        }
        random_text(&rng, text, 20);
        const char *want = slow(&texts, text, &shown_bytes);
        memcpy(expected, text, shown_bytes);
        expected[shown_bytes] = '\0';
        begin(&texts);
        for (size_t at = 0; at < strlen(text) && stop.found == NULL;) {
            size_t count = 1 + rng_below(&rng, strlen(text) - at);
            stop_text_push(&stop, (const unsigned char *)text + at, count, &shown);
            at += count;
        }
        if (stop.found == NULL) {
            stop_text_end(&stop, &shown);
        }
        ck_assert_msg(stop.found == want, "round %d", round);
        expect_shown(expected);
        found += want != NULL;
    }
    ck_assert(found > 1000 && found < 19900);
}
END_TEST

START_TEST(an_empty_text_is_refused)
{
    static const struct option_list good = {{"a", "b"}, 2}, bad = {{"a", ""}, 2};
    ck_assert_int_eq(stop_text_check("stop-text", &good), 0);
    ck_assert_int_eq(stop_text_check("stop-text", &bad), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err_message(), "--stop-text"));
}
END_TEST

static void teardown(void)
{
    stop_text_fini(&stop);
    free(shown.bytes);
    shown = (struct byte_list){.bytes = NULL};
}

int main(void)
{
    Suite *suite = suite_create("stop_text");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, err_clear, teardown);
    tcase_add_loop_test(all, a_text_ends_the_output_wherever_tokens_begin, 0,
                        (int)countof(cases));
    tcase_add_test(all, what_may_begin_a_text_is_held_back_and_nothing_else);
    tcase_add_test(all, any_cutting_shows_what_the_whole_text_would);
    tcase_add_test(all, an_empty_text_is_refused);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
