/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/samples.h"

#include <math.h>

/* Places of a value in order, equal ones by index. */
static uint32_t rank_of(const struct samples *s, uint32_t index)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        rank += s->value[i] < s->value[index] || (s->value[i] == s->value[index] && i < index);
    }
    return rank;
}

static uint32_t at_rank(const struct samples *s, uint32_t rank)
{
    uint32_t index = 0;
    while (index + 1 < s->count && rank_of(s, index) != rank) {
        index++;
    }
    return index;
}

uint32_t samples_middle(const struct samples *s)
{
    return s->count > 0 ? at_rank(s, (s->count - 1) / 2) : 0;
}

double samples_median(const struct samples *s)
{
    if (s->count == 0) {
        return NAN;
    }
    return (s->value[samples_middle(s)] + s->value[at_rank(s, s->count / 2)]) / 2;
}

double samples_least(const struct samples *s)
{
    return s->count > 0 ? s->value[at_rank(s, 0)] : NAN;
}

double samples_most(const struct samples *s)
{
    return s->count > 0 ? s->value[at_rank(s, s->count - 1)] : NAN;
}

double samples_mean(const struct samples *s)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        sum += s->value[i];
    }
    return s->count > 0 ? sum / s->count : NAN;
}

/* Squared uncertainty of the mean. */
static double mean_variance(const struct samples *s)
{
    double mean = samples_mean(s);
    double squares = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        squares += (s->value[i] - mean) * (s->value[i] - mean);
    }
    return squares / (s->count - 1) / s->count;
}

/* Student's t of whole degrees of freedom >= 1: the share of its distribution beyond +-t, as the
 * finite series of Abramowitz and Stegun 26.7.3 and 26.7.4. */
static double beyond(double t, uint32_t freedom)
{
    double angle = atan(t / sqrt(freedom));
    double cosine = cos(angle);
    bool odd = freedom % 2 == 1;
    double term = odd ? cosine : 1;
    double sum = odd && freedom == 1 ? 0 : term;
    for (uint32_t k = odd ? 3 : 2; k + 1 < freedom; k += 2) {
        term *= cosine * cosine * (k - 1) / k;
        sum += term;
    }
    double within = odd ? 2 / M_PI * (angle + sin(angle) * sum) : sin(angle) * sum;
    return fmax(0, 1 - within);
}

double samples_chance(const struct samples *a, const struct samples *b)
{
    if (a->count < 2 || b->count < 2) {
        return 1;
    }
    double va = mean_variance(a);
    double vb = mean_variance(b);
    double apart = fabs(samples_mean(a) - samples_mean(b));
    if (va + vb == 0) {
        return apart > 0 ? 0 : 1;
    }
    double freedom = (va + vb) * (va + vb) / (va * va / (a->count - 1) + vb * vb / (b->count - 1));
    return beyond(apart / sqrt(va + vb), (uint32_t)fmin(1000, floor(freedom + 1e-9)));
}
