/* SPDX-License-Identifier: Apache-2.0 */

/* `k3ring bench` as a user meets it: the same tokens as any run, a report that agrees with itself,
 * what it refuses, what it writes beside the report, and that it writes nowhere else. How fast
 * anything is, is not asked here. */

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "tests/support/bench_report.h"
#include "tests/support/command.h"
#include "tests/support/suite.h"

#define GOLDEN "--ids 3,141,59,26,53,58,97,93"
#define QUICK "--ram 32M --limit-time 0"

static struct tiny disk, memory;
static char report_path[TINY_PATH_BYTES];

static void setup_once(void)
{
    tiny_make(&disk, TINY_DISK);
    tiny_make(&memory, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "report.json", report_path);
}

static void teardown_once(void)
{
    tiny_remove(&disk);
    tiny_remove(&memory);
    tiny_remove(&folder);
}

static cJSON *bench_json(const struct tiny *model, const char *arguments)
{
    k3ring("bench %s --output-format json --output %s %s", model->dir, report_path, arguments);
    report_expect();
    return report_read(report_path);
}

static const cJSON *job(const cJSON *root, const char *name)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, member(root, "jobs"))
    {
        if (strcmp(cJSON_GetStringValue(member(one, "jobname")), name) == 0) {
            return one;
        }
    }
    ck_abort_msg("no job %s", name);
    return NULL;
}

START_TEST(its_tokens_are_those_of_every_run)
{
    static const char *const settings[] = {
        "--ram 32M", "--ram 20M --io-depth 1", "--ram 32M --cache-policy lru --threads 1",
        "--ram 32M --io pread --io-size 8K", "--ram 32M --pin 0 --expert-slots 0",
    };
    char arguments[256];
    snprintf(arguments, sizeof arguments, GOLDEN " --tokens 15 --limit-time 0 %s", settings[_i]);
    cJSON *root = bench_json(&disk, arguments);
    const cJSON *inference = member(root, "inference");
    ck_assert_str_eq(cJSON_GetStringValue(member(inference, "logits_hash")), TINY_HASH);
    ck_assert_uint_eq((unsigned)member_number(inference, "tokens"), 15);
    cJSON_Delete(root);
}
END_TEST

START_TEST(figures_agree_with_each_other)
{
    cJSON *root = bench_json(&disk, "--ram 20M --pin 0 --expert-slots 0 --tokens 6 --limit-time 1");
    const cJSON *run = member(job(root, "inference"), "read");
    const cJSON *again = member(job(root, "replay"), "read");
    const cJSON *io = member(job(root, "inference"), "x_io");
    /* Reads begun while measuring, against those ended meanwhile: apart by what was under way. */
    double reads = member_number(again, "total_ios");
    ck_assert_double_le(fabs(member_number(run, "total_ios") - reads), 16);
    ck_assert_double_gt(reads, 100);
    double classes = 0;
    const cJSON *one;
    cJSON_ArrayForEach(one, member(io, "classes"))
    {
        classes += member_number(one, "io_bytes");
    }
    ck_assert_double_eq(classes, member_number(run, "io_bytes"));
    const cJSON *tokens = member(root, "inference");
    ck_assert_double_eq_tol(member_number(tokens, "bytes_per_token") * 6,
                            member_number(run, "io_bytes"), 1);
    ck_assert_double_eq(member_number(tokens, "experts_hit"), 0);
    bool valid = cJSON_IsTrue(member(member(root, "verdict"), "valid"));
    ck_assert_int_eq(process.status, valid ? 0 : 5);
    if (valid) {
        double wall = member_number(io, "busy_ns") + member_number(io, "idle_ns");
        double rate = member_number(run, "io_bytes") / wall * 1e9;
        ck_assert_double_eq_tol(member_number(run, "bw_bytes") / rate, 1, 1e-3);
        const cJSON *share = member(root, "device_limit");
        double busy = member_number(share, "pct_busy") * member_number(share, "pct_disk_busy");
        ck_assert_double_eq_tol(member_number(share, "pct_run"), busy / 100, 1e-6);
    } else {
        printf("note: no drive here (%s): shares of its limit not looked at\n", process.err);
    }
    cJSON_Delete(root);
}
END_TEST

START_TEST(memory_is_no_drive)
{
    cJSON *root = bench_json(&memory, QUICK " --tokens 2");
    expect(5, "these are no figures of a drive");
    ck_assert(cJSON_IsFalse(member(member(root, "verdict"), "valid")));
    ck_assert_int_ge(cJSON_GetArraySize(member(member(root, "verdict"), "reasons")), 1);
    ck_assert(cJSON_IsNull(member(member(root, "device_limit"), "run_bw_bytes")));
    cJSON_Delete(root);
    k3ring("bench %s " QUICK " --tokens 2", memory.dir);
    expect(5, NULL);
    ck_assert_ptr_nonnull(strstr(process.out, "refused"));
    ck_assert_ptr_nonnull(strstr(process.out, "tok/s"));
}
END_TEST

