/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cli/bench_metrics.h"
#include "core/cli/compare.h"
#include "tests/support/bench_sample.h"
#include "tests/support/suite.h"

/* A member by a path of names and indices: "jobs.1.read.clat_ns". */
static const cJSON *member(const cJSON *root, const char *path)
{
    char copy[256];
    char *rest = NULL;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *part = strtok_r(copy, ".", &rest); part != NULL && root != NULL;
         part = strtok_r(NULL, ".", &rest)) {
        root = cJSON_IsArray(root) ? cJSON_GetArrayItem(root, atoi(part))
                                   : cJSON_GetObjectItemCaseSensitive(root, part);
    }
    return root;
}

static double number(const cJSON *root, const char *path)
{
    const cJSON *item = member(root, path);
    ck_assert_msg(cJSON_IsNumber(item), "%s is no number", path);
    return item->valuedouble;
}

static const char *text(const cJSON *root, const char *path)
{
    const cJSON *item = member(root, path);
    ck_assert_msg(cJSON_IsString(item), "%s is no text", path);
    return item->valuestring;
}

static void is_null(const cJSON *root, const char *path)
{
    ck_assert_msg(cJSON_IsNull(member(root, path)), "%s is not null", path);
}

/* As a reader of the printed text has it. */
static cJSON *document(const struct bench_sample *sample, bool plus)
{
    cJSON *root = bench_json(&sample->result, plus);
    ck_assert_ptr_nonnull(root);
    char *printed = cJSON_Print(root);
    cJSON_Delete(root);
    cJSON *read = cJSON_Parse(printed);
    ck_assert_ptr_nonnull(read);
    cJSON_free(printed);
    return read;
}

START_TEST(figures_have_fio_s_units)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    cJSON *root = document(sample, false);
    ck_assert_int_eq(cJSON_GetArraySize(member(root, "jobs")), BENCH_JOBS);
    ck_assert_str_eq(text(root, "jobs.1.jobname"), "inference");
    ck_assert(number(root, "jobs.1.read.io_bytes") == 800e6);
    ck_assert(number(root, "jobs.1.read.io_kbytes") == 781250);
    ck_assert(number(root, "jobs.1.read.bw_bytes") == 400e6);
    ck_assert(number(root, "jobs.1.read.bw") == 390625);
    ck_assert(number(root, "jobs.1.read.iops") == 100);
    ck_assert(number(root, "jobs.1.read.runtime") == 2000);
    ck_assert(number(root, "jobs.1.read.clat_ns.N") == 200);
    ck_assert(number(root, "jobs.1.job_start") == 1764547200123);
    ck_assert(number(root, "jobs.1.error") == 0 && number(root, "jobs.1.groupid") == 1);
    ck_assert(number(root, "jobs.1.iodepth_level.4") == 75);
    ck_assert(number(root, "jobs.1.x_io.split_factor") == 4);
    ck_assert(number(root, "jobs.1.x_io.idle_ns") == 1e9);
    ck_assert(number(root, "jobs.0.x_io.window_bytes") == 16 * MIB);
    ck_assert(number(root, "jobs.1.x_io.classes.experts.total_ios") == 100);
    is_null(root, "jobs.1.x_io.temp_c_end");
    ck_assert_ptr_null(member(root, "jobs.1.read.clat_ns.bins"));
    ck_assert(number(root, "jobs.3.read.total_ios") == 0);
    ck_assert_ptr_null(member(root, "jobs.3.read.clat_ns.percentile"));
    ck_assert(number(root, "disk_util.0.read_ios") == 4.0 * (150 + 200 + 200 + 150));
    ck_assert_str_eq(text(root, "k3ring.command"), "k3ring bench model --tokens 20");
    cJSON_Delete(root);
    bench_sample_free(sample);
}
END_TEST

START_TEST(shares_and_tokens_are_there)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    cJSON *root = document(sample, false);
    ck_assert(number(root, "device_limit.bw_bytes_before") == 1e9);
    ck_assert(number(root, "device_limit.run_bw_bytes") == 400e6);
    double run = number(root, "device_limit.pct_run");
    double product = number(root, "device_limit.pct_busy") *
                     number(root, "device_limit.pct_disk_busy") / 100;
    ck_assert(run > 40 && product - run < 1e-6 && run - product < 1e-6);
    ck_assert(number(root, "inference.tok_per_s") == 10);
    ck_assert(number(root, "inference.hit_rate") == 0.625);
    ck_assert_int_eq((int)strlen(text(root, "inference.logits_hash")), 64);
    ck_assert(number(root, "points.0.rounds.0.inference.tokens") == 20);
    ck_assert(cJSON_IsTrue(member(root, "verdict.valid")));
    is_null(root, "device_limit.refused");
    ck_assert(cJSON_IsObject(member(root, "environment")));
    cJSON_Delete(root);
    bench_sample_free(sample);
}
END_TEST

