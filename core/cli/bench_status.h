/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_STATUS_H
#define CLI_BENCH_STATUS_H

/* A line of JSON per interval while a benchmark runs (`--status-interval`), on standard error; each
 * says what happened since the line before, not since the beginning:
 *
 *   {"t_ms":1200,"job":"inference","bw_bytes":3.1e9,"iops":760,"depth":8,
 *    "in_flight_bytes":33554432,"tok":2,"stall_ns":150000000,"hit_rate":0.25,"temp_c":41}
 *
 * bw_bytes and iops are per second, depth and in_flight_bytes of the moment, tok tokens made so far
 * in this job. What a job does not have is null. */

#include "core/cli/environment.h"

struct bench_status_now {
    const char *job;
    uint64_t bytes, requests;     /* since the job began */
    uint32_t depth, tokens;
    uint64_t in_flight_bytes, stall_ns, demands, hits;
    bool engine;                  /* false: only bytes are known */
};

struct bench_status {
    uint64_t interval_ns;         /* 0 = no lines */
    uint64_t begun_ns, last_ns;
    struct bench_status_now last;
    const struct environment *environment;
};

void bench_status_open(struct bench_status *status, uint64_t interval_ns,
                       const struct environment *environment);
/* Prints a line when one is due. Cheap otherwise. */
void bench_status_show(struct bench_status *status, const struct bench_status_now *now);

#endif
