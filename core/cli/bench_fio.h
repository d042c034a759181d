/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_FIO_H
#define CLI_BENCH_FIO_H

/* The measured reads of a benchmark for fio, so that its figures can be had from a program one
 * knows: PREFIX.iolog (version 3), and jobs that play it back, play it back in time, and measure
 * the drive's limit. To be run with `fio --readonly`. docs/BENCHMARKING.md says how they compare.
 *
 * fio cuts paths at white space and lists of files at colons; files whose paths hold any of these
 * get a link under PREFIX.files. */

#include "core/cli/bench.h"

/* Of a benchmark whose rounds are complete. ERR_OUTPUT, also when no token read anything;
 * ERR_MEMORY. */
int bench_fio_export(const struct bench_result *result, const char *prefix);

#endif
