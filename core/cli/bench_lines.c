/* SPDX-License-Identifier: Apache-2.0 */
/* One line for each: fio's terse version 3 of inference jobs, and CSV of all jobs. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/cli/bench_places.h"
#include "core/cli/commands.h"
#include "core/cli/fio_text.h"
#include "core/cli/text.h"

#define TERSE_PERCENTILES 20      /* places for them, used or not */

static unsigned long long whole(double value)
{
    return (unsigned long long)value;
}

/* ---- terse ---- */

/* Microseconds. */
static void put_latency(FILE *out, const struct histogram *h)
{
    fprintf(out, ";%llu;%llu;%f;%f", (unsigned long long)h->least / 1000,
            (unsigned long long)h->most / 1000, h->mean / 1e3, histogram_deviation(h) / 1e3);
}

static void put_percentiles(FILE *out, const struct histogram *h)
{
    for (int i = 0; i < TERSE_PERCENTILES; i++) {
        if (i < HISTOGRAM_PERCENTILES) {
            double percent = histogram_percentiles[i];
            fprintf(out, ";%f%%=%llu", percent,
                    (unsigned long long)histogram_percentile(h, percent) / 1000);
        } else {
            fprintf(out, ";0%%=0");
        }
    }
}

static void put_direction(FILE *out, const struct io_figures *f, bool refused)
{
    fprintf(out, ";%llu;%llu;%llu;%llu", (unsigned long long)(f->bytes / KIB),
            refused ? 0 : whole(bench_per_second(f, f->bytes) / 1024),
            refused ? 0 : whole(bench_per_second(f, f->requests)),
            (unsigned long long)(f->wall_ns / 1000000));
    put_latency(out, &f->slat);
    put_latency(out, &f->clat);
    put_percentiles(out, &f->clat);
    put_latency(out, &f->lat);
    static const struct io_samples none;
    const struct io_samples *bw = refused ? &none : &f->rate;
    fprintf(out, ";%llu;%llu;%f%%;%f;%f", whole(bw->least / 1024), whole(bw->most / 1024),
            refused ? 0 : bench_aggregate(f), io_samples_mean(bw) / 1024,
            io_samples_deviation(bw) / 1024);
}

static void put_steps(FILE *out, const uint64_t *table, uint32_t count, uint64_t total)
{
    for (uint32_t i = 0; i < count; i++) {
        fprintf(out, ";%3.2f%%",
                total > 0 ? 100.0 * (double)table[i] / (double)total : 0.0);
    }
}

/* The line has no place for what took less than a microsecond: its first step has it. */
static void put_distributions(FILE *out, const struct io_figures *f)
{
    struct fio_latencies l;
    uint64_t begun = 0;
    for (int i = 0; i < IO_LEVELS; i++) {
        begun += f->depth[i];
    }
    for (int i = 0; i < IO_LEVELS; i++) {
        fprintf(out, ";%3.1f%%", fio_share(f->depth[i], begun));
    }
    fio_latencies(&f->clat, &l);
    for (int i = 0; i < FIO_STEPS; i++) {
        l.us[0] += l.ns[i];
    }
    put_steps(out, l.us, FIO_STEPS, f->clat.count);
    put_steps(out, l.ms, FIO_STEPS_MS, f->clat.count);
}

static void put_drives(FILE *out, const struct bench_place *p)
{
    const struct environment *env = &p->result->environment;
    const struct bench_job *job = bench_place_job(p);
    for (uint32_t i = 0; i < env->device_count; i++) {
        const struct environment_counts *c = &job->disk.device[i];
        fprintf(out, ";%s;%llu;%llu;%llu;%llu;%llu;%llu;%llu;%.2f%%", env->device[i].name,
                (unsigned long long)c->read_ios, (unsigned long long)c->write_ios,
                (unsigned long long)c->read_merges, (unsigned long long)c->write_merges,
                (unsigned long long)c->read_ms, (unsigned long long)c->write_ms,
                (unsigned long long)c->queue_ms,
                fmin(100, bench_job_share(job, (double)c->busy_ms / 1e3)));
    }
}

static void put_terse(FILE *out, const struct bench_place *p)
{
    static const struct io_figures none;
    const struct bench_job *job = bench_place_job(p);
    bool refused = bench_refusal(p->result) != NULL;
    char name[BENCH_PLACE_NAME_BYTES];
    bench_place_name(p, name);
    fprintf(out, "3;k3ring-%s;%s;%u;%d", k3ring_version, name, p->group, refused ? EINVAL : 0);
    put_direction(out, &job->all, refused);
    put_direction(out, &none, refused);
    fprintf(out, ";%f%%;%f%%;%llu;%llu;%llu", bench_job_share(job, job->usage.user_s),
            bench_job_share(job, job->usage.system_s),
            (unsigned long long)(job->usage.voluntary + job->usage.involuntary),
            (unsigned long long)job->usage.major_faults,
            (unsigned long long)job->usage.minor_faults);
    put_distributions(out, &job->all);
    put_drives(out, p);
    fprintf(out, "\n");
}

