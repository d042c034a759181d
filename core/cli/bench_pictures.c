/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/bench_pictures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/bench_figure.h"
#include "core/cli/bench_metrics.h"
#include "core/cli/output.h"
#include "core/cli/picture.h"
#include "core/cli/report.h"

#define BINS 160U         /* of time */
#define LATENCY_BINS 96U  /* four to a doubling */
#define CURVE_POINTS 200U
#define ROUNDS_SHOWN 128U /* at most */

const char *const bench_picture_names[] = {"bandwidth", "timeline", "latency", "percentiles",
                                           "ladder", "sweep", NULL};

/* The one whose reads are in the log; an earlier one of that point when it was not completed. */
static const struct bench_round *last_round(const struct bench_result *result)
{
    const struct bench_point_result *p = &result->point[result->logged];
    return p->rounds > 0 ? &p->round[p->rounds - 1] : NULL;
}

/* ---- over time ---- */

struct over_time {
    double t[BINS], rate[BINS], depth[BINS], waiting[BINS];
};

/* The share of [from, to) that lies in bin i, in nanoseconds. */
static double overlap(const struct bench_result *r, uint64_t width_ns, uint32_t i, uint64_t from,
                      uint64_t to)
{
    uint64_t begin = r->from_ns + i * width_ns;
    uint64_t a = max_u64(begin, from);
    uint64_t b = min_u64(begin + width_ns, to);
    return a < b ? (double)(b - a) : 0;
}

static void fill_bins(const struct bench_result *r, uint64_t width_ns, struct over_time *o)
{
    for (uint32_t k = 0; k < r->log.count; k++) {
        const struct io_record *x = &r->log.record[k];
        uint64_t end = x->ended_ns > 0 ? x->ended_ns : r->to_ns;
        if (end <= r->from_ns || x->begun_ns >= r->to_ns) {
            continue;
        }
        uint64_t first = x->begun_ns > r->from_ns ? (x->begun_ns - r->from_ns) / width_ns : 0;
        for (uint64_t i = first; i < BINS && r->from_ns + i * width_ns < end; i++) {
            double in = overlap(r, width_ns, (uint32_t)i, x->begun_ns, end);
            o->depth[i] += in / (double)width_ns;
            o->rate[i] += x->size_bytes * in / (double)(end - x->begun_ns) / (double)width_ns;
        }
    }
    for (uint32_t i = 0; i < BINS; i++) {
        o->t[i] = ((double)i + 0.5) * (double)width_ns / 1e9; /* bytes per ns are GB/s */
    }
}

/* How many workers wait for reads, as a mean over each bin. */
static void count_waits(const struct bench_result *r, uint64_t width_ns, struct over_time *o)
{
    for (uint32_t w = 0; w < r->journal.workers; w++) {
        const struct journal_worker *worker = &r->journal.worker[w];
        for (uint32_t k = 0; k < worker->wait_count; k++) {
            const struct journal_span *s = &worker->wait_span[k];
            if (s->doing >= DOING_WAIT + STALL_PAGES || s->begun_ns < r->from_ns) {
                continue;
            }
            uint64_t first = (s->begun_ns - r->from_ns) / width_ns;
            for (uint64_t i = first; i < BINS && r->from_ns + i * width_ns < s->ended_ns; i++) {
                o->waiting[i] += overlap(r, width_ns, (uint32_t)i, s->begun_ns, s->ended_ns) /
                                 (double)width_ns;
            }
        }
    }
}

static int draw_bandwidth(const struct bench_result *r, const char *dir)
{
    struct over_time o = {.t = {0}};
    uint64_t width_ns = max_u64(1, (r->to_ns - r->from_ns) / BINS);
    fill_bins(r, width_ns, &o);
    count_waits(r, width_ns, &o);
    struct picture p = {
        .name = "bandwidth", .title = "Reads while tokens were made",
        .x = {.label = "time (s)"}, .y = {.label = "GB/s", .from_zero = true},
        .y2 = {.label = "reads in flight; workers waiting", .from_zero = true},
        .series = {{.name = "bandwidth", .kind = PICTURE_LINES, .count = BINS, .x = o.t,
                    .y = o.rate},
                   {.name = "reads in flight", .kind = PICTURE_LINES, .second = true,
                    .count = BINS, .x = o.t, .y = o.depth},
                   {.name = "workers waiting for reads", .kind = PICTURE_STEPS, .second = true,
                    .count = BINS, .x = o.t, .y = o.waiting}},
        .series_count = 3};
    return picture_write(dir, &p);
}

