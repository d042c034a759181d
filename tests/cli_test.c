/* SPDX-License-Identifier: Apache-2.0 */

/* The program as a user sees it: exit codes, messages, what goes to which output, files that
 * appear whole or not at all, refusals whose advice works. */

#include <check.h>
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/base/utf8.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define PROMPT "--ids 3,141,59,26,53,58,97,93"
#define IDS_16 "170 126 66 6 37 136 98 66 243 207 99 72 180 212 11 114\n"

static struct tiny tiny;
static struct tiny results; /* what tests let the program write */

static uint32_t entries_of(const struct tiny *where)
{
    uint32_t count = 0;
    DIR *dir = opendir(where->dir);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(dir);
    return count;
}

static cJSON *parse(const char *text)
{
    cJSON *root = json_parse(text, strlen(text), "the report", false);
    ck_assert_msg(root != NULL, "%s: %s", err_message(), text);
    return root;
}

static uint64_t number(const cJSON *object, const char *name)
{
    uint64_t value = 0;
    ck_assert_msg(json_u64(cJSON_GetObjectItem(object, name), &value), "%s is no number", name);
    return value;
}

static const char *text_of(const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(object, name));
    ck_assert_msg(text != NULL, "%s is no text", name);
    return text;
}

/* ---- words and usage ---- */

START_TEST(help_and_version_are_answers)
{
    static const char *const words[] = {"--help", "help", "-h", "--version", "run --help",
                                        "plan --help", "synth --help"};
    for (size_t i = 0; i < countof(words); i++) {
        k3ring("%s", words[i]);
        expect(0, NULL);
        ck_assert_str_eq(process.err, "");
        ck_assert_uint_gt(strlen(process.out), 5);
    }
    k3ring("run --help");
    ck_assert_ptr_nonnull(strstr(process.out, "--io-depth"));
    k3ring("%s", "");
    expect(2, "usage");
}
END_TEST

START_TEST(a_mistyped_word_is_answered_with_the_nearest_one)
{
    k3ring("rnu %s", tiny.dir);
    expect_refusal(2, "did you mean run?");
    k3ring("frobnicate");
    expect_refusal(2, "no command 'frobnicate'");
    ck_assert_ptr_null(strstr(process.err, "did you mean"));
    k3ring("run %s %s --io-detph 4", tiny.dir, PROMPT);
    expect_refusal(2, "did you mean --io-depth?");
    k3ring("plan %s --tils=4K", tiny.dir);
    expect_refusal(2, "did you mean --tile?");
    k3ring("run %s %s --zzzzzzzz", tiny.dir, PROMPT);
    expect_refusal(2, "no option --zzzzzzzz");
    ck_assert_ptr_null(strstr(process.err, "did you mean"));
}
END_TEST

static const char *const wrong_usage[] = {
    "--ram 1,5G", "--ram -1", "--ram 1e3", "--ram 16GB", "--ram 1.5", "--ram G", "--ram 0x10000000",
    "--ram 99999999999999999999", "--ram 0", "--ram", "--io-size 5000", "--io-size 1k5",
    "--io-depth 0", "--io-depth 1025", "--io-depth 4.0", "--io-depth +4",
    "--io-depth all", "--io-size all", "--tile all", "--pin-order first", "--threads 0",
    "--threads many", "--gen 0", "--gen -1", "--pin 101%", "--pin -5%", "--pin %", "--pin most",
    "--expert-slots -1", "--cache-policy arcs", "--isa sse2", "--io mmap", "--tile 1K",
    "--tile 1G", "--chunk 0", "--quiet=yes", "--stop 1,,2", "--stop a", "surplus", "-x",
};

START_TEST(a_wrong_value_is_refused_by_the_name_of_its_option)
{
    k3ring("run %s %s %s", tiny.dir, PROMPT, wrong_usage[_i]);
    expect_refusal(2, NULL);
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(wrong_usage[_i], " ="), wrong_usage[_i]);
    ck_assert_msg(strstr(process.err, name) != NULL, "%s is not named: %s", name, process.err);
}
END_TEST

