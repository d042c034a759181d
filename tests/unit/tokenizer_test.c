/* SPDX-License-Identifier: Apache-2.0 */

/* `tokenizer_test [FILE]`: with the tiktoken.model of Kimi K3, also ids that take its merges. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nondet.h"
#include "core/base/utf8.h"
#include "core/model/tokenizer.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"
#include "tests/support/vocabulary.h"

static const char *released; /* the real file, or NULL */

static const char *const merges[] = {"he", "ll", "hell", "hello", " h", "ab", "\xE4\xBD",
                                     "\xE4\xBD\xA0", "aa", "aaaa"};
#define FIRST_ADDED (VOCABULARY_BYTES + 10U)

static struct tiny folder;
static char file[TINY_PATH_BYTES];
static struct tokenizer *t;

static struct token_list encode(const struct tokenizer *by, const void *text, size_t size,
                                unsigned flags)
{
    struct token_list list = {.ids = NULL};
    ck_assert_msg(tokenizer_encode(by, text, size, flags, &list) == 0, "%s", err_message());
    return list;
}

/* Ids as text, separated by commas. */
static const char *ids_of(const struct tokenizer *by, const char *text, unsigned flags)
{
    static char joined[4096];
    struct token_list list = encode(by, text, strlen(text), flags);
    size_t used = 0;
    joined[0] = '\0';
    for (size_t i = 0; i < list.count; i++) {
        used += (size_t)snprintf(joined + used, sizeof joined - used, "%s%u", i > 0 ? "," : "",
                                 list.ids[i]);
    }
    free(list.ids);
    return joined;
}

/* ---- ids ---- */

START_TEST(text_becomes_ids)
{
    ck_assert_str_eq(ids_of(t, "", 0), "");
    ck_assert_str_eq(ids_of(t, "hello", 0), "259");
    ck_assert_str_eq(ids_of(t, "hello hello", 0), "259,220,259");
    ck_assert_str_eq(ids_of(t, "\u4F60", 0), "263");
    ck_assert_str_eq(ids_of(t, "\u4F61", 0), "262,94");
    ck_assert_uint_eq(tokenizer_count(t), FIRST_ADDED + 256);
    ck_assert_uint_eq(tokenizer_first_added(t), FIRST_ADDED);
    ck_assert_uint_gt(tokenizer_resident_bytes(t), 266 * 8);
    ck_assert_uint_eq(tokenizer_longest_bytes(t), 5);
}
END_TEST

/* Published ids that follow from the pattern and single bytes. */
START_TEST(single_bytes_have_their_published_ids)
{
    ck_assert_str_eq(ids_of(t, "2+2?", 0), "17,10,17,30");
    ck_assert_str_eq(ids_of(t, "a&b \"", 0), "64,5,65,220,1");
    ck_assert_str_eq(ids_of(t, ", ", 0), "11,220");
    ck_assert_str_eq(ids_of(t, "q1", 0), "80,16");
    ck_assert_str_eq(ids_of(t, "`\n", 0), "63,198");
}
END_TEST

START_TEST(lists_are_appended_to)
{
    struct token_list list = {.ids = NULL};
    for (uint32_t i = 1; i <= 300; i++) {
        ck_assert_int_eq(tokenizer_encode(t, "hello", 5, 0, &list), 0);
        ck_assert_uint_eq(list.count, i);
        ck_assert_uint_eq(list.ids[i - 1], 259);
    }
    free(list.ids);
}
END_TEST