/* ---- latencies ---- */

static double log_bin(double i)
{
    return 1000.0 * pow(2.0, i / 4.0); /* from 1 us on */
}

static void count_latencies(const struct histogram *h, double x[LATENCY_BINS],
                            double y[LATENCY_BINS])
{
    for (uint32_t i = 0; i < LATENCY_BINS; i++) {
        x[i] = log_bin(i + 0.5) / 1e6;
        y[i] = 0;
    }
    for (uint32_t k = 0; k < HISTOGRAM_BUCKETS; k++) {
        if (h->bucket[k] > 0) {
            double at = 4.0 * log2(fmax(1.0, (double)histogram_value(k) / 1000.0));
            uint32_t bin = (uint32_t)min_u64((uint64_t)at, LATENCY_BINS - 1);
            y[bin] += (double)h->bucket[k];
        }
    }
    for (uint32_t i = 0; i < LATENCY_BINS; i++) {
        y[i] = y[i] > 0 ? y[i] : NAN;
    }
}

static int draw_latency(const struct bench_round *round, const char *dir)
{
    static double x[READ_CLASSES][LATENCY_BINS];
    static double y[READ_CLASSES][LATENCY_BINS];
    struct picture p = {.name = "latency", .title = "How long reads took, by class",
                        .x = {.label = "latency (ms)", .log = true},
                        .y = {.label = "reads", .log = true}};
    for (int c = 0; c < READ_CLASSES; c++) {
        const struct histogram *h = &round->job[JOB_INFERENCE].class[c].lat;
        if (h->count > 0) {
            count_latencies(h, x[c], y[c]);
            p.series[p.series_count++] = (struct picture_series){
                .name = report_class_names[c], .kind = PICTURE_STEPS, .count = LATENCY_BINS,
                .x = x[c], .y = y[c]};
        }
    }
    return p.series_count > 0 ? picture_write(dir, &p) : 0;
}

static void curve(const struct histogram *h, double x[CURVE_POINTS], double y[CURVE_POINTS])
{
    for (uint32_t i = 0; i < CURVE_POINTS; i++) {
        /* Nines to the right: 0, .. 90, .. 99, .. 99.99 */
        double share = 1 - pow(10.0, -4.0 * i / (CURVE_POINTS - 1));
        x[i] = -log10(1 - share);
        y[i] = (double)histogram_percentile(h, fmax(100 * share, 1e-6)) / 1e6;
    }
}

static int draw_percentiles(const struct bench_round *round, const char *dir)
{
    static const char *const nines[] = {"0", "90", "99", "99.9", "99.99"};
    static double x[READ_CLASSES][CURVE_POINTS];
    static double y[READ_CLASSES][CURVE_POINTS];
    struct picture p = {.name = "percentiles", .title = "Latency by percentile and class",
                        .x = {.label = "percentile", .names = nines, .name_count = 5},
                        .y = {.label = "latency (ms)", .log = true}};
    for (int c = 0; c < READ_CLASSES; c++) {
        const struct histogram *h = &round->job[JOB_INFERENCE].class[c].lat;
        if (h->count > 0) {
            curve(h, x[c], y[c]);
            p.series[p.series_count++] = (struct picture_series){
                .name = report_class_names[c], .kind = PICTURE_LINES, .count = CURVE_POINTS,
                .x = x[c], .y = y[c]};
        }
    }
    return p.series_count > 0 ? picture_write(dir, &p) : 0;
}

/* ---- several points ---- */

struct spread {
    double x[BENCH_POINTS_MAX], y[BENCH_POINTS_MAX], low[BENCH_POINTS_MAX],
        high[BENCH_POINTS_MAX];
    uint32_t count;
};

