/* SPDX-License-Identifier: Apache-2.0 */
/* What every job of a benchmark has: processor time, the drives' own counters, temperatures, and
 * the figures of its reads. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/cli/bench_priv.h"

const char *const bench_job_names[BENCH_JOBS] = {"limit_before", "inference", "replay", "compute",
                                                 "limit_after"};

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static struct bench_usage usage_now(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (struct bench_usage){seconds(r.ru_utime), seconds(r.ru_stime), (uint64_t)r.ru_nvcsw,
                                (uint64_t)r.ru_nivcsw, (uint64_t)r.ru_minflt,
                                (uint64_t)r.ru_majflt};
}

static struct bench_usage usage_since(const struct bench_usage *a, const struct bench_usage *b)
{
    return (struct bench_usage){b->user_s - a->user_s, b->system_s - a->system_s,
                                b->voluntary - a->voluntary, b->involuntary - a->involuntary,
                                b->minor_faults - a->minor_faults,
                                b->major_faults - a->major_faults};
}

/* Threads of this process that the kernel made to read in our stead. */
static uint32_t offloaded_now(void)
{
    DIR *dir = opendir("/proc/self/task");
    uint32_t count = 0;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char path[320];
        char name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = entry->d_name[0] != '.' ? fopen(path, "re") : NULL;
        if (file != NULL) {
            count += fgets(name, sizeof name, file) != NULL && strncmp(name, "iou-wrk", 7) == 0;
            fclose(file);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

void bench_job_begin(struct bench_stage *stage, enum bench_job_kind kind)
{
    struct bench_job *job = &stage->round->job[kind];
    const struct environment *env = &stage->result->environment;
    job->made = true;
    stage->kind = kind;
    job->begun_s = (uint64_t)nondet_date_s();
    job->begun_ms = job->begun_s * 1000;
    job->temperature_c[0] = environment_temperature(env);
    environment_diskstats(env, &stage->disk_before);
    stage->usage_before = usage_now();
    stage->job_begun_ns = nondet_now_ns();
}

void bench_job_end(struct bench_stage *stage, enum bench_job_kind kind, uint64_t requested_bytes)
{
    struct bench_job *job = &stage->round->job[kind];
    const struct environment *env = &stage->result->environment;
    struct bench_usage usage = usage_now();
    struct environment_diskstats disk;
    environment_diskstats(env, &disk);
    environment_diskstats_since(&stage->disk_before, &disk, &job->disk);
    job->disk_known = disk.known && stage->disk_before.known;
    job->usage = usage_since(&stage->usage_before, &usage);
    job->took_ns = nondet_now_ns() - stage->job_begun_ns;
    job->requested_bytes = requested_bytes;
    job->offloaded = offloaded_now();
    job->temperature_c[1] = environment_temperature(env);
    job->too_hot = environment_too_hot(env);
}

void bench_job_skip(struct bench_stage *stage, enum bench_job_kind kind, const char *why)
{
    struct bench_job *job = &stage->round->job[kind];
    job->made = false;
    snprintf(job->why_not, sizeof job->why_not, "%s", why);
}

int bench_job_figures(struct bench_stage *stage, enum bench_job_kind kind,
                      const struct io_log *log, uint64_t from_ns, uint64_t to_ns, bool classes)
{
    struct bench_job *job = &stage->round->job[kind];
    struct io_slice slice = {from_ns, to_ns, IO_ANY, IO_ANY};
    TRY(io_figures(log, &slice, &job->all));
    for (uint32_t label = 0; label < READ_CLASSES && classes; label++) {
        slice.label = label;
        TRY(io_figures(log, &slice, &job->class[label]));
    }
    slice.label = IO_ANY;
    uint32_t devices = stage->files->device_count;
    if (job->device == NULL) {
        job->device = calloc(devices, sizeof *job->device);
    }
    if (job->device == NULL) {
        return err_set(ERR_MEMORY, "no memory for the figures of %u drives", devices);
    }
    for (uint32_t device = 0; device < devices; device++) {
        slice.device = device;
        TRY(io_figures(log, &slice, &job->device[device]));
    }
    return 0;
}

uint64_t bench_round_bytes(uint32_t devices)
{
    return sizeof(struct bench_round) + BENCH_JOBS * devices * sizeof(struct io_figures);
}
