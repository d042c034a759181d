/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and drives with fio's names and units, and what fio does not tell under x_io. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/cli/bench_json_priv.h"
#include "core/cli/fio_text.h"
#include "core/cli/report.h"

static void number(cJSON *object, const char *name, double value)
{
    cJSON_AddNumberToObject(object, name, value);
}

/* ---- a direction ---- */

static void add_sampled(cJSON *to, const struct io_figures *f, bool refused)
{
    static const struct io_samples none;
    const struct io_samples *bw = refused ? &none : &f->rate;
    const struct io_samples *iops = refused ? &none : &f->iops;
    number(to, "bw_min", floor(bw->least / 1024));
    number(to, "bw_max", floor(bw->most / 1024));
    number(to, "bw_agg", refused ? 0 : bench_aggregate(f));
    number(to, "bw_mean", io_samples_mean(bw) / 1024);
    number(to, "bw_dev", io_samples_deviation(bw) / 1024);
    bench_json_number(to, "bw_samples", bw->count);
    number(to, "iops_min", floor(iops->least));
    number(to, "iops_max", floor(iops->most));
    number(to, "iops_mean", io_samples_mean(iops));
    number(to, "iops_stddev", io_samples_deviation(iops));
    bench_json_number(to, "iops_samples", iops->count);
}

static void add_direction(cJSON *job, const char *name, const struct io_figures *f, bool refused,
                          bool plus)
{
    cJSON *to = cJSON_AddObjectToObject(job, name);
    double rate = refused ? 0 : bench_per_second(f, f->bytes);
    bench_json_number(to, "io_bytes", f->bytes);
    bench_json_number(to, "io_kbytes", f->bytes / KIB);
    number(to, "bw_bytes", floor(rate));
    number(to, "bw", floor(rate / 1024));
    number(to, "iops", refused ? 0 : bench_per_second(f, f->requests));
    bench_json_number(to, "runtime", f->wall_ns / 1000000);
    bench_json_number(to, "total_ios", f->requests);
    bench_json_number(to, "short_ios", f->shorts);
    number(to, "drop_ios", 0);
    bench_json_latency(to, "slat_ns", &f->slat, plus);
    bench_json_latency(to, "clat_ns", &f->clat, plus);
    bench_json_latency(to, "lat_ns", &f->lat, plus);
    add_sampled(to, f, refused);
}

static void add_directions(cJSON *job, const struct io_figures *f, bool refused, bool plus)
{
    static const struct io_figures none;
    add_direction(job, "read", f, refused, plus);
    add_direction(job, "write", &none, refused, plus);
    add_direction(job, "trim", &none, refused, plus);
    cJSON *sync = cJSON_AddObjectToObject(job, "sync");
    number(sync, "total_ios", 0);
    bench_json_latency(sync, "lat_ns", &none.lat, plus);
}

/* ---- shares ---- */

static void add_levels(cJSON *job, const char *name, const char *const names[IO_LEVELS],
                       const uint64_t levels[IO_LEVELS])
{
    cJSON *to = cJSON_AddObjectToObject(job, name);
    uint64_t total = 0;
    for (int i = 0; i < IO_LEVELS; i++) {
        total += levels[i];
    }
    for (int i = 0; i < IO_LEVELS; i++) {
        number(to, names[i], fio_share(levels[i], total));
    }
}

static void add_steps(cJSON *job, const char *name, const uint64_t *table, uint32_t count,
                      uint64_t total)
{
    cJSON *to = cJSON_AddObjectToObject(job, name);
    for (uint32_t i = 0; i < count; i++) {
        number(to, fio_step_names[i],
               total > 0 ? 100.0 * (double)table[i] / (double)total : 0);
    }
}

