/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/bench_places.h"

#include <stdio.h>

const struct bench_round *bench_place_round(const struct bench_place *p)
{
    return &p->result->point[p->point].round[p->round];
}

const struct bench_job *bench_place_job(const struct bench_place *p)
{
    return &bench_place_round(p)->job[p->kind];
}

bool bench_place_next(const struct bench_result *result, struct bench_place *p)
{
    bool first = p->result == NULL;
    p->result = result;
    if (!first) {
        p->group += bench_place_job(p)->made;
        p->kind++;
    }
    if (p->kind == BENCH_JOBS) {
        p->kind = JOB_LIMIT_BEFORE;
        p->round++;
    }
    while (p->point < result->request->point_count && p->round >= result->point[p->point].rounds) {
        p->round = 0;
        p->point++;
    }
    return p->point < result->request->point_count;
}

void bench_place_name(const struct bench_place *p, char name[BENCH_PLACE_NAME_BYTES])
{
    const struct bench_request *r = p->result->request;
    char point[16] = "";
    char round[16] = "";
    if (r->point_count > 1) {
        snprintf(point, sizeof point, ":p%u", p->point + 1);
    }
    if (r->rounds > 1) {
        snprintf(round, sizeof round, ":r%u", p->round + 1);
    }
    snprintf(name, BENCH_PLACE_NAME_BYTES, "%s%s%s", bench_job_names[p->kind], point, round);
}

void bench_place_window(const struct bench_place *p, uint64_t *chunk_bytes, uint32_t *depth)
{
    const struct bench_facts *facts = &p->result->point[p->point].facts;
    const struct bench_round *round = bench_place_round(p);
    bool limit = p->kind == JOB_LIMIT_BEFORE || p->kind == JOB_LIMIT_AFTER;
    uint32_t which = p->kind == JOB_LIMIT_AFTER;
    *chunk_bytes = facts->io_size_bytes;
    *depth = facts->io_depth;
    if (limit && round->limit_best[which] < BENCH_LIMITS) {
        *chunk_bytes = round->limit[which][round->limit_best[which]].chunk_bytes;
        *depth = round->limit[which][round->limit_best[which]].depth;
    }
}

static void add_counts(struct environment_counts *sum, const struct environment_counts *c)
{
    sum->read_ios += c->read_ios;
    sum->read_merges += c->read_merges;
    sum->read_sectors += c->read_sectors;
    sum->read_ms += c->read_ms;
    sum->write_ios += c->write_ios;
    sum->write_merges += c->write_merges;
    sum->write_sectors += c->write_sectors;
    sum->write_ms += c->write_ms;
    sum->busy_ms += c->busy_ms;
    sum->queue_ms += c->queue_ms;
}

double bench_sum_device(const struct bench_result *result, uint32_t device,
                        struct environment_counts *sum)
{
    struct bench_place p = {0};
    double wall_s = 0;
    *sum = (struct environment_counts){0};
    while (bench_place_next(result, &p)) {
        const struct bench_job *j = bench_place_job(&p);
        if (j->made && j->disk_known) {
            add_counts(sum, &j->disk.device[device]);
        }
        wall_s += j->made ? bench_job_wall_s(j) : 0;
    }
    return wall_s;
}