START_TEST(what_the_released_file_makes)
{
    static const struct {
        const char *text, *ids;
        unsigned flags;
    } rows[] = {
        {"The capital of France is", "1008,10484,318,15383,387", 0},
        {"Hi", "18699", 0},
        {"Hello", "19180", 0},
        {" Paris", "17374", 0},
        {"You are helpful.", "3900,554,13205,13", 0},
        {"You are terse.", "3900,554,93330,13", 0},
        {"2+2?", "17,10,17,30", 0},
        {"473, 921, 235", "42780,11,220,49114,11,220,23782", 0},
        {"What were the other two?", "5376,1646,276,1356,2069,30", 0},
        {"a&b \"q\" \u65E5\u672C\u8A9E \U0001F389\nsecond line",
         "64,5,65,414,80,1,220,4546,63011,17137,236,231,198,8959,2470", 0},
        {"What does [EOS] mean vs [PAD] and [UNK]?",
         "5376,2354,793,85521,60,4992,12583,793,54904,60,316,793,57780,87795", 0},
        {"<|open|>message role=\"user\"<|sep|>Hi<|close|>message<|sep|><|end_of_msg|>",
         "163587,2778,6244,878,2482,1,163589,18699,163588,2778,163589,163586", TOKENIZE_ADDED},
    };
    struct tokenizer *real;
    if (released == NULL) {
        puts("skip: ids that take merges: give the tiktoken.model of Kimi K3 as an argument");
        return;
    }
    ck_assert_msg(tokenizer_open(released, &real) == 0, "%s", err_message());
    ck_assert_uint_eq(tokenizer_count(real), 163840);
    for (size_t i = 0; i < countof(rows); i++) {
        ck_assert_str_eq(ids_of(real, rows[i].text, rows[i].flags), rows[i].ids);
    }
    tokenizer_close(real);
}
END_TEST

/* ---- added tokens ---- */

START_TEST(the_text_of_an_added_token_is_text_unless_allowed)
{
    char text[64];
    snprintf(text, sizeof text, "a<|reserved_token_%u|>[EOS]", FIRST_ADDED + 8);
    ck_assert_str_eq(ids_of(t, text, TOKENIZE_ADDED), "64,274,267");
    ck_assert_str_eq(ids_of(t, "[EOS]", 0), "58,36,46,50,60");
    ck_assert_str_eq(ids_of(t, "[EOS[BOS]<|sep|>hello<|sep", TOKENIZE_ADDED),
                     "58,36,46,50,266,271,259,27,91,82,68,79");
    ck_assert_str_eq(ids_of(t, "[PAD]", TOKENIZE_ADDED), "521");
    ck_assert_str_eq(ids_of(t, "<|reserved_token_8|>", TOKENIZE_ADDED),
                     "27,91,81,68,82,68,81,85,68,67,62,83,78,74,68,77,62,23,91,29");
}
END_TEST

START_TEST(text_ends_for_the_pattern_where_an_added_token_begins)
{
    /* Two spaces before a word would leave one to it; before an added token they stay together. */
    ck_assert_str_eq(ids_of(t, "a  [EOS]b", TOKENIZE_ADDED), "64,220,220,267,65");
}
END_TEST

START_TEST(an_added_token_that_a_cut_divides_is_text)
{
    const size_t run = 25000;
    char *text = malloc(run + 10);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', run + 10);
    for (size_t at = run - 6; at <= run; at++) {
        memset(text, 'x', run + 10);
        memcpy(text + at, "[EOS]", 5);
        struct token_list list = encode(t, text, run + 5, TOKENIZE_ADDED);
        size_t found = 0;
        for (size_t i = 0; i < list.count; i++) {
            found += list.ids[i] == FIRST_ADDED + 1;
        }
        ck_assert_uint_eq(found, at + 5 <= run || at == run);
        free(list.ids);
    }
    free(text);
}
END_TEST

static int open_with(const char *config)
{
    struct tokenizer *other = NULL;
    err_clear();
    tiny_put(&folder, "tokenizer_config.json", config, strlen(config));
    int rc = tokenizer_open(folder.dir, &other);
    if (rc == 0) {
        ck_assert_str_eq(ids_of(other, "[BOS]<|mine|>", TOKENIZE_ADDED), "266,276");
        tokenizer_close(other);
    }
    return rc;
}

START_TEST(a_tokenizer_config_may_name_what_is_reserved)
{
    int rc = open_with("{\"added_tokens_decoder\": {"
                       "\"266\": {\"content\": \"[BOS]\", \"special\": true}, "
                       "\"267\": {\"content\": \"[EOS]\"}, "
                       "\"276\": {\"content\": \"<|mine|>\"}}}");
    ck_assert_msg(rc == 0, "%s", err_message());
}
END_TEST