void bench_terse(FILE *out, const struct bench_result *result)
{
    struct bench_place p = {0};
    while (bench_place_next(result, &p)) {
        if (p.kind == JOB_INFERENCE && bench_place_job(&p)->made) {
            put_terse(out, &p);
        }
    }
}

/* ---- CSV ---- */

static void put_header(FILE *out)
{
    fprintf(out, "point,round,job,io_depth,io_size_bytes,cache_policy,ram_bytes,made,why_not,"
            "wall_ns,busy_ns,total_ios,io_bytes,bw_bytes,iops,slat_mean_ns,clat_mean_ns");
    for (int i = 0; i < HISTOGRAM_PERCENTILES; i++) {
        fprintf(out, ",clat_p%g_ns", histogram_percentiles[i]);
    }
    fprintf(out, ",clat_max_ns,lat_mean_ns,bytes_in_flight_mean,"
            "user_s,system_s,context_switches,requested_bytes,device_bytes,device_ios,retries,"
            "errors,refused");
    for (int i = 0; i < BENCH_METRICS; i++) {
        fprintf(out, ",round_%s", bench_metrics[i].name);
    }
    fprintf(out, "\n");
}

/* A text of any kind, on one line; quotes are doubled. */
static void put_quoted(FILE *out, const char *text)
{
    static const struct text_rule quote = {'"', "\"\""};
    if (text[0] == '\0') {
        return;
    }
    fputc('"', out);
    text_put(out, text, &quote, 1, false);
    fputc('"', out);
}

/* Empty when there is none. */
static void put_figure(FILE *out, double value)
{
    fputc(',', out);
    if (isfinite(value)) {
        fprintf(out, "%.15g", value);
    }
}

static void put_count(FILE *out, uint64_t value)
{
    fprintf(out, ",%llu", (unsigned long long)value);
}

static void put_csv_settings(FILE *out, const struct bench_place *p)
{
    const struct bench_point *point = &p->result->point[p->point].point;
    fprintf(out, "%u,%u,%s,%u,%llu,%s,", p->point + 1, p->round + 1, bench_job_names[p->kind],
            point->io_depth, (unsigned long long)point->io_size_bytes, point->policy);
    if (point->ram_bytes == ENGINE_RAM_AUTO) {
        fprintf(out, "auto");
    } else {
        fprintf(out, "%llu", (unsigned long long)point->ram_bytes);
    }
}

static void put_csv_reads(FILE *out, const struct io_figures *f, bool refused)
{
    bool none = refused || f->wall_ns == 0 || f->requests == 0;
    double latency = f->clat.count > 0 ? 1 : NAN;
    put_count(out, f->wall_ns);
    put_count(out, f->busy_ns);
    put_count(out, f->requests);
    put_count(out, f->bytes);
    put_figure(out, none ? NAN : bench_per_second(f, f->bytes));
    put_figure(out, none ? NAN : bench_per_second(f, f->requests));
    put_figure(out, latency * f->slat.mean);
    put_figure(out, latency * f->clat.mean);
    for (int i = 0; i < HISTOGRAM_PERCENTILES; i++) {
        double percent = histogram_percentiles[i];
        bool told = histogram_tells(&f->clat, percent);
        put_figure(out, told ? (double)histogram_percentile(&f->clat, percent) : NAN);
    }
    put_figure(out, latency * (double)f->clat.most);
    put_figure(out, latency * f->lat.mean);
    put_figure(out, latency * f->flight_bytes_mean);
}

static void put_csv_costs(FILE *out, const struct bench_job *job)
{
    const struct environment_counts *c = &job->disk.files;
    put_figure(out, job->usage.user_s);
    put_figure(out, job->usage.system_s);
    put_count(out, job->usage.voluntary + job->usage.involuntary);
    put_count(out, job->requested_bytes);
    put_figure(out, job->disk_known ? 512.0 * (double)c->read_sectors : NAN);
    put_figure(out, job->disk_known ? (double)c->read_ios : NAN);
    put_count(out, job->all.repeats - job->all.shorts);
    put_count(out, job->all.errors);
}

/* What the round's jobs say together stands in the row of its inference job. */
static void put_csv_round(FILE *out, const struct bench_place *p)
{
    for (int i = 0; i < BENCH_METRICS; i++) {
        bool here = p->kind == JOB_INFERENCE;
        put_figure(out, here ? bench_metric(p->result, bench_place_round(p),
                                            (enum bench_metric_id)i) : NAN);
    }
    fprintf(out, "\n");
}

void bench_csv(FILE *out, const struct bench_result *result)
{
    struct bench_place p = {0};
    const char *refusal = bench_refusal(result);
    put_header(out);
    while (bench_place_next(result, &p)) {
        const struct bench_job *job = bench_place_job(&p);
        bool refused = refusal != NULL && p.kind != JOB_COMPUTE;
        put_csv_settings(out, &p);
        fprintf(out, ",%d,", job->made);
        put_quoted(out, job->made ? "" : job->why_not);
        put_csv_reads(out, &job->all, refused);
        put_csv_costs(out, job);
        fputc(',', out);
        put_quoted(out, refused ? refusal : "");
        put_csv_round(out, &p);
    }
}
