/* SPDX-License-Identifier: Apache-2.0 */
/* One token, the last that was measured: what was read and what every worker did, as a picture and
 * as trace events. */
#include <stdlib.h>

#include "core/base/err.h"
#include "core/cli/bench_figure.h"
#include "core/cli/bench_pictures.h"
#include "core/cli/picture.h"
#include "core/cli/report.h"

#define LANES_MAX 64U
#define SPANS_SHOWN 8000U

enum colour { COLOUR_TRUNK, COLOUR_EXPERTS, COLOUR_TASK, COLOUR_WAIT, COLOURS };

int figure_spans_open(struct figure_spans *spans, uint32_t capacity)
{
    *spans = (struct figure_spans){.capacity = capacity};
    spans->x = malloc(capacity * sizeof *spans->x);
    spans->x_end = malloc(capacity * sizeof *spans->x);
    spans->y = malloc(capacity * sizeof *spans->x);
    return spans->x != NULL && spans->x_end != NULL && spans->y != NULL
               ? 0 : err_set(ERR_MEMORY, "no memory for a picture");
}

void figure_spans_close(struct figure_spans *spans)
{
    free(spans->x);
    free(spans->x_end);
    free(spans->y);
    *spans = (struct figure_spans){0};
}

void figure_span(struct figure_spans *spans, double from, double to, double row)
{
    if (to > from && spans->count < spans->capacity) {
        spans->x[spans->count] = from;
        spans->x_end[spans->count] = to;
        spans->y[spans->count++] = row;
    }
}

/* The last measured token: from the token before to the end. */
static void token_bounds(const struct bench_result *r, uint64_t *from_ns, uint64_t *to_ns)
{
    *to_ns = r->to_ns;
    *from_ns = r->to_ns;
    for (uint32_t w = 0; w < r->journal.workers; w++) {
        if (r->journal.worker[w].count > 0) {
            *from_ns = min_u64(*from_ns, r->journal.worker[w].span[0].begun_ns);
        }
    }
}

/* A row for each read such that none overlap: the first that is free. */
static uint32_t lane_for(uint64_t free_at[LANES_MAX], const struct io_record *r)
{
    uint32_t lane = 0;
    while (lane + 1 < LANES_MAX && free_at[lane] > r->begun_ns) {
        lane++;
    }
    free_at[lane] = r->ended_ns;
    return lane;
}

static bool shown(const struct io_record *r, uint64_t from_ns, uint64_t to_ns)
{
    return r->ended_ns > from_ns && r->begun_ns < to_ns;
}

/* ---- the picture ---- */

static double at(uint64_t t_ns, uint64_t from_ns)
{
    return t_ns > from_ns ? (double)(t_ns - from_ns) / 1e6 : 0;
}

static uint32_t list_reads(const struct bench_result *r, uint64_t from_ns, uint64_t to_ns,
                           struct figure_spans spans[COLOURS])
{
    uint64_t free_at[LANES_MAX] = {0};
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < r->log.count; i++) {
        const struct io_record *x = &r->log.record[i];
        if (shown(x, from_ns, to_ns)) {
            uint32_t lane = lane_for(free_at, x);
            enum colour colour = x->label == READ_EXPERTS ? COLOUR_EXPERTS : COLOUR_TRUNK;
            lanes = lane + 1 > lanes ? lane + 1 : lanes;
            figure_span(&spans[colour], at(x->begun_ns, from_ns),
                        at(min_u64(x->ended_ns, to_ns), from_ns), lane);
        }
    }
    return lanes;
}

static void list_work(const struct bench_result *r, uint64_t from_ns, uint64_t to_ns,
                      uint32_t first_row, struct figure_spans spans[COLOURS])
{
    for (uint32_t w = 0; w < r->journal.workers; w++) {
        const struct journal_worker *worker = &r->journal.worker[w];
        for (uint32_t i = 0; i < worker->count; i++) {
            const struct journal_span *s = &worker->span[i];
            if (s->begun_ns < to_ns) {
                figure_span(&spans[s->doing >= DOING_WAIT ? COLOUR_WAIT : COLOUR_TASK],
                            at(s->begun_ns, from_ns), at(min_u64(s->ended_ns, to_ns), from_ns),
                            first_row + w);
            }
        }
    }
}

