/* SPDX-License-Identifier: Apache-2.0 */
/* The report for machines: fio's document where fio has a word for it, and ours beside. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/base/err.h"
#include "core/cli/bench_full.h"
#include "core/cli/bench_json_priv.h"
#include "core/cli/commands.h"
#include "core/cli/report.h"

#define SCHEMA 1

void bench_json_number(cJSON *object, const char *name, uint64_t value)
{
    cJSON_AddNumberToObject(object, name, (double)value);
}

void bench_json_figure(cJSON *object, const char *name, double value)
{
    if (isfinite(value)) {
        cJSON_AddNumberToObject(object, name, value);
    } else {
        cJSON_AddNullToObject(object, name);
    }
}

void bench_json_latency(cJSON *object, const char *name, const struct histogram *h, bool plus)
{
    cJSON *to = report_latency_json(object, name, h);
    if (h->count == 0) {
        cJSON_DeleteItemFromObject(to, "percentile");
        return;
    }
    cJSON *bins = plus ? cJSON_AddObjectToObject(to, "bins") : NULL;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS && plus; i++) {
        if (h->bucket[i] > 0) {
            char key[24];
            snprintf(key, sizeof key, "%llu", (unsigned long long)histogram_value(i));
            bench_json_number(bins, key, h->bucket[i]);
        }
    }
}

/* Of the first job, as fio writes times. */
static void add_time(cJSON *root, const struct bench_result *result)
{
    struct bench_place p = {0};
    uint64_t ms = 0;
    while (ms == 0 && bench_place_next(result, &p)) {
        ms = bench_place_job(&p)->begun_ms;
    }
    time_t seconds = (time_t)(ms / 1000);
    struct tm parts;
    char text[64];
    localtime_r(&seconds, &parts);
    strftime(text, sizeof text, "%a %b %e %H:%M:%S %Y", &parts);
    bench_json_number(root, "timestamp", ms / 1000);
    bench_json_number(root, "timestamp_ms", ms);
    cJSON_AddStringToObject(root, "time", text);
}

static void add_program(cJSON *root, const struct bench_result *result)
{
    const struct bench_facts *f = &result->point[0].facts;
    cJSON *to = cJSON_AddObjectToObject(root, "k3ring");
    cJSON_AddStringToObject(to, "version", k3ring_version);
    cJSON_AddNumberToObject(to, "schema", SCHEMA);
    cJSON_AddStringToObject(to, "command", result->request->command);
    cJSON_AddStringToObject(to, "engine", f->io_engine);
    cJSON_AddStringToObject(to, "features", f->io_features);
    cJSON_AddBoolToObject(to, "fixed_buffers", f->fixed_buffers);
    bench_json_number(to, "warmup_tokens", result->request->warmup);
    bench_json_number(to, "rounds", result->request->rounds);
    bench_json_number(to, "seed", result->request->seed);
}

/* fio's name of what reads as we do. */
static const char *fio_engine(const char *name)
{
    return strstr(name, "uring") != NULL ? "io_uring" : "psync";
}

static void add_global_options(cJSON *root, const struct bench_result *result)
{
    const struct bench_facts *f = &result->point[0].facts;
    cJSON *to = cJSON_AddObjectToObject(root, "global options");
    cJSON_AddStringToObject(to, "filename", result->file_path);
    cJSON_AddStringToObject(to, "ioengine", fio_engine(f->io_engine));
    cJSON_AddStringToObject(to, "direct",
                            f->files > 0 && f->direct_files == f->files ? "1" : "0");
}

static void add_model(cJSON *root, const struct bench_result *result)
{
    cJSON *to = cJSON_AddObjectToObject(root, "model");
    cJSON_AddStringToObject(to, "path", result->request->dir);
    bench_json_number(to, "bytes", result->model_bytes);
    bench_json_number(to, "pass_bytes", result->pass_bytes);
    bench_json_number(to, "expert_bytes", result->expert_bytes);
    bench_json_number(to, "layers", result->layers);
    bench_json_number(to, "experts", result->experts);
    bench_json_number(to, "prompt_tokens", result->request->id_count);
    cJSON_AddBoolToObject(to, "synthetic", result->synthetic);
}

