/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "core/base/err.h"
#include "core/cli/picture.h"
#include "core/cli/replay.h"

#define GB 1e9

/* Beyond this ratio between the sizes small ones would stick together. */
#define LINEAR_RATIO_MAX 4U

/* A figure of a row, as the picture shows it. */
typedef double figure_fn(const struct replay_request *q, const struct replay_result *r,
                         const struct replay_row *row);

static double hit_percent(const struct replay_request *q, const struct replay_result *r,
                          const struct replay_row *row)
{
    (void)q;
    (void)r;
    return 100.0 * replay_hit_rate(row);
}

static double gb_per_token(const struct replay_request *q, const struct replay_result *r,
                           const struct replay_row *row)
{
    return replay_bytes_per_token(q, r, row) / GB;
}

/* Groups of rows, one for each size, in order of size. */
struct sizes {
    const struct replay_row *group[REPLAY_SLOTS_MAX]; /* the first row of each */
    uint32_t count, rows; /* groups; rows of one */
};

static int smaller_first(const void *a, const void *b)
{
    const struct replay_row *left = *(const struct replay_row *const *)a;
    const struct replay_row *right = *(const struct replay_row *const *)b;
    return (left->slots > right->slots) - (left->slots < right->slots);
}

static struct sizes sort_sizes(const struct replay_request *q, const struct replay_result *r)
{
    struct sizes sizes = {.count = q->slots_count, .rows = q->policy_count + 1};
    for (uint32_t i = 0; i < sizes.count; i++) {
        sizes.group[i] = &r->row[i * sizes.rows];
    }
    qsort(sizes.group, sizes.count, sizeof sizes.group[0], smaller_first);
    return sizes;
}

/* ---- a line for each policy ---- */

struct points {
    double x[REPLAY_POLICIES_MAX + 1][REPLAY_SLOTS_MAX], y[REPLAY_POLICIES_MAX + 1]
            [REPLAY_SLOTS_MAX];
    const char *names[REPLAY_POLICIES_MAX + 1];
};

static void add_lines(struct picture *p, struct points *points, const struct replay_request *q,
                      const struct replay_result *r, figure_fn *figure)
{
    const struct sizes sizes = sort_sizes(q, r);
    const struct replay_row *least = sizes.group[0];
    const struct replay_row *most = sizes.group[sizes.count - 1];
    p->x.label = "expert slots";
    p->x.log = least->slots > 0 && most->slots / least->slots >= LINEAR_RATIO_MAX;
    for (uint32_t i = 0; i < sizes.rows; i++) {
        for (uint32_t at = 0; at < sizes.count; at++) {
            points->x[i][at] = sizes.group[at][i].slots;
            points->y[i][at] = figure(q, r, &sizes.group[at][i]);
        }
        p->series[i] = (struct picture_series){
            .name = least[i].policy, .kind = PICTURE_LINES, .count = sizes.count,
            .reference = i + 1 == sizes.rows, .x = points->x[i], .y = points->y[i]};
    }
    p->series_count = sizes.rows;
}

/* One size: a bar for each policy. */
static void add_bars(struct picture *p, struct points *points, const struct replay_request *q,
                     const struct replay_result *r, figure_fn *figure)
{
    for (uint32_t i = 0; i < r->row_count; i++) {
        points->names[i] = r->row[i].policy;
        points->x[0][i] = i;
        points->y[0][i] = figure(q, r, &r->row[i]);
    }
    p->x.names = points->names;
    p->x.name_count = r->row_count;
    p->series[0] = (struct picture_series){.kind = PICTURE_BARS, .count = r->row_count,
                                           .x = points->x[0], .y = points->y[0]};
    p->series_count = 1;
}

static int plot(const char *dir, struct picture *p, const struct replay_request *q,
                const struct replay_result *r, figure_fn *figure)
{
    struct points *points = calloc(1, sizeof *points);
    char label[64];
    if (points == NULL) {
        return err_set(ERR_MEMORY, "no memory for a picture");
    }
    if (q->slots_count > 1) {
        add_lines(p, points, q, r, figure);
    } else {
        snprintf(label, sizeof label, "cache policy, %u expert slots", q->slots[0]);
        p->x.label = label;
        add_bars(p, points, q, r, figure);
    }
    int rc = picture_write(dir, p);
    *p = (struct picture){.name = NULL}; /* label and points end here */
    free(points);
    return rc < 0 ? rc : 0;
}

int replay_plot(const char *dir, const struct replay_request *q, const struct replay_result *r)
{
    struct picture hits = {.name = "hit_rate", .title = "Hits of each cache policy",
                           .y = {.label = "requests that hit (%)", .from_zero = true}};
    struct picture bytes = {.name = "bytes_per_token",
                            .title = "Expert weights read for a token, by cache policy",
                            .y = {.label = "read per token (GB)", .from_zero = true}};
    TRY(plot(dir, &hits, q, r, hit_percent));
    return plot(dir, &bytes, q, r, gb_per_token);
}