START_TEST(ids_are_required_and_checked)
{
    k3ring("run %s", tiny.dir);
    expect_refusal(2, "--ids");
    k3ring("run %s --ids 3,,5", tiny.dir);
    expect_refusal(2, "--ids");
    k3ring("run %s --ids 3,256", tiny.dir);
    expect_refusal(2, "256");
    k3ring("run %s", PROMPT);
    expect_refusal(2, "usage");
}
END_TEST

START_TEST(sizes_are_binary_in_any_case)
{
    static const char *const sizes[] = {"1.25G", "1.25g", "1.25GiB", "1280M", "1280mib",
                                        "1342177280"};
    for (size_t i = 0; i < countof(sizes); i++) {
        k3ring("plan %s --ram=%s --json", tiny.dir, sizes[i]);
        expect(0, NULL);
        cJSON *plan = parse(process.out);
        ck_assert_uint_eq(number(plan, "ram_bytes"), 1342177280);
        cJSON_Delete(plan);
    }
}
END_TEST

/* ---- outputs ---- */

START_TEST(standard_output_holds_the_ids_and_nothing_else)
{
    k3ring("run %s %s --ram 64M", tiny.dir, PROMPT);
    expect(0, "isa=");
    ck_assert_str_eq(process.out, IDS_16);
    for (const char *p = process.err; *p != '\0'; p++) {
        ck_assert_msg(*p == '\n' || (unsigned char)*p >= ' ', "control character %d", *p);
    }
    k3ring("run %s %s --ram 64M --quiet", tiny.dir, PROMPT);
    expect(0, NULL);
    ck_assert_str_eq(process.out, IDS_16);
    ck_assert_str_eq(process.err, "");
}
END_TEST

START_TEST(a_run_ends_after_a_stop_id)
{
    k3ring("run %s %s --ram 64M --quiet --stop 9,66", tiny.dir, PROMPT);
    expect(0, NULL);
    ck_assert_str_eq(process.out, "170 126 66\n");
    k3ring("run %s %s --ram 64M --stop 37 --json -", tiny.dir, PROMPT);
    expect(0, NULL);
    cJSON *report = parse(process.out);
    ck_assert_str_eq(text_of(report, "finish_reason"), "stop");
    ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(report, "generated_ids")), 5);
    cJSON_Delete(report);
}
END_TEST

START_TEST(a_run_ends_after_an_id_that_a_file_of_the_model_names)
{
    static const struct {
        const char *name, *text;
    } rows[] = {
        {"generation_config.json", "{\"eos_token_id\": [9, 66]}"},
        {"tokenizer_config.json", "{\"eos_token\": {\"content\": \"end\"}, "
         "\"added_tokens_decoder\": {\"66\": {\"content\": \"end\"}}}"},
    };
    struct tiny copy;
    for (size_t i = 0; i < countof(rows); i++) {
        tiny_copy(&copy, &tiny, TINY_MEMORY);
        tiny_put(&copy, rows[i].name, rows[i].text, strlen(rows[i].text));
        k3ring("run %s %s --ram 64M --stop eos --json - --quiet", copy.dir, PROMPT);
        expect(0, NULL);
        cJSON *report = parse(process.out);
        ck_assert_str_eq(text_of(report, "finish_reason"), "stop");
        ck_assert_uint_eq(number(report, "stop_id"), 66);
        ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(report, "generated_ids")), 3);
        cJSON_Delete(report);
        tiny_remove(&copy);
    }
}
END_TEST

START_TEST(an_end_id_that_is_not_of_the_model_is_told_with_its_file)
{
    struct tiny copy;
    tiny_copy(&copy, &tiny, TINY_MEMORY);
    tiny_put(&copy, "generation_config.json", "{\"eos_token_id\": 256}", 21);
    k3ring("run %s %s --ram 64M --stop eos", copy.dir, PROMPT);
    expect_refusal(3, "generation_config.json: the end id 256 is not of this model");
    tiny_remove(&copy);
}
END_TEST

/* ---- names of others ---- */

/* The model under another name, and the recorded trace. */
static void link_as(const char *name, char path[TINY_PATH_BYTES], char trace[TINY_PATH_BYTES])
{
    char here[PATH_MAX], data[PATH_MAX + 32], trace_name[64];
    snprintf(trace_name, sizeof trace_name, "trace-%s", name);
    tiny_path(&results, name, path);
    tiny_path(&results, trace_name, trace);
    ck_assert_ptr_nonnull(getcwd(here, sizeof here));
    snprintf(data, sizeof data, "%s/tests/data/small.k3rt", here);
    ck_assert_int_eq(symlink(tiny.dir, path), 0);
    ck_assert_int_eq(symlink(data, trace), 0);
}

