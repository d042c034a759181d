/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_COMPARE_H
#define CLI_COMPARE_H

/* What changed between measurements of one thing, and whether repeats bear it out
 * (docs/COMPARE.md). The figures are pure functions; the rest works on files of measurements. */

#include <cjson/cJSON.h>
#include <stdio.h>

#include "core/cli/measured.h"

#define COMPARE_FILES_MAX 8U
#define COMPARE_LEVEL 0.95
#define COMPARE_REPEATS_MIN 2U /* in each file, for a verdict */

enum compare_verdict {
    COMPARE_SAME,    /* the interval holds no change */
    COMPARE_BETTER,
    COMPARE_WORSE,
    COMPARE_DIFFERS, /* and neither way is better */
    COMPARE_FEW,     /* too few repeats for a verdict */
    COMPARE_ABSENT   /* one of them is NULL, or their units differ */
};

/* Of other against base, in percent of base. */
struct compare_change {
    enum compare_verdict verdict;
    bool has_percent;   /* percent means something: the base is not 0 */
    bool has_interval;
    double percent;     /* of means, geometric ones where all repeats are positive */
    double low, high;   /* its 95 % interval; low <= percent <= high */
};

/* Welch's t at 95 %: on logarithms when all repeats are positive, so that the change is a ratio,
 * otherwise on the values. Repeats that are all alike have an interval without width. */
struct compare_change compare_metric(const struct measured_metric *base,
                                     const struct measured_metric *other);

/* The change of one metric over all matching points, the worst first: how much worse (> 0) the
 * other is in percent of the base, where `lower` metrics get worse by growing. */
struct compare_worst {
    struct compare_change change; /* of the worst point, as compare_metric gives it */
    double worse_percent;         /* its percent towards worse; negative: even that is better */
    double worse_low, worse_high; /* its interval, or both worse_percent when there is none */
    uint32_t base_point, other_point;
    uint32_t points;              /* compared; 0: none matched or none has the metric */
};

/* ERR_USAGE when no matching point of both has the metric, or its `better` is neither. */
int compare_worst(const struct measured *base, const struct measured *other, const char *metric,
                  struct compare_worst *out);

/* other's point that belongs to each of base's, or MEASURED_NONE. match is base->point_count long.
 * By place when each has one point, otherwise by equal values of all settings that vary in either
 * file. Returns how many of base's have one, or ERR_MEMORY. */
int compare_match(const struct measured *base, const struct measured *other, uint32_t *match);

/* "faster", "worse", ..: for times and rates in their own words. */
const char *compare_verdict_name(enum compare_verdict verdict, const char *unit);

/* All files against the first. ERR_MEMORY. */
int compare_print(FILE *out, const struct measured *file, uint32_t count);
/* NULL when memory is refused. Free with cJSON_Delete. */
cJSON *compare_json(const struct measured *file, uint32_t count);

#endif
