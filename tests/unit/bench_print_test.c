/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cli/bench_metrics.h"
#include "core/cli/fio_text.h"
#include "tests/support/bench_sample.h"
#include "tests/support/suite.h"

static void has(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "no \"%s\" in:\n%s", part, text);
}

static void has_not(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) == NULL, "\"%s\" in:\n%s", part, text);
}

/* Prints, expects parts, and frees the sample. */
static void expect_parts(struct bench_sample *sample, const char *const *parts)
{
    char *text = bench_sample_text(sample, bench_print);
    for (; *parts != NULL; parts++) {
        has(text, *parts);
    }
    free(text);
    bench_sample_free(sample);
}

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

START_TEST(a_report_has_every_part)
{
    expect_parts(bench_sample_new(1, 1), PARTS(
        "engine=uring(defer_taskrun, fixed files,fixed) direct=2/2 depth=1x4MiB (4MiB) "
        "cache=arc:128MiB",
        "model   model  8GiB of weights in 2 files, 12 layers, 64 experts",
        "2 files on ext4 /dev/nvme0n1p2, holes 0B, compressed no",
        "drive nvme0n1 (A Drive, fw 6201, 16.0 GT/s PCIe x4) sched none, max_sectors 128 KiB",
        "decode  20 tok in 2.000 s = 10 tok/s | stall 1.400 s (70%) | compute 0.600 s",
        "/tok | hit 62.5%", "first token 0.700 s",
        "  read: IOPS=100, BW=381MiB/s (400MB/s)(763MiB/2000msec)\n",
        "    slat (nsec): min=10000, max=17363, avg=13681.50", "clat percentiles (",
        "99.90th=[    -]",
        "  class trunk   : ",
        "  class experts : ", "  drive 0       : ", "  drive 1       : ",
        "  expert of 4MiB, need->ready (msec): min=2.00", "layer stall (msec): min=0.10",
        "  IO depths    : 1=25.0%, 2=0.0%, 4=75.0%", "     submit    : 0=0.0%, 4=100.0%",
        "offloaded(iou-wrk)=0, blocked submit >1msec=0", "reading alone 1.007 cpu-s/GiB",
        "retries=0 short=0 errors=0",
        "nvme0n1 ios=800 (977KiB avg) read 763MiB, 100.0% of requested, util=50.0%",
        "  limit before : 1x4MiB 600MB/s, 2x4MiB 800MB/s, 4x4MiB 1000MB/s*\n",
        "DEVICE  limit 995MB/s (before 1000MB/s, after 990MB/s, drift -1.0%)  replay 800MB/s (80%)"
        "  busy 800MB/s (80%)  run 400MB/s (40%)\n",
        "run 40.2% of the limit = 80.4% while busy x busy 50.0% of the time",
        "compute 25.00 msec per token, measured with all weights in memory",
        "trunk 20.00, experts 40.00, compute 10.00\n",
        "VERDICT the drive bounds this run: a token needs 50.0 ms of reading and only 25.0 ms",
        "nothing to do for 50% of the time", "may help.\n",
        "asked for again 67% were still in memory",
        "Now 10 tok/s. If reading and computing hid each other perfectly: 20 tok/s; a drive twice "
        "as fast and nothing else: 14.29 tok/s.",
        "repeat  k3ring bench model --tokens 20\n"));
}
END_TEST

START_TEST(a_processor_that_is_too_slow_is_named)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    bench_sample_round(sample, 0, 0)->compute_s = 0.09;
    expect_parts(sample, PARTS("VERDICT computing bounds this run: a token needs 90.0 ms of it"));
}
END_TEST

START_TEST(small_parts_of_a_model_are_not_blamed_on_io_size)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    sample->result.point[0].facts.io_size_bytes = 64 * MIB;
    expect_parts(sample, PARTS("80% of the drive's limit: their sizes and places cost. They are "
                               "3.81MiB on average"));
}
END_TEST