/* Median and range over the rounds of a point, of seconds per token. */
static bool seconds_of(const struct bench_result *r, uint32_t point, double *median, double *low,
                       double *high)
{
    double values[ROUNDS_SHOWN];
    if (r->point[point].rounds > ROUNDS_SHOWN) {
        return false;
    }
    struct samples s = bench_samples(r, point, METRIC_TOKEN_S, values);
    *median = samples_median(&s);
    *low = samples_least(&s);
    *high = samples_most(&s);
    return s.count > 0;
}

static int draw_ladder(const struct bench_result *r, const char *dir)
{
    struct spread s = {.count = 0};
    uint32_t different = 0;
    for (uint32_t i = 0; i < r->request->point_count; i++) {
        const struct bench_point_result *p = &r->point[i];
        double *at = &s.y[s.count];
        if (seconds_of(r, i, at, &s.low[s.count], &s.high[s.count])) {
            s.x[s.count++] = (double)p->facts.ram_bytes / (double)GIB;
            different += i > 0 && p->facts.ram_bytes != r->point[0].facts.ram_bytes;
        }
    }
    struct picture p = {
        .name = "ladder", .title = "Seconds per token against RAM",
        .x = {.label = "RAM (GiB)", .log = true}, .y = {.label = "s/token", .from_zero = true},
        .series = {{.kind = r->request->point_count == different + 1 ? PICTURE_LINES
                                                                     : PICTURE_POINTS,
                    .count = s.count, .x = s.x, .y = s.y, .low = s.low, .high = s.high}},
        .series_count = 1};
    return different > 0 ? picture_write(dir, &p) : 0;
}

static int draw_sweep(const struct bench_result *r, const char *dir)
{
    static char text[BENCH_POINTS_MAX][64];
    const char *names[BENCH_POINTS_MAX];
    struct spread s = {.count = 0};
    for (uint32_t i = 0; i < r->request->point_count; i++) {
        const struct bench_point_result *p = &r->point[i];
        double median;
        double low;
        double high;
        if (seconds_of(r, i, &median, &low, &high)) {
            snprintf(text[s.count], sizeof text[0], "%ux%lluK %s", p->facts.io_depth,
                     (unsigned long long)(p->facts.io_size_bytes / KIB), p->point.policy);
            names[s.count] = text[s.count];
            s.x[s.count] = s.count;
            s.y[s.count] = 1 / median;
            s.low[s.count] = 1 / high;
            s.high[s.count++] = 1 / low;
        }
    }
    struct picture p = {
        .name = "sweep", .title = "Tokens per second of every setting: median and range",
        .x = {.names = names, .name_count = s.count},
        .y = {.label = "tokens/s", .from_zero = true},
        .series = {{.kind = PICTURE_BOXES, .count = s.count, .x = s.x, .y = s.y, .low = s.low,
                    .high = s.high}},
        .series_count = 1};
    return s.count > 1 ? picture_write(dir, &p) : 0;
}

/* ---- all of them ---- */

static int write_timeline(const struct bench_result *r, const char *dir)
{
    char *path;
    struct output out = {.file = NULL};
    if (asprintf(&path, "%s/timeline.json", dir) < 0) {
        return err_set(ERR_MEMORY, "no memory for a path");
    }
    int rc = output_open(&out, path);
    if (rc == 0) {
        rc = bench_timeline(r, out.file);
        rc = rc == 0 ? output_commit(&out) : rc;
    }
    output_abandon(&out);
    free(path);
    return rc;
}

int bench_pictures(const struct bench_result *result, const char *dir)
{
    const struct bench_round *round = last_round(result);
    TRY(picture_folder(dir));
    if (round == NULL) {
        return 0;
    }
    TRY(draw_bandwidth(result, dir));
    TRY(draw_latency(round, dir));
    TRY(draw_percentiles(round, dir));
    TRY(bench_draw_timeline(result, dir));
    TRY(write_timeline(result, dir));
    TRY(draw_ladder(result, dir));
    TRY(draw_sweep(result, dir));
    return 0;
}
