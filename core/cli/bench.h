/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

/* `k3ring bench`: what was asked for, and what was measured. A benchmark is one or more points (a
 * combination of settings), each measured in rounds; a round is five jobs on the same files, one
 * after the other, every read of which is written down:
 *
 *   limit_before   random reads, queue full, several bytes in flight; the best is kept
 *   inference      the model runs: reads gate kernels
 *   replay         the very reads of the measured tokens, in their order, without compute
 *   compute        the same tokens with all weights in memory, where they fit
 *   limit_after    as before
 *
 *   percent of limit     run / limit  =  busy / limit  x  share of time the drive was busy
 *
 * Forms of the report: bench_normal.c, bench_json.c, bench_lines.c (terse and CSV). */

#include <stdio.h>

#include "core/cli/engine_options.h"
#include "core/cli/environment.h"
#include "core/cli/tuning.h"
#include "core/exec/generate.h"
#include "core/exec/reader.h"
#include "io/figures.h"

#define BENCH_POINTS_MAX 64U
#define BENCH_LIMITS 5            /* bytes in flight of a limit: 4, 8, 16, 32, 64 MiB */
#define BENCH_REASONS_MAX 24U
#define BENCH_REASON_BYTES 320U
#define BENCH_SHORT 0.90          /* a share below this is worth a word */

enum bench_job_kind { JOB_LIMIT_BEFORE, JOB_INFERENCE, JOB_REPLAY, JOB_COMPUTE, JOB_LIMIT_AFTER,
                      BENCH_JOBS };
extern const char *const bench_job_names[BENCH_JOBS];

/* One combination of what may vary. */
struct bench_point {
    uint32_t io_depth;
    uint64_t io_size_bytes;
    const char *policy;
    uint64_t ram_bytes;           /* or ENGINE_RAM_AUTO */
};

struct bench_request {
    const char *dir;              /* the model, as typed */
    const char *command;          /* the line that repeats this benchmark */
    struct engine_options engine; /* what all points share */
    const uint32_t *ids;          /* prompt */
    uint32_t id_count;
    uint32_t tokens;              /* measured, at most */
    uint64_t runtime_ns;          /* ends the measuring earlier; 0 = by tokens alone */
    uint32_t warmup;              /* tokens made before measuring begins, the first one included */
    uint32_t rounds;
    uint64_t limit_ns;            /* of one limit job */
    struct bench_point point[BENCH_POINTS_MAX];
    uint32_t point_count;
    uint64_t seed;                /* of the places a limit reads */
    uint64_t status_ns;           /* a line of status so often; 0 = none */
    const char *trace;            /* where the routing of the first round is recorded, or NULL */
    bool quiet;
};

/* Processor time and the like of the whole process. */
struct bench_usage {
    double user_s, system_s;
    uint64_t voluntary, involuntary; /* context switches */
    uint64_t minor_faults, major_faults;
};

/* A job that was run. Figures cover its measured stretch. */
struct bench_job {
    bool made;
    char why_not[BENCH_REASON_BYTES]; /* when not */
    uint64_t begun_s, begun_ms;   /* wall clock, since 1970 */
    struct io_figures all;
    struct io_figures class[READ_CLASSES];       /* no reads: all zero */
    struct io_figures *device;    /* [devices of the facts] alike, by number of the files' drive */
    uint64_t took_ns;             /* the whole job, as usage, disk and requested_bytes are of it */
    struct bench_usage usage;
    /* Of the whole job, reads before and after the measured stretch included: */
    uint64_t requested_bytes;
    bool disk_known;
    struct environment_diskstats disk;
    uint32_t offloaded;           /* threads the kernel started to read for us */
    double temperature_c[2];      /* at its begin and end, NAN when unknown */
    uint32_t too_hot;             /* 1 + the device that was so at its end; 0 none */
};

/* Reads of one size with so many in flight. */
struct bench_limit {
    uint32_t depth;
    uint64_t chunk_bytes;
    double rate;                  /* bytes per second; 0 = not tried */
};