START_TEST(a_tokenizer_config_of_another_model_is_refused)
{
    static const struct {
        const char *config, *part;
    } rows[] = {
        {"{\"added_tokens_decoder\": {\"268\": {\"content\": \"<|im_end|>\", \"special\": true}}}",
         "added token 268 is '<|im_end|>', special, but in Kimi K3 '<|end_of_msg|>', special"},
        {"{\"added_tokens_decoder\": {\"269\": {\"content\": \"<|open|>\", \"special\": true}}}",
         "is '<|open|>', special, but in Kimi K3 '<|open|>', not special"},
        {"{\"added_tokens_decoder\": {\"163584\": {\"content\": \"[BOS]\", \"special\": true}}}",
         "none of 266 to 521"},
        {"{\"added_tokens_decoder\": {\"265\": {\"content\": \"[BOS]\"}}}", "none of 266 to 521"},
        {"{\"added_tokens_decoder\": {\"x\": {\"content\": \"[BOS]\"}}}", "none of 266 to 521"},
        {"{\"added_tokens_decoder\": {\"\": {\"content\": \"[BOS]\"}}}", "none of 266 to 521"},
        {"{\"added_tokens_decoder\": {\"276\": {\"content\": \"\"}}}", "has no content"},
        {"{\"added_tokens_decoder\": {\"276\": {\"content\": 7}}}", "has no content"},
        {"{\"added_tokens_decoder\": {\"276\": 7}}", "has no content"},
        {"{\"added_tokens_decoder\": {\"276\": {\"content\": \"z\", \"special\": 1}}}",
         "neither true nor false"},
        {"{\"added_tokens_decoder\": {\"276\": {\"content\": \"[EO\"}}}", "is the beginning of"},
        {"{\"added_tokens_decoder\": {\"276\": {\"content\": \"[EOS]\"}}}", "is the beginning of"},
        {"{\"added_tokens_decoder\": []}", "is not an object"},
        {"{\"added_tokens_decoder\": {", "tokenizer_config.json"},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        ck_assert_msg(open_with(rows[i].config) == ERR_MODEL, "number %zu", i);
        ck_assert_msg(strstr(err_message(), rows[i].part) != NULL, "no \"%s\" in: %s",
                      rows[i].part, err_message());
    }
}
END_TEST

START_TEST(a_folder_has_to_hold_a_tokenizer_of_its_model)
{
    struct tokenizer *other;
    struct tiny model;
    char path[TINY_PATH_BYTES];
    tiny_make(&model, TINY_MEMORY);
    err_clear();
    ck_assert_int_eq(tokenizer_open(model.dir, &other), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(err_message(), "holds no tiktoken.model"));
    tiny_path(&model, "tiktoken.model", path);
    vocabulary_write(path, merges, countof(merges));
    err_clear();
    ck_assert_int_eq(tokenizer_open(model.dir, &other), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(err_message(), "makes 522 tokens with the added ones"));
    err_clear();
    ck_assert_int_eq(tokenizer_open(path, &other), 0); /* the file alone cannot be judged by it */
    tokenizer_close(other);
    tiny_remove(&model);
}
END_TEST

/* ---- round trips ---- */

START_TEST(any_bytes_come_back)
{
    struct rng rng = rng_seed((uint64_t)_i);
    static unsigned char text[5000];
    for (int round = 0; round < 100; round++) {
        struct byte_list back = {.bytes = NULL};
        size_t size = rng_below(&rng, sizeof text);
        unsigned flags = (unsigned)rng_below(&rng, 2) * TOKENIZE_ADDED;
        for (size_t i = 0; i < size; i++) {
            uint64_t chance = rng_next(&rng);
            text[i] = (unsigned char)(chance % 2 == 0 ? chance >> 8
                                                      : (uint64_t)"hel o[EOS]"[(chance >> 8) % 10]);
        }
        struct token_list list = encode(t, text, size, flags);
        ck_assert_int_eq(tokenizer_decode(t, list.ids, list.count, 0, &back), 0);
        ck_assert_msg(back.count == size && (size == 0 || memcmp(back.bytes, text, size) == 0),
                      "seed %d, round %d", _i, round);
        free(list.ids);
        free(back.bytes);
    }
}
END_TEST

