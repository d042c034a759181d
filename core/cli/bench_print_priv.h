/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_PRINT_PRIV_H
#define CLI_BENCH_PRINT_PRIV_H

/* Between the parts of the report for people:
 *
 *   bench_normal.c         the order of things; model, drives, tokens
 *   bench_normal_points.c  the table of several points
 *   bench_normal_reads.c   a job's reads as fio shows them
 *   bench_normal_drive.c   what the drive gave, against what it can give
 *   bench_normal_words.c   what that means */

#include "core/cli/bench_metrics.h"
#include "core/cli/fio_text.h"

/* One round of a point, on its way to paper. */
struct bench_page {
    FILE *out;
    const struct bench_result *result;
    const struct bench_point_result *point;
    const struct bench_round *round;
    struct bench_shares shares;
    const char *refused;      /* reason why no rate is one of a drive, or NULL */
};

/* Names of others, fit for a terminal. */
void bench_put(FILE *out, const char *text);
/* "373MiB/s (391MB/s)", or "refused". */
void bench_put_rate(const struct bench_page *page, double bytes_per_s);

/* Not above the most there was, which the middle of a bucket can be. */
double bench_percentile(const struct histogram *h, double percent);
/* The same in units of so many nanoseconds, or "-" when there are too few values to tell. */
const char *bench_percentile_text(char text[32], const struct histogram *h, double percent,
                                  double unit, int decimals);

void bench_page_points(const struct bench_page *page);
void bench_page_reads(const struct bench_page *page);
void bench_page_drive(const struct bench_page *page);
void bench_page_words(const struct bench_page *page);

#endif