/* Who reads the document learns of it there, too. */
START_TEST(a_failure_is_in_the_document)
{
    struct tiny bad;
    static const unsigned char nan[] = {0xC0, 0x7F};
    tiny_copy(&bad, &memory, TINY_MEMORY);
    tiny_poke(&bad, "language_model.lm_head.weight", 5 * 256, nan, sizeof nan);
    k3ring("bench %s --output-format json --output %s " QUICK " --tokens 2", bad.dir, report_path);
    expect(1, "logit 5 is NaN");
    cJSON *root = report_read(report_path);
    const cJSON *verdict = member(root, "verdict");
    ck_assert(cJSON_IsFalse(member(verdict, "valid")));
    ck_assert_ptr_nonnull(strstr(member(verdict, "reasons")->child->valuestring, "logit 5 is NaN"));
    cJSON_Delete(root);
    k3ring("bench %s --output /dev/full " QUICK " --tokens 2", bad.dir);
    expect(1, "logit 5 is NaN");
    expect(1, "nor could that be reported: /dev/full");
    tiny_remove(&bad);
}
END_TEST

START_TEST(holes_are_no_data)
{
    struct tiny holed;
    tiny_copy(&holed, &disk, TINY_DISK);
    char path[TINY_PATH_BYTES];
    tiny_path(&holed, tiny_shard(1), path);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(truncate(path, st.st_size), 0);
    FILE *file = fopen(path, "r+e");
    ck_assert_ptr_nonnull(file);
    int rc = fallocate(fileno(file), 0x03 /* punch, keep size */, 1 << 20, 256 << 10);
    fclose(file);
    if (rc != 0) {
        printf("note: this file system punches no holes: not looked at\n");
    } else {
        k3ring("bench %s " QUICK " --tokens 2", holed.dir);
        expect(5, "hole");
    }
    tiny_remove(&holed);
}
END_TEST

START_TEST(a_sweep_measures_every_combination_and_every_round)
{
    cJSON *root = bench_json(&disk, QUICK " --tokens 3 --io-depth 1,4 --cache-policy arc,lru "
                                    "--repeat 2");
    const cJSON *points = member(root, "points");
    ck_assert_int_eq(cJSON_GetArraySize(points), 4);
    const cJSON *one;
    cJSON_ArrayForEach(one, points)
    {
        const cJSON *metric = cJSON_GetArrayItem(member(one, "metrics"), 0);
        ck_assert_str_eq(cJSON_GetStringValue(member(metric, "name")), "tokens_per_second");
        ck_assert_int_eq(cJSON_GetArraySize(member(metric, "samples")), 2);
    }
    cJSON_Delete(root);
}
END_TEST

START_TEST(a_ladder_gives_the_same_bits_on_every_rung)
{
    cJSON *root = bench_json(&disk, "--limit-time 0 --tokens 3 --ladder 24M,28M,40M");
    const cJSON *one;
    const char *first = NULL;
    ck_assert_int_eq(cJSON_GetArraySize(member(root, "points")), 3);
    cJSON_ArrayForEach(one, member(root, "points"))
    {
        const cJSON *round = cJSON_GetArrayItem(member(one, "rounds"), 0);
        const char *hash = cJSON_GetStringValue(member(member(round, "inference"), "logits_hash"));
        first = first == NULL ? hash : first;
        ck_assert_str_eq(hash, first);
    }
    cJSON_Delete(root);
}
END_TEST

START_TEST(an_earlier_report_is_a_baseline)
{
    char path[TINY_PATH_BYTES];
    tiny_path(&folder, "base.json", path);
    const char *slow = "{\"k3ring\":{\"version\":\"0\",\"schema\":1},\"points\":[{\"settings\":{},"
                       "\"metrics\":[{\"name\":\"tokens_per_second\",\"unit\":\"tokens/s\","
                       "\"better\":\"higher\",\"samples\":[1e-6]}]}]}";
    tiny_put(&folder, "base.json", slow, strlen(slow));
    k3ring("bench %s " QUICK " --tokens 2 --baseline %s --fail-below 10", disk.dir, path);
    report_expect();
    char fast[512];
    snprintf(fast, sizeof fast, "%s", slow);
    memcpy(strstr(fast, "1e-6"), "1e12", 4);
    tiny_put(&folder, "base.json", fast, strlen(fast));
    k3ring("bench %s " QUICK " --tokens 2 --baseline %s --fail-below 10", disk.dir, path);
    if (process.status != 5) {
        expect(1, "tokens per second fell by");
    }
    k3ring("bench %s " QUICK " --tokens 2 --baseline %s/none.json", disk.dir, folder.dir);
    expect(1, "none.json");
}
END_TEST

