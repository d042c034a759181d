/* SPDX-License-Identifier: Apache-2.0 */

/* Prompts as text: the same run as with the ids they stand for, text out for text in, and what is
 * refused. The tiny model's ids stand
 * for single bytes. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"
#include "tests/support/vocabulary.h"

static struct tiny model;
static char text_path[TINY_PATH_BYTES], report_path[TINY_PATH_BYTES], vocabulary[TINY_PATH_BYTES];

static void setup_once(void)
{
    tiny_make(&model, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "tiktoken.model", vocabulary);
    vocabulary_write(vocabulary, NULL, 0); /* the 256 ids of the model, and added ones it has not */
    tiny_put(&folder, "prompt.txt", "Two words\n", 10);
    tiny_path(&folder, "prompt.txt", text_path);
    tiny_path(&folder, "report.json", report_path);
}

static void teardown_once(void)
{
    tiny_remove(&model);
    tiny_remove(&folder);
}

static cJSON *report(void)
{
    size_t size;
    char *text = (char *)tiny_read(&folder, "report.json", &size);
    cJSON *root = json_parse(text, size, "report", false);
    ck_assert_msg(root != NULL, "%s", err_message());
    free(text);
    return root;
}

/* ids of a list in a report, as one would type them */
static void list_ids(const cJSON *list, char *text, size_t capacity)
{
    size_t at = 0;
    const cJSON *id;
    text[0] = '\0';
    cJSON_ArrayForEach(id, list)
    {
        at += (size_t)snprintf(text + at, capacity - at, "%s%.0f", at > 0 ? "," : "",
                               cJSON_GetNumberValue(id));
    }
}

static void hash_of(const cJSON *root, char hash[65])
{
    snprintf(hash, 65, "%s", cJSON_GetStringValue(cJSON_GetObjectItem(root, "logits_hash")));
}

START_TEST(text_runs_as_its_ids_do)
{
    char ids[512];
    char text_hash[65];
    char ids_hash[65];
    char made[PROCESS_TEXT_BYTES];
    if (_i == 0) {
        k3ring("run %s --tokenizer %s --prompt Hello,-you! --gen 12 --json %s", model.dir,
               vocabulary, report_path);
    } else {
        k3ring("run %s --tokenizer %s --prompt-file %s --gen 12 --json %s", model.dir, vocabulary,
               text_path, report_path);
    }
    expect(0, NULL);
    memcpy(made, process.out, sizeof made); /* bytes, zeros too */
    cJSON *root = report();
    const cJSON *prompt = cJSON_GetObjectItem(root, "prompt_ids");
    ck_assert_int_eq(cJSON_GetArraySize(prompt), _i == 0 ? 11 : 10);
    const char *bytes = _i == 0 ? "Hello,-you!" : "Two words\n";
    for (int i = 0; bytes[i] != '\0'; i++) {
        uint32_t id = (uint32_t)cJSON_GetNumberValue(cJSON_GetArrayItem(prompt, i));
        ck_assert_uint_eq(vocabulary_byte(id), (unsigned char)bytes[i]);
    }
    list_ids(prompt, ids, sizeof ids);
    hash_of(root, text_hash);
    /* What was printed are the bytes of the ids that were made, special ones left out. */
    char expected[64];
    size_t at = 0;
    const cJSON *id;
    cJSON_ArrayForEach(id, cJSON_GetObjectItem(root, "generated_ids"))
    {
        uint32_t value = (uint32_t)cJSON_GetNumberValue(id);
        if (value < VOCABULARY_BYTES) {
            expected[at++] = (char)vocabulary_byte(value);
        }
    }
    expected[at++] = '\n';
    ck_assert_int_eq(memcmp(made, expected, at), 0);
    cJSON_Delete(root);
    k3ring("run %s --ids %s --gen 12 --json %s", model.dir, ids, report_path);
    expect(0, NULL);
    root = report();
    hash_of(root, ids_hash);
    ck_assert_str_eq(text_hash, ids_hash);
    cJSON_Delete(root);
}
END_TEST

START_TEST(a_benchmark_takes_text_too)
{
    k3ring("bench %s --tokenizer %s --prompt Hello --ram 40M --tokens 2 --limit-time 0 "
           "--output-format json --output %s", model.dir, vocabulary, report_path);
    ck_assert(process.status == 0 || process.status == 5); /* memory is no drive */
    cJSON *root = report();
    const cJSON *made = cJSON_GetObjectItem(cJSON_GetObjectItem(root, "model"), "prompt_tokens");
    ck_assert_double_eq(cJSON_GetNumberValue(made), 5);
    cJSON_Delete(root);
}
END_TEST

START_TEST(what_is_no_prompt_is_refused)
{
    static const struct {
        int status;
        const char *arguments, *part;
    } cases[] = {
        {2, "", "a prompt is required: give --prompt TEXT"},
        {2, "--prompt a --ids 1", "one of --ids"},
        {2, "--prompt a --prompt-file b", "one of --ids"},
        {2, "--prompt=", "empty"},
        {1, "--prompt-file /nonexistent/prompt", "/nonexistent/prompt"},
        {1, "--prompt-file /", "cannot be read"},
        {2, "--prompt-file /dev/null", "empty"},
    };
    k3ring("run %s --tokenizer %s %s", model.dir, vocabulary, cases[_i].arguments);
    expect_refusal(cases[_i].status, cases[_i].part);
}
END_TEST