static void ck_sound(const char *command)
{
    ck_assert_msg(utf8_whole(process.out, strlen(process.out)), "%s: %s", command, process.out);
    cJSON_Delete(parse(process.out));
}

START_TEST(a_name_that_is_no_utf8_makes_sound_json)
{
    char path[TINY_PATH_BYTES], trace[TINY_PATH_BYTES], report_path[TINY_PATH_BYTES];
    link_as("m\xFF", path, trace);
    k3ring("run %s %s --ram 64M --gen 1 --json - --quiet", path, PROMPT);
    ck_sound("run");
    k3ring("plan %s --json", path);
    ck_sound("plan");
    k3ring("score %s %s --ram 64M --json - --quiet", path, PROMPT);
    ck_sound("score");
    k3ring("verify %s --json -", path);
    ck_sound("verify");
    k3ring("doctor %s --json -", path);
    ck_sound("doctor");
    k3ring("bench %s --tokens 1 --limit-time 0 --output-format json --quiet", path);
    ck_sound("bench");
    tiny_put(&results, "r\xFF", process.out, strlen(process.out));
    k3ring("compare %s/r\xFF %s/r\xFF --json -", results.dir, results.dir);
    ck_sound("compare");
    k3ring("replay %s --json -", trace);
    ck_sound("replay");
    tiny_path(&results, "r\xFF", report_path);
    unlink(report_path);
    unlink(path);
    unlink(trace);
}
END_TEST

START_TEST(a_name_cannot_steer_the_terminal)
{
    char path[TINY_PATH_BYTES], trace[TINY_PATH_BYTES];
    link_as("m\x1B[1m", path, trace);
    k3ring("plan %s", path);
    expect(0, NULL);
    ck_assert_ptr_null(strchr(process.out, 0x1B));
    k3ring("doctor %s", path);
    ck_assert_ptr_null(strchr(process.out, 0x1B));
    k3ring("replay %s", trace);
    expect(0, NULL);
    ck_assert_ptr_null(strchr(process.out, 0x1B));
    unlink(path);
    unlink(trace);
}
END_TEST

START_TEST(the_report_says_what_was_in_force)
{
    k3ring("run %s %s --ram 64M --io pread --io-depth 3 --threads 2 --isa scalar --tile 16K "
           "--cache-policy lfu --expert-slots 16 --pin 50%% --pin-order prefix --chunk 7 --json -",
           tiny.dir, PROMPT);
    expect(0, NULL);
    cJSON *report = parse(process.out);
    const cJSON *settings = cJSON_GetObjectItem(report, "settings");
    const cJSON *cache = cJSON_GetObjectItem(report, "cache");
    const cJSON *reads = cJSON_GetObjectItem(report, "reads");
    ck_assert_str_eq(text_of(report, "logits_hash"), TINY_HASH);
    ck_assert_str_eq(text_of(report, "finish_reason"), "length");
    ck_assert_str_eq(text_of(settings, "io"), "pread");
    ck_assert_str_eq(text_of(settings, "isa"), "scalar");
    ck_assert_uint_eq(number(settings, "io_depth"), 3);
    ck_assert_uint_eq(number(settings, "threads"), 2);
    ck_assert_uint_eq(number(settings, "workers"), 2);
    ck_assert_str_eq(text_of(settings, "workers_why"), "as given by --threads");
    ck_assert_ptr_null(cJSON_GetObjectItem(settings, "tuning"));
    ck_assert_str_eq(text_of(cJSON_GetObjectItem(report, "plan"), "pin_order"), "prefix");
    ck_assert_uint_eq(number(settings, "tile"), 16 * KIB);
    ck_assert_uint_eq(number(settings, "chunk"), 7);
    ck_assert_uint_eq(number(settings, "ram_bytes"), 64 * MIB);
    ck_assert_str_eq(text_of(cache, "policy"), "lfu");
    ck_assert_uint_eq(number(cache, "slots"), 16);
    ck_assert_uint_gt(number(cache, "evictions"), 0);
    ck_assert_uint_eq(number(cache, "demands"), number(cache, "hits") + number(cache, "misses"));
    ck_assert_uint_eq(number(reads, "in_flight_max"), 3);
    ck_assert_uint_eq(number(report, "passes"), 17);
    ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(report, "prompt_ids")),
                     GOLDEN_PROMPT);
    cJSON_Delete(report);
}
END_TEST

