/* SPDX-License-Identifier: Apache-2.0 */

/* --save-state, --load-state and --context as a user meets them: a run in parts makes what a run in
 * one piece makes, whatever ended a part; a process that is killed leaves the last whole file; and
 * the end of the context is an end, not a failure. */

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/base/nondet.h"
#include "core/cli/output.h"
#include "core/exec/saved_state.h"
#include "tests/support/amount.h"
#include "tests/support/command.h"
#include "tests/support/paper.h"
#include "tests/support/checkpoint.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"
#include "tests/support/vocabulary.h"

#define PROMPT "3,141,59,26,53,58,97,93"
#define RUN "run %s --ram 64M --quiet "

#define KILLS AMOUNT(40, 20, 4)
#define LONG_GEN AMOUNT(400, 400, 120)

static struct tiny tiny;
static struct tiny results; /* where states are saved: a drive, so that flushing takes its time */

static uint32_t long_ids[LONG_GEN]; /* what one piece makes */

/* "3,141,59,26,53,58,97,93" and the first count ids made after it. */
static const char *ids_after(uint32_t count)
{
    static char text[16 * LONG_GEN];
    size_t used = (size_t)snprintf(text, sizeof text, PROMPT);
    for (uint32_t i = 0; i < count; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, ",%u", long_ids[i]);
    }
    return text;
}

/* Ids on standard output: how many. */
static uint32_t read_ids(uint32_t *ids, uint32_t most)
{
    uint32_t count = 0;
    char *end;
    for (char *at = process.out; count < most; at = end) {
        unsigned long id = strtoul(at, &end, 10);
        if (end == at) {
            break;
        }
        ids[count++] = (uint32_t)id;
    }
    return count;
}

/* What was printed is what one piece makes after `before` tokens. */
static void expect_ids(uint32_t before, uint32_t count)
{
    uint32_t ids[LONG_GEN];
    ck_assert_uint_eq(read_ids(ids, LONG_GEN), count);
    ck_assert_uint_le(before + count, LONG_GEN);
    ck_assert_mem_eq(ids, long_ids + before, count * sizeof *ids);
}

static cJSON *parse_report(void)
{
    cJSON *root = json_parse(process.out, strlen(process.out), "the report", false);
    ck_assert_msg(root != NULL, "%s: %s", err_message(), process.out);
    return root;
}

static uint64_t number_of(const cJSON *object, const char *name)
{
    uint64_t value = 0;
    ck_assert_msg(json_u64(cJSON_GetObjectItem(object, name), &value), "%s is no number", name);
    return value;
}

static void state_path(char path[TINY_PATH_BYTES])
{
    tiny_path(&results, "state", path);
}

static uint32_t saved_positions(void)
{
    struct saved_state s;
    char path[TINY_PATH_BYTES];
    state_path(path);
    ck_assert_msg(saved_state_open(&s, path) == 0, "%s", err_message());
    uint32_t positions = s.positions;
    saved_state_close(&s);
    return positions;
}

/* ---- a run in parts ---- */

static const char *const settings[] = {
    "", "--draft ngram-fixed --draft-tokens 3", "--threads 1 --chunk 1 --pin 0 --expert-slots 0",
    "--io pread --isa scalar --chunk 3 --draft ngram --context 100",
};

