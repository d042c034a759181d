/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/compare_priv.h"
#include "core/cli/statistics.h"

static int no_memory(void)
{
    return err_set(ERR_MEMORY, "no memory for a comparison");
}

/* ---- one metric ---- */

static bool all_positive(const struct measured_metric *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        if (!(m->sample[i] > 0)) {
            return false;
        }
    }
    return true;
}

static struct moments moments_of(const struct measured_metric *m, bool logs)
{
    struct moments sum = {.count = 0};
    for (uint32_t i = 0; i < m->count; i++) {
        moments_add(&sum, logs ? log(m->sample[i]) : m->sample[i]);
    }
    return sum;
}

/* Of a difference, in percent: by a ratio of exp(difference), or by the base's mean. */
static double to_percent(double difference, bool logs, double base)
{
    return logs ? 100 * expm1(difference) : 100 * difference / fabs(base);
}

static enum compare_verdict judge(struct interval difference, enum measured_better better)
{
    if (difference.low <= 0 && difference.high >= 0) {
        return COMPARE_SAME;
    }
    if (better == MEASURED_NEITHER) {
        return COMPARE_DIFFERS;
    }
    return (difference.low > 0) == (better == MEASURED_HIGHER) ? COMPARE_BETTER : COMPARE_WORSE;
}

struct compare_change compare_metric(const struct measured_metric *base,
                                     const struct measured_metric *other)
{
    struct compare_change change = {.verdict = COMPARE_ABSENT};
    if (base == NULL || other == NULL || strcmp(base->unit, other->unit) != 0) {
        return change;
    }
    bool logs = all_positive(base) && all_positive(other);
    struct moments a = moments_of(base, logs);
    struct moments b = moments_of(other, logs);
    struct interval difference = {.middle = b.mean - a.mean};
    change.verdict = COMPARE_FEW;
    if (a.count >= COMPARE_REPEATS_MIN && b.count >= COMPARE_REPEATS_MIN) {
        difference = statistics_welch(a, b, COMPARE_LEVEL);
        change.verdict = judge(difference, base->better);
    }
    change.has_percent = logs || a.mean != 0;
    if (change.has_percent) {
        change.percent = to_percent(difference.middle, logs, a.mean);
        change.has_interval = change.verdict != COMPARE_FEW;
    }
    if (change.has_interval) {
        change.low = to_percent(difference.low, logs, a.mean);
        change.high = to_percent(difference.high, logs, a.mean);
    }
    return change;
}

int compare_figure(const struct measured_metric *metric, struct compare_figure *out)
{
    double *value = malloc(metric->count * sizeof *value);
    if (value == NULL) {
        return no_memory();
    }
    memcpy(value, metric->sample, metric->count * sizeof *value);
    *out = (struct compare_figure){.median = statistics_median(value, metric->count),
                                   .has_interval = metric->count > 1};
    if (out->has_interval) {
        struct interval mean = statistics_student(moments_of(metric, false), COMPARE_LEVEL);
        out->low = mean.low;
        out->high = mean.high;
    }
    free(value);
    return 0;
}

/* Times and rates are fast or slow; memory and bytes are not. */
static bool is_speed(const char *unit)
{
    static const char *const times[] = {"s", "ms", "us", "µs", "ns", "seconds"};
    size_t length = strlen(unit);
    bool speed = length > 2 && strcmp(unit + length - 2, "/s") == 0;
    for (uint32_t i = 0; i < countof(times); i++) {
        speed = speed || strcmp(unit, times[i]) == 0;
    }
    return speed;
}

const char *compare_verdict_name(enum compare_verdict verdict, const char *unit)
{
    switch (verdict) {
    case COMPARE_SAME:
        return "no difference";
    case COMPARE_BETTER:
        return is_speed(unit) ? "faster" : "better";
    case COMPARE_WORSE:
        return is_speed(unit) ? "slower" : "worse";
    case COMPARE_DIFFERS:
        return "differs";
    case COMPARE_FEW:
        return "one sample: no verdict";
    case COMPARE_ABSENT:
        break;
    }
    return "not in both";
}

/* ---- the worst point ---- */

/* A change towards worse, as positive percent. */
static struct compare_worst towards_worse(struct compare_change change,
                                          enum measured_better better)
{
    struct compare_worst w = {.change = change, .worse_percent = change.percent};
    w.worse_low = change.has_interval ? change.low : change.percent;
    w.worse_high = change.has_interval ? change.high : change.percent;
    if (better == MEASURED_HIGHER) {
        double low = w.worse_low;
        w.worse_percent = -w.worse_percent;
        w.worse_low = -w.worse_high;
        w.worse_high = -low;
    }
    return w;
}

static void take_worst(struct compare_worst *out, struct compare_worst w)
{
    uint32_t points = out->points + 1;
    if (points == 1 || w.worse_percent > out->worse_percent) {
        *out = w;
    }
    out->points = points;
}

int compare_worst(const struct measured *base, const struct measured *other, const char *metric,
                  struct compare_worst *out)
{
    *out = (struct compare_worst){.points = 0};
    uint32_t *match = calloc(base->point_count, sizeof *match);
    int rc = match != NULL ? compare_match(base, other, match) : no_memory();
    bool neither = false;
    for (uint32_t i = 0; rc >= 0 && i < base->point_count; i++) {
        const struct measured_metric *a = measured_metric(&base->point[i], metric);
        const struct measured_metric *b =
            match[i] != MEASURED_NONE ? measured_metric(&other->point[match[i]], metric) : NULL;
        struct compare_change change = compare_metric(a, b);
        if (change.has_percent && a->better != MEASURED_NEITHER) {
            struct compare_worst w = towards_worse(change, a->better);
            w.base_point = i;
            w.other_point = match[i];
            take_worst(out, w);
        }
        neither = neither || (a != NULL && a->better == MEASURED_NEITHER);
    }
    free(match);
    TRY(rc);
    if (out->points > 0) {
        return 0;
    }
    return neither ? err_set(ERR_USAGE, "%s: no way of it is better, so none is worse", metric)
                   : err_set(ERR_USAGE, "%s: %s and %s have no matching points that both have it",
                             metric, base->path, other->path);
}
