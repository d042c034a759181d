/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

/* Counts of times in nanoseconds, with the bucket boundaries of fio's latency histograms, so that
 * bins and percentiles compare one to one: values below 128 exactly, above that 64 buckets per
 * power of two (an error of at most 1 in 128). About 18 KiB each; no allocation, not atomic. */

#include "core/base/base.h"

#define HISTOGRAM_BUCKETS 2304U /* 64 for each of 36 powers of two: to 36 minutes; fio has 29 */

struct histogram {
    uint64_t bucket[HISTOGRAM_BUCKETS];
    uint64_t count, least, most;  /* least and most are 0 when count is */
    double mean, squares;         /* squares: sum of squared distances from the mean */
};

void histogram_add(struct histogram *h, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);

/* The bucket of a value; values past the last bucket's beginning share it. */
uint32_t histogram_bucket(uint64_t value);
/* What stands for a bucket: the middle of it, as fio prints it. */
uint64_t histogram_value(uint32_t bucket);

/* The value of the first bucket that `percent` (0..100] of all values have been counted by, but
 * none that lies beyond the least or the most of them; 0 when there are none. */
uint64_t histogram_percentile(const struct histogram *h, double percent);
/* Whether it has values enough for that percentile to be other than its largest: 1000 for 99.9. */
bool histogram_tells(const struct histogram *h, double percent);

/* Standard deviation of a sample; 0 with fewer than two values. */
double histogram_deviation(const struct histogram *h);

/* The percentiles that fio reports unless told otherwise, ascending. */
#define HISTOGRAM_PERCENTILES 17
extern const double histogram_percentiles[HISTOGRAM_PERCENTILES];

#endif
