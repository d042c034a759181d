/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "core/cli/picture_priv.h"
#include "core/cli/text.h"

/* The axis y values of a series are against. */
static const struct picture_axis *axis_of(const struct picture *p, const struct picture_series *s)
{
    return s->second ? &p->y2 : &p->y;
}

static void include(struct picture_range *range, double value)
{
    if (!isfinite(value)) {
        return;
    }
    range->low = range->count == 0 ? value : fmin(range->low, value);
    range->high = range->count == 0 ? value : fmax(range->high, value);
    range->count++;
}

static void include_series(struct picture_range *range, const struct picture_series *s, bool x)
{
    for (uint32_t i = 0; i < s->count; i++) {
        include(range, x ? s->x[i] : s->y[i]);
        if (x && s->x_end != NULL) {
            include(range, s->x_end[i]);
        }
        if (!x && s->low != NULL && s->high != NULL) {
            include(range, s->low[i]);
            include(range, s->high[i]);
        }
    }
}

struct picture_range picture_span(const struct picture *p, const struct picture_axis *axis)
{
    struct picture_range range = {.count = 0};
    for (uint32_t i = 0; i < p->series_count; i++) {
        const struct picture_series *s = &p->series[i];
        if (axis == &p->x || axis == axis_of(p, s)) {
            include_series(&range, s, axis == &p->x);
        }
    }
    return range;
}

bool picture_log(const struct picture *p, const struct picture_axis *axis)
{
    struct picture_range range = picture_span(p, axis);
    return axis->log && range.count > 0 && range.high > 0;
}

uint32_t picture_drawable(const struct picture *p, const struct picture_series *s)
{
    bool x_log = picture_log(p, &p->x);
    bool y_log = picture_log(p, axis_of(p, s));
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        bool finite = isfinite(s->x[i]) && isfinite(s->y[i]) &&
                      (s->x_end == NULL || isfinite(s->x_end[i]));
        count += finite && (!x_log || s->x[i] > 0) && (!y_log || s->y[i] > 0);
    }
    return count;
}

static void put_number(FILE *out, double value, const char *behind)
{
    if (isfinite(value)) {
        fprintf(out, "%.12g%s", value, behind);
    } else {
        fprintf(out, "NaN%s", behind);
    }
}

static void put_row(FILE *out, const struct picture_series *s, uint32_t at)
{
    bool interval = s->low != NULL && s->high != NULL;
    put_number(out, s->x[at], " ");
    if (s->kind == PICTURE_SPANS) {
        put_number(out, s->x_end[at], " ");
    }
    put_number(out, s->y[at], interval ? " " : "\n");
    if (interval) {
        put_number(out, s->low[at], " ");
        put_number(out, s->high[at], "\n");
    }
}

void picture_put_data(FILE *out, const struct picture *p)
{
    uint32_t block = 0;
    fputs("# ", out);
    text_put(out, p->title, NULL, 0, false);
    fputs("\n# x: ", out);
    text_put(out, p->x.label != NULL ? p->x.label : "", NULL, 0, false);
    fputs("; y: ", out);
    text_put(out, p->y.label != NULL ? p->y.label : "", NULL, 0, false);
    fputc('\n', out);
    for (uint32_t i = 0; i < p->series_count; i++) {
        const struct picture_series *s = &p->series[i];
        if (picture_drawable(p, s) == 0) {
            continue;
        }
        fprintf(out, "%s# block %u: ", block > 0 ? "\n\n" : "", block);
        text_put(out, s->name != NULL ? s->name : "", NULL, 0, false);
        fprintf(out, "\n# %s\n", s->kind == PICTURE_SPANS ? "x x_end row"
                                 : s->low != NULL && s->high != NULL ? "x y low high" : "x y");
        for (uint32_t at = 0; at < s->count; at++) {
            put_row(out, s, at);
        }
        block++;
    }
}