static void name_rows(char text[][16], const char **names, uint32_t lanes, uint32_t workers)
{
    for (uint32_t i = 0; i < lanes + workers; i++) {
        snprintf(text[i], sizeof text[i], i < lanes ? "read %u" : "worker %u",
                 i < lanes ? i : i - lanes);
        names[i] = text[i];
    }
}

int bench_draw_timeline(const struct bench_result *r, const char *dir)
{
    static const char *const colours[COLOURS] = {"reads of trunk", "reads of experts",
                                                 "kernels", "waiting"};
    static char text[2 * LANES_MAX][16];
    const char *names[2 * LANES_MAX];
    struct figure_spans spans[COLOURS] = {{.count = 0}};
    struct picture p = {.name = "timeline", .title = "One token: reads, kernels and waits",
                        .x = {.label = "time (ms)", .from_zero = true}};
    uint64_t from_ns;
    uint64_t to_ns;
    int rc = 0;
    token_bounds(r, &from_ns, &to_ns);
    for (int c = 0; c < COLOURS && rc == 0; c++) {
        rc = figure_spans_open(&spans[c], SPANS_SHOWN);
    }
    if (rc == 0) {
        uint32_t lanes = list_reads(r, from_ns, to_ns, spans);
        uint32_t workers = (uint32_t)min_u64(r->journal.workers, LANES_MAX);
        list_work(r, from_ns, to_ns, lanes, spans);
        name_rows(text, names, lanes, workers);
        p.y = (struct picture_axis){.names = names, .name_count = lanes + workers};
    }
    for (int c = 0; c < COLOURS && rc == 0; c++) {
        if (spans[c].count > 0) {
            p.series[p.series_count++] = (struct picture_series){
                .name = colours[c], .kind = PICTURE_SPANS, .count = spans[c].count,
                .x = spans[c].x, .x_end = spans[c].x_end, .y = spans[c].y};
        }
    }
    rc = rc == 0 && p.series_count > 0 ? picture_write(dir, &p) : rc;
    for (int c = 0; c < COLOURS; c++) {
        figure_spans_close(&spans[c]);
    }
    return rc;
}

/* ---- trace events ---- */

static void event(FILE *out, const char *name, uint32_t process, uint32_t thread,
                  uint64_t begun_ns, uint64_t ended_ns, const char *what, long long value)
{
    fprintf(out, ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,"
            "\"args\":{\"%s\":%lld}}", name, process, thread, (double)begun_ns / 1e3,
            (double)(ended_ns - begun_ns) / 1e3, what, value);
}

static const char *doing_name(uint8_t doing)
{
    static const char *const names[] = {"tile", "part", "expert", "expert hidden",
                                        "wait: trunk", "wait: experts", "wait: embed",
                                        "wait: head", "wait: slab pages", "wait: compute"};
    return doing < countof(names) ? names[doing] : "?";
}

static void write_reads(const struct bench_result *r, uint64_t from_ns, uint64_t to_ns, FILE *out)
{
    uint64_t free_at[LANES_MAX] = {0};
    for (uint32_t i = 0; i < r->log.count; i++) {
        const struct io_record *x = &r->log.record[i];
        if (shown(x, from_ns, to_ns) && x->begun_ns >= from_ns) {
            event(out, report_class_names[x->label % READ_CLASSES], 1, lane_for(free_at, x),
                  x->begun_ns - from_ns, x->ended_ns - from_ns, "bytes", x->size_bytes);
        }
    }
}

static void write_work(const struct bench_result *r, uint64_t from_ns, FILE *out)
{
    for (uint32_t w = 0; w < r->journal.workers; w++) {
        const struct journal_worker *worker = &r->journal.worker[w];
        for (uint32_t i = 0; i < worker->count; i++) {
            const struct journal_span *s = &worker->span[i];
            uint32_t layer = s->step < r->span_steps ? r->span_layer[s->step] : UINT32_MAX;
            event(out, doing_name(s->doing), 2, w, s->begun_ns - from_ns, s->ended_ns - from_ns,
                  "layer", layer == UINT32_MAX ? -1 : (long long)layer);
        }
    }
}

int bench_timeline(const struct bench_result *r, FILE *out)
{
    uint64_t from_ns;
    uint64_t to_ns;
    token_bounds(r, &from_ns, &to_ns);
    fprintf(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"reads in "
            "flight\"}},\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":2,\"args\":{\"name\":"
            "\"workers\"}}");
    write_reads(r, from_ns, to_ns, out);
    write_work(r, from_ns, out);
    fprintf(out, "\n]}\n");
    return 0;
}
