/* SPDX-License-Identifier: Apache-2.0 */
/* Several settings side by side, and which of them is best, if any. */
#include <math.h>
#include <stdlib.h>

#include "core/cli/bench_print_priv.h"

static void put_settings(FILE *out, const struct bench_point *p, uint32_t number)
{
    char size[FIO_AMOUNT_BYTES];
    char ram[FIO_AMOUNT_BYTES] = "auto";
    if (p->ram_bytes != ENGINE_RAM_AUTO) {
        fio_size(ram, p->ram_bytes);
    }
    fprintf(out, "  %3u %5ux%-8s %-10s %-9s", number, p->io_depth,
            fio_size(size, p->io_size_bytes), p->policy, ram);
}

/* Median of a figure, "-" when nobody measured it. */
static void put_median(const struct bench_page *page, const struct samples *s, int width,
                       double unit)
{
    if (s->count == 0) {
        fprintf(page->out, " %*s", width, "-");
    } else {
        fprintf(page->out, " %*.4g", width, samples_median(s) / unit);
    }
}

static void put_point(const struct bench_page *page, uint32_t point, double *values)
{
    static const struct {
        enum bench_metric_id id;
        int width;
        double unit;
    } columns[] = {{METRIC_RUN, 9, 1e6}, {METRIC_OF_RUN, 8, 1}, {METRIC_OF_BUSY, 8, 1},
                   {METRIC_STALL, 9, 1e-3}, {METRIC_BYTES, 9, 1e6}, {METRIC_HITS, 6, 0.01}};
    struct samples tokens = bench_samples(page->result, point, METRIC_TOKENS, values);
    put_settings(page->out, &page->result->point[point].point, point + 1);
    put_median(page, &tokens, 8, 1);
    if (tokens.count > 1) {
        fprintf(page->out, " %8.4g-%-8.4g", samples_least(&tokens), samples_most(&tokens));
    } else {
        fprintf(page->out, " %17s", tokens.count == 1 ? "one round" : "no round");
    }
    for (size_t i = 0; i < countof(columns); i++) {
        struct samples s = bench_samples(page->result, point, columns[i].id, values);
        put_median(page, &s, columns[i].width, columns[i].unit);
    }
    fprintf(page->out, "\n");
}

static void put_choice(const struct bench_page *page)
{
    struct bench_choice c;
    if (!bench_choose(page->result, &c)) {
        fprintf(page->out, "best    none: fewer than two points were measured\n");
    } else if (c.differs) {
        fprintf(page->out, "best    point %u. Chance alone would set it so far apart from point "
                "%u, the nearest, with %.2g%% (below %.2g%% counts)\n", c.best + 1, c.next + 1,
                100 * c.chance, 100 * c.threshold);
    } else if (page->result->request->rounds < 2) {
        fprintf(page->out, "best    no difference can be told: one round says nothing about noise; "
                "give --repeat 3 or more\n");
    } else {
        fprintf(page->out, "best    no difference: point %u has the highest median, but chance "
                "alone sets it so far apart from point %u with %.2g%% (below %.2g%% counts)\n",
                c.fastest + 1, c.next + 1, 100 * c.chance, 100 * c.threshold);
    }
}

void bench_page_points(const struct bench_page *page)
{
    uint32_t points = page->result->request->point_count;
    double *values = calloc(page->result->request->rounds + 1ULL, sizeof *values);
    if (values == NULL) {
        return;
    }
    fprintf(page->out, "points  medians of the rounds; rates of drives as share of the limit\n");
    fprintf(page->out, "  %3s %5s %-8s %-10s %-9s %8s %17s %9s %8s %8s %9s %9s %6s\n", "#",
            "depth", "size", "policy", "ram", "tok/s", "least-most", "MB/s", "run %", "busy %",
            "stall ms", "MB/tok", "hit %");
    for (uint32_t i = 0; i < points; i++) {
        put_point(page, i, values);
    }
    free(values);
    if (page->refused != NULL) {
        fprintf(page->out, "        rates are left out, refused: ");
        bench_put(page->out, page->refused);
        fprintf(page->out, "\n");
    }
    put_choice(page);
    fprintf(page->out, "\n");
}