static ino_t inode_of(const char *path)
{
    struct stat about;
    ck_assert_msg(stat(path, &about) == 0, "%s is not there", path);
    return about.st_ino;
}

START_TEST(a_report_file_appears_whole_in_place_of_the_old_one)
{
    char path[TINY_PATH_BYTES];
    size_t size;
    tiny_path(&results, "report.json", path);
    tiny_put(&results, "report.json", "old", 3);
    ino_t old = inode_of(path);
    k3ring("run %s %s --ram 64M --json %s", tiny.dir, PROMPT, path);
    expect(0, NULL);
    ck_assert_str_eq(process.out, IDS_16);
    ck_assert_uint_ne(inode_of(path), old);
    unsigned char *text = tiny_read(&results, "report.json", &size);
    cJSON *report = json_parse((char *)text, size, path, false);
    ck_assert_msg(report != NULL, "%s", err_message());
    ck_assert_str_eq(text_of(report, "logits_hash"), TINY_HASH);
    cJSON_Delete(report);
    free(text);
    ck_assert_uint_eq(entries_of(&results), 1); /* no temporary is left */
    unlink(path);
}
END_TEST

START_TEST(an_output_that_cannot_be_written_fails_the_run_and_leaves_nothing)
{
    k3ring("run %s %s --ram 64M --quiet --json /dev/full", tiny.dir, PROMPT);
    expect(1, "/dev/full");
    k3ring("run %s %s --ram 64M --quiet --json %s/absent/report.json", tiny.dir, PROMPT,
           results.dir);
    expect(1, "absent/report.json");
    k3ring("run %s %s --ram 64M --quiet --dump-logits %s/absent/x", tiny.dir, PROMPT, results.dir);
    expect(1, "absent/x");
    k3ring("run %s %s --ram 64M --quiet --dump-logits /dev/full", tiny.dir, PROMPT);
    expect(1, "/dev/full");
    ck_assert_uint_eq(entries_of(&results), 0);
}
END_TEST

