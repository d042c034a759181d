/* SPDX-License-Identifier: Apache-2.0 */

/* k3ring batch as a user meets it: results in the order of the input, nothing lost when it ends
 * early, one clear line for every input that cannot be run. */

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "tests/support/process.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define LINES 6

static struct tiny tiny, folder, results;
static struct process process;
static char in_path[512], out_path[512], part_path[512];

static void path_of(const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", results.dir, name);
}

static void write_input(const char *text)
{
    tiny_put(&results, "in.jsonl", text, strlen(text));
    unlink(out_path);
    unlink(part_path);
}

static char *read_output(void)
{
    size_t size;
    return (char *)tiny_read(&results, "out.jsonl", &size);
}

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

#define batch(options)                                                                            \
    do {                                                                                          \
        process_start(&process, folder.dir, process_binary(), "batch %s %s --out %s %s", tiny.dir, \
                      in_path, out_path, options);                                                \
        process_wait(&process);                                                                   \
    } while (0)

static void write_lines(uint32_t gen)
{
    char text[1024];
    int at = 0;
    for (int i = 0; i < LINES; i++) {
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "{\"gen\": %u, \"ids\": [%d, 141, 59], \"id\": %d}\n", gen - (uint32_t)i,
                       i + 1, 100 + i);
    }
    write_input(text);
}

/* The golden prompt among others; ids of any kind come back as they were written. */
START_TEST(results_come_in_the_order_of_the_input)
{
    static const char *const heads[] = {
        "{\"id\":18446744073709551615,\"generated_ids\":[170,126,66,6],\"logits_hash\":\"",
        "{\"id\":{\"a\" : [1, \"\\u00e9\"]},\"generated_ids\":[",
        "{\"id\":null,\"generated_ids\":["};
    write_input("{\"id\": 18446744073709551615, \"ids\": [3,141,59,26,53,58,97,93], \"gen\": 4}\n"
                "\n"
                "{\"id\": {\"a\" : [1, \"\\u00e9\"]}, \"ids\": [9], \"gen\": 1}\r\n"
                "{\"ids\": [7,8], \"stop\": [0,1]}");
    batch("--sequences 2 --gen 3");
    ck_assert_msg(process.status == 0, "%s", process.err);
    char *text = read_output();
    char *line = strtok(text, "\n");
    for (size_t i = 0; i < countof(heads); i++, line = strtok(NULL, "\n")) {
        ck_assert_msg(line != NULL && strncmp(line, heads[i], strlen(heads[i])) == 0, "%s", line);
        ck_assert_ptr_nonnull(strstr(line, "\"finish_reason\":\"length\"}"));
    }
    ck_assert_ptr_null(line);
    ck_assert(!exists(part_path));
    ck_assert_str_eq(process.out, "");
    free(text);
    batch("");
    ck_assert_int_eq(process.status, 2);
    ck_assert_ptr_nonnull(strstr(process.err, "is there already"));
}
END_TEST

/* As `k3ring run` with these options. */
START_TEST(a_line_says_how_its_tokens_are_chosen)
{
    write_input("{\"ids\": [3,141,59,26,53,58,97,93]}\n"
                "{\"ids\": [3,141,59,26,53,58,97,93], \"temperature\": 3, \"top_p\": 0.98, "
                "\"seed\": 5}");
    batch("--gen 10");
    ck_assert_msg(process.status == 0, "%s", process.err);
    char *text = read_output();
    ck_assert_ptr_nonnull(strstr(text, "\"generated_ids\":[170,126,66,6,"));
    ck_assert_msg(strstr(text, "\"generated_ids\":[" TINY_SAMPLED "]") != NULL, "%s", text);
    free(text);
}
END_TEST

struct refusal {
    const char *input, *part;
};