START_TEST(lines_of_status_are_json)
{
    k3ring("bench %s --ram 32M --limit-time 5 --tokens 2 --status-interval 1 --quiet", disk.dir);
    report_expect();
    int lines = 0;
    for (char *line = strtok(process.err, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (line[0] != '{') {
            ck_assert_ptr_nonnull(strstr(line, "k3ring: "));
            continue;
        }
        cJSON *root = json_parse(line, strlen(line), "line", false);
        ck_assert_ptr_nonnull(root);
        ck_assert_double_ge(member_number(root, "bw_bytes"), 0);
        cJSON_Delete(root);
        lines++;
    }
    ck_assert_int_ge(lines, 1);
}
END_TEST

START_TEST(pictures_and_a_page_stand_beside_the_report)
{
    static const char *const files[] = {"bandwidth.dat", "bandwidth.gp", "latency.dat",
                                        "percentiles.dat", "timeline.dat", "sweep.dat"};
    char path[TINY_PATH_BYTES];
    k3ring("bench %s " QUICK " --tokens 3 --io-depth 1,2 --repeat 1 --plot %s/plot --html "
           "%s/page.html", disk.dir, folder.dir, folder.dir);
    report_expect();
    for (size_t i = 0; i < countof(files); i++) {
        snprintf(path, sizeof path, "%s/plot/%s", folder.dir, files[i]);
        ck_assert_msg(access(path, R_OK) == 0, "%s is not there", path);
    }
    snprintf(path, sizeof path, "%s/plot/timeline.json", folder.dir);
    cJSON *events = report_read(path);
    ck_assert_int_gt(cJSON_GetArraySize(member(events, "traceEvents")), 50);
    cJSON_Delete(events);
    size_t size;
    char *page = (char *)tiny_read(&folder, "page.html", &size);
    ck_assert_ptr_nonnull(strstr(page, "</html>"));
    free(page);
}
END_TEST

/* ---- nothing is written ---- */

/* Adds whatever happened in the watched folder; a file that was open for writing says so when it is
 * closed, changed or not. */
static uint32_t writes_seen(int fd)
{
    char buffer[8192] __attribute__((aligned(8)));
    uint32_t seen = 0;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (poll(&ready, 1, 0) > 0) {
        ssize_t size = read(fd, buffer, sizeof buffer);
        for (ssize_t i = 0; i < size;) {
            const struct inotify_event *event = (const void *)(buffer + i);
            seen++;
            i += (ssize_t)(sizeof *event + event->len);
        }
    }
    return seen;
}

START_TEST(nothing_but_reports_is_written)
{
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    const uint32_t writes = IN_MODIFY | IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVE |
                            IN_ATTRIB;
    ck_assert_int_ge(inotify_add_watch(fd, disk.dir, writes), 0);
    k3ring("bench %s --ram 32M --limit-time 1 --tokens 3 --io-depth 1,4 --repeat 1", disk.dir);
    report_expect();
    ck_assert_uint_eq(writes_seen(fd), 0);
    tiny_put(&disk, "probe", "x", 1); /* and the watch does see a write */
    ck_assert_uint_gt(writes_seen(fd), 0);
    char path[TINY_PATH_BYTES];
    tiny_path(&disk, "probe", path);
    unlink(path);
    close(fd);
}
END_TEST

/* ---- ends and refusals ---- */

START_TEST(a_signal_ends_it_at_once_and_by_its_number)
{
    process_start(&process, folder.dir, process_binary(), "bench %s --ram 32M --limit-time 60",
                  disk.dir);
    usleep(300000);
    kill(process.pid, SIGINT);
    process_wait(&process);
    ck_assert_int_eq(process.status, 130);
}
END_TEST

static void expect_same_windows(const cJSON *before, const cJSON *after)
{
    ck_assert_int_gt(cJSON_GetArraySize(before), 0);
    ck_assert_int_eq(cJSON_GetArraySize(before), cJSON_GetArraySize(after));
    for (int i = 0; i < cJSON_GetArraySize(before); i++) {
        const cJSON *a = cJSON_GetArrayItem(before, i);
        const cJSON *b = cJSON_GetArrayItem(after, i);
        ck_assert(member_number(a, "depth") == member_number(b, "depth"));
        ck_assert(member_number(a, "chunk_bytes") == member_number(b, "chunk_bytes"));
        const cJSON *last = i > 0 ? cJSON_GetArrayItem(before, i - 1) : NULL;
        ck_assert(last == NULL || member_number(a, "depth") > member_number(last, "depth"));
    }
}

/* A drift between different requests would be none of the drive. At 24M the log of reads takes
 * from the ring; at 16M a request holds the first windows. */
START_TEST(both_limits_use_the_same_windows_once_each)
{
    static const char *const settings[] = {"--limit-time 1 --ram 24M --tokens 400",
                                           "--limit-time 1 --ram 1G --io-size 16M"};
    cJSON *root = bench_json(&disk, settings[_i]);
    const cJSON *limit = member(root, "device_limit");
    if (process.status == 0) {
        expect_same_windows(member(limit, "before"), member(limit, "after"));
    } else {
        printf("note: no figures of a drive here\n");
    }
    cJSON_Delete(root);
}
END_TEST

START_TEST(what_cannot_be_meant_is_refused_in_one_line)
{
    static const struct {
        int status;
        const char *arguments, *part;
    } cases[] = {
        {2, "", "give a MODEL"},
        {2, "MODEL --synth x", "not both"},
        {2, "MODEL --io-depth 0", "--io-depth"},
        {2, "MODEL --io-depth 4,4", "twice"},
        {2, "MODEL --io-depth 4,", "empty"},
        {2, "MODEL --io-depth 1025", "--io-depth"},
        {2, "MODEL --io-depth auto,4", "--io-depth"},
        {2, "MODEL --io-size 5000", "4096"},
        {2, "MODEL --cache-policy best", "no cache policy"},
        {2, "MODEL --ladder 1G --ram 2G", "--ladder and --ram"},
        {2, "MODEL --ram 1X", "--ram"},
        {2, "MODEL --io-depth 1,2,3,4,5,6,7,8,9 --io-size 4K,8K,16K,32K,64K,128K,256K,512K",
         "combinations"},
        {2, "MODEL --ids 1,512", "not of this model"},
        {2, "MODEL --output-format xml", "--output-format"},
        {2, "--synth DIR --size 1G", "at least"},
        {3, "/nonexistent-model", "nonexistent-model"},
        {4, "MODEL --ram 4M", "RAM"},
        {1, "MODEL --ram 32M --tokens 1 --limit-time 0 --output /nonexistent/x", "/nonexistent/x"},
        {2, "MODEL --output same --html same", "two uses"},
        {2, "MODEL --baseline same --trace ./same", "two uses"},
        {2, "MODEL --output same.iolog --export-fio same", "--export-fio"},
        {1, "MODEL --ram 32M --tokens 1 --limit-time 0 --html /nonexistent/x", "/nonexistent/x"},
    };
    char arguments[512] = "";
    const char *rest = cases[_i].arguments;
    if (strncmp(rest, "MODEL", 5) == 0) {
        snprintf(arguments, sizeof arguments, "%s%s", disk.dir, rest + 5);
    } else if (strncmp(rest, "--synth DIR", 11) == 0) {
        snprintf(arguments, sizeof arguments, "--synth %s/synth%s", folder.dir, rest + 11);
    } else {
        snprintf(arguments, sizeof arguments, "%s", rest);
    }
    k3ring("bench %s", arguments);
    expect_refusal(cases[_i].status, cases[_i].part);
}
END_TEST
#define CASES 22

int main(void)
{
    Suite *suite = suite_create("bench");
    TCase *tcase = tcase_create("bench");
    tcase_add_unchecked_fixture(tcase, setup_once, teardown_once);
    tcase_set_timeout(tcase, 240);
    tcase_add_loop_test(tcase, its_tokens_are_those_of_every_run, 0, 5);
    tcase_add_test(tcase, figures_agree_with_each_other);
    tcase_add_test(tcase, memory_is_no_drive);
    tcase_add_test(tcase, a_failure_is_in_the_document);
    tcase_add_test(tcase, holes_are_no_data);
    tcase_add_test(tcase, a_sweep_measures_every_combination_and_every_round);
    tcase_add_test(tcase, a_ladder_gives_the_same_bits_on_every_rung);
    tcase_add_test(tcase, an_earlier_report_is_a_baseline);
    tcase_add_test(tcase, lines_of_status_are_json);
    tcase_add_test(tcase, pictures_and_a_page_stand_beside_the_report);
    tcase_add_test(tcase, nothing_but_reports_is_written);
    tcase_add_test(tcase, a_signal_ends_it_at_once_and_by_its_number);
    tcase_add_loop_test(tcase, both_limits_use_the_same_windows_once_each, 0, 2);
    tcase_add_loop_test(tcase, what_cannot_be_meant_is_refused_in_one_line, 0, CASES);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