START_TEST(dumped_logits_are_those_of_the_last_prompt_position)
{
    char path[TINY_PATH_BYTES];
    size_t size;
    tiny_path(&results, "logits", path);
    k3ring("run %s %s --ram 64M --quiet --dump-logits %s", tiny.dir, PROMPT, path);
    expect(0, NULL);
    float *logits = (float *)(void *)tiny_read(&results, "logits", &size);
    ck_assert_uint_eq(size, REF_VOCAB * sizeof(float));
    uint32_t best = 0;
    for (uint32_t i = 0; i < REF_VOCAB; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    ck_assert_int_eq((int)best, golden_ids[0]);
    free(logits);
    unlink(path);
}
END_TEST

/* ---- refusals ---- */

START_TEST(a_folder_that_is_no_model_is_refused)
{
    k3ring("run %s/absent %s", results.dir, PROMPT);
    expect_refusal(3, "absent");
    k3ring("plan %s", results.dir);
    expect_refusal(3, "config.json");
    tiny_put(&results, "config.json", "{\"model_type\": \"other\"}", 23);
    k3ring("run %s %s", results.dir, PROMPT);
    expect_refusal(3, NULL);
    char path[TINY_PATH_BYTES];
    tiny_path(&results, "config.json", path);
    unlink(path);
}
END_TEST

START_TEST(synth_does_not_overwrite)
{
    k3ring("synth %s", tiny.dir);
    ck_assert_int_eq(process.status, 2);
    ck_assert_ptr_nonnull(strstr(process.err, tiny.dir));
    k3ring("run %s %s --ram 64M --quiet", tiny.dir, PROMPT);
    ck_assert_str_eq(process.out, IDS_16);
}
END_TEST

START_TEST(a_quiet_synth_says_nothing)
{
    char path[TINY_PATH_BYTES];
    struct tiny made;
    tiny_folder(&made, TINY_MEMORY);
    tiny_path(&made, "new", path);
    k3ring("synth %s --quiet", path);
    expect(0, NULL);
    ck_assert_str_eq(process.err, "");
    tiny_remove(&made);
}
END_TEST

/* The first number behind a word of the message. */
static uint64_t number_after(const char *word)
{
    const char *at = strstr(process.err, word);
    ck_assert_msg(at != NULL, "no \"%s\" in: %s", word, process.err);
    return strtoull(at + strlen(word), NULL, 10);
}

static const char *const tight[] = {
    "--threads 24",
    "--threads 24 --chunk 8",
    "--threads 24 --tile 4K --pin 50% --expert-slots 5",
    "--pin all --expert-slots all",
    "--context 4096 --threads 24",
};

START_TEST(a_refusal_for_ram_names_two_numbers_and_the_first_one_works)
{
    k3ring("run %s %s --gen 3 --ram 16M %s", tiny.dir, PROMPT, tight[_i]);
    expect_refusal(4, "allows 16777216");
    uint64_t needed = number_after("needs ");
    ck_assert_uint_gt(needed, 16 * MIB);
    ck_assert_ptr_nonnull(strstr(process.err, "--ram "));
    k3ring("run %s %s --gen 3 --quiet --ram %" PRIu64 " %s", tiny.dir, PROMPT, needed, tight[_i]);
    expect(0, NULL);
    ck_assert_str_eq(process.out, "170 126 66\n");
    k3ring("run %s %s --gen 3 --ram %" PRIu64 " %s", tiny.dir, PROMPT, needed - PAGE_BYTES,
           tight[_i]);
    expect_refusal(4, NULL);
    ck_assert_uint_eq(number_after("needs "), needed);
    k3ring("plan %s --prompt 8 --gen 3 --ram %" PRIu64 " %s", tiny.dir, needed - 1, tight[_i]);
    expect_refusal(4, NULL);
}
END_TEST

START_TEST(a_context_that_is_too_small_or_too_large_does_not_fit)
{
    k3ring("run %s %s --context 8", tiny.dir, PROMPT);
    expect_refusal(4, "--context");
    k3ring("run %s %s --context 5000", tiny.dir, PROMPT);
    expect_refusal(4, "4096");
}
END_TEST

/* ---- plan ---- */

static const char *const planned[] = {
    "--ram 32M", "--ram 20M --tile 4K", "--ram 64M --pin all --expert-slots all",
    "--ram 64M --pin 50% --expert-slots 16 --chunk 2", "--ram 32M --context 4096 --prompt 300",
};

START_TEST(the_account_of_a_plan_sums_to_its_total_within_the_ram)
{
    k3ring("plan %s --json %s", tiny.dir, planned[_i]);
    expect(0, NULL);
    cJSON *plan = parse(process.out);
    const cJSON *account = cJSON_GetObjectItem(plan, "account");
    uint64_t sum = 0;
    const cJSON *part;
    cJSON_ArrayForEach(part, account) {
        uint64_t value;
        ck_assert(json_u64(part, &value));
        sum += strcmp(part->string, "total") != 0 ? value : 0;
    }
    ck_assert_uint_gt(sum, 8 * MIB);
    ck_assert_uint_eq(sum, number(account, "total"));
    ck_assert_uint_le(sum, number(plan, "ram_bytes"));
    ck_assert_uint_le(number(plan, "floor_bytes"), number(plan, "ram_bytes"));
    cJSON_Delete(plan);
    k3ring("plan %s %s", tiny.dir, planned[_i]);
    expect(0, NULL);
    ck_assert_ptr_nonnull(strstr(process.out, "floor"));
}
END_TEST

/* ---- signals ---- */

/* Sends a signal once the first ids are out. The run would otherwise take minutes. */
static void interrupt_run(int signal_number, const char *path)
{
    process_start(&process, folder.dir, process_binary(),
                  "run %s %s --gen 4000 --ram 64M --pin 0 --expert-slots 0 --tile 4K --io-depth 1 "
                  "--json %s", tiny.dir, PROMPT, path);
    for (int i = 0; i < 6000; i++) {
        process_peek(&process);
        if (strchr(process.out, ' ') != NULL) {
            break;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    kill(process.pid, signal_number);
    process_wait(&process);
}

START_TEST(an_interrupted_run_still_writes_its_report)
{
    static const int signals[] = {SIGINT, SIGTERM};
    char path[TINY_PATH_BYTES];
    size_t size;
    tiny_path(&results, "cut.json", path);
    interrupt_run(signals[_i], path);
    ck_assert_msg(process.status == 128 + signals[_i], "exit %d: %s", process.status, process.err);
    ck_assert_msg(strncmp(process.out, "170 126", 7) == 0, "%s", process.out);
    ck_assert_int_eq(process.out[strlen(process.out) - 1], '\n');
    unsigned char *text = tiny_read(&results, "cut.json", &size);
    cJSON *report = json_parse((char *)text, size, path, false);
    ck_assert_msg(report != NULL, "%s", err_message());
    ck_assert_str_eq(text_of(report, "finish_reason"), "interrupted");
    int made = cJSON_GetArraySize(cJSON_GetObjectItem(report, "generated_ids"));
    ck_assert(made >= 2 && made < 4000);
    cJSON_Delete(report);
    free(text);
    ck_assert_uint_eq(entries_of(&results), 1);
    unlink(path);
}
END_TEST

static Suite *cli_suite(void)
{
    Suite *suite = suite_create("cli");
    TCase *words = tcase_create("words");
    tcase_set_timeout(words, 300);
    tcase_add_test(words, help_and_version_are_answers);
    tcase_add_test(words, a_mistyped_word_is_answered_with_the_nearest_one);
    tcase_add_loop_test(words, a_wrong_value_is_refused_by_the_name_of_its_option, 0,
                        (int)countof(wrong_usage));
    tcase_add_test(words, ids_are_required_and_checked);
    tcase_add_test(words, sizes_are_binary_in_any_case);
    suite_add_tcase(suite, words);
    TCase *outputs = tcase_create("outputs");
    tcase_set_timeout(outputs, 300);
    tcase_add_test(outputs, standard_output_holds_the_ids_and_nothing_else);
    tcase_add_test(outputs, a_run_ends_after_a_stop_id);
    tcase_add_test(outputs, a_run_ends_after_an_id_that_a_file_of_the_model_names);
    tcase_add_test(outputs, an_end_id_that_is_not_of_the_model_is_told_with_its_file);
    tcase_add_test(outputs, a_name_that_is_no_utf8_makes_sound_json);
    tcase_add_test(outputs, a_name_cannot_steer_the_terminal);
    tcase_add_test(outputs, the_report_says_what_was_in_force);
    tcase_add_test(outputs, a_report_file_appears_whole_in_place_of_the_old_one);
    tcase_add_test(outputs, an_output_that_cannot_be_written_fails_the_run_and_leaves_nothing);
    tcase_add_test(outputs, dumped_logits_are_those_of_the_last_prompt_position);
    tcase_add_loop_test(outputs, an_interrupted_run_still_writes_its_report, 0, 2);
    suite_add_tcase(suite, outputs);
    TCase *refusals = tcase_create("refusals");
    tcase_set_timeout(refusals, 300);
    tcase_add_test(refusals, a_folder_that_is_no_model_is_refused);
    tcase_add_test(refusals, synth_does_not_overwrite);
    tcase_add_test(refusals, a_quiet_synth_says_nothing);
    tcase_add_loop_test(refusals, a_refusal_for_ram_names_two_numbers_and_the_first_one_works, 0,
                        (int)countof(tight));
    tcase_add_test(refusals, a_context_that_is_too_small_or_too_large_does_not_fit);
    tcase_add_loop_test(refusals, the_account_of_a_plan_sums_to_its_total_within_the_ram, 0,
                        (int)countof(planned));
    suite_add_tcase(suite, refusals);
    return suite;
}

int main(void)
{
    if (process_binary() == NULL) {
        fprintf(stderr, "cli_test: there is no k3ring beside the folder of this test\n");
        return EXIT_FAILURE;
    }
    tiny_make(&tiny, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    tiny_folder(&results, TINY_DISK);
    int failed = suite_run(cli_suite());
    tiny_remove(&tiny);
    tiny_remove(&folder);
    tiny_remove(&results);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