/* Told before it is encoded, of a pipe as soon as it is too much. */
START_TEST(a_text_too_long_for_the_memory_is_refused)
{
    static const struct {
        size_t size;
        const char *command, *arguments, *part;
    } cases[] = {
        {4194305, "run", "--prompt-file %s --ram 64M", "--prompt-file: "},
        {4194305, "run", "--prompt-file - --ram 64M", "--prompt-file: standard input has 4194305"},
        {4194305, "run", "--chat --prompt-file %s --ram 64M", "long.txt has 4194305 bytes, more "
         "than the 4194304 that 64.0 MiB of RAM have room for; give a larger --ram"},
        {4194305, "score", "%s --ram 64M", "score: "},
        {4194305, "score", "/dev/zero --ram 64M", "score: /dev/zero has more than the 4194304 b"},
        {262145, "run", "--prompt-file %s --ram 1M", "more than the 262144 that 1.0 MiB"},
        {4194305, "bench", "--prompt-file %s --ram 1G,64M", "64.0 MiB of RAM"},
        {268435457, "run", "--prompt-file %s --ram 100G", "268435456 that a text may have; give"},
    };
    char arguments[2 * TINY_PATH_BYTES], path[TINY_PATH_BYTES];
    tiny_put(&folder, "in", "", 0);
    tiny_put(&folder, "long.txt", "", 0);
    tiny_path(&folder, strstr(cases[_i].arguments, " - ") != NULL ? "in" : "long.txt", path);
    ck_assert_int_eq(truncate(path, (off_t)cases[_i].size), 0); /* a hole */
    const char *slot = strstr(cases[_i].arguments, "%s");
    int before = slot != NULL ? (int)(slot - cases[_i].arguments) : 0;
    snprintf(arguments, sizeof arguments, "%.*s%s%s", before, cases[_i].arguments,
             slot != NULL ? path : "", slot != NULL ? slot + 2 : cases[_i].arguments);
    k3ring("%s %s --tokenizer %s %s", cases[_i].command, model.dir, vocabulary, arguments);
    expect_refusal(4, cases[_i].part);
    tiny_path(&folder, "in", path);
    unlink(path);
}
END_TEST

/* The mark and the line ends of other systems are text: a file is taken as it is. */
START_TEST(a_file_is_taken_byte_by_byte)
{
    static const char bytes[] = "\xEF\xBB\xBF" "a\r\nb\r\n";
    tiny_put(&folder, "exact.txt", bytes, sizeof bytes - 1);
    k3ring("run %s --tokenizer %s --prompt-file %s/exact.txt --gen 1 --json %s", model.dir,
           vocabulary, folder.dir, report_path);
    expect(0, NULL);
    cJSON *root = report();
    const cJSON *prompt = cJSON_GetObjectItem(root, "prompt_ids");
    ck_assert_int_eq(cJSON_GetArraySize(prompt), sizeof bytes - 1);
    for (int i = 0; bytes[i] != '\0'; i++) {
        uint32_t id = (uint32_t)cJSON_GetNumberValue(cJSON_GetArrayItem(prompt, i));
        ck_assert_uint_eq(vocabulary_byte(id), (unsigned char)bytes[i]);
    }
    cJSON_Delete(root);
}
END_TEST

START_TEST(text_needs_the_tokenizer)
{
    k3ring("run %s --prompt a", model.dir);
    expect_refusal(3, "tiktoken.model");
}
END_TEST

START_TEST(the_ceiling_counts_the_tokenizer)
{
    k3ring("run %s --tokenizer %s --prompt abcdefgh --ram 22M --gen 8 --json %s", model.dir,
           vocabulary, report_path);
    expect(0, NULL);
    cJSON *root = report();
    double peak = cJSON_GetNumberValue(cJSON_GetObjectItem(root, "peak_rss_bytes"));
    ck_assert_double_gt(peak, 0);
#ifndef K3RING_SANITIZED
    ck_assert_double_le(peak, 22.0 * 1024 * 1024);
#else
    printf("note: a sanitizer's memory is not the program's: the ceiling not looked at\n");
#endif
    cJSON_Delete(root);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prompt");
    TCase *tcase = tcase_create("prompt");
    tcase_add_unchecked_fixture(tcase, setup_once, teardown_once);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, text_runs_as_its_ids_do, 0, 2);
    tcase_add_test(tcase, a_benchmark_takes_text_too);
    tcase_add_loop_test(tcase, what_is_no_prompt_is_refused, 0, 7);
    tcase_add_loop_test(tcase, a_text_too_long_for_the_memory_is_refused, 0, 8);
    tcase_add_test(tcase, a_file_is_taken_byte_by_byte);
    tcase_add_test(tcase, text_needs_the_tokenizer);
    tcase_add_test(tcase, the_ceiling_counts_the_tokenizer);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