struct visited {
    size_t size_bytes;
    unsigned char text[64];
    int64_t last_added;
};

static int visit(void *context, const unsigned char *piece, size_t size_bytes, int64_t added_id)
{
    struct visited *v = context;
    memcpy(v->text + v->size_bytes, piece, size_bytes);
    v->size_bytes += size_bytes;
    v->last_added = added_id >= 0 ? added_id : v->last_added;
    return piece[0] == '!' ? -77 : 0;
}

START_TEST(pieces_together_are_the_text_and_a_visitor_may_end_the_walk)
{
    struct visited v = {.size_bytes = 0};
    ck_assert_int_eq(tokenizer_split(t, "hello [EOS]\xFF", 12, TOKENIZE_ADDED, visit, &v), 0);
    ck_assert_uint_eq(v.size_bytes, 12);
    ck_assert_int_eq(memcmp(v.text, "hello [EOS]\xFF", 12), 0);
    ck_assert_int_eq(v.last_added, FIRST_ADDED + 1);
    v.size_bytes = 0;
    ck_assert_int_eq(tokenizer_split(t, "a! b", 4, 0, visit, &v), -77);
    ck_assert_uint_eq(v.size_bytes, 2);
}
END_TEST

START_TEST(a_long_text_encodes_cut_by_cut_as_in_one)
{
    const size_t size = 900000;
    unsigned char *text = malloc(size);
    struct token_list cuts = {.ids = NULL};
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < size; i++) {
        text[i] = (unsigned char)"hello aaaa \xE4\xBD\xA0"[i % 14];
    }
    struct token_list whole = encode(t, text, size, 0);
    for (size_t at = 0; at < size;) {
        size_t cut = tokenizer_cut(text + at, size - at);
        ck_assert_uint_gt(cut, 0);
        ck_assert_int_eq(tokenizer_encode(t, text + at, cut, 0, &cuts), 0);
        at += cut;
    }
    ck_assert_uint_eq(cuts.count, whole.count);
    ck_assert_int_eq(memcmp(cuts.ids, whole.ids, whole.count * sizeof *whole.ids), 0);
    free(cuts.ids);
    free(whole.ids);
    free(text);
}
END_TEST

/* ---- ids to text ---- */

START_TEST(ids_of_no_token_are_refused_after_those_before_them)
{
    const uint32_t ids[] = {259, FIRST_ADDED + 256, 259};
    struct byte_list out = {.bytes = NULL};
    err_clear();
    ck_assert_int_eq(tokenizer_decode(t, ids, 3, 0, &out), ERR_USAGE);
    ck_assert_str_eq(err_message(), "522 is no token id: they end at 521");
    ck_assert_uint_eq(out.count, 5);
    ck_assert_ptr_null(tokenizer_token(t, UINT32_MAX, &(size_t){0}, NULL));
    free(out.bytes);
}
END_TEST

static void expect_text(const uint32_t *ids, size_t count, unsigned flags, const char *text)
{
    struct byte_list out = {.bytes = NULL};
    ck_assert_int_eq(tokenizer_decode(t, ids, count, flags, &out), 0);
    ck_assert_uint_eq(out.count, strlen(text));
    ck_assert(out.count == 0 || memcmp(out.bytes, text, out.count) == 0);
    free(out.bytes);
}

