/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "core/cli/picture_priv.h"
#include "core/cli/text.h"

/* Okabe and Ito's colours, which most colour-blind readers can tell apart, without yellow (too
 * light on white); beyond them the same again, dashed. */
static const char *const colors[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                     "#E69F00", "#56B4E9", "#7F7F7F", "#8B5A2B"};
static const int marks[] = {7, 5, 9, 11, 13, 6, 4, 8}; /* gnuplot's point types */

/* More points than this and a line shows none. */
#define MARKED_MAX 64U

/* Letters side by side in a picture, and what the sample beside a name of the key takes. */
#define LETTERS_ACROSS 110U
#define KEY_LETTERS 9U

/* More names, or longer ones, are written slantwise. */
#define LEVEL_NAMES_MAX 10U
#define LEVEL_LETTERS_MAX 14U

/* In single quotes gnuplot knows one escape, a quote twice, and runs no commands. */
static void put_quoted(FILE *out, const char *text)
{
    static const struct text_rule rules[] = {{'\'', "''"}};
    fputc('\'', out);
    text_put(out, text, rules, countof(rules), false);
    fputc('\'', out);
}

/* A name on an axis is a format as well. */
static void put_tick(FILE *out, const char *text)
{
    static const struct text_rule rules[] = {{'\'', "''"}, {'%', "%%"}};
    fputc('\'', out);
    text_put(out, text, rules, countof(rules), false);
    fputc('\'', out);
}

/* ---- axes ---- */

static bool has_kind(const struct picture *p, const struct picture_axis *axis,
                     enum picture_kind kind)
{
    for (uint32_t i = 0; i < p->series_count; i++) {
        const struct picture_series *s = &p->series[i];
        if (s->kind == kind && (axis == &p->x || s->second == (axis == &p->y2))) {
            return true;
        }
    }
    return false;
}

static bool has_bars(const struct picture *p, const struct picture_axis *axis)
{
    return has_kind(p, axis, PICTURE_BARS) || has_kind(p, axis, PICTURE_BOXES);
}

static void put_names(FILE *out, const struct picture_axis *axis, const char *letter)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < axis->name_count; i++) {
        size_t length = strlen(axis->names[i]);
        longest = length > longest ? length : longest;
    }
    bool level = letter[0] != 'x' ||
                 (axis->name_count <= LEVEL_NAMES_MAX && longest <= LEVEL_LETTERS_MAX);
    fprintf(out, "set %stics nomirror %s(", letter, level ? "" : "rotate by 30 right ");
    for (uint32_t i = 0; i < axis->name_count; i++) {
        fputs(i > 0 ? ", " : "", out);
        put_tick(out, axis->names[i]);
        fprintf(out, " %u", i);
    }
    fputs(")\n", out);
}

/* The end of a range, or gnuplot's choice. */
static void put_end(FILE *out, bool given, double value)
{
    if (given) {
        fprintf(out, "%.12g", value);
    } else {
        fputc('*', out);
    }
}

static void put_range(FILE *out, const struct picture *p, const struct picture_axis *axis,
                      const char *letter)
{
    bool log = picture_log(p, axis);
    bool given = axis->low < axis->high && (!log || axis->low > 0);
    bool rows = axis == &p->y && has_kind(p, axis, PICTURE_SPANS);
    struct picture_range span = picture_span(p, axis);
    if (given) {
        fprintf(out, "set %srange [%.12g:%.12g]\n", letter, axis->low, axis->high);
    } else if (rows || axis->names != NULL) {
        double last = axis->names != NULL ? axis->name_count - 1.0 : floor(span.high);
        double first = -0.6;
        last += 0.6;
        fprintf(out, "set %srange [%.12g:%.12g]\n", letter, rows ? last : first,
                rows ? first : last);
    } else if (span.count > 0 && span.low == span.high) { /* one value: some room around it */
        double room = span.low != 0 ? fabs(span.low) / 2 : 1;
        bool zero = axis->from_zero && span.low >= 0 && !log;
        fprintf(out, "set %srange [%.12g:%.12g]\n", letter, zero ? 0 : span.low - room,
                span.high + room);
    } else {
        bool zero = !log && span.low >= 0 &&
                    (axis->from_zero || (axis != &p->x && has_bars(p, axis)));
        fprintf(out, "set %srange [", letter);
        put_end(out, zero, 0);
        fputs(":*]\n", out);
    }
}

