/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_METRICS_H
#define CLI_BENCH_METRICS_H

/* The figures of a benchmark by name, one value for every round: what tables, CSV, and comparisons
 * of points and of reports are made of. docs/BENCH-JSON.md explains each. */

#include "core/cli/bench.h"
#include "core/cli/samples.h"

enum bench_metric_id {
    METRIC_TOKENS, METRIC_TOKEN_S, METRIC_RUN, METRIC_BUSY, METRIC_REPLAY, METRIC_LIMIT,
    METRIC_OF_RUN, METRIC_OF_BUSY, METRIC_STALL, METRIC_COMPUTE, METRIC_BYTES, METRIC_HITS,
    METRIC_READY_50, METRIC_READY_99, METRIC_CLAT_50, METRIC_CLAT_99, METRIC_CLAT_999, METRIC_CPU,
    METRIC_FIRST, BENCH_METRICS
};

struct bench_metric {
    const char *name, *unit;
    const char *better;       /* "higher", "lower", "neither" */
    bool of_drive;            /* refused when the verdict is invalid */
};

extern const struct bench_metric bench_metrics[BENCH_METRICS];

/* NAN when it was not measured, or is none of a drive. */
double bench_metric(const struct bench_result *result, const struct bench_round *round,
                    enum bench_metric_id id);

/* Values of the complete rounds in which it was measured, in their order; values has room for
 * all rounds of the point. */
struct samples bench_samples(const struct bench_result *result, uint32_t point,
                             enum bench_metric_id id, double *values);

/* Why no figure is one of a drive; NULL when they are. */
const char *bench_refusal(const struct bench_result *result);

/* Bytes or reads of a stretch in a second; 0 when it took no time. */
double bench_per_second(const struct io_figures *f, uint64_t count);
/* fio's percent of an aggregate of one job: its mean sample against its whole rate, at most 100. */
double bench_aggregate(const struct io_figures *f);

/* What processor time and counters of drives of a job are shares of. */
double bench_job_wall_s(const struct bench_job *job);
/* Percent of that; 0 when it took no time. */
double bench_job_share(const struct bench_job *job, double seconds);

/* Which point makes most tokens in a second, by median. */
struct bench_choice {
    uint32_t fastest;
    uint32_t next;            /* the one that is hardest to tell from it */
    bool differs;             /* from each of the others, beyond the noise */
    uint32_t best;            /* the fastest one if it differs, else the first one measured */
    double chance;            /* that noise alone makes fastest and next differ so */
    double threshold;         /* what the chance had to be below */
};

/* A point is best when its tokens per second differ from those of every other point with a chance
 * below SAMPLES_CHANCE, shared among as many comparisons as are made. False when fewer than two
 * points have rounds, or memory is refused. */
bool bench_choose(const struct bench_result *result, struct bench_choice *out);

/* The round in the middle by tokens per second; NULL without rounds. */
const struct bench_round *bench_middle_round(const struct bench_result *result, uint32_t point);

#endif
