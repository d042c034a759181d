/* SPDX-License-Identifier: Apache-2.0 */
/* The program as users meet it where things go wrong: other processors, weights that are no
 * numbers, outputs that cannot be written, foreign locales. */
#include <cjson/cJSON.h>
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "tests/support/process.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define WATCHDOG_SECONDS 120
#define GOLDEN_TEXT "170 126 66 6 37 136 98 66 243 207 99 72 180 212 11 114\n"
#define GOLDEN_IDS "--ids 3,141,59,26,53,58,97,93"

static struct tiny original; /* never changed by a test */
static struct tiny folder;   /* for what programs write */
static struct process process;

static void watch(void)
{
    alarm(WATCHDOG_SECONDS);
    tiny_folder(&folder, TINY_MEMORY);
}

static void unwatch(void)
{
    tiny_remove(&folder);
    alarm(0);
}

static void skip(const char *reason)
{
    printf("skip: %s\n", reason);
    fflush(stdout);
}

/* ---- helpers ---- */

/* Runs the program; the exit status must be as said. */
static void expect_status(int status, const char *arguments)
{
    process_start(&process, folder.dir, process_binary(), "%s", arguments);
    process_wait(&process);
    ck_assert_msg(process.status == status, "'%s': status %d, not %d; it said '%s'", arguments,
                  process.status, status, process.err);
}

static void expect_said(const char *word)
{
    ck_assert_msg(strstr(process.err, word) != NULL, "no '%s' in '%s'", word, process.err);
}

static cJSON *json_of(const char *text)
{
    cJSON *root = cJSON_Parse(text);
    ck_assert_msg(root != NULL, "no JSON: '%.200s'", text);
    return root;
}

static double figure(const cJSON *root, const char *object, const char *name)
{
    const cJSON *at = object != NULL ? cJSON_GetObjectItemCaseSensitive(root, object) : root;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(at, name);
    ck_assert_msg(cJSON_IsNumber(item), "no number %s", name);
    return cJSON_GetNumberValue(item);
}

/* ---- instruction sets ---- */

START_TEST(every_instruction_set_gives_the_same_bytes_or_is_refused)
{
    static const char *const names[] = {"scalar", "avx2", "avx512"};
    static const enum isa isas[] = {ISA_SCALAR, ISA_AVX2, ISA_AVX512};
    unsigned char *first = NULL;
    for (size_t i = 0; i < countof(names); i++) {
        char line[2 * TINY_PATH_BYTES];
        size_t size_bytes;
        snprintf(line, sizeof line, "run %s " GOLDEN_IDS " --isa %s --dump-logits %s/%s --json -",
                 original.dir, names[i], folder.dir, names[i]);
        if (kernels_select(isas[i]) == NULL) {
            expect_status(2, line);
            expect_said("instruction set");
            continue;
        }
        expect_status(0, line);
        cJSON *root = json_of(process.out);
        const cJSON *settings = cJSON_GetObjectItemCaseSensitive(root, "settings");
        ck_assert_str_eq(cJSON_GetObjectItemCaseSensitive(settings, "isa")->valuestring,
                         names[i]);
        ck_assert_str_eq(cJSON_GetObjectItemCaseSensitive(root, "logits_hash")->valuestring,
                         TINY_HASH);
        cJSON_Delete(root);
        unsigned char *logits = tiny_read(&folder, names[i], &size_bytes);
        ck_assert_uint_eq(size_bytes, REF_VOCAB * sizeof(float));
        if (first == NULL) {
            first = logits;
        } else {
            ck_assert_int_eq(memcmp(first, logits, size_bytes), 0);
            free(logits);
        }
    }
    free(first);
}
END_TEST

/* ---- values that are no numbers ---- */

START_TEST(a_logit_that_is_no_number_ends_the_program_without_a_token)
{
    static const struct {
        const char *tensor;
        uint64_t at;
        unsigned char bytes[2];
        const char *word;
    } cases[] = {
        {"language_model.lm_head.weight", 5 * 256, {0xC0, 0x7F}, "logit 5 is NaN at step 0"},
        {"language_model.lm_head.weight", 5 * 256, {0x80, 0x7F}, "logit 5 is infinite at step 0"},
        {"language_model.model.norm.weight", 0, {0xC0, 0x7F}, "logit 0 is NaN at step 0"},
    };
    char line[2 * TINY_PATH_BYTES];
    size_t size_bytes;
    struct tiny copy;
    tiny_copy(&copy, &original, TINY_MEMORY);
    tiny_poke(&copy, cases[_i].tensor, cases[_i].at, cases[_i].bytes, 2);
    snprintf(line, sizeof line, "run %s " GOLDEN_IDS " --json %s/report", copy.dir, folder.dir);
    expect_status(1, line);
    expect_said(cases[_i].word);
    ck_assert_str_eq(process.out, "");
    char *text = (char *)tiny_read(&folder, "report", &size_bytes);
    cJSON *root = json_of(text);
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(root, "error");
    ck_assert(error != NULL && strstr(error->valuestring, cases[_i].word) != NULL);
    cJSON_Delete(root);
    free(text);
    tiny_remove(&copy);
}
END_TEST
#define NUMBER_CASES 3