static void put_axis(FILE *out, const struct picture *p, const struct picture_axis *axis,
                     const char *letter)
{
    struct picture_range span = picture_span(p, axis);
    if (axis->label != NULL) {
        fprintf(out, "set %slabel ", letter);
        put_quoted(out, axis->label);
        fputc('\n', out);
    }
    if (axis->names != NULL) {
        put_names(out, axis, letter);
    } else {
        fprintf(out, "set %stics nomirror\nset format %s '%%g'\n", letter, letter);
    }
    if (picture_log(p, axis)) {
        bool wide = span.low > 0 && span.high / span.low >= 1000;
        fprintf(out, "set logscale %s %d\n", letter, wide ? 10 : 2);
    }
    put_range(out, p, axis, letter);
}

/* ---- series ---- */

static bool is_bar(const struct picture_series *s)
{
    return s->kind == PICTURE_BARS || s->kind == PICTURE_BOXES;
}

static bool has_interval(const struct picture_series *s)
{
    return s->low != NULL && s->high != NULL;
}

/* Columns and style. */
static void put_style(FILE *out, const struct picture_series *s, double beside, double width)
{
    bool marked = s->kind == PICTURE_LINES && s->count <= MARKED_MAX;
    if (is_bar(s)) {
        fprintf(out, "using ($1%+.9g):2:(%.9g) with boxes", beside, width * 0.94);
    } else if (s->kind == PICTURE_SPANS) {
        fputs("using 1:3:1:2:($3-0.4):($3+0.4) with boxxyerror", out);
    } else if (s->kind == PICTURE_STEPS) {
        fputs("using 1:2 with steps", out);
    } else if (s->kind == PICTURE_POINTS) {
        fputs(has_interval(s) ? "using 1:2:3:4 with yerrorbars" : "using 1:2 with points", out);
    } else if (has_interval(s)) {
        fputs("using 1:2:3:4 with yerrorlines", out);
    } else {
        fputs(marked ? "using 1:2 with linespoints" : "using 1:2 with lines", out);
    }
}

/* above: series drawn over this one. It is wider than they, to be seen where they agree. */
static void put_look(FILE *out, const struct picture_series *s, uint32_t number, uint32_t above)
{
    bool points = s->kind == PICTURE_POINTS || s->kind == PICTURE_LINES;
    double wider = 1 + 0.15 * (above < 8 ? above : 8);
    int mark = s->reference ? 2 : marks[number % countof(marks)];
    fprintf(out, " lc rgb '%s'", s->reference ? "#000000" : colors[number % countof(colors)]);
    if (is_bar(s) || s->kind == PICTURE_SPANS) {
        fprintf(out, " fs solid %s noborder", number < countof(colors) ? "0.85" : "0.45");
        return;
    }
    fprintf(out, " lw %.2f dt %d", 2 * wider, s->reference ? 2 : number < countof(colors) ? 1 : 4);
    if (points && s->count <= MARKED_MAX) {
        fprintf(out, " pt %d ps %.2f*mark", mark, wider);
    } else if (s->kind == PICTURE_POINTS) {
        fputs(" pt 7 ps 0.5*mark", out);
    } else if (points && has_interval(s)) {
        fputs(" pt 7 ps 0", out);
    }
}

struct bars {
    double width;         /* of one */
    uint32_t count, next; /* that stand side by side */
};

static struct bars plan_bars(const struct picture *p)
{
    struct bars bars = {.width = HUGE_VAL};
    for (uint32_t i = 0; i < p->series_count; i++) {
        const struct picture_series *s = &p->series[i];
        bars.count += is_bar(s) && picture_drawable(p, s) > 0;
        for (uint32_t at = 1; is_bar(s) && at < s->count; at++) {
            double gap = fabs(s->x[at] - s->x[at - 1]);
            bars.width = gap > 0 && gap < bars.width ? gap : bars.width;
        }
    }
    bars.width = (isfinite(bars.width) ? bars.width : 1) * 0.8 / (bars.count > 0 ? bars.count : 1);
    return bars;
}