static const struct refusal refusals[] = {
    {"", "no line to run"},
    {"\n  \n", "no line to run"},
    {"{\"ids\": [1]}\n{\"ids\": [1], \"ids\": [2]}", "line 2, byte 20: a key occurs twice"},
    {"{\"ids\": []}", "there is no prompt"},
    {"{\"gen\": 4}", "there is no prompt"},
    {"{\"ids\": [1], \"gen\": 0}", "\"gen\" must be a whole number"},
    {"{\"ids\": [1], \"gen\": 99999999999}", "\"gen\" must be a whole number"},
    {"{\"ids\": [1], \"gen\": 1.5}", "line 1"},
    {"{\"ids\": [1, -1]}", "line 1"},
    {"{\"ids\": [4294967296]}", "no token id"},
    {"{\"ids\": [256]}", "in.jsonl: line 1, ids: id 256"},
    {"{\"ids\": [1], \"stop\": [900]}", "in.jsonl: line 1, stop: id 900"},
    {"{\"ids\": [1]}\n{\"id\": \"\xFF\", \"ids\": [1]}",
     "in.jsonl: line 2, byte 9: not UTF-8"},
    {"\xEF\xBB\xBF{\"ids\": [1]}", "line 1, byte 1: the text begins with a byte order mark"},
    {"\xFF\xFE{", "line 1, byte 1: the text is UTF-16"},
    {"{\"ids\": [1], \"warmth\": 1}", "none of"},
    {"{\"ids\": [1], \"temperature\": \"1\"}", "its value is no number"},
    {"{\"ids\": [1]}\n{\"ids\": [1], \"temperature\": -1}", "line 2: as --temperature: -1"},
    {"{\"ids\": [1], \"temperature\": 1e400}", "line 1: as --temperature: inf"},
    {"{\"ids\": [1], \"top_p\": 0}", "line 1: as --top-p: 0 is not above 0"},
    {"{\"ids\": [1], \"min_p\": 1.5}", "line 1: as --min-p"},
    {"{\"ids\": [1], \"repetition_penalty\": 0}", "line 1: as --repetition-penalty"},
    {"{\"ids\": [1], \"top_k\": 4294967296}", "\"top_k\" must be"},
    {"{\"ids\": [1], \"top_k\": 1.5}", "line 1"},
    {"{\"ids\": [1], \"seed\": 9007199254740992}", "\"seed\" must be"},
    {"{\"ids\": [1], \"seed\": 1, \"seed\": 1}", "a key occurs twice"},
    {"{\"prompt\": \"hello\"}", "is text"},
    {"{\"ids\": [1]} x", "line 1"},
    {"[1]", "line 1"},
    {"{\"ids\": [1]", "line 1"},
    {"{\"ids\": \"[1]\"}", "line 1"},
};

START_TEST(a_line_that_cannot_be_run_is_told_before_anything_is)
{
    const struct refusal *r = &refusals[_i];
    write_input(r->input);
    batch("--quiet");
    ck_assert_msg(process.status == 2, "exit %d for %s: %s", process.status, r->input, process.err);
    ck_assert_msg(strstr(process.err, r->part) != NULL, "no \"%s\" in %s", r->part, process.err);
    const char *end = strchr(process.err, '\n');
    ck_assert_msg(end != NULL && end[1] == '\0', "not one line: %s", process.err);
    ck_assert(!exists(out_path) && !exists(part_path));
}
END_TEST

