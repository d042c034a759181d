/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_FIO_TEXT_H
#define CLI_FIO_TEXT_H

/* Figures of reads spelled as fio spells them, so that storage people find their way and their
 * tools work. Pure but for the printing. */

#include <stdio.h>

#include "io/figures.h"

#define FIO_AMOUNT_BYTES 32

/* About four digits and a prefix: 466MB/s, 44.4GiB, 7111. binary: steps of 1024, "Ki". */
const char *fio_amount(char text[FIO_AMOUNT_BYTES], double value, bool binary, const char *unit);

/* A size as people write it: 4MiB, 1.5GiB, 512B. */
const char *fio_size(char text[FIO_AMOUNT_BYTES], uint64_t bytes);

/* Percent of a total; a part that is not nothing is shown as 0.1 at least. */
double fio_share(uint64_t part, uint64_t total);

/* Reads by latency; the steps of a unit end at 2, 4, 10, 20, 50, 100, 250, 500, 750, 1000 of it, of
 * milliseconds also at 2000, and "more". Good to the width of a histogram's bucket. */
#define FIO_STEPS 10
#define FIO_STEPS_MS 12
extern const char *const fio_step_names[FIO_STEPS_MS];
extern const char *const fio_depth_names[IO_LEVELS];
extern const char *const fio_batch_names[IO_LEVELS];

struct fio_latencies {
    uint64_t ns[FIO_STEPS], us[FIO_STEPS], ms[FIO_STEPS_MS];
};
void fio_latencies(const struct histogram *h, struct fio_latencies *out);

/* nsec, usec or msec, whichever keeps the figures short; returns nanoseconds in it. */
double fio_unit(const struct histogram *h, const char **name);

/* Lines of a job's report. label is 4 characters wide: "clat". */
void fio_print_latency(FILE *out, const char *label, const struct histogram *h);
void fio_print_percentiles(FILE *out, const char *label, const struct histogram *h);
void fio_print_latencies(FILE *out, const struct histogram *h);
void fio_print_levels(FILE *out, const char *label, const char *const names[IO_LEVELS],
                      const uint64_t levels[IO_LEVELS]);

#endif
