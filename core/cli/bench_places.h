/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_PLACES_H
#define CLI_BENCH_PLACES_H

/* The jobs of all points and rounds, one after the other, for reports that list them. */

#include "core/cli/bench_metrics.h"

struct bench_place {
    const struct bench_result *result;
    uint32_t point, round;    /* from 0 */
    enum bench_job_kind kind;
    uint32_t group;           /* jobs that were run before it */
};

/* False when there is none left; begin with all zero. Also jobs that were not made. */
bool bench_place_next(const struct bench_result *result, struct bench_place *place);

const struct bench_round *bench_place_round(const struct bench_place *place);
const struct bench_job *bench_place_job(const struct bench_place *place);

/* "inference"; with several points also ":p2", with several rounds ":r1". */
#define BENCH_PLACE_NAME_BYTES 48
void bench_place_name(const struct bench_place *place, char name[BENCH_PLACE_NAME_BYTES]);

/* What its reads were at most, and how many of them were to be in flight. */
void bench_place_window(const struct bench_place *place, uint64_t *chunk_bytes, uint32_t *depth);

/* What all jobs together made of a drive; returns how long they took, in seconds. */
double bench_sum_device(const struct bench_result *result, uint32_t device,
                        struct environment_counts *sum);

#endif
