/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_PICTURES_H
#define CLI_BENCH_PICTURES_H

/* What a benchmark measured, as pictures in a folder (picture.h) and as a timeline for a browser:
 *
 *   bandwidth     bytes per second and reads in flight over the measured time, waits marked
 *   latency       how many reads took how long, by class
 *   percentiles   the same as curves
 *   timeline      one token: reads, tasks and waits of every worker; also timeline.json, in the
 *                 trace event format that Perfetto and Chrome open
 *   ladder        seconds per token against RAM, when several were measured
 *   sweep         tokens per second of every point, when there are several
 *
 * Those that have nothing to show are left out. */

#include "core/cli/bench.h"

/* Names of the pictures in the order of pages, NULL at the end. */
extern const char *const bench_picture_names[];

/* ERR_OUTPUT, ERR_MEMORY. Without gnuplot data and scripts are written all the same. */
int bench_pictures(const struct bench_result *result, const char *dir);

/* The timeline of the last measured token as trace events. */
int bench_timeline(const struct bench_result *result, FILE *out);

#endif