START_TEST(a_run_goes_on_where_another_ended)
{
    static const uint32_t cuts[] = {1, 5, 11};
    for (size_t i = 0; i < countof(cuts); i++) {
        uint32_t cut = cuts[i];
        const char *other = settings[(_i + (int)i) % (int)countof(settings)];
        char hash[80];
        k3ring(RUN "--ids " PROMPT " --gen %u %s --save-state %s/state", tiny.dir, cut,
               settings[_i], results.dir);
        expect(0, NULL);
        expect_ids(0, cut);
        ck_assert_uint_eq(saved_positions(), GOLDEN_PROMPT + cut - 1);
        k3ring(RUN "--ids %s --gen %u --json -", tiny.dir, ids_after(cut), 16 - cut);
        cJSON *whole = parse_report();
        snprintf(hash, sizeof hash, "%s",
                 cJSON_GetStringValue(cJSON_GetObjectItem(whole, "logits_hash")));
        cJSON_Delete(whole);
        k3ring(RUN "--load-state %s/state --gen %u %s --json -", tiny.dir, results.dir, 16 - cut,
               other);
        expect(0, NULL);
        cJSON *report = parse_report();
        const cJSON *state = cJSON_GetObjectItem(report, "state");
        ck_assert_uint_eq(number_of(state, "loaded_positions"), GOLDEN_PROMPT + cut - 1);
        ck_assert_ptr_null(cJSON_GetObjectItem(state, "saved_positions"));
        ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(report, "logits_hash")), hash);
        const cJSON *ids = cJSON_GetObjectItem(report, "generated_ids");
        for (uint32_t k = 0; k < 16 - cut; k++) {
            ck_assert_uint_eq((uint32_t)cJSON_GetArrayItem(ids, (int)k)->valueint,
                              long_ids[cut + k]);
        }
        cJSON_Delete(report);
    }
}
END_TEST

START_TEST(a_file_can_be_loaded_and_replaced_by_one_run)
{
    k3ring(RUN "--ids " PROMPT " --gen 1 --save-state %s/state", tiny.dir, results.dir);
    expect_ids(0, 1);
    for (uint32_t made = 1; made < 12; made += 2) {
        k3ring(RUN "--load-state %s/state --save-state %s/state --gen 2", tiny.dir, results.dir,
               results.dir);
        expect(0, NULL);
        expect_ids(made, 2);
        ck_assert_uint_eq(saved_positions(), GOLDEN_PROMPT + made + 1);
    }
}
END_TEST

START_TEST(a_prompt_follows_what_the_state_holds)
{
    uint32_t plain[8];
    uint32_t loaded[8];
    k3ring(RUN "--ids " PROMPT " --gen 3 --save-state %s/state", tiny.dir, results.dir);
    k3ring(RUN "--ids %s,5,6,7 --gen 8", tiny.dir, ids_after(3));
    ck_assert_uint_eq(read_ids(plain, 8), 8);
    k3ring("run %s --ram 64M --load-state %s/state --ids 5,6,7 --gen 8", tiny.dir, results.dir);
    expect(0, "10 positions loaded");
    ck_assert_uint_eq(read_ids(loaded, 8), 8);
    ck_assert_mem_eq(plain, loaded, sizeof plain);
}
END_TEST

START_TEST(a_state_of_text_goes_on_as_text)
{
    static char text[PROCESS_TEXT_BYTES];
    char vocabulary[TINY_PATH_BYTES];
    tiny_path(&folder, "tiktoken.model", vocabulary);
    vocabulary_write(vocabulary, NULL, 0);
    k3ring(RUN "--tokenizer %s --prompt abcd --gen 12", tiny.dir, vocabulary);
    expect(0, NULL);
    memcpy(text, process.out, sizeof text);
    ck_assert_uint_gt(strlen(text), 10);
    k3ring(RUN "--tokenizer %s --prompt abcd --gen 4 --save-state %s/state", tiny.dir, vocabulary,
           results.dir);
    expect(0, NULL);
    size_t first = strlen(process.out) - 1; /* without its newline */
    ck_assert_int_eq(strncmp(process.out, text, first), 0);
    k3ring(RUN "--tokenizer %s --load-state %s/state --gen 8", tiny.dir, vocabulary, results.dir);
    expect(0, NULL);
    ck_assert_str_eq(process.out, text + first);
    k3ring(RUN "--load-state %s/state --gen 8", tiny.dir, results.dir);
    expect_refusal(3, "tiktoken.model"); /* there is none with the tiny model */
}
END_TEST

/* ---- a run that is stopped ---- */