/* 50 ms of reading: what is within a tenth of it bounds nothing alone. */
START_TEST(a_balance_is_called_one)
{
    static const struct {
        double compute_s;
        const char *part;
    } cases[] = {
        {0.046, "VERDICT reading and computing are even: a token needs 50.0 ms of one and 46.0 ms"},
        {0.054, "VERDICT reading and computing are even: a token needs 50.0 ms of one and 54.0 ms"},
        {0.044, "VERDICT the drive bounds this run"},
        {0.057, "VERDICT computing bounds this run"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct bench_sample *sample = bench_sample_new(1, 1);
        bench_sample_round(sample, 0, 0)->compute_s = cases[i].compute_s;
        expect_parts(sample, PARTS(cases[i].part));
    }
}
END_TEST

START_TEST(an_invalid_run_has_reasons_instead_of_rates)
{
    struct bench_sample *sample = bench_sample_new(2, 2);
    bench_sample_reason(sample, false, "the limit moved by 9%");
    bench_sample_reason(sample, true, "12% of the bytes came from the page cache");
    char *text = bench_sample_text(sample, bench_print);
    has(text, "  read: IOPS=refused, BW=refused: 12% of the bytes came from the page cache "
        "(763MiB");
    has(text, "DEVICE  refused: 12% of the bytes came from the page cache\n");
    has(text, "util refused: 12% of the bytes");
    has(text, "VERDICT invalid");
    has(text, "rates are left out, refused: 12% of");
    has(text, "        - 12% of the bytes came from the page cache\n"
        "note    the limit moved by 9%\n");
    has(text, " = 10 tok/s");
    has_not(text, "MB/s (");
    has_not(text, "MiB/s");
    has_not(text, "% of the limit");
    has_not(text, "util=");
    free(text);
    bench_sample_free(sample);
}
END_TEST

START_TEST(missing_jobs_say_why)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    struct bench_round *round = bench_sample_round(sample, 0, 0);
    bench_sample_skip(round, JOB_COMPUTE, "not all weights fit");
    bench_sample_skip(round, JOB_REPLAY, "it was\nended");
    bench_sample_skip(round, JOB_LIMIT_AFTER, "a signal");
    memset(round->limit[1], 0, sizeof round->limit[1]);
    expect_parts(sample, PARTS(
        "compute 30.00 msec per token, the workers' busy time of this run; not measured without "
        "reads: not all weights fit\n",
        "missing replay was not run: it was ended\n", "missing limit_after was not run: a signal\n",
        "DEVICE  limit 1000MB/s (before 1000MB/s, after none, drift +0.0%)  busy"));
}
END_TEST

START_TEST(a_run_that_reads_nothing_is_one_of_computing)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    struct bench_job *job = &bench_sample_round(sample, 0, 0)->job[JOB_INFERENCE];
    job->all = (struct io_figures){.wall_ns = job->all.wall_ns};
    memset(job->class, 0, sizeof job->class);
    job->requested_bytes = 0;
    job->disk = (struct environment_diskstats){0};
    bench_sample_skip(bench_sample_round(sample, 0, 0), JOB_REPLAY, "nothing was read");
    char *text = bench_sample_text(sample, bench_print);
    has(text, "  read: none while measuring\n");
    has(text, "VERDICT nothing was read while measuring");
    has_not(text, "nan");
    has_not(text, " inf");
    free(text);
    bench_sample_free(sample);
}
END_TEST

START_TEST(nothing_at_all_prints)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    struct bench_round *round = bench_sample_round(sample, 0, 0);
    for (int i = 0; i < BENCH_JOBS; i++) {
        bench_sample_skip(round, (enum bench_job_kind)i, "stopped");
    }
    round->inference = (struct bench_inference){0};
    memset(round->limit, 0, sizeof round->limit);
    char *text = bench_sample_text(sample, bench_print);
    has(text, "VERDICT no token was measured");
    has_not(text, "nan");
    free(text);
    sample->result.point[0].rounds = 0;
    text = bench_sample_text(sample, bench_print);
    has(text, "no round was completed");
    free(text);
    bench_sample_free(sample);
}
END_TEST

