/* SPDX-License-Identifier: Apache-2.0 */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/nondet.h"
#include "core/model/tokenizer_ranks.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"
#include "tests/support/vocabulary.h"

static struct tiny folder;
static char path[TINY_PATH_BYTES];
static const char *const merges[] = {"th", "the"};

static int read_text(const char *text, size_t size_bytes, struct ranks *ranks)
{
    tiny_put(&folder, "tiktoken.model", text, size_bytes);
    tiny_path(&folder, "tiktoken.model", path);
    err_clear();
    return ranks_read(ranks, path);
}

/* One line that names the file and says what is wrong. */
static void expect_refusal(const char *text, size_t size_bytes, const char *part)
{
    struct ranks ranks;
    ck_assert_msg(read_text(text, size_bytes, &ranks) == ERR_MODEL, "'%s': not refused", part);
    ck_assert_msg(strstr(err_message(), part) != NULL, "no \"%s\" in: %s", part, err_message());
    ck_assert_msg(strncmp(err_message(), path, strlen(path)) == 0, "%s", err_message());
    ck_assert_msg(strstr(err_message(), "fetch") != NULL || strstr(err_message(), "take") != NULL,
                  "no cure in: %s", err_message());
    ck_assert_ptr_null(ranks.bytes);
}

START_TEST(tokens_are_found_by_their_bytes)
{
    struct ranks ranks;
    size_t size;
    char *text = vocabulary_text(merges, countof(merges), &size);
    for (int cut = 0; cut < 2; cut++) { /* the last line needs no end */
        ck_assert_msg(read_text(text, size - (size_t)cut, &ranks) == 0, "%s", err_message());
        ck_assert_uint_eq(ranks.count, 258);
        ck_assert_uint_eq(ranks_find(&ranks, (const unsigned char *)"the", 3), 257);
        ck_assert_uint_eq(ranks_find(&ranks, (const unsigned char *)"thx", 3), RANKS_NONE);
        ck_assert_uint_eq(ranks_find(&ranks, (const unsigned char *)"", 1), 188);
        ck_assert_uint_eq(ranks.byte_rank['!'], 0);
        ck_assert_uint_eq(ranks.byte_rank['\n'], 198);
        ck_assert_uint_eq(ranks.byte_rank[' '], 220);
        ck_assert_uint_eq(ranks.byte_rank[173], 255);
        ck_assert_uint_eq(ranks.longest_bytes, 3);
        ck_assert_uint_gt(ranks.resident_bytes, 0);
        ranks_free(&ranks);
    }
    free(text);
}
END_TEST

START_TEST(lines_may_come_in_any_order)
{
    struct ranks ranks;
    size_t size;
    char *text = vocabulary_text(merges, countof(merges), &size);
    char *mixed = malloc(size + 1);
    ck_assert_ptr_nonnull(mixed);
    size_t first = strcspn(text, "\n") + 1;
    memcpy(mixed, text + first, size - first);
    memcpy(mixed + size - first, text, first);
    ck_assert_msg(read_text(mixed, size, &ranks) == 0, "%s", err_message());
    ck_assert_uint_eq(ranks.byte_rank['!'], 0);
    ck_assert_uint_eq(ranks_find(&ranks, (const unsigned char *)"th", 2), 256);
    ranks_free(&ranks);
    free(mixed);
    free(text);
}
END_TEST

/* Damage that a text gets on its way, and that changes no token. */
START_TEST(line_ends_of_windows_and_a_missing_last_one_are_taken)
{
    struct ranks ranks;
    size_t size;
    size_t used = 0;
    char *text = vocabulary_text(merges, countof(merges), &size);
    char *other = malloc(2 * size);
    ck_assert_ptr_nonnull(other);
    ck_assert_msg(read_text(text, size - 1, &ranks) == 0, "%s", err_message());
    ck_assert_uint_eq(ranks_find(&ranks, (const unsigned char *)"th", 2), 256);
    uint32_t count = ranks.count;
    ranks_free(&ranks);
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\n') {
            other[used++] = '\r';
        }
        other[used++] = text[i];
    }
    ck_assert_msg(read_text(other, used, &ranks) == 0, "%s", err_message());
    ck_assert_uint_eq(ranks.count, count);
    ck_assert_uint_eq(ranks_find(&ranks, (const unsigned char *)"th", 2), 256);
    ranks_free(&ranks);
    free(other);
    free(text);
}
END_TEST

START_TEST(a_wrong_line_is_refused_with_its_number)
{
    static const struct {
        const char *line, *part;
    } rows[] = {
        {"dGg= 256\ndGg= 257\n", "line 258 has the token of rank 256 once more"},
        {"dGg=\n", "line 257 has no rank"},
        {"dGg= \n", "line 257 is not base64, a space and a rank"},
        {"dGg= x\n", "line 257 is not base64"},
        {"dGg= -1\n", "line 257 is not base64"},
        {"dGg= 0256\n", "line 257 is not base64"},
        {"dGg= 256 \n", "line 257 is not base64"},
        {"dGg=  256\n", "line 257 is not base64"},
        {"dGg= 2147483647\n", "line 257 has rank 2147483647"},
        {"dGg= 2147483648\n", "a rank below 2147483648"},
        {"dGg= 99999999999999999999\n", "a rank below 2147483648"},
        {"dGg= 257\n", "line 257 has rank 257, but 257 lines must have ranks 0 to 256"},
        {"dGg= 255\n", "line 257 has rank 255, which an earlier line has"},
        {"IQ== 256\n", "line 257 has the token of rank 0 once more"},
        {"dGg 256\n", "line 257 is not base64"},
        {"dG=g 256\n", "line 257 is not base64"},
        {"=Gg= 256\n", "line 257 is not base64"},
        {"dGh= 256\n", "line 257 is not base64"}, /* bits that no byte takes */
        {"d=== 256\n", "line 257 is not base64"},
        {"==== 256\n", "line 257 is not base64"},
        {"dG\xFFg 256\n", "line 257 is not base64"},
        {"dGg=dGg= 256\n", "line 257 is not base64"},
        {" 256\n", "line 257 has an empty token"},
        {"\n", "line 257 is empty"},
        {"dGg= 256\n\n", "line 258 is empty"},
        {"dGg= 256\r\r\n", "line 257 is not base64"},
        {"\r\n", "line 257 is empty"},
        {"dGg= 256\ndGhl 257\ndGhl", "line 259 has no rank"},
    };
    size_t size;
    char *head = vocabulary_text(NULL, 0, &size);
    char *text = malloc(size + 64);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < countof(rows); i++) {
        memcpy(text, head, size);
        strcpy(text + size, rows[i].line);
        expect_refusal(text, size + strlen(rows[i].line), rows[i].part);
    }
    memcpy(text + size, "dG\0= 256\n", 9);
    expect_refusal(text, size + 9, "line 257 holds a zero byte");
    free(text);
    free(head);
}
END_TEST