/* ---- outputs that cannot be written ---- */

/* Runs some shell; $K is the program, $M the model, $F the folder, $I the prompt. */
static void run_shell(const char *text)
{
    char script[5 * TINY_PATH_BYTES];
    snprintf(script, sizeof script, "K=%s\nM=%s\nF=%s\nI='" GOLDEN_IDS "'\n%s\n",
             process_binary(), original.dir, folder.dir, text);
    tiny_put(&folder, "script", script, strlen(script));
    process_start(&process, folder.dir, "/bin/sh", "%s/script", folder.dir);
    process_wait(&process);
}

static void shell(int status, const char *text)
{
    run_shell(text);
    ck_assert_msg(process.status == status, "'%s': status %d, not %d; it said '%s'", text,
                  process.status, status, process.err);
}

START_TEST(a_full_device_is_named)
{
    shell(1, "$K run $M $I --json /dev/full");
    expect_said("/dev/full");
    expect_said("No space left");
    ck_assert_str_eq(process.out, GOLDEN_TEXT);
    shell(1, "$K run $M $I --dump-logits /dev/full");
    expect_said("/dev/full");
    shell(1, "$K run $M $I --json - > /dev/full");
    expect_said("standard output");
    shell(1, "$K run $M $I > /dev/full");
    expect_said("standard output");
    shell(1, "$K plan $M > /dev/full");
    expect_said("standard output");
    shell(1, "$K --help > /dev/full");
    expect_said("standard output");
    shell(1, "$K run --help > /dev/full");
    expect_said("standard output");
}
END_TEST

START_TEST(a_file_size_limit_leaves_no_partial_file)
{
    shell(1, "ulimit -f 1; exec $K run $M $I --quiet --json $F/report");
    expect_said("report");
    expect_said("File too large");
    shell(0, "set -- $F/report*; test \"$1\" = \"$F/report*\"");
}
END_TEST

START_TEST(an_output_in_a_missing_folder_is_named)
{
    shell(1, "$K run $M $I --json $F/none/report");
    expect_said("none/report");
    expect_said("No such file");
}
END_TEST

/* An output file that was given the place of a closed standard one would receive its text. */
START_TEST(closed_standard_files_spoil_no_output)
{
    shell(1, "$K run $M $I --quiet --trace $F/t >&-");
    shell(0, "test ! -e $F/t; $K run $M $I --quiet --trace $F/t <&- 2>&-; $K replay $F/t");
    ck_assert_ptr_nonnull(strstr(process.out, "tokens"));
    shell(0, "$K run $M $I --cache-policy lfu --heat $F/h 2>&- && "
             "$K run $M $I --cache-policy lfu --heat $F/h");
    ck_assert_str_eq(process.out, GOLDEN_TEXT GOLDEN_TEXT);
    shell(0, "$K run $M $I --gen 1 --json $F/j <&- >&- 2>&- || head -c 1 $F/j");
    ck_assert_str_eq(process.out, "{");
}
END_TEST

START_TEST(results_for_a_closed_standard_output_are_not_lost_quietly)
{
    static const char *const commands[] = {"run $M $I --gen 1", "plan $M", "--help", "run --help"};
    for (size_t i = 0; i < countof(commands); i++) {
        char text[256];
        snprintf(text, sizeof text, "$K %s >&-", commands[i]);
        shell(1, text);
        expect_said("standard output");
    }
}
END_TEST

/* It is where the file stands, not its beginning. */
START_TEST(standard_output_may_be_named_as_a_file)
{
    shell(0, "echo kept > $F/all; $K run $M $I --gen 1 --json /dev/stdout --quiet >> $F/all; "
             "head -n 2 $F/all");
    ck_assert_str_eq(process.out, "kept\n{\n");
    shell(2, "$K run $M $I --gen 1 --json - --trace /dev/stdout");
    expect_said("give two files");
}
END_TEST

START_TEST(what_a_command_reads_is_not_replaced_by_what_it_writes)
{
    static const char *const commands[] = {
        "run tests/model --prompt-file $X --json $X", "run tests/model --prompt-file $X --trace $X",
        "run tests/model --prompt-file $X --dump-logits $X",
        "run tests/model --prompt-file $X --save-state $X",
        "run $M $I --logit-bias $X --json $X", "run $M $I --paranoid $X --json $X",
        "score tests/model $X --json $X",
        "verify $M --checksums $X --json $X", "verify $M --pages $X --json $X"};
    for (size_t i = 0; i < countof(commands); i++) {
        char text[256];
        snprintf(text, sizeof text, "X=$F/x; echo '{\"1\": 2}' > $X; $K %s; S=$?; cat $X; exit $S",
                 commands[i]);
        shell(2, text);
        ck_assert_str_eq(process.out, "{\"1\": 2}\n");
        expect_said("read by this command too");
    }
}
END_TEST