/* ms[point][round] */
static struct bench_sample *sweep(const uint32_t ms[3][3])
{
    struct bench_sample *sample = bench_sample_new(3, 3);
    for (uint32_t p = 0; p < 3; p++) {
        for (uint32_t r = 0; r < 3; r++) {
            bench_sample_token_ms(bench_sample_round(sample, p, r), ms[p][r]);
        }
    }
    return sample;
}

START_TEST(the_best_point_is_named_when_it_differs)
{
    const uint32_t ms[3][3] = {{100, 101, 102}, {50, 51, 49}, {80, 79, 81}};
    struct bench_sample *sample = sweep(ms);
    struct bench_choice choice;
    ck_assert(bench_choose(&sample->result, &choice));
    ck_assert(choice.differs && choice.best == 1 && choice.fastest == 1 && choice.next == 2);
    expect_parts(sample, PARTS("best    point 2. Chance alone", "  IO depths", "depth=2x4MiB",
                               "rounds  3: tok/s 20 19.61 20.41; below is round 1",
                               "    2     2x4MiB"));
}
END_TEST

START_TEST(noise_is_no_difference)
{
    const uint32_t ms[3][3] = {{100, 110, 90}, {95, 105, 85}, {101, 99, 111}};
    struct bench_sample *sample = sweep(ms);
    struct bench_choice choice;
    ck_assert(bench_choose(&sample->result, &choice));
    ck_assert(!choice.differs && choice.best == 0 && choice.fastest == 1);
    expect_parts(sample, PARTS("best    no difference: point 2 has the highest median",
                               "depth=1x4MiB"));
}
END_TEST

START_TEST(one_round_tells_no_difference)
{
    struct bench_sample *sample = bench_sample_new(2, 1);
    bench_sample_token_ms(bench_sample_round(sample, 1, 0), 20);
    expect_parts(sample, PARTS("no difference can be told: one round", "one round"));
}
END_TEST

static void amount_is(double value, bool binary, const char *expected)
{
    char text[FIO_AMOUNT_BYTES];
    ck_assert_str_eq(fio_amount(text, value, binary, "B"), expected);
}

START_TEST(amounts_are_short)
{
    amount_is(0, true, "0B");
    amount_is(9999, false, "9999B");
    amount_is(4194304, true, "4096KiB");
    amount_is(465567744, true, "444MiB");
    amount_is(465567744, false, "466MB");
    amount_is(44.44 * 1048576, true, "44.4MiB");
    amount_is(12345, false, "12.3kB");
    amount_is(1e15, false, "1000TB");
}
END_TEST

START_TEST(latencies_fall_into_fio_s_steps)
{
    const uint64_t ns[] = {1, 2, 995, 1010, 1900, 2100, 800000, 1050000, 1500000, 1900000000,
                           2100000000, 30000000000};
    struct histogram h = {0};
    struct fio_latencies l;
    for (size_t i = 0; i < countof(ns); i++) {
        histogram_add(&h, ns[i]);
    }
    fio_latencies(&h, &l);
    ck_assert(l.ns[0] == 1 && l.ns[1] == 1 && l.ns[9] == 1);
    ck_assert(l.us[0] == 2 && l.us[1] == 1 && l.us[9] == 1);
    ck_assert(l.ms[0] == 2 && l.ms[10] == 1 && l.ms[11] == 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench_print");
    TCase *test = tcase_create("print");
    tcase_add_test(test, a_report_has_every_part);
    tcase_add_test(test, a_processor_that_is_too_slow_is_named);
    tcase_add_test(test, small_parts_of_a_model_are_not_blamed_on_io_size);
    tcase_add_test(test, a_balance_is_called_one);
    tcase_add_test(test, an_invalid_run_has_reasons_instead_of_rates);
    tcase_add_test(test, missing_jobs_say_why);
    tcase_add_test(test, a_run_that_reads_nothing_is_one_of_computing);
    tcase_add_test(test, nothing_at_all_prints);
    tcase_add_test(test, the_best_point_is_named_when_it_differs);
    tcase_add_test(test, noise_is_no_difference);
    tcase_add_test(test, one_round_tells_no_difference);
    tcase_add_test(test, amounts_are_short);
    tcase_add_test(test, latencies_fall_into_fio_s_steps);
    suite_add_tcase(suite, test);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