static void add_shares(cJSON *job, const struct io_figures *f)
{
    struct fio_latencies l;
    fio_latencies(&f->clat, &l);
    add_levels(job, "iodepth_level", fio_depth_names, f->depth);
    add_levels(job, "iodepth_submit", fio_batch_names, f->submit);
    add_levels(job, "iodepth_complete", fio_batch_names, f->complete);
    add_steps(job, "latency_ns", l.ns, FIO_STEPS, f->clat.count);
    add_steps(job, "latency_us", l.us, FIO_STEPS, f->clat.count);
    add_steps(job, "latency_ms", l.ms, FIO_STEPS_MS, f->clat.count);
}

static void add_usage(cJSON *job, const struct bench_job *j)
{
    number(job, "usr_cpu", bench_job_share(j, j->usage.user_s));
    number(job, "sys_cpu", bench_job_share(j, j->usage.system_s));
    bench_json_number(job, "ctx", j->usage.voluntary + j->usage.involuntary);
    bench_json_number(job, "majf", j->usage.major_faults);
    bench_json_number(job, "minf", j->usage.minor_faults);
}

/* ---- beyond fio ---- */

static void add_flight(cJSON *x, const struct io_figures *f)
{
    number(x, "bytes_in_flight_mean", f->flight_bytes_mean);
    bench_json_number(x, "bytes_in_flight_max", f->flight_bytes_max);
    cJSON *levels = cJSON_AddObjectToObject(x, "mib_in_flight_ns");
    for (uint32_t i = 0; i < IO_LEVELS; i++) {
        char name[16];
        snprintf(name, sizeof name, ">=%u", i == 0 ? 0 : 1U << (i - 1));
        bench_json_number(levels, name, f->flight_ns[i]);
    }
}

/* Reads of the whole job, as the measured stretch has them by size; NAN when it has none. */
static double whole_reads(const struct bench_job *j)
{
    double reads = (double)j->all.requests * (double)j->requested_bytes / (double)j->all.bytes;
    return j->all.bytes > 0 && reads > 0 ? reads : NAN;
}

static void add_device(cJSON *x, const struct bench_job *j)
{
    const struct environment_counts *c = &j->disk.files;
    double ios = j->disk_known ? (double)c->read_ios : NAN;
    double bytes = j->disk_known ? 512.0 * (double)c->read_sectors : NAN;
    bench_json_number(x, "requested_bytes", j->requested_bytes);
    bench_json_figure(x, "device_bytes", bytes);
    bench_json_figure(x, "device_ios", ios);
    bench_json_figure(x, "split_factor", ios / whole_reads(j));
    bench_json_figure(x, "cmd_bytes_mean", ios > 0 ? bytes / ios : NAN);
}

static void add_part(cJSON *parts, const char *name, const struct io_figures *f, bool refused,
                     bool plus)
{
    if (f->requests > 0) {
        add_direction(parts, name, f, refused, plus);
    }
}

static void add_parts(cJSON *x, const struct bench_place *p, bool refused,
                      bool plus)
{
    const struct bench_job *j = bench_place_job(p);
    cJSON *classes = cJSON_AddObjectToObject(x, "classes");
    for (int i = 0; i < READ_CLASSES; i++) {
        add_part(classes, report_class_names[i], &j->class[i], refused, plus);
    }
    cJSON *devices = cJSON_AddObjectToObject(x, "devices");
    for (uint32_t i = 0; i < p->result->point[p->point].facts.devices && j->device != NULL; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u", i);
        add_part(devices, name, &j->device[i], refused, plus);
    }
}