static void rest_ms(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Waits until a file of the folder has so many bytes, on a machine however busy. */
static void wait_for_bytes(const struct tiny *where, const char *name, off_t bytes)
{
    struct stat st;
    char path[TINY_PATH_BYTES];
    tiny_path(where, name, path);
    for (int i = 0; i < 20000; i++) {
        if (stat(path, &st) == 0 && st.st_size >= bytes) {
            return;
        }
        rest_ms(10);
    }
    ck_abort_msg("%s has no %ld bytes after 200 seconds", path, (long)bytes);
}

START_TEST(a_stopped_run_leaves_a_state_that_goes_on)
{
    static const int signals[] = {SIGINT, SIGTERM};
    uint32_t ids[LONG_GEN];
    process_start(&process, folder.dir, process_binary(),
                  RUN "--ids " PROMPT " --gen 4000 --context 4096 --save-state %s/state", tiny.dir,
                  results.dir);
    wait_for_bytes(&folder, "out", 20);
    kill(process.pid, signals[_i]);
    process_wait(&process);
    expect(128 + signals[_i], NULL);
    uint32_t made = read_ids(ids, LONG_GEN);
    ck_assert_uint_gt(made, 0);
    ck_assert_uint_lt(made, LONG_GEN - 10);
    ck_assert_uint_eq(saved_positions(), GOLDEN_PROMPT + made - 1);
    expect_ids(0, made);
    k3ring(RUN "--load-state %s/state --gen 10", tiny.dir, results.dir);
    expect(0, NULL);
    expect_ids(made, 10);
}
END_TEST

/* Positions that are saved when a run is stopped so long after it began to read its prompt; all of
 * them when it was done by then. */
static uint32_t stop_in_prompt(long ms)
{
    process_start(&process, folder.dir, process_binary(),
                  "run %s --ram 64M --chunk 1 --ids %s --gen 4 --save-state %s/state", tiny.dir,
                  ids_after(LONG_GEN - 20), results.dir);
    wait_for_bytes(&folder, "err", 10); /* the settings in force, told once the model is open */
    rest_ms(ms);
    kill(process.pid, SIGINT);
    process_wait(&process);
    ck_assert_msg(process.status == 130 || process.status == 0, "%s", process.err);
    return process.status == 130 ? saved_positions() : UINT32_MAX;
}

/* What was not read is in the file too. */
START_TEST(a_run_stopped_in_its_prompt_goes_on_with_the_rest_of_it)
{
    char one[64];
    long ms = 100;
    const uint32_t prompt = GOLDEN_PROMPT + LONG_GEN - 20;
    uint32_t done = stop_in_prompt(ms);
    for (int tries = 0; tries < 20 && (done == 0 || done >= prompt); tries++) {
        ms = done == 0 ? 2 * ms : ms / 2;
        done = stop_in_prompt(ms);
    }
    ck_assert_uint_gt(done, 0);
    ck_assert_uint_lt(done, prompt);
    ck_assert_str_eq(process.out, "");
    k3ring(RUN "--ids %s --gen 4", tiny.dir, ids_after(LONG_GEN - 20));
    snprintf(one, sizeof one, "%.*s", (int)sizeof one - 1, process.out);
    k3ring(RUN "--load-state %s/state --gen 4", tiny.dir, results.dir);
    expect(0, NULL);
    ck_assert_str_eq(process.out, one);
    printf("note: stopped after %u of %u tokens of the prompt\n", done, prompt);
}
END_TEST

/* ---- a process that is killed ---- */

/* Goes on from the file, if there is one, makes a token, and saves over and over. Never returns. */
static void save_for_ever(const char *path)
{
    struct engine_options options = tiny_options(LONG_GEN);
    struct engine *e = NULL;
    struct saved_state s = {.fd = -1};
    uint32_t ids[GOLDEN_PROMPT + LONG_GEN];
    uint32_t count = GOLDEN_PROMPT;
    for (uint32_t i = 0; i < GOLDEN_PROMPT; i++) {
        ids[i] = (uint32_t)golden_prompt[i];
    }
    bool good = engine_open(&e, tiny.dir, &options) == 0;
    if (good && access(path, F_OK) == 0) {
        good = saved_state_open(&s, path) == 0 && saved_state_load(&s, e) == 0;
        count = s.id_count;
        memcpy(ids, s.ids, count * sizeof *ids);
    }
    while (good && count < countof(ids)) {
        uint32_t held = engine_position(e);
        struct generate_request r = {.ids = ids + held, .id_count = count - held, .gen = 1,
                                     .resume = held > 0};
        struct generate_result result = {.ids = ids + count};
        good = generate(e, &r, &result) == 0;
        struct saved_extra extra = {.tag = SAVED_IDS, .ids = ids, .id_count = ++count};
        tiny_put(&results, "saving", "x", good); /* from now on, nothing else */
        for (int i = 0; good && i < 60; i++) {
            struct output out;
            good = output_open(&out, path) == 0 && saved_state_write(e, &extra, out.file) == 0 &&
                   output_commit(&out) == 0;
        }
    }
    fprintf(stderr, "%s\n", err_message());
    _exit(3);
}

/* Files that were being written. */
static uint32_t remove_remains(void)
{
    char command[TINY_PATH_BYTES + 64];
    uint32_t count = 0;
    snprintf(command, sizeof command, "ls %s/state.tmp.* 2>/dev/null", results.dir);
    FILE *list = popen(command, "r");
    char line[TINY_PATH_BYTES];
    while (list != NULL && fgets(line, sizeof line, list) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        count += unlink(line) == 0;
    }
    pclose(list);
    return count;
}

START_TEST(a_killed_process_leaves_the_last_whole_state)
{
    struct rng rng = rng_seed(11);
    char path[TINY_PATH_BYTES];
    uint32_t remains = 0;
    uint32_t before = 0;
    state_path(path);
    unlink(path);
    fflush(NULL);
    for (int i = 0; i < KILLS; i++) {
        int status;
        tiny_put(&results, "saving", "", 0);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            save_for_ever(path);
        }
        wait_for_bytes(&results, "saving", 1);
        wait_for_bytes(&results, "state", 1);
        struct timespec time = {.tv_nsec = (long)rng_below(&rng, 100) * 1000000 +
                                           (long)rng_below(&rng, 1000000)};
        nanosleep(&time, NULL);
        kill(pid, SIGKILL);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(WIFSIGNALED(status), "it ended by itself");
        remains += remove_remains();
        uint32_t positions = saved_positions(); /* loads, whatever the moment was */
        ck_assert_uint_ge(positions, before);
        before = positions;
        k3ring(RUN "--load-state %s --gen 1", tiny.dir, path);
        expect(0, NULL);
        expect_ids(positions - GOLDEN_PROMPT + 1, 1);
    }
    printf("note: %d kills, %u while a state was being written; %u positions at the end\n", KILLS,
           remains, before);
    ck_assert_uint_gt(remains, 0);
}
END_TEST

