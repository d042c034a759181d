/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_BENCH_SAMPLE_H
#define TESTS_SUPPORT_BENCH_SAMPLE_H

/* Results of a benchmark that never ran, for tests of its reports: a drive of 1 GB/s, two files on
 * two drives, tokens of 100 ms that read 40 MB each. */

#include "core/cli/bench.h"

#define BENCH_SAMPLE_TOKENS 20U

struct bench_sample {
    struct bench_request request;
    struct bench_result result;
    uint32_t ids[4];
};

/* points differ in io_depth: 1, 2, 4, .. All rounds alike. Ends the test without memory. */
struct bench_sample *bench_sample_new(uint32_t points, uint32_t rounds);
void bench_sample_free(struct bench_sample *sample);

struct bench_round *bench_sample_round(struct bench_sample *sample, uint32_t point,
                                       uint32_t round);

/* Tokens that take so long, with the same reads. */
void bench_sample_token_ms(struct bench_round *round, uint32_t ms);

/* A job that was not made, for a reason. */
void bench_sample_skip(struct bench_round *round, enum bench_job_kind kind, const char *why);

/* Adds a reason; invalid ones stand before warnings. */
void bench_sample_reason(struct bench_sample *sample, bool invalid, const char *text);

/* What a report prints, to be freed. */
char *bench_sample_text(const struct bench_sample *sample,
                        void (*report)(FILE *out, const struct bench_result *result));

#endif
