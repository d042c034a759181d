/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

/* What every benchmark does with its numbers: medians, how sure a median is, and JSON. */

#include <cjson/cJSON.h>

#include "core/base/base.h"

#define MEASURE_MAX 32U /* repeats of one figure at most */

struct figure {
    double value[MEASURE_MAX];
    uint32_t count;
};

void figure_add(struct figure *f, double value);
double figure_median(const struct figure *f); /* NaN when empty */
double measure_median(const double *values, uint32_t count); /* count <= MEASURE_MAX */
double figure_least(const struct figure *f);
double figure_most(const struct figure *f);

/* The median's confidence interval from order statistics: the narrowest symmetric pair of ranks
 * that covers it with at least 95 %, or least and most when there are too few values. Returns the
 * coverage in percent. */
double figure_interval(const struct figure *f, double *low, double *high);

/* {"median", "min", "max", "values"} under name. */
void figure_json(cJSON *object, const char *name, const struct figure *f);

/* Says on the terminal, and in root when there is one, that this is the quick form, and what it
 * leaves out. */
void measure_quick(cJSON *root, const char *what);

/* Writes and frees root. Returns false, with a line on stderr, when it cannot. */
bool measure_write(const char *path, cJSON *root);

#endif
