/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_JSON_PRIV_H
#define CLI_BENCH_JSON_PRIV_H

/* Between the parts of a benchmark's JSON (docs/BENCH-JSON.md):
 *
 *   bench_json.c          the document: versions, model, verdict
 *   bench_json_job.c      jobs and drives as fio has them
 *   bench_json_points.c   settings and their figures, tokens, percent of the limit
 *   bench_json_log.c      every read of the last round */

#include "core/cli/bench_places.h"

void bench_json_number(cJSON *object, const char *name, uint64_t value);
/* null when NAN. */
void bench_json_figure(cJSON *object, const char *name, double value);
/* Adds a histogram, with its bins for json+; without values it has no percentiles, as in fio. */
void bench_json_latency(cJSON *object, const char *name, const struct histogram *h, bool plus);

/* Adds a job to jobs[]. */
void bench_json_job(cJSON *jobs, const struct bench_place *place, bool plus);
void bench_json_disk_util(cJSON *root, const struct bench_result *result);

void bench_json_points(cJSON *root, const struct bench_result *result, bool plus);
/* Of one round: objects "inference" and "device_limit". */
void bench_json_round(cJSON *object, const struct bench_result *result, uint32_t point,
                      const struct bench_round *round, bool plus);

void bench_json_log(cJSON *root, const struct bench_result *result);

#endif
