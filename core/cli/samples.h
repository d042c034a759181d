/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SAMPLES_H
#define CLI_SAMPLES_H

/* A figure that was measured several times: its middle, its spread, and whether two of them differ
 * by more than they scatter. Pure; order of values is of no meaning. */

#include "core/base/base.h"

struct samples {
    const double *value;
    uint32_t count;
};

/* All NAN without values. */
double samples_median(const struct samples *s);
double samples_least(const struct samples *s);
double samples_most(const struct samples *s);
/* Index of the value in the middle (the lower one of two); 0 without values. */
uint32_t samples_middle(const struct samples *s);

/* How likely chance alone makes them differ as much or more, 0..1: Welch's test, of logarithms when
 * all values are positive, as compare_metric() does. 1 when one of them has fewer than two values:
 * then nothing is known of the noise. */
double samples_chance(const struct samples *a, const struct samples *b);

/* Below this chance a difference is called one; shared by as many as are compared at once. */
#define SAMPLES_CHANCE 0.05

#endif