static void add_texts(cJSON *to, const char *name, const struct bench_verdict *v, uint32_t from,
                      uint32_t end)
{
    cJSON *array = cJSON_AddArrayToObject(to, name);
    for (uint32_t i = from; i < end; i++) {
        cJSON_AddItemToArray(array, cJSON_CreateString(v->reason[i]));
    }
}

static void add_verdict(cJSON *root, const struct bench_verdict *v)
{
    cJSON *to = cJSON_AddObjectToObject(root, "verdict");
    cJSON_AddBoolToObject(to, "valid", v->valid);
    add_texts(to, "reasons", v, 0, v->invalid);
    add_texts(to, "warnings", v, v->invalid, v->count);
}

static void add_jobs(cJSON *root, const struct bench_result *result, bool plus)
{
    cJSON *jobs = cJSON_AddArrayToObject(root, "jobs");
    cJSON *missing = cJSON_AddArrayToObject(root, "jobs_not_run");
    struct bench_place p = {0};
    while (bench_place_next(result, &p)) {
        const struct bench_job *job = bench_place_job(&p);
        if (job->made) {
            bench_json_job(jobs, &p, plus);
            continue;
        }
        char name[BENCH_PLACE_NAME_BYTES];
        cJSON *one = cJSON_CreateObject();
        bench_place_name(&p, name);
        cJSON_AddStringToObject(one, "jobname", name);
        cJSON_AddStringToObject(one, "why", job->why_not);
        cJSON_AddItemToArray(missing, one);
    }
}

/* The round that the report for people shows. */
static void add_shown(cJSON *root, const struct bench_result *result, bool plus)
{
    struct bench_choice c;
    uint32_t point = bench_choose(result, &c) ? c.best : 0;
    const struct bench_round *round = bench_middle_round(result, point);
    if (round == NULL) {
        return;
    }
    cJSON *to = cJSON_AddObjectToObject(root, "shown");
    bench_json_number(to, "point", point + 1);
    bench_json_number(to, "round", (uint64_t)(round - result->point[point].round) + 1);
    bench_json_round(root, result, point, round, plus);
}

/* Of a part of the model: what the whole one would do here. */
static void add_full(cJSON *root, const struct bench_result *result)
{
    struct bench_full full;
    if (!bench_full(result, &full)) {
        cJSON_AddNullToObject(root, "full_model");
        return;
    }
    cJSON *to = cJSON_AddObjectToObject(root, "full_model");
    cJSON_AddNumberToObject(to, "model_share", full.model_share);
    cJSON_AddNumberToObject(to, "token_share", full.token_share);
    cJSON_AddNumberToObject(to, "bw_bytes", full.rate);
    cJSON_AddBoolToObject(to, "bw_of_run", full.measured);
    cJSON_AddNumberToObject(to, "s_per_token_streamed", full.streamed_s);
    cJSON_AddNumberToObject(to, "s_per_token_experts", full.experts_s);
}

cJSON *bench_json(const struct bench_result *result, bool plus)
{
    cJSON *root = cJSON_CreateObject();
    add_program(root, result);
    add_time(root, result);
    add_global_options(root, result);
    add_verdict(root, &result->verdict);
    cJSON_AddBoolToObject(root, "interrupted", result->interrupted);
    add_jobs(root, result, plus);
    bench_json_disk_util(root, result);
    add_shown(root, result, plus);
    bench_json_points(root, result, plus);
    add_model(root, result);
    add_full(root, result);
    tuning_json(&result->tuning, root);
    if (plus) {
        bench_json_log(root, result);
    }
    if (environment_json(root, &result->environment) == NULL) {
        cJSON_Delete(root);
        return NULL;
    }
    return root;
}