/* ---- refusals ---- */

START_TEST(a_state_that_cannot_be_kept_or_used_is_told_before_the_run)
{
    char path[TINY_PATH_BYTES];
    char link_path[TINY_PATH_BYTES];
    state_path(path);
    tiny_path(&results, "link", link_path);
    k3ring(RUN "--ids " PROMPT " --save-state -", tiny.dir);
    expect_refusal(2, "--save-state");
    k3ring(RUN "--ids " PROMPT " --save-state %s/no/such/place", tiny.dir, results.dir);
    expect_refusal(1, "cannot be written");
    k3ring(RUN "--ids " PROMPT " --save-state %s/config.json", tiny.dir, tiny.dir);
    expect_refusal(2, "model's folder");
    k3ring(RUN "--ids " PROMPT " --save-state %s --json %s", tiny.dir, path, path);
    expect_refusal(2, "two files");
    k3ring(RUN "--load-state %s --trace %s", tiny.dir, path, path);
    expect_refusal(2, "two files");
    k3ring(RUN "--load-state %s/nothing", tiny.dir, results.dir);
    expect_refusal(1, "No such file");
    k3ring(RUN "--load-state %s/config.json", tiny.dir, tiny.dir);
    expect_refusal(3, "K3RSTATE");
    k3ring(RUN "--ids " PROMPT " --gen 2 --save-state %s", tiny.dir, path);
    expect(0, NULL);
    ck_assert_int_eq(symlink(path, link_path), 0);
    k3ring(RUN "--ids " PROMPT " --save-state %s", tiny.dir, link_path);
    expect_refusal(2, "not a link");
    k3ring(RUN "--load-state %s --gen 1", tiny.dir, link_path); /* reading follows it */
    expect(0, NULL);
    k3ring(RUN "--load-state %s --ids 5 --gen 1 --context 11", tiny.dir, path);
    expect_refusal(4, "--context 12");
    k3ring(RUN "--load-state %s --ids 5,256 --gen 1", tiny.dir, path);
    expect_refusal(2, "256");
}
END_TEST