static void put_series(FILE *out, const struct picture *p, uint32_t index, uint32_t number,
                       struct bars *bars)
{
    const struct picture_series *s = &p->series[index];
    double beside = 0;
    const char *axes = s->second ? " axes x1y2" : "";
    if (is_bar(s)) {
        beside = ((double)bars->next++ - (bars->count - 1.0) / 2) * bars->width;
    }
    put_style(out, s, beside, bars->width);
    put_look(out, s, number, p->series_count - 1 - index);
    fputs(axes, out);
    if (s->name != NULL) {
        fputs(" title ", out);
        put_quoted(out, s->name);
    } else {
        fputs(" notitle", out);
    }
}

/* What tops a box. */
static void put_whiskers(FILE *out, const struct picture_series *s, const struct bars *bars)
{
    double beside = ((double)bars->next - 1 - (bars->count - 1.0) / 2) * bars->width;
    fprintf(out, "using ($1%+.9g):3:(0):($4-$3) with vectors heads size screen 0.005,90 "
            "lc rgb '#222222' lw 1.6%s notitle", beside, s->second ? " axes x1y2" : "");
}

static void put_plot(FILE *out, const struct picture *p)
{
    struct bars bars = plan_bars(p);
    uint32_t block = 0;
    uint32_t number = 0;
    for (uint32_t i = 0; i < p->series_count; i++) {
        const struct picture_series *s = &p->series[i];
        bool whiskers = s->kind == PICTURE_BOXES && has_interval(s);
        uint32_t color = s->reference ? 0 : number++; /* the same, drawn or not */
        if (picture_drawable(p, s) == 0) {
            continue;
        }
        for (int top = 0; top <= (whiskers ? 1 : 0); top++) {
            fprintf(out, "%s'%s.dat' index %u ", block + (uint32_t)top > 0 ? ", \\\n     "
                    : "plot ", p->name, block);
            if (top == 0) {
                put_series(out, p, i, color, &bars);
            } else {
                put_whiskers(out, s, &bars);
            }
        }
        block++;
    }
    fputs(block > 0 ? "\n" : "unset logscale\nset label 'no data' at graph 0.5, 0.5 center\n"
          "plot [0:1] [0:1] NaN notitle\n", out);
}

/* Below the picture, in rows of which gnuplot leaves room only when told. */
static void put_key(FILE *out, const struct picture *p)
{
    uint32_t longest = 0;
    uint32_t names = 0;
    for (uint32_t i = 0; i < p->series_count; i++) {
        const struct picture_series *s = &p->series[i];
        if (s->name != NULL && picture_drawable(p, s) > 0) {
            uint32_t length = (uint32_t)min_u64(strlen(s->name), LETTERS_ACROSS);
            longest = length > longest ? length : longest;
            names++;
        }
    }
    if (names == 0) {
        fputs("unset key\n", out);
        return;
    }
    uint32_t columns = LETTERS_ACROSS / (longest + KEY_LETTERS);
    columns = columns == 0 ? 1 : columns < names ? columns : names;
    uint32_t lines = (names + columns - 1) / columns;
    fprintf(out, "set key bmargin center horizontal Left reverse samplen 2.5 maxcols %u "
            "noenhanced\nset bmargin %.1f\n", columns,
            4.2 + 1.3 * lines);
}

void picture_put_script(FILE *out, const struct picture *p)
{
    bool second = picture_span(p, &p->y2).count > 0;
    fprintf(out, "# `gnuplot %s.gp` in this folder draws %s.svg and %s.png from %s.dat.\n", p->name,
            p->name, p->name, p->name);
    fputs("if (!exists('part')) part = ''\n"
          "set encoding utf8\n"
          "set datafile missing 'NaN'\n"
          "set border 3 lc rgb '#444444'\n"
          "set tics out nomirror\n"
          "set grid lc rgb '#DDDDDD' lt 1 lw 0.8\n", out);
    put_key(out, p);
    fputs("set title ", out);
    put_quoted(out, p->title);
    fputs(" font ',19'\n", out);
    put_axis(out, p, &p->x, "x");
    put_axis(out, p, &p->y, "y");
    if (second) {
        fputs("set border 11\n", out);
        put_axis(out, p, &p->y2, "y2");
    }
    fprintf(out, "set terminal svg size 1200,700 dynamic noenhanced font 'sans-serif,16' "
            "background rgb 'white'\nset output '%s.svg'.part\nmark = 0.75\n", p->name);
    put_plot(out, p);
    fprintf(out, "set terminal pngcairo size 1200,700 noenhanced font 'sans,14' "
            "background rgb 'white'\nset output '%s.png'.part\nmark = 1\nreplot\n", p->name);
}
