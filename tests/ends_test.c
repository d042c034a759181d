/* SPDX-License-Identifier: Apache-2.0 */

/* Commands that are stopped: how soon, with which exit status, and what they leave. */

#include <check.h>
#include <cjson/cJSON.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/nondet.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"

#define SOON_NS 30000000000ULL /* on a busy machine; by itself it takes milliseconds */
#define SLOW "--ram 64M --pin 0 --tile 4K --io-depth 1"

static struct tiny tiny;
static char json[TINY_PATH_BYTES], other[TINY_PATH_BYTES], in_path[TINY_PATH_BYTES];

static void setup(void)
{
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "report.json", json);
    tiny_path(&folder, "other", other);
    tiny_path(&folder, "in", in_path);
}

static void teardown(void)
{
    tiny_remove(&folder);
}

static int outputs(void)
{
    int count = 0;
    DIR *stream = opendir(folder.dir);
    for (const struct dirent *e; (e = readdir(stream)) != NULL;) {
        count += strncmp(e->d_name, "report", 6) == 0 || strncmp(e->d_name, "other", 5) == 0;
    }
    closedir(stream);
    return count;
}

/* Until the file a command writes before it takes its name has so many bytes. */
static void await(const char *path, int64_t size_bytes)
{
    char name[TINY_PATH_BYTES + 32];
    struct stat status;
    snprintf(name, sizeof name, "%s.tmp.%ld", path, (long)process.pid);
    for (int i = 0; i < 20000; i++) { /* 100 s */
        if (stat(name, &status) == 0 && status.st_size >= size_bytes) {
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    ck_abort_msg("no %s of %lld bytes: %s", name, (long long)size_bytes, process.err);
}

static void stop(int signal_number)
{
    uint64_t begun = nondet_now_ns();
    kill(process.pid, signal_number);
    process_wait(&process);
    ck_assert_int_eq(process.status, 128 + signal_number);
    ck_assert_uint_lt(nondet_now_ns() - begun, SOON_NS);
}

static cJSON *report(void)
{
    size_t size;
    unsigned char *text = tiny_read(&folder, "report.json", &size);
    cJSON *root = json_parse((char *)text, size, json, false);
    ck_assert_msg(root != NULL, "%s", err_message());
    free(text);
    return root;
}

/* The input is a pipe that somebody may write into some day. */
START_TEST(waiting_for_input_ends_at_once)
{
    static const char *const words[] = {"run", "score"};
    static const char *const input[] = {"--prompt-file -", "-"};
    static const int signals[] = {SIGINT, SIGTERM};
    ck_assert_int_eq(mkfifo(in_path, 0600), 0);
    int writer = open(in_path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(writer, 0);
    for (size_t i = 0; i < countof(words); i++) {
        process_start(&process, folder.dir, process_binary(), "%s %s %s --json %s", words[i],
                      tiny.dir, input[i], json);
        process_await_handler(&process, signals[i]);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* it may be reading by then */
        stop(signals[i]);
        ck_assert_int_eq(outputs(), 0);
    }
    close(writer);
    unlink(in_path);
}
END_TEST

START_TEST(a_stopped_batch_says_so_in_its_report)
{
    static const char lines[] = "{\"id\": 1, \"ids\": [3, 141], \"gen\": 4000}\n";
    char prompts[TINY_PATH_BYTES];
    tiny_path(&folder, "prompts", prompts);
    tiny_put(&folder, "prompts", lines, sizeof lines - 1);
    process_start(&process, folder.dir, process_binary(),
                  "batch %s %s --out %s --json %s " SLOW,
                  tiny.dir, prompts, other, json);
    await(json, 0);
    stop(SIGTERM);
    cJSON *root = report();
    const cJSON *batch = cJSON_GetObjectItem(root, "batch");
    ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(batch, "interrupted")));
    ck_assert_int_eq(cJSON_GetObjectItem(batch, "of")->valueint, 1);
    ck_assert_ptr_nonnull(strstr(cJSON_GetObjectItem(root, "error")->valuestring, "0 of 1"));
    cJSON_Delete(root);
    ck_assert_int_eq(outputs(), 1);
}
END_TEST

START_TEST(a_stopped_verification_is_no_verdict)
{
    process_start(&process, folder.dir, process_binary(), "verify %s --golden --json %s " SLOW,
                  tiny.dir, json);
    await(json, 0);
    stop(SIGINT);
    cJSON *root = report();
    ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(root, "interrupted")));
    ck_assert(cJSON_IsFalse(cJSON_GetObjectItem(root, "passed")));
    cJSON_Delete(root);
    ck_assert_int_eq(outputs(), 1);
}
END_TEST

START_TEST(a_stopped_benchmark_reports_what_it_measured)
{
    process_start(&process, folder.dir, process_binary(),
                  "bench %s " SLOW " --limit-time 0 --warmup 0 "
                  "--tokens 4000 --trace %s --output-format json --output %s", tiny.dir, other,
                  json);
    await(other, 4096); /* some tokens */
    stop(SIGINT);
    ck_assert_msg(strstr(process.err, "k3ring: stopped before pass ") != NULL, "%s", process.err);
    cJSON *root = report();
    ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(root, "interrupted")));
    cJSON_Delete(root);
    ck_assert_int_eq(outputs(), 2);
}
END_TEST

/* Every text that is asked for is an output like any other. */
START_TEST(help_that_is_lost_is_an_error)
{
    static const char *const commands[] = {
        "run", "chat", "score", "batch", "bench", "plan", "pack", "verify", "doctor", "replay",
        "compare", "synth", "tokenize"};
    for (size_t i = 0; i < countof(commands); i++) {
        char line[PATH_MAX + 64];
        snprintf(line, sizeof line, "%s %s --help >/dev/full 2>&1", process_binary(), commands[i]);
        int status = system(line);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%s: %d", commands[i],
                      status);
    }
}
END_TEST

int main(void)
{
    if (process_binary() == NULL) {
        fprintf(stderr, "build k3ring first: this test runs it\n");
        return EXIT_FAILURE;
    }
    tiny_make(&tiny, TINY_MEMORY);
    Suite *suite = suite_create("ends");
    TCase *all = tcase_create("stopped");
    tcase_set_timeout(all, 300);
    tcase_add_checked_fixture(all, setup, teardown);
#ifdef __SANITIZE_THREAD__
    printf("skip: the thread sanitizer keeps signals back while a read waits\n");
    (void)waiting_for_input_ends_at_once;
#else
    tcase_add_test(all, waiting_for_input_ends_at_once);
#endif
    tcase_add_test(all, a_stopped_batch_says_so_in_its_report);
    tcase_add_test(all, a_stopped_verification_is_no_verdict);
    tcase_add_test(all, a_stopped_benchmark_reports_what_it_measured);
    tcase_add_test(all, help_that_is_lost_is_an_error);
    suite_add_tcase(suite, all);
    int failed = suite_run(suite);
    tiny_remove(&tiny);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
