/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_STATISTICS_H
#define CLI_STATISTICS_H

/* Figures of few repeats. Pure functions over finite numbers. */

#include "core/base/base.h"

/* The middle one, or the mean of the two in the middle. count > 0; value is sorted in place. */
double statistics_median(double *value, uint32_t count);

/* Of a sample, one value after the other. Begin with a zeroed one. */
struct moments {
    double mean;
    double squares; /* of the distances from the mean */
    uint32_t count;
};

void moments_add(struct moments *m, double value);

/* Divided by count - 1; 0 for fewer than two values. */
double moments_variance(const struct moments *m);

/* What Student's t with freedom > 0 degrees of freedom (any real number) exceeds in absolute value
 * with the probability 1 - level: the half width of a two-sided interval in standard errors.
 * 0 < level < 1. Right to about nine digits. */
double statistics_t(double level, double freedom);

/* A difference of two means. */
struct interval {
    double middle, low, high;
};

/* b - a with its interval at level by Welch's method: variances may differ. Both counts > 1. */
struct interval statistics_welch(struct moments a, struct moments b, double level);

/* How likely chance alone sets the means as far apart as they are, or further: the level at which
 * statistics_welch() just holds no difference is 1 - this. Both counts > 1. */
double statistics_chance(struct moments a, struct moments b);

/* A mean with its interval by Student's t. count > 1. */
struct interval statistics_student(struct moments a, double level);

#endif
