/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/compare_priv.h"
#include "core/cli/text.h"

static void put_note(void *to, const char *text)
{
    fprintf(to, "! %s\n", text);
}

static void put_files(FILE *out, const struct comparison *c)
{
    static const char *const verdicts[] = {"", ", valid", ", INVALID"};
    for (uint32_t i = 0; i < c->count; i++) {
        const struct measured *m = &c->file[i];
        char path[512];
        text_clean(path, sizeof path, m->path);
        fprintf(out, "%c  %s  (k3ring %s%s%s%s)\n", 'A' + (int)i, path,
                m->is_run ? "run" : "bench", m->version[0] != '\0' ? " " : "", m->version,
                verdicts[m->verdict]);
    }
    comparison_notes(c, put_note, out);
}

/* ---- what differs ---- */

struct differences {
    FILE *out;
    const char *heading; /* printed before the first row */
};

static void put_difference(void *to, const char *name, const char *const *value, uint32_t count)
{
    struct differences *d = to;
    fprintf(d->out, "%s  %s: ", d->heading, name);
    d->heading = "";
    for (uint32_t i = 0; i < count; i++) {
        fprintf(d->out, "%s%s", i > 0 ? " | " : "", value[i] != NULL ? value[i] : "(none)");
    }
    fputc('\n', d->out);
}

static void put_differences(FILE *out, const struct comparison *c)
{
    struct differences settings = {out, "\nsettings that differ\n"};
    struct differences environment = {out, "\nenvironment that differs\n"};
    comparison_differences(c, false, put_difference, &settings);
    comparison_differences(c, true, put_difference, &environment);
}

/* ---- metrics ---- */

#define CELL_BYTES 40

static void percent_text(char text[CELL_BYTES], double percent)
{
    if (fabs(percent) < 1e4) {
        snprintf(text, CELL_BYTES, "%+.2f", percent);
    } else {
        snprintf(text, CELL_BYTES, "%+.3g", percent);
    }
}

/* Bytes and counts as they are, others with as many digits as repeats deserve. */
static void value_text(char text[CELL_BYTES], double value)
{
    bool whole = fabs(value) >= 1e5 && fabs(value) < 1e13;
    snprintf(text, CELL_BYTES, whole ? "%.0f" : "%.6g", value);
}

static void put_own(FILE *out, const struct compare_figure *own, uint32_t repeats)
{
    char median[CELL_BYTES], interval[2 * CELL_BYTES + 4] = "-";
    char low[CELL_BYTES], high[CELL_BYTES];
    value_text(median, own->median);
    if (own->has_interval) {
        value_text(low, own->low);
        value_text(high, own->high);
        snprintf(interval, sizeof interval, "%s..%s", low, high);
    }
    fprintf(out, " %13s %28s %4u", median, interval, repeats);
}

static void put_change(FILE *out, const struct compare_change *change, const char *unit, bool sound)
{
    char percent[CELL_BYTES] = "-", interval[2 * CELL_BYTES + 4] = "-";
    char low[CELL_BYTES], high[CELL_BYTES];
    if (change->has_percent) {
        percent_text(percent, change->percent);
    }
    if (change->has_interval) {
        percent_text(low, change->low);
        percent_text(high, change->high);
        snprintf(interval, sizeof interval, "%s..%s", low, high);
    }
    fprintf(out, " %9s %20s  %s%s", percent, interval, compare_verdict_name(change->verdict, unit),
            sound ? "" : " !");
}

/* A line for each file that has the metric. */
static int put_metric(FILE *out, const struct comparison *c, uint32_t point,
                      const struct measured_metric *base)
{
    for (uint32_t file = 0; file < c->count; file++) {
        const struct measured_point *p = comparison_point(c, file, point);
        const struct measured_metric *m = p != NULL ? measured_metric(p, base->name) : NULL;
        struct compare_change change = compare_metric(base, m);
        struct compare_figure own;
        if (m == NULL) {
            continue;
        }
        TRY(compare_figure(m, &own));
        fprintf(out, "%-24s %-10s %c", file == 0 ? base->name : "", file == 0 ? base->unit : "",
                'A' + (int)file);
        put_own(out, &own, m->count);
        if (file > 0) {
            put_change(out, &change, base->unit, comparison_sound(c, file, point));
        } else if (!comparison_sound(c, 0, point)) {
            fputs(" !", out);
        }
        fputc('\n', out);
    }
    return 0;
}

static int put_point(FILE *out, const struct comparison *c, uint32_t point)
{
    const struct measured_point *p = &c->file[0].point[point];
    char *label = compare_label(p, &c->varying);
    if (label == NULL) {
        return ERR_MEMORY;
    }
    fprintf(out, "\n%s%s%-24s %-10s   %13s %28s %4s %9s %20s  %s\n", label,
            label[0] != '\0' ? "\n" : "", "metric", "unit", "median", "95% of the mean", "n",
            "change %", "95% interval", "verdict");
    free(label);
    for (uint32_t i = 0; i < p->metric_count; i++) {
        TRY(put_metric(out, c, point, &p->metric[i]));
    }
    return 0;
}

static bool has_partner(const struct comparison *c, uint32_t point)
{
    for (uint32_t file = 1; file < c->count; file++) {
        if (comparison_point(c, file, point) != NULL) {
            return true;
        }
    }
    return false;
}

/* True when a metric of both has too few repeats somewhere. */
static bool few_repeats(const struct comparison *c)
{
    for (uint32_t file = 0; file < c->count; file++) {
        const struct measured *m = &c->file[file];
        for (uint32_t i = 0; i < m->point_count; i++) {
            for (uint32_t k = 0; k < m->point[i].metric_count; k++) {
                if (m->point[i].metric[k].count < COMPARE_REPEATS_MIN) {
                    return true;
                }
            }
        }
    }
    return false;
}

static int put_points(FILE *out, const struct comparison *c)
{
    uint32_t shown = 0;
    for (uint32_t i = 0; i < c->file[0].point_count; i++) {
        if (has_partner(c, i)) {
            TRY(put_point(out, c, i));
            shown++;
        }
    }
    fputs(shown == 0 ? "\nno point of A has a counterpart: nothing to compare\n"
                     : "\nchange: of B (C, ..) against A, by Welch's t at 95%, on logarithms where "
                       "all samples are positive\n", out);
    if (few_repeats(c)) {
        fprintf(out, "a verdict needs %u repeats or more in each file; 5 make it sharp\n",
                COMPARE_REPEATS_MIN);
    }
    return 0;
}

int compare_print(FILE *out, const struct measured *file, uint32_t count)
{
    struct comparison c;
    int rc = comparison_init(&c, file, count);
    if (rc == 0) {
        put_files(out, &c);
        put_differences(out, &c);
        rc = put_points(out, &c);
    }
    comparison_fini(&c);
    return rc;
}