START_TEST(a_run_that_fails_leaves_the_file_as_it_was)
{
    size_t bytes_before;
    size_t bytes_after;
    k3ring(RUN "--ids " PROMPT " --gen 2 --save-state %s/state", tiny.dir, results.dir);
    unsigned char *before = tiny_read(&results, "state", &bytes_before);
    k3ring("run %s --ram 1M --quiet --load-state %s/state --save-state %s/state", tiny.dir,
           results.dir, results.dir);
    expect_refusal(4, "--ram");
    unsigned char *after = tiny_read(&results, "state", &bytes_after);
    ck_assert_uint_eq(bytes_before, bytes_after);
    ck_assert_mem_eq(before, after, bytes_after);
    free(before);
    free(after);
    ck_assert_uint_eq(remove_remains(), 0);
}
END_TEST

/* ---- the end of the context ---- */

START_TEST(a_run_ends_with_its_context)
{
    k3ring(RUN "--ids " PROMPT " --gen 1000000 --context 14 --json - --save-state %s/state",
           tiny.dir, results.dir);
    expect(0, NULL);
    cJSON *report = parse_report();
    ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(report, "finish_reason")),
                     "context");
    ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(report, "generated_ids")), 6);
    cJSON_Delete(report);
    k3ring(RUN "--ids " PROMPT " --gen 6 --context 14 --json -", tiny.dir);
    report = parse_report();
    ck_assert_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(report, "finish_reason")), "length");
    cJSON_Delete(report);
    k3ring(RUN "--load-state %s/state --context 14", tiny.dir, results.dir);
    expect_refusal(4, "--context 15");
    k3ring(RUN "--load-state %s/state --context 15 --gen 9", tiny.dir, results.dir);
    expect(0, NULL);
    expect_ids(6, 1);
    k3ring(RUN "--ids " PROMPT " --context 8", tiny.dir);
    expect_refusal(4, "--context 9");
    k3ring(RUN "--ids " PROMPT " --context 4097", tiny.dir);
    expect_refusal(4, "4096");
    k3ring(RUN "--ids " PROMPT " --gen 5000", tiny.dir);
    expect_refusal(4, "4096");
}
END_TEST

