/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cli/bench_metrics.h"
#include "tests/support/bench_sample.h"
#include "tests/support/suite.h"

static uint32_t count(const char *text, char what)
{
    uint32_t n = 0;
    for (; *text != '\0'; text++) {
        n += *text == what;
    }
    return n;
}

/* The text between separators, as a copy; index counts from 0. */
static const char *field(const char *line, char separator, uint32_t index)
{
    static char copy[512];
    for (; index > 0; index--) {
        line = strchr(line, separator);
        ck_assert_ptr_nonnull(line);
        line++;
    }
    const char ends[] = {separator, '\n', '\0'};
    snprintf(copy, sizeof copy, "%.*s", (int)strcspn(line, ends), line);
    return copy;
}

/* The cell of a named column in a row counted from 1; the sample's texts have no commas. */
static const char *cell(const char *csv, uint32_t row, const char *name)
{
    uint32_t column = 0;
    while (strcmp(field(csv, ',', column), name) != 0) {
        column++;
        ck_assert_msg(column < 80, "no column %s", name);
    }
    for (; row > 0; row--) {
        csv = strchr(csv, '\n') + 1;
    }
    return field(csv, ',', column);
}

START_TEST(csv_has_a_row_for_every_job)
{
    struct bench_sample *sample = bench_sample_new(2, 3);
    bench_sample_skip(bench_sample_round(sample, 0, 0), JOB_REPLAY, "a \"word\"\nof why");
    char *csv = bench_sample_text(sample, bench_csv);
    ck_assert_uint_eq(count(csv, '\n'), 1 + 2 * 3 * BENCH_JOBS);
    uint32_t columns = 1;
    for (const char *c = csv; *c != '\n'; c++) {
        columns += *c == ',';
    }
    ck_assert_uint_eq(count(csv, ','), (columns - 1) * (1 + 2 * 3 * BENCH_JOBS));
    ck_assert_str_eq(cell(csv, 2, "job"), "inference");
    ck_assert_str_eq(cell(csv, 2, "bw_bytes"), "400000000");
    ck_assert_str_eq(cell(csv, 2, "round_tokens_per_second"), "10");
    ck_assert_str_eq(cell(csv, 1, "round_tokens_per_second"), "");
    ck_assert_str_eq(cell(csv, 3, "made"), "0");
    ck_assert_str_eq(cell(csv, 3, "why_not"), "\"a \"\"word\"\" of why\"");
    ck_assert_str_eq(cell(csv, 3, "bw_bytes"), "");
    ck_assert_str_eq(cell(csv, 30, "point"), "2");
    ck_assert_str_eq(cell(csv, 30, "round"), "3");
    ck_assert_str_eq(cell(csv, 30, "io_depth"), "2");
    free(csv);
    bench_sample_free(sample);
}
END_TEST

START_TEST(csv_refuses_rates_but_not_tokens)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    bench_sample_reason(sample, true, "from memory");
    char *csv = bench_sample_text(sample, bench_csv);
    ck_assert_str_eq(cell(csv, 2, "bw_bytes"), "");
    ck_assert_str_eq(cell(csv, 2, "iops"), "");
    ck_assert_str_eq(cell(csv, 2, "refused"), "\"from memory\"");
    ck_assert_str_eq(cell(csv, 2, "round_pct_run"), "");
    ck_assert_str_eq(cell(csv, 2, "round_tokens_per_second"), "10");
    ck_assert_str_eq(cell(csv, 4, "refused"), "");
    free(csv);
    bench_sample_free(sample);
}
END_TEST

START_TEST(terse_is_a_line_for_every_round)
{
    struct bench_sample *sample = bench_sample_new(1, 2);
    char *text = bench_sample_text(sample, bench_terse);
    ck_assert_uint_eq(count(text, '\n'), 2);
    ck_assert_str_eq(field(text, ';', 0), "3");
    ck_assert_str_eq(field(text, ';', 2), "inference:r1");
    ck_assert_str_eq(field(text, ';', 4), "0");
    ck_assert_str_eq(field(text, ';', 5), "781250");
    ck_assert_str_eq(field(text, ';', 6), "390625");
    ck_assert_str_eq(field(text, ';', 7), "100");
    ck_assert_str_eq(field(text, ';', 8), "2000");
    ck_assert_str_eq(field(text, ';', 9), "10");
    free(text);
    bench_sample_reason(sample, true, "from memory");
    text = bench_sample_text(sample, bench_terse);
    ck_assert_str_eq(field(text, ';', 4), "22");
    ck_assert_str_eq(field(text, ';', 6), "0");
    ck_assert_str_eq(field(text, ';', 7), "0");
    free(text);
    bench_sample_free(sample);
}
END_TEST

START_TEST(no_rounds_are_no_lines)
{
    struct bench_sample *sample = bench_sample_new(1, 1);
    sample->result.point[0].rounds = 0;
    char *text = bench_sample_text(sample, bench_terse);
    ck_assert_str_eq(text, "");
    free(text);
    text = bench_sample_text(sample, bench_csv);
    ck_assert_uint_eq(count(text, '\n'), 1);
    free(text);
    bench_sample_free(sample);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench_lines");
    TCase *test = tcase_create("lines");
    tcase_add_test(test, csv_has_a_row_for_every_job);
    tcase_add_test(test, csv_refuses_rates_but_not_tokens);
    tcase_add_test(test, terse_is_a_line_for_every_round);
    tcase_add_test(test, no_rounds_are_no_lines);
    suite_add_tcase(suite, test);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