/* What is done stays in its journal. */
START_TEST(a_file_that_came_while_a_batch_ran_is_kept)
{
    shell(1, "for i in 0 1 2 3 4 5 6 7 8 9; do echo '{\"id\":1,\"ids\":[3],\"gen\":60}'; done "
             "> $F/lines; B=\"$K batch $M $F/lines --out $F/made --sequences 2 --quiet\"\n"
             "$B & p=$!\n"
             "while [ ! -s $F/made.part ] && kill -0 $p; do sleep 0.01; done\n"
             "echo precious > $F/made; wait $p");
    expect_said("came while this ran");
    shell(0, "cat $F/made; rm $F/made; $K batch $M $F/lines --out $F/made --sequences 2 --quiet && "
             "wc -l < $F/made");
    ck_assert_str_eq(process.out, "precious\n10\n");
}
END_TEST

START_TEST(a_limit_of_processor_time_ends_a_run_as_ctrl_c_does)
{
    shell(152, "ulimit -S -t 1; exec $K run $M $I --gen 4000 --quiet --json $F/cpu > $F/ids");
    shell(0, "grep -q interrupted $F/cpu; set -- $F/cpu.*; test \"$1\" = \"$F/cpu.*\"");
}
END_TEST

START_TEST(a_hang_up_ends_a_run_as_ctrl_c_does)
{
    shell(129, "$K run $M $I --gen 4000 --quiet --json $F/hup >$F/ids & p=$!; "
               "while [ ! -s $F/ids ]; do sleep 0.01; done; kill -HUP $p; wait $p");
    shell(0, "grep -q interrupted $F/hup; set -- $F/hup.*; test \"$1\" = \"$F/hup.*\"");
}
END_TEST

/* ---- locales ---- */

START_TEST(a_decimal_comma_changes_nothing)
{
    static const char *const names[] = {"de_DE", "tr_TR"};
    run_shell("command -v localedef");
    if (process.status != 0) {
        skip("localedef is missing");
        return;
    }
    char text[1024];
    snprintf(text, sizeof text, "(localedef -i %s -f UTF-8 $F/locale > $F/said 2>&1 || exit 77\n"
             "export LOCPATH=$F LC_ALL=locale\n"
             "$K run $M $I --quiet --ram 1.25G && $K plan $M --ram 1.25G --device-gbps 6.5 && "
             "$K run $M $I --quiet --json -)\nS=$?; rm -rf $F/locale; exit $S", names[_i]);
    run_shell(text);
    if (process.status == 77) {
        skip("localedef cannot make this locale");
        return;
    }
    ck_assert_msg(process.status == 0, "status %d: %s", process.status, process.err);
    ck_assert(strncmp(process.out, GOLDEN_TEXT, strlen(GOLDEN_TEXT)) == 0);
    ck_assert(strstr(process.out, "1280.00 MiB allowed") != NULL);
    const char *brace = strstr(process.out, "\n{");
    ck_assert(brace != NULL);
    cJSON *root = json_of(brace);
    ck_assert_str_eq(cJSON_GetObjectItemCaseSensitive(root, "logits_hash")->valuestring,
                     TINY_HASH);
    double first = figure(root, "seconds_per_token", "first");
    ck_assert(first > 0 && first < WATCHDOG_SECONDS);
    cJSON_Delete(root);
}
END_TEST

/* ---- the suite ---- */

static void add_answers(Suite *suite)
{
    TCase *tcase = suite_case(suite, "answers", WATCHDOG_SECONDS, watch, unwatch);
    tcase_add_test(tcase, every_instruction_set_gives_the_same_bytes_or_is_refused);
    tcase_add_loop_test(tcase, a_logit_that_is_no_number_ends_the_program_without_a_token, 0,
                        NUMBER_CASES);
}

static void add_habits(Suite *suite)
{
    TCase *tcase = suite_case(suite, "outputs and locales", WATCHDOG_SECONDS, watch, unwatch);
    tcase_add_test(tcase, a_full_device_is_named);
    tcase_add_test(tcase, a_file_size_limit_leaves_no_partial_file);
    tcase_add_test(tcase, an_output_in_a_missing_folder_is_named);
    tcase_add_test(tcase, closed_standard_files_spoil_no_output);
    tcase_add_test(tcase, results_for_a_closed_standard_output_are_not_lost_quietly);
    tcase_add_test(tcase, standard_output_may_be_named_as_a_file);
    tcase_add_test(tcase, what_a_command_reads_is_not_replaced_by_what_it_writes);
    tcase_add_test(tcase, a_file_that_came_while_a_batch_ran_is_kept);
    tcase_add_test(tcase, a_limit_of_processor_time_ends_a_run_as_ctrl_c_does);
    tcase_add_test(tcase, a_hang_up_ends_a_run_as_ctrl_c_does);
    tcase_add_loop_test(tcase, a_decimal_comma_changes_nothing, 0, 2);
}

int main(void)
{
    if (process_binary() == NULL) {
        fprintf(stderr, "build k3ring first: this test runs it\n");
        return EXIT_FAILURE;
    }
    signal(SIGHUP, SIG_DFL); /* whoever runs tests under nohup means the tests */
    tiny_make(&original, TINY_MEMORY);
    Suite *suite = suite_create("habits");
    add_answers(suite);
    add_habits(suite);
    int failed = suite_run(suite);
    tiny_remove(&original);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
