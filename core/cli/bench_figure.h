/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_FIGURE_H
#define CLI_BENCH_FIGURE_H

/* Between the pictures of a benchmark. */

#include "core/cli/bench.h"

/* Spans of one colour for a picture. */
struct figure_spans {
    double *x, *x_end, *y;
    uint32_t count, capacity;
};

int figure_spans_open(struct figure_spans *spans, uint32_t capacity);
void figure_spans_close(struct figure_spans *spans);
/* Too short ones and those beyond the capacity are left out. */
void figure_span(struct figure_spans *spans, double from, double to, double row);

int bench_draw_timeline(const struct bench_result *result, const char *dir);

#endif