START_TEST(points_have_a_sample_of_every_round)
{
    struct bench_sample *sample = bench_sample_new(2, 3);
    bench_sample_token_ms(bench_sample_round(sample, 1, 2), 50);
    cJSON *root = document(sample, false);
    ck_assert_int_eq(cJSON_GetArraySize(member(root, "jobs")), 2 * 3 * BENCH_JOBS);
    ck_assert_str_eq(text(root, "jobs.1.jobname"), "inference:p1:r1");
    ck_assert_str_eq(text(root, "jobs.29.jobname"), "limit_after:p2:r3");
    ck_assert_int_eq(cJSON_GetArraySize(member(root, "points")), 2);
    const cJSON *metrics = member(root, "points.1.metrics");
    ck_assert_int_eq(cJSON_GetArraySize(metrics), BENCH_METRICS);
    for (int i = 0; i < BENCH_METRICS; i++) {
        const cJSON *one = cJSON_GetArrayItem(metrics, i);
        const char *better = text(one, "better");
        ck_assert_str_eq(text(one, "name"), bench_metrics[i].name);
        ck_assert(strcmp(better, "higher") == 0 || strcmp(better, "lower") == 0 ||
                  strcmp(better, "neither") == 0);
        ck_assert_int_eq(cJSON_GetArraySize(member(one, "samples")), 3);
    }
    ck_assert(number(metrics, "0.samples.0") == 10 && number(metrics, "0.samples.2") == 20);
    ck_assert(number(root, "points.1.settings.io_depth") == 2);
    ck_assert_int_eq(strncmp(text(root, "points.1.logits_hash"), "abab", 4), 0);
    ck_assert(number(root, "shown.point") == 1 && number(root, "shown.round") == 2);
    ck_assert(cJSON_IsFalse(member(root, "best_point.differs")));
    cJSON_Delete(root);
    bench_sample_free(sample);
}
END_TEST

START_TEST(refused_figures_are_no_numbers)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    bench_sample_reason(sample, true, "read from memory");
    bench_sample_reason(sample, false, "warm");
    cJSON *root = document(sample, true);
    ck_assert(cJSON_IsFalse(member(root, "verdict.valid")));
    ck_assert_str_eq(text(root, "verdict.reasons.0"), "read from memory");
    ck_assert_str_eq(text(root, "verdict.warnings.0"), "warm");
    ck_assert_str_eq(text(root, "device_limit.refused"), "read from memory");
    const char *const nulls[] = {"bw_bytes", "replay_bw_bytes", "busy_bw_bytes", "run_bw_bytes",
                                 "pct_run", "pct_busy", "pct_replay", "pct_disk_busy",
                                 "drift_pct", "before.0.bw_bytes", "overlap_tok_per_s"};
    for (size_t i = 0; i < countof(nulls); i++) {
        is_null(member(root, "device_limit"), nulls[i]);
    }
    ck_assert(number(root, "jobs.1.error") == 22 && number(root, "jobs.1.read.bw_bytes") == 0);
    ck_assert(number(root, "jobs.1.read.iops") == 0 && number(root, "jobs.3.error") == 0);
    ck_assert(number(root, "jobs.1.x_io.classes.trunk.bw_bytes") == 0);
    ck_assert(number(root, "inference.tok_per_s") == 10);
    const cJSON *metrics = member(root, "points.0.metrics");
    for (int i = 0; i < cJSON_GetArraySize(metrics); i++) {
        const char *name = text(cJSON_GetArrayItem(metrics, i), "name");
        ck_assert_msg(strstr(name, "bw") == NULL && strstr(name, "pct") == NULL, "%s", name);
    }
    cJSON_Delete(root);
    bench_sample_free(sample);
}
END_TEST

START_TEST(missing_jobs_are_listed_with_reasons)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    bench_sample_skip(bench_sample_round(sample, 0, 0), JOB_COMPUTE, "too large");
    bench_sample_skip(bench_sample_round(sample, 0, 0), JOB_REPLAY, "no reads");
    cJSON *root = document(sample, false);
    ck_assert_int_eq(cJSON_GetArraySize(member(root, "jobs")), 3);
    ck_assert_str_eq(text(root, "jobs.2.jobname"), "limit_after");
    ck_assert(number(root, "jobs.2.groupid") == 2);
    ck_assert_str_eq(text(root, "jobs_not_run.0.jobname"), "replay");
    ck_assert_str_eq(text(root, "jobs_not_run.1.why"), "too large");
    is_null(root, "device_limit.replay_bw_bytes");
    ck_assert(cJSON_IsFalse(member(root, "device_limit.compute_measured")));
    cJSON_Delete(root);
    bench_sample_free(sample);
}
END_TEST