START_TEST(special_tokens_are_left_out_and_control_tokens_stay)
{
    const uint32_t ids[] = {FIRST_ADDED, FIRST_ADDED + 3, 259, FIRST_ADDED + 5, FIRST_ADDED + 2,
                            FIRST_ADDED + 255};
    expect_text(ids, 0, 0, "");
    expect_text(ids, countof(ids), 0, "[BOS]<|open|>hello<|sep|><|end_of_msg|>[PAD]");
    expect_text(ids, countof(ids), DETOKENIZE_SKIP_SPECIAL, "<|open|>hello<|sep|>");
}
END_TEST

START_TEST(bytes_that_are_no_text_are_repaired_when_asked)
{
    const uint32_t ids[] = {262, 259, 262}; /* two thirds of a character, twice */
    expect_text(ids, 3, 0, "\xE4\xBDhello\xE4\xBD");
    expect_text(ids, 3, DETOKENIZE_REPAIR, "\uFFFDhello\uFFFD");
    const uint32_t good[] = {263, 259};
    expect_text(good, 2, DETOKENIZE_REPAIR, "\u4F60hello");
}
END_TEST

/* No prefix of what a stream has shown ends within a character. */
START_TEST(a_stream_never_shows_half_a_character)
{
    const char *text = "a\u00E9\u4F60\U0001F469\u200D\U0001F4BB\u0301\xF0\x9F!\xFF\xE4\xBD";
    const size_t size = strlen(text);
    struct tokenizer_stream stream;
    struct byte_list out = {.bytes = NULL};
    tokenizer_stream_start(&stream, t, 0);
    for (size_t i = 0; i < size; i++) {
        struct token_list one = encode(t, text + i, 1, 0);
        size_t held = utf8_unfinished((const unsigned char *)text, i + 1);
        ck_assert_uint_eq(one.count, 1);
        ck_assert_int_eq(tokenizer_stream_push(&stream, one.ids[0], &out), 0);
        ck_assert_uint_eq(out.count, i + 1 - held);
        ck_assert_int_eq(memcmp(out.bytes, text, out.count), 0);
        free(one.ids);
    }
    ck_assert_uint_eq(out.count, size - 2);
    ck_assert_int_eq(tokenizer_stream_end(&stream, &out), 0);
    ck_assert_uint_eq(out.count, size);
    ck_assert_int_eq(memcmp(out.bytes, text, size), 0);
    ck_assert_uint_eq(stream.held_bytes, 0);
    free(out.bytes);
}
END_TEST

static void setup(void)
{
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "tiktoken.model", file);
    vocabulary_write(file, merges, countof(merges));
    ck_assert_msg(tokenizer_open(file, &t) == 0, "%s", err_message());
}

static void teardown(void)
{
    tokenizer_close(t);
    tiny_remove(&folder);
}

int main(int argc, char **argv)
{
    released = argc > 1 ? argv[1] : NULL;
    Suite *suite = suite_create("tokenizer");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 120);
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, text_becomes_ids);
    tcase_add_test(all, single_bytes_have_their_published_ids);
    tcase_add_test(all, lists_are_appended_to);
    tcase_add_test(all, what_the_released_file_makes);
    tcase_add_test(all, the_text_of_an_added_token_is_text_unless_allowed);
    tcase_add_test(all, text_ends_for_the_pattern_where_an_added_token_begins);
    tcase_add_test(all, an_added_token_that_a_cut_divides_is_text);
    tcase_add_test(all, a_tokenizer_config_may_name_what_is_reserved);
    tcase_add_test(all, a_tokenizer_config_of_another_model_is_refused);
    tcase_add_test(all, a_folder_has_to_hold_a_tokenizer_of_its_model);
    tcase_add_loop_test(all, any_bytes_come_back, 0, 4);
    tcase_add_test(all, pieces_together_are_the_text_and_a_visitor_may_end_the_walk);
    tcase_add_test(all, a_long_text_encodes_cut_by_cut_as_in_one);
    tcase_add_test(all, ids_of_no_token_are_refused_after_those_before_them);
    tcase_add_test(all, special_tokens_are_left_out_and_control_tokens_stay);
    tcase_add_test(all, bytes_that_are_no_text_are_repaired_when_asked);
    tcase_add_test(all, a_stream_never_shows_half_a_character);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