START_TEST(a_long_line_is_refused_and_a_token_of_the_greatest_length_is_not)
{
    const size_t most = RANKS_TOKEN_BYTES_MAX;
    char *token = calloc(1, most * 2 + 1), *text;
    const char *const one[] = {token};
    struct ranks ranks;
    size_t size;
    ck_assert_ptr_nonnull(token);
    memset(token, 'a', most);
    text = vocabulary_text(one, 1, &size);
    ck_assert_msg(read_text(text, size, &ranks) == 0, "%s", err_message());
    ck_assert_uint_eq(ranks.longest_bytes, most);
    ranks_free(&ranks);
    free(text);
    for (size_t more = 1; more <= most; more += most - 1) {
        memset(token, 'a', most + more);
        text = vocabulary_text(one, 1, &size);
        expect_refusal(text, size, "line 257 is ");
        free(text);
    }
    free(token);
}
END_TEST

START_TEST(single_bytes_are_all_there_and_where_they_belong)
{
    size_t size;
    char *text = vocabulary_text(merges, countof(merges), &size);
    char *space = strstr(text, "IA== 220");
    ck_assert_ptr_nonnull(space);
    memcpy(space, "ICA=", 4); /* two spaces instead of one */
    expect_refusal(text, size, "has no token for the single byte 0x20");
    free(text);
    text = vocabulary_text(merges, countof(merges), &size);
    memcpy(strstr(text, "IQ== 0"), "Ig==", 4);
    memcpy(strstr(text, "Ig== 1"), "IQ==", 4);
    expect_refusal(text, size, "byte 0x21 has rank 1, not 0");
    free(text);
}
END_TEST

START_TEST(what_is_no_such_file_is_told_apart)
{
    struct ranks ranks;
    static const char gzip[] = "\x1F\x8B\x08\x00\x00\x00\x00\x00\x00\x03\xED\x9D\n\x00\xFF 7\n";
    expect_refusal("", 0, "is empty");
    expect_refusal("\n", 1, "line 1 is empty");
    expect_refusal(gzip, sizeof gzip - 1, "is compressed by gzip");
    expect_refusal("version https://git-lfs.github.com/spec/v1\n", 43, "Git LFS pointer");
    expect_refusal("<!DOCTYPE html>\n<html>", 22, "HTML page");
    err_clear();
    ck_assert_int_eq(ranks_read(&ranks, folder.dir), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(err_message(), "not a regular file"));
    err_clear();
    tiny_path(&folder, "nowhere", path);
    ck_assert_int_eq(ranks_read(&ranks, path), ERR_MODEL);
}
END_TEST

START_TEST(no_damage_crashes_and_a_file_that_is_cut_short_is_refused)
{
    struct rng rng = rng_seed(5);
    struct ranks ranks;
    size_t size;
    char *text = vocabulary_text(merges, countof(merges), &size);
    char *damaged = malloc(size);
    ck_assert_ptr_nonnull(damaged);
    for (int i = 0; i < 2000; i++) {
        memcpy(damaged, text, size);
        for (uint64_t k = 1 + rng_below(&rng, 4); k > 0; k--) {
            damaged[rng_below(&rng, size)] = (char)rng_next(&rng);
        }
        if (read_text(damaged, size - rng_below(&rng, 2) * rng_below(&rng, size), &ranks) == 0) {
            ranks_free(&ranks);
        }
    }
    size_t bytes_end = (size_t)(strstr(text, "rQ== 255\n") - text) + 9;
    for (size_t left = 0; left + 1 < bytes_end; left++) {
        ck_assert_msg(read_text(text, left, &ranks) == ERR_MODEL, "%zu bytes", left);
    }
    free(damaged);
    free(text);
}
END_TEST

static void setup(void)
{
    tiny_folder(&folder, TINY_MEMORY);
}

static void teardown(void)
{
    tiny_remove(&folder);
}

int main(void)
{
    Suite *suite = suite_create("tokenizer_ranks");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, tokens_are_found_by_their_bytes);
    tcase_add_test(all, lines_may_come_in_any_order);
    tcase_add_test(all, line_ends_of_windows_and_a_missing_last_one_are_taken);
    tcase_add_test(all, a_wrong_line_is_refused_with_its_number);
    tcase_add_test(all, a_long_line_is_refused_and_a_token_of_the_greatest_length_is_not);
    tcase_add_test(all, single_bytes_are_all_there_and_where_they_belong);
    tcase_add_test(all, what_is_no_such_file_is_told_apart);
    tcase_add_test(all, no_damage_crashes_and_a_file_that_is_cut_short_is_refused);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
