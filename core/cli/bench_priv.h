/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_PRIV_H
#define CLI_BENCH_PRIV_H

/* Between the jobs of a benchmark. */

#include "core/cli/bench.h"
#include "core/cli/bench_status.h"
#include "core/cli/progress.h"

#define BENCH_COMPUTE_TOKENS 4U   /* made by the compute job */

/* A round under way. Peers of one thread, but for the engine's own. */
struct bench_stage {
    const struct bench_request *request;
    struct bench_result *result;
    struct bench_point_result *to;
    struct bench_round *round;
    const struct io_files *files; /* the model's, open for the whole benchmark */
    struct engine_options options; /* of the point */
    struct progress progress;
    struct bench_status *status;  /* of the whole benchmark */
    enum bench_job_kind kind;     /* of the job under way */
    /* from the plan, then from the engine */
    uint64_t pass_requests;       /* most reads of a pass of one token */
    struct environment_diskstats disk_before; /* of the job under way */
    struct bench_usage usage_before;
    uint64_t job_begun_ns;
};

/* A job's bookkeeping: everything the process and the drives do between the two belongs to it. */
void bench_job_begin(struct bench_stage *stage, enum bench_job_kind kind);
/* requested_bytes: what was asked of the drives meanwhile. */
void bench_job_end(struct bench_stage *stage, enum bench_job_kind kind, uint64_t requested_bytes);
/* Figures of the reads of a log that ended in a stretch. classes: also by label and by device. */
int bench_job_figures(struct bench_stage *stage, enum bench_job_kind kind,
                      const struct io_log *log, uint64_t from_ns, uint64_t to_ns, bool classes);
/* Says why a job is not made. */
void bench_job_skip(struct bench_stage *stage, enum bench_job_kind kind, const char *why);

/* Random reads over the files; kind says before or after. */
int bench_limit(struct bench_stage *stage, enum bench_job_kind kind);
/* The measured reads of the inference job again. */
int bench_replay(struct bench_stage *stage);

/* Whether the plan holds what is written down as well. ERR_FIT. */
int bench_records_fit(struct bench_stage *stage);
int bench_inference(struct bench_stage *stage);
int bench_compute(struct bench_stage *stage);

/* Bytes the results of a round take. */
uint64_t bench_round_bytes(uint32_t devices);

#endif