START_TEST(a_run_without_reads_or_rounds_is_a_document)
{
    struct bench_sample *sample = bench_sample_new(2, 1);
    bench_sample_round(sample, 0, 0)->job[JOB_INFERENCE].all = (struct io_figures){0};
    sample->result.point[1].rounds = 0;
    cJSON *root = document(sample, true);
    is_null(root, "device_limit.run_bw_bytes");
    is_null(root, "jobs.1.x_io.split_factor");
    ck_assert_int_eq(cJSON_GetArraySize(member(root, "points.1.metrics")), 0);
    cJSON_Delete(root);
    sample->result.point[0].rounds = 0;
    root = document(sample, true);
    ck_assert_int_eq(cJSON_GetArraySize(member(root, "jobs")), 0);
    ck_assert_ptr_null(member(root, "inference"));
    cJSON_Delete(root);
    bench_sample_free(sample);
}
END_TEST

static struct measured taken(const struct bench_sample *sample)
{
    struct measured m;
    cJSON *root = document(sample, false);
    ck_assert_int_eq(measured_take(&m, "b.json", root), 0);
    cJSON_Delete(root);
    return m;
}

START_TEST(compare_reads_it)
{
    struct bench_sample *slow = bench_sample_new(2, 3);
    struct bench_sample *fast = bench_sample_new(2, 3);
    struct compare_worst worst;
    for (uint32_t i = 0; i < 3; i++) {
        bench_sample_token_ms(bench_sample_round(fast, 0, i), 50);
        bench_sample_token_ms(bench_sample_round(fast, 1, i), 80);
    }
    bench_sample_reason(fast, true, "read from memory");
    struct measured a = taken(slow);
    struct measured b = taken(fast);
    ck_assert(a.verdict == MEASURED_VALID && b.verdict == MEASURED_INVALID);
    ck_assert_str_eq(b.reason[0], "read from memory");
    ck_assert_uint_eq(a.point_count, 2);
    ck_assert_uint_eq(a.point[1].metric_count, BENCH_METRICS);
    ck_assert_str_eq(measured_value(&a.point[1].settings, "io_depth"), "2");
    ck_assert_uint_eq(strlen(a.point[0].logits_hash), 64);
    ck_assert_int_eq(compare_worst(&a, &b, "tokens_per_second", &worst), 0);
    ck_assert(worst.points == 2 && worst.base_point == 1);
    ck_assert(worst.change.verdict == COMPARE_BETTER && worst.change.percent > 24.9);
    measured_fini(&a);
    measured_fini(&b);
    bench_sample_free(slow);
    bench_sample_free(fast);
}
END_TEST

START_TEST(json_plus_has_bins_and_every_read)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    struct bench_result *r = &sample->result;
    char *path = "a b";
    ck_assert_int_eq(io_log_open(&r->log, 4), 0);
    r->log.record[0] = (struct io_record){.begun_ns = 900, .sent_ns = 1100, .ended_ns = 5000,
                                          .offset_bytes = 8192, .size_bytes = 4096, .res = 4096,
                                          .label = READ_EXPERTS, .device = 1, .repeats = 2};
    r->log.count = 1;
    r->from_ns = 1000;
    r->paths = &path;
    r->file_count = 1;
    cJSON *root = document(sample, true);
    ck_assert_str_eq(text(root, "x_log.reads.0"), "-100,100,4000,0,8192,4096,4096,experts,1,2");
    ck_assert_str_eq(text(root, "x_log.files.0"), "a b");
    double sum = 0;
    for (const cJSON *bin = member(root, "jobs.1.read.clat_ns.bins")->child; bin != NULL;
         bin = bin->next) {
        sum += bin->valuedouble;
    }
    ck_assert(sum == 200);
    cJSON_Delete(root);
    root = document(sample, false);
    ck_assert_ptr_null(member(root, "x_log"));
    cJSON_Delete(root);
    io_log_close(&r->log);
    bench_sample_free(sample);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench_json");
    TCase *test = tcase_create("json");
    tcase_add_test(test, figures_have_fio_s_units);
    tcase_add_test(test, shares_and_tokens_are_there);
    tcase_add_test(test, points_have_a_sample_of_every_round);
    tcase_add_test(test, refused_figures_are_no_numbers);
    tcase_add_test(test, missing_jobs_are_listed_with_reasons);
    tcase_add_test(test, a_run_without_reads_or_rounds_is_a_document);
    tcase_add_test(test, compare_reads_it);
    tcase_add_test(test, json_plus_has_bins_and_every_read);
    suite_add_tcase(suite, test);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