static void add_x_io(cJSON *job, const struct bench_place *p, bool refused, bool plus)
{
    const struct bench_job *j = bench_place_job(p);
    cJSON *x = cJSON_AddObjectToObject(job, "x_io");
    uint64_t chunk_bytes;
    uint32_t depth;
    bench_place_window(p, &chunk_bytes, &depth);
    add_flight(x, &j->all);
    bench_json_number(x, "chunk_bytes", chunk_bytes);
    bench_json_number(x, "window_bytes", chunk_bytes * depth);
    bench_json_number(x, "busy_ns", j->all.busy_ns);
    bench_json_number(x, "idle_ns", j->all.wall_ns - min_u64(j->all.wall_ns, j->all.busy_ns));
    bench_json_number(x, "retries", j->all.repeats - j->all.shorts);
    bench_json_number(x, "short_resubmits", j->all.shorts);
    bench_json_number(x, "errors", j->all.errors);
    bench_json_number(x, "offloaded_threads", j->offloaded);
    bench_json_number(x, "submits_blocked", j->all.blocked);
    bench_json_number(x, "submit_blocked_ns", j->all.blocked_ns);
    add_device(x, j);
    bench_json_figure(x, "temp_c_start", j->temperature_c[0]);
    bench_json_figure(x, "temp_c_end", j->temperature_c[1]);
    add_parts(x, p, refused, plus);
}

/* ---- jobs ---- */

static void option(cJSON *options, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    cJSON_AddStringToObject(options, name, text);
}

/* fio's own options are texts. */
static void add_options(cJSON *job, const struct bench_place *p, const char *name)
{
    cJSON *options = cJSON_AddObjectToObject(job, "job options");
    bool limit = p->kind == JOB_LIMIT_BEFORE || p->kind == JOB_LIMIT_AFTER;
    uint64_t chunk_bytes;
    uint32_t depth;
    bench_place_window(p, &chunk_bytes, &depth);
    cJSON_AddStringToObject(options, "name", name);
    cJSON_AddStringToObject(options, "rw", limit ? "randread" : "read");
    option(options, "bs", chunk_bytes);
    option(options, "iodepth", depth);
}

void bench_json_job(cJSON *jobs, const struct bench_place *p, bool plus)
{
    const struct bench_job *j = bench_place_job(p);
    bool refused = bench_refusal(p->result) != NULL && p->kind != JOB_COMPUTE;
    char name[BENCH_PLACE_NAME_BYTES];
    cJSON *job = cJSON_CreateObject();
    bench_place_name(p, name);
    cJSON_AddStringToObject(job, "jobname", name);
    bench_json_number(job, "groupid", p->group);
    number(job, "error", refused ? EINVAL : 0);
    number(job, "eta", 0);
    bench_json_number(job, "elapsed", (uint64_t)ceil(bench_job_wall_s(j)));
    add_options(job, p, name);
    add_directions(job, &j->all, refused, plus);
    bench_json_number(job, "job_runtime", j->all.wall_ns / 1000000);
    bench_json_number(job, "job_start", j->begun_ms);
    add_usage(job, j);
    add_shares(job, &j->all);
    number(job, "latency_depth", 1);
    number(job, "latency_target", 0);
    number(job, "latency_percentile", 100);
    number(job, "latency_window", 0);
    add_x_io(job, p, refused, plus);
    cJSON_AddItemToArray(jobs, job);
}

/* ---- drives ---- */

void bench_json_disk_util(cJSON *root, const struct bench_result *result)
{
    cJSON *drives = cJSON_AddArrayToObject(root, "disk_util");
    for (uint32_t i = 0; i < result->environment.device_count; i++) {
        struct environment_counts c;
        double wall_s = bench_sum_device(result, i, &c);
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "name", result->environment.device[i].name);
        bench_json_number(one, "read_ios", c.read_ios);
        bench_json_number(one, "write_ios", c.write_ios);
        bench_json_number(one, "read_sectors", c.read_sectors);
        bench_json_number(one, "write_sectors", c.write_sectors);
        bench_json_number(one, "read_merges", c.read_merges);
        bench_json_number(one, "write_merges", c.write_merges);
        bench_json_number(one, "read_ticks", c.read_ms);
        bench_json_number(one, "write_ticks", c.write_ms);
        bench_json_number(one, "in_queue", c.queue_ms);
        number(one, "util", wall_s > 0 ? fmin(100, (double)c.busy_ms / 10 / wall_s) : 0);
        cJSON_AddItemToArray(drives, one);
    }
}