struct bench_inference {
    uint32_t tokens;              /* measured */
    uint64_t wall_ns;
    uint64_t first_ns;            /* prompt and first token, of the warm-up or not */
    struct histogram token;       /* time of each measured token, ns */
    struct histogram stall;       /* of it waited, mean over workers, ns */
    uint64_t stall_ns[STALL_CAUSES], busy_ns; /* while measuring */
    uint64_t demands, hits;       /* experts asked for while measuring */
    uint64_t repeats, repeat_hits; /* of them by somebody before in this run */
    struct histogram ready;       /* from an expert's need to its arrival, misses, ns */
    struct histogram layer_stall; /* one wait of a worker, ns */
    unsigned char hash[LOGITS_HASH_BYTES]; /* of all generated steps, warm-up included */
    uint64_t peak_bytes;          /* VmHWM of the process */
    uint64_t missed;              /* reads that found the log full */
};

struct bench_round {
    struct bench_job job[BENCH_JOBS];
    struct bench_limit limit[2][BENCH_LIMITS];   /* before, after */
    uint32_t limit_best[2];
    struct bench_inference inference;
    double compute_s;             /* per token with all in memory; 0 = not run */
};

/* What a round's jobs say together; rates in bytes per second. */
struct bench_shares {
    double limit, limit_before, limit_after; /* limit: mean of the two */
    double drift;                 /* (after - before) / limit */
    double run, busy, replay;     /* bytes/wall, bytes/time busy; replay without compute */
    double of_run, of_busy, of_replay; /* of limit */
    double disk_busy;             /* time busy / wall: of_run = of_busy x disk_busy */
    double compute_s, io_s;       /* per token: kernels, and the reads at the replay's rate */
    bool compute_measured;        /* else the workers' busy time of the run */
    double overlap_tokens_s;      /* tokens per second if the longer of the two hid the other */
    double faster_tokens_s;       /* if only the drive were twice as fast */
};
void bench_shares(const struct bench_round *round, struct bench_shares *out);

/* Facts of an engine and a plan, as in force at a point. */
struct bench_facts {
    char isa[16], io_engine[16], io_features[128], policy[16];
    bool fixed_buffers;
    uint32_t threads, workers, devices, files, direct_files, io_depth, working_slots, cache_slots,
        alignment;
    uint64_t io_size_bytes, tile_bytes, ram_bytes, slab_mapped_bytes, slab_resident_bytes,
        slab_huge_bytes, pinned_bytes, plan_bytes;
};

struct bench_point_result {
    struct bench_point point;
    struct bench_facts facts;
    struct bench_round *round;    /* [rounds] */
    uint32_t rounds;              /* complete ones */
};

/* A figure that must not be taken as one of a drive has a reason here. */
struct bench_verdict {
    bool valid;
    char reason[BENCH_REASONS_MAX][BENCH_REASON_BYTES]; /* invalid ones first */
    uint32_t invalid, count;      /* the rest are warnings */
};

struct bench_result {
    const struct bench_request *request;
    struct environment environment;
    struct bench_point_result *point; /* [point_count of the request] */
    struct bench_verdict verdict;
    bool interrupted;             /* by a signal: what is here was measured before it */
    char failure[ERR_MESSAGE_BYTES]; /* what ended the measuring, or "" */
    struct tuning tuning;
    char file_path[256];          /* the first file, for those who look */
    uint64_t model_bytes, pass_bytes; /* of weights; read by a token when nothing stays */
    uint32_t layers, experts;     /* of the model */
    uint64_t expert_bytes;        /* most an expert's windows take, 0 = no experts */
    bool synthetic;
    /* Of the last round that was begun, for exports and pictures; empty when none was. */
    uint32_t logged;              /* its point: points are visited back and forth */
    struct io_log log;
    struct journal journal;
    uint64_t from_ns, to_ns;      /* its measured stretch */
    char **paths;                 /* [files] of log.record[].file */
    uint32_t file_count;
    uint32_t *span_layer;         /* [steps] layer of a journal_span's step */
    uint32_t span_steps;
};

/* Measures everything asked for. Undone by bench_fini, also after a failure. */
int bench_run(const struct bench_request *request, struct bench_result *out);
void bench_fini(struct bench_result *result);

/* ---- pieces, used by bench_run ---- */

/* What speaks against the figures; also those of environment_gates(). */
void bench_judge(struct bench_result *result);

/* ---- reports ---- */

void bench_print(FILE *out, const struct bench_result *result);
/* plus: histogram bins and logs too. NULL when memory is refused. */
cJSON *bench_json(const struct bench_result *result, bool plus);
/* fio's terse version 3, one line per point and round's inference job. */
void bench_terse(FILE *out, const struct bench_result *result);
void bench_csv(FILE *out, const struct bench_result *result);

#endif