START_TEST(a_line_that_exceeds_the_context_is_named)
{
    write_input("{\"ids\": [1]}\n{\"ids\": [1, 2], \"gen\": 5001}\n");
    batch("--quiet");
    ck_assert_int_eq(process.status, 4);
    ck_assert_ptr_nonnull(strstr(process.err, "in.jsonl: line 2: 2 ids and 5001 tokens to make "
                                 "exceed the 4096 positions of context the model has"));
    batch("--quiet --context 20 --gen 20");
    ck_assert_int_eq(process.status, 4);
    ck_assert_ptr_nonnull(strstr(process.err, "in.jsonl: line 1: 1 ids and 20 tokens to make "
                                 "exceed the 20 positions of context of --context"));
    ck_assert(!exists(out_path) && !exists(part_path));
}
END_TEST

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Lines of the journal so far. */
static uint32_t journal_lines(void)
{
    uint32_t count = 0;
    FILE *file = fopen(part_path, "re");
    for (int c; file != NULL && (c = fgetc(file)) != EOF;) {
        count += c == '\n';
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

static void start_and_end(int signal, uint32_t finished)
{
    process_start(&process, folder.dir, process_binary(),
                  "batch %s %s --out %s --sequences 1 --quiet", tiny.dir, in_path, out_path);
    for (int i = 0; i < 6000 && journal_lines() < 1 + finished; i++) {
        pause_ms(5);
    }
    kill(process.pid, signal);
    process_wait(&process);
}

START_TEST(an_ended_batch_goes_on_where_it_was)
{
    write_lines(60);
    batch("--sequences 3 --quiet");
    ck_assert_msg(process.status == 0, "%s", process.err);
    char *whole = read_output();
    write_lines(60);
    start_and_end(SIGKILL, 1);
    ck_assert_int_eq(process.status, 128 + SIGKILL);
    ck_assert(!exists(out_path));
    uint32_t kept = journal_lines();
    ck_assert_uint_ge(kept, 2);
    /* A last line that was cut, as a crash of the machine may leave it. */
    FILE *file = fopen(part_path, "ae");
    fputs("3 {\"id\":103,\"gener", file);
    fclose(file);
    start_and_end(SIGINT, kept);
    ck_assert_msg(process.status == 130, "exit %d: %s", process.status, process.err);
    ck_assert_ptr_nonnull(strstr(process.err, "the same command goes on"));
    ck_assert_uint_ge(journal_lines(), kept + 1);
    batch("--sequences 2");
    ck_assert_msg(process.status == 0, "%s", process.err);
    ck_assert_ptr_nonnull(strstr(process.err, "were finished before"));
    char *resumed = read_output();
    ck_assert_str_eq(whole, resumed);
    ck_assert(!exists(part_path));
    free(whole);
    free(resumed);
}
END_TEST

START_TEST(a_journal_of_another_batch_is_left_alone)
{
    write_lines(60);
    start_and_end(SIGKILL, 1);
    uint32_t kept = journal_lines();
    tiny_put(&results, "in.jsonl", "{\"ids\": [1]}", 12);
    batch("--quiet");
    ck_assert_int_eq(process.status, 2);
    ck_assert_ptr_nonnull(strstr(process.err, "another input, model or --gen"));
    ck_assert_uint_eq(journal_lines(), kept);
}
END_TEST

/* A line that was damaged is not believed: its sequence is made anew. */
START_TEST(a_damaged_line_of_the_journal_is_made_anew)
{
    write_lines(60);
    batch("--sequences 3 --quiet");
    char *whole = read_output();
    write_lines(60);
    start_and_end(SIGKILL, 2);
    size_t size;
    char *journal = (char *)tiny_read(&results, "out.jsonl.part", &size);
    char *digit = strstr(strchr(journal, '\n'), "\"generated_ids\":[") + 17;
    *digit = *digit == '1' ? '2' : '1';
    tiny_put(&results, "out.jsonl.part", journal, size);
    batch("--quiet");
    ck_assert_msg(process.status == 0, "%s", process.err);
    char *resumed = read_output();
    ck_assert_str_eq(whole, resumed);
    free(whole);
    free(journal);
    free(resumed);
}
END_TEST

START_TEST(a_journal_that_is_no_file_and_outputs_that_are_one_are_refused)
{
    write_input("{\"ids\": [1], \"gen\": 2}");
    ck_assert_int_eq(mkfifo(part_path, 0600), 0);
    batch("--quiet");
    ck_assert_int_eq(process.status, 1);
    ck_assert_ptr_nonnull(strstr(process.err, "regular file"));
    unlink(part_path);
    static const char *const same[] = {"in.jsonl", "out.jsonl", "./out.jsonl.part"};
    for (size_t i = 0; i < countof(same); i++) {
        char option[600];
        snprintf(option, sizeof option, "--json %s/%s", results.dir, same[i]);
        batch(option);
        ck_assert_msg(process.status == 2, "exit %d for %s: %s", process.status, option,
                      process.err);
        ck_assert_ptr_nonnull(strstr(process.err, "different files"));
    }
}
END_TEST

START_TEST(two_batches_do_not_write_one_output)
{
    struct process first;
    write_lines(200);
    process_start(&first, results.dir, process_binary(),
                  "batch %s %s --out %s --sequences 1 --quiet", tiny.dir, in_path, out_path);
    for (int i = 0; i < 6000 && journal_lines() < 1; i++) {
        pause_ms(5);
    }
    kill(first.pid, SIGSTOP); /* it must not end before the second has looked */
    batch("--quiet");
    ck_assert_int_eq(process.status, 2);
    ck_assert_ptr_nonnull(strstr(process.err, "another k3ring batch"));
    kill(first.pid, SIGKILL);
    process_wait(&first);
}
END_TEST

START_TEST(what_is_too_long_for_the_memory_is_refused)
{
    static const struct {
        size_t size;
        const char *options, *part;
    } rows[] = {
        {(4 << 20) + 16, "--ram 64M", "line 2 has 4194305 bytes, more than the 4194304 that 64"},
        {(4 << 20) + 16, "--ram 2M", "in.jsonl has 4194320 bytes, more than the 1048576 that 2.0"},
    };
    char *text = malloc(rows[_i].size);
    ck_assert_ptr_nonnull(text);
    memset(text, 'a', rows[_i].size);
    memcpy(text, "{\"ids\":[1,23]}\n", 15); /* line 2 is what is left */
    tiny_put(&results, "in.jsonl", text, rows[_i].size);
    free(text);
    unlink(out_path);
    batch(rows[_i].options);
    ck_assert_msg(process.status == 4, "exit %d: %s", process.status, process.err);
    ck_assert_msg(strstr(process.err, rows[_i].part) != NULL, "%s", process.err);
}
END_TEST

START_TEST(a_file_that_only_looks_like_a_journal_is_left_alone)
{
    write_input("{\"ids\": [1], \"gen\": 2}");
    tiny_put(&results, "out.jsonl.part", "precious", 8);
    batch("--quiet");
    ck_assert_int_eq(process.status, 2);
    size_t size;
    char *kept = (char *)tiny_read(&results, "out.jsonl.part", &size);
    ck_assert_uint_eq(size, 8);
    ck_assert_mem_eq(kept, "precious", 8);
    free(kept);
}
END_TEST

START_TEST(a_failed_sequence_is_told_in_its_line_and_by_the_exit_code)
{
    static const unsigned char nan[2] = {0xFF, 0xFF};
    tiny_poke(&tiny, "language_model.model.embed_tokens.weight", 77 * REF_HIDDEN * 2, nan, 2);
    write_input("{\"id\": 1, \"ids\": [5], \"gen\": 2}\n{\"id\": 2, \"ids\": [77], \"gen\": 2}\n");
    batch("--quiet");
    ck_assert_int_eq(process.status, 1);
    ck_assert_ptr_nonnull(strstr(process.err, "1 of 2 sequences"));
    char *text = read_output();
    char *second = strchr(text, '\n') + 1;
    ck_assert_ptr_nonnull(strstr(second, "{\"id\":2,\"generated_ids\":[],"
                                 "\"finish_reason\":\"failed\",\"error\":\"the residual is not "
                                 "finite after layer 0"));
    ck_assert_ptr_null(strstr(second, "logits_hash"));
    free(text);
    /* Also when it failed before an interruption, and all that is left goes well. */
    write_input("{\"ids\": [77], \"gen\": 2}\n{\"ids\": [5], \"gen\": 200}\n");
    start_and_end(SIGKILL, 1);
    ck_assert_int_eq(process.status, 128 + SIGKILL);
    batch("--quiet");
    ck_assert_msg(process.status == 1, "exit %d: %s", process.status, process.err);
    ck_assert_ptr_nonnull(strstr(process.err, "1 of 2 sequences"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch cli");
    TCase *tests = tcase_create("batch");
    if (process_binary() == NULL) {
        fprintf(stderr, "k3ring itself was not built beside this test\n");
        return 1;
    }
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, results_come_in_the_order_of_the_input);
    tcase_add_test(tests, a_line_says_how_its_tokens_are_chosen);
    tcase_add_loop_test(tests, a_line_that_cannot_be_run_is_told_before_anything_is, 0,
                        countof(refusals));
    tcase_add_test(tests, a_line_that_exceeds_the_context_is_named);
    tcase_add_test(tests, an_ended_batch_goes_on_where_it_was);
    tcase_add_test(tests, a_journal_of_another_batch_is_left_alone);
    tcase_add_test(tests, a_damaged_line_of_the_journal_is_made_anew);
    tcase_add_test(tests, a_journal_that_is_no_file_and_outputs_that_are_one_are_refused);
    tcase_add_test(tests, two_batches_do_not_write_one_output);
    tcase_add_test(tests, a_file_that_only_looks_like_a_journal_is_left_alone);
    tcase_add_loop_test(tests, what_is_too_long_for_the_memory_is_refused, 0, 2);
    tcase_add_test(tests, a_failed_sequence_is_told_in_its_line_and_by_the_exit_code);
    suite_add_tcase(suite, tests);
    tiny_make(&tiny, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    tiny_folder(&results, TINY_MEMORY);
    path_of("in.jsonl", in_path);
    path_of("out.jsonl", out_path);
    path_of("out.jsonl.part", part_path);
    int failed = suite_run(suite);
    tiny_remove(&tiny);
    tiny_remove(&folder);
    tiny_remove(&results);
    return failed == 0 ? 0 : 1;
}
