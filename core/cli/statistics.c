/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/statistics.h"

#include <math.h>
#include <stdlib.h>

static int smaller_first(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

double statistics_median(double *value, uint32_t count)
{
    assert(count > 0);
    qsort(value, count, sizeof *value, smaller_first);
    return value[(count - 1) / 2] / 2 + value[count / 2] / 2;
}

void moments_add(struct moments *m, double value)
{
    double off = value - m->mean;
    m->count++;
    m->mean += off / m->count;
    m->squares += off * (value - m->mean);
}

double moments_variance(const struct moments *m)
{
    return m->count > 1 ? fmax(m->squares, 0) / (m->count - 1.0) : 0;
}

/* The continued fraction of the incomplete beta function, by Lentz's method. */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1;
    double d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double value = d;
    for (int m = 1; m < 1000; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        double step = 1;
        for (int half = 0; half < 2; half++) {
            double term = half == 0 ? even : odd;
            d = 1 + term * d;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = 1 + term / c;
            c = fabs(c) < tiny ? tiny : c;
            step = c * d;
            value *= step;
        }
        if (fabs(step - 1) < 1e-15) {
            break;
        }
    }
    return value;
}

/* The regularised incomplete beta function. 0 < x < 1. */
static double beta_share(double a, double b, double x)
{
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                     : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

/* Probability that |T| exceeds t > 0. */
static double outside(double t, double freedom)
{
    double x = freedom / (freedom + t * t);
    return x < 1 ? beta_share(freedom / 2, 0.5, x) : 1;
}

double statistics_t(double level, double freedom)
{
    assert(level > 0 && level < 1 && freedom > 0);
    double low = 0;
    double high = 1;
    while (outside(high, freedom) > 1 - level && high < 1e150) {
        high *= 2;
    }
    for (int i = 0; i < 200 && high - low > 1e-13 * high; i++) {
        double middle = (low + high) / 2;
        if (outside(middle, freedom) > 1 - level) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (low + high) / 2;
}

static struct interval around(double middle, double error, double level, double freedom)
{
    double half = error > 0 ? error * statistics_t(level, freedom) : 0;
    return (struct interval){.middle = middle, .low = middle - half, .high = middle + half};
}

/* The standard error of the difference of two means, and its degrees of freedom. */
static double welch_error(struct moments a, struct moments b, double *freedom)
{
    assert(a.count > 1 && b.count > 1);
    double part_a = moments_variance(&a) / a.count;
    double part_b = moments_variance(&b) / b.count;
    double whole = part_a + part_b;
    double share_a = whole > 0 ? part_a / whole : 0; /* as shares: squares cannot overflow */
    double share_b = whole > 0 ? part_b / whole : 0;
    *freedom = 1 / (share_a * share_a / (a.count - 1.0) + share_b * share_b / (b.count - 1.0));
    return sqrt(whole);
}

struct interval statistics_welch(struct moments a, struct moments b, double level)
{
    double freedom;
    double error = welch_error(a, b, &freedom);
    return around(b.mean - a.mean, error, level, freedom);
}

double statistics_chance(struct moments a, struct moments b)
{
    double freedom;
    double error = welch_error(a, b, &freedom);
    double apart = fabs(b.mean - a.mean);
    if (error > 0 && apart > 0) {
        return outside(apart / error, freedom);
    }
    return apart > 0 ? 0 : 1;
}

struct interval statistics_student(struct moments a, double level)
{
    assert(a.count > 1);
    return around(a.mean, sqrt(moments_variance(&a) / a.count), level, a.count - 1.0);
}
