/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IO_FIGURES_H
#define IO_FIGURES_H

/* What a log of reads says about a stretch of time: pure. Latencies, depths and batches are
 * counted as fio counts them, so that they compare one to one.
 *
 *   bytes / wall  =  (bytes / busy)  x  (busy / wall)
 *
 * A read belongs to the stretch in which it ended. Time busy and bytes in flight are those of all
 * reads under way within the stretch, whenever they began or ended. */

#include "core/base/histogram.h"
#include "io/log.h"

#define IO_LEVELS 7  /* fio's: see below */
#define IO_ANY UINT32_MAX
#define IO_SAMPLE_NS 500000000ULL /* as fio's bwavgtime and iopsavgtime have it */
#define IO_BLOCKED_NS 1000000ULL /* a hand-over that took longer was held up */

/* Which reads. */
struct io_slice {
    uint64_t from_ns, to_ns; /* half open */
    uint32_t label, device;  /* or IO_ANY */
};

/* Rates of whole half seconds, one after the other from the beginning of the stretch. */
struct io_samples {
    uint64_t count;
    double least, most, sum, squares; /* per second */
};

struct io_figures {
    uint64_t wall_ns;
    uint64_t requests, bytes;     /* of reads that ended well */
    uint64_t errors, repeats, shorts; /* repeats: shorts too */
    struct histogram slat, clat, lat; /* hand-over, the rest, and both; nanoseconds */
    uint64_t busy_ns;             /* with at least one read in flight */
    double flight_bytes_mean;     /* over the busy time */
    uint64_t flight_bytes_max;
    uint64_t flight_ns[IO_LEVELS]; /* busy time with at least 0, 1, 2, 4, .. 32 MiB in flight and
                                      less than the next */
    uint64_t depth[IO_LEVELS];    /* reads begun with 1, 2, 4, .. 32, >= 64 in flight, itself too */
    uint64_t submit[IO_LEVELS];   /* hand-overs of 0, 1-4, 5-8, .. 33-64, > 64 reads */
    uint64_t complete[IO_LEVELS]; /* and rounds in which so many ended */
    uint64_t blocked, blocked_ns; /* hand-overs longer than IO_BLOCKED_NS */
    struct io_samples rate, iops; /* bytes, and reads that ended well */
};

/* ERR_MEMORY. */
int io_figures(const struct io_log *log, const struct io_slice *slice, struct io_figures *out);

/* Adds the figures of another stretch: the time between the two belongs to neither. */
void io_figures_merge(struct io_figures *into, const struct io_figures *from);

double io_samples_mean(const struct io_samples *s);      /* 0 of none */
double io_samples_deviation(const struct io_samples *s); /* of the sample; 0 of fewer than two */

/* The level of fio's maps that a depth, or a batch of so many, belongs to. */
uint32_t io_depth_level(uint64_t depth);
uint32_t io_batch_level(uint64_t count);

#endif
