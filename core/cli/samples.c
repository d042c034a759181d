/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/samples.h"

#include <math.h>

#include "core/cli/statistics.h"

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

/* Of logarithms, where there are any, so that differences are ratios: as `compare` has it. */
static struct moments moments_of(const struct samples *s, bool ratios)
{
    struct moments m = {0};
    for (uint32_t i = 0; i < s->count; i++) {
        moments_add(&m, ratios ? log(s->value[i]) : s->value[i]);
    }
    return m;
}

double samples_chance(const struct samples *a, const struct samples *b)
{
    if (a->count < 2 || b->count < 2) {
        return 1;
    }
    bool ratios = samples_least(a) > 0 && samples_least(b) > 0;
    return statistics_chance(moments_of(a, ratios), moments_of(b, ratios));
}