START_TEST(a_million_positions_are_accounted_and_touched_only_as_they_come)
{
    struct tiny model;
    size_t bytes;
    tiny_copy(&model, &tiny, TINY_MEMORY);
    char *config = (char *)tiny_read(&model, "config.json", &bytes);
    char *at = strstr(config, "4096");
    ck_assert_ptr_nonnull(strstr(config, "\"max_position_embeddings\""));
    ck_assert_ptr_nonnull(at);
    char *larger = NULL;
    ck_assert_int_gt(asprintf(&larger, "%.*s1048576%s", (int)(at - config), config, at + 4), 0);
    tiny_put(&model, "config.json", larger, strlen(larger));
    k3ring("run %s --ram 900M --quiet --ids " PROMPT " --gen 200 --context 1048576 --threads 2 "
           "--json -", model.dir);
    expect(0, NULL);
    cJSON *report = parse_report();
    const cJSON *account = cJSON_GetObjectItem(cJSON_GetObjectItem(report, "plan"), "account");
    ck_assert_uint_eq(number_of(account, "kv"), 640ULL * 1048576);
    ck_assert_uint_lt(number_of(report, "peak_rss_bytes"), 200 * MIB);
    cJSON_Delete(report);
    k3ring("run %s --ram 500M --quiet --ids " PROMPT " --context 1048576", model.dir);
    expect_refusal(4, "--context");
    k3ring("run %s --ram 900M --quiet --ids " PROMPT " --context 1048577", model.dir);
    expect_refusal(4, "1048576");
    free(config);
    free(larger);
    tiny_remove(&model);
}
END_TEST

START_TEST(a_million_positions_of_the_real_model_take_58_gigabytes)
{
    struct model_config config;
    struct plan *plan = NULL;
    fake_config_k3(&config);
    struct model *model = paper_model(&config);
    struct plan_request r = paper_request(80 * GIB);
    r.context = 1048576;
    ck_assert_msg(plan_build(model, &r, &plan) == 0, "%s", err_message());
    ck_assert_uint_eq(plan->account.kv, 55296ULL * 1048576);
    ck_assert_uint_ge(plan->scratch.size_bytes, 4ULL * 1048576); /* scores, per worker */
    ck_assert_uint_le(plan->account.total, 80 * GIB);
    plan_free(plan);
    r.ram_bytes = 32 * GIB;
    ck_assert_int_eq(plan_build(model, &r, &plan), ERR_FIT);
    ck_assert_ptr_nonnull(strstr(err_message(), "--context"));
    err_clear();
    model_close(model);
}
END_TEST

static void find_long_ids(void)
{
    k3ring(RUN "--ids " PROMPT " --gen %d", tiny.dir, LONG_GEN);
    tiny_need(process.status == 0 && read_ids(long_ids, LONG_GEN) == LONG_GEN, "a long run");
}

int main(void)
{
    Suite *suite = suite_create("states of runs");
    TCase *tests = tcase_create("states");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, a_run_goes_on_where_another_ended, 0, countof(settings));
    tcase_add_test(tests, a_file_can_be_loaded_and_replaced_by_one_run);
    tcase_add_test(tests, a_prompt_follows_what_the_state_holds);
    tcase_add_test(tests, a_state_of_text_goes_on_as_text);
    tcase_add_loop_test(tests, a_stopped_run_leaves_a_state_that_goes_on, 0, 2);
    tcase_add_test(tests, a_run_stopped_in_its_prompt_goes_on_with_the_rest_of_it);
    tcase_add_test(tests, a_killed_process_leaves_the_last_whole_state);
    tcase_add_test(tests, a_state_that_cannot_be_kept_or_used_is_told_before_the_run);
    tcase_add_test(tests, a_run_that_fails_leaves_the_file_as_it_was);
    tcase_add_test(tests, a_run_ends_with_its_context);
    tcase_add_test(tests, a_million_positions_are_accounted_and_touched_only_as_they_come);
    tcase_add_test(tests, a_million_positions_of_the_real_model_take_58_gigabytes);
    suite_add_tcase(suite, tests);
    tiny_make(&tiny, TINY_MEMORY);
    tiny_folder(&results, TINY_DISK);
    tiny_folder(&folder, TINY_MEMORY);
    find_long_ids();
    int failed = suite_run(suite);
    tiny_remove(&tiny);
    tiny_remove(&results);
    tiny_remove(&folder);
    return failed == 0 ? 0 : 1;
}
