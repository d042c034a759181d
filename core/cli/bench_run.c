/* SPDX-License-Identifier: Apache-2.0 */
/* Points and rounds: every point once, then every point again, so that a drive whose speed drifts
 * favours none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/bench_priv.h"

/* ---- what is measured ---- */

static int list_paths(struct bench_result *result, const struct io_files *files)
{
    result->paths = calloc(files->count, sizeof *result->paths);
    for (uint32_t i = 0; i < files->count && result->paths != NULL; i++) {
        result->paths[i] = strdup(files->file[i].path);
        result->file_count += result->paths[i] != NULL;
    }
    if (result->paths == NULL || result->file_count < files->count) {
        return err_set(ERR_MEMORY, "no memory for %u file names", files->count);
    }
    snprintf(result->file_path, sizeof result->file_path, "%s", result->paths[0]);
    return 0;
}

static int look_at_model(struct bench_result *result, struct io_files *files)
{
    struct model_options options = {.allow_holes = true};
    struct model *model;
    TRY(model_open(result->request->dir, &options, &model));
    result->layers = model->config.layers;
    result->experts = model->config.experts;
    result->model_bytes = model->total_bytes;
    result->synthetic = model->synthetic;
    int rc = engine_open_files(model, files);
    model_close(model);
    TRY(rc);
    TRY(list_paths(result, files));
    return environment_open(&result->environment, "", (const char *const *)result->paths,
                            result->file_count);
}

/* The plan of a point, before anything is read: what fits, and what a pass will read. */
static int look_at_point(struct bench_stage *stage)
{
    struct model *model;
    struct plan *plan;
    uint64_t bytes;
    TRY(engine_plan(stage->request->dir, &stage->options, &model, &plan));
    plan_pass_reads(plan, true, true, true, &bytes, &stage->pass_requests);
    stage->pass_requests += (uint64_t)plan->experts_per_pass * plan->expert_requests;
    stage->result->pass_bytes = bytes + plan->experts_per_pass * plan->expert_window_bytes;
    stage->result->expert_bytes = plan->expert_window_bytes;
    plan_free(plan);
    model_close(model);
    return 0;
}

/* The window that is in force when there is also room for what is written down. */
static int look_at_window(struct bench_stage *stage)
{
    struct bench_stage with = *stage;
    struct model *model;
    struct plan *plan;
    TRY(bench_records_fit(&with));
    TRY(engine_plan(stage->request->dir, &with.options, &model, &plan));
    stage->to->facts.io_depth = plan->request.io_depth;
    stage->to->facts.io_size_bytes = plan->io_size_bytes;
    plan_free(plan);
    model_close(model);
    return 0;
}

/* ---- rounds ---- */

/* Kernels alone are the same at every point: once measured, that is taken for all. */
static int compute_once(struct bench_stage *stage)
{
    const struct bench_result *result = stage->result;
    for (uint32_t i = 0; i < stage->request->point_count; i++) {
        for (uint32_t k = 0; k < result->point[i].rounds; k++) {
            if (result->point[i].round[k].compute_s > 0) {
                stage->round->compute_s = result->point[i].round[k].compute_s;
                bench_job_skip(stage, JOB_COMPUTE, "measured in an earlier round");
                return 0;
            }
        }
    }
    return bench_compute(stage);
}

static int run_round(struct bench_stage *stage)
{
    TRY(bench_limit(stage, JOB_LIMIT_BEFORE));
    TRY(bench_inference(stage));
    TRY(bench_replay(stage));
    TRY(compute_once(stage));
    return bench_limit(stage, JOB_LIMIT_AFTER);
}

static struct engine_options options_of(const struct bench_request *request,
                                        const struct bench_point *point, uint32_t devices)
{
    struct engine_options o = request->engine;
    o.io_depth = point->io_depth;
    o.io_size_bytes = point->io_size_bytes;
    o.policy = point->policy;
    o.ram_bytes = point->ram_bytes;
    o.caller_bytes += bench_round_bytes(devices) * request->rounds * request->point_count;
    return o;
}

static int run_point(struct bench_result *result, uint32_t index, uint32_t round,
                     const struct io_files *files, struct bench_status *status)
{
    struct bench_point_result *to = &result->point[index];
    struct bench_stage stage = {.request = result->request, .result = result, .to = to,
                                .round = &to->round[round], .files = files, .status = status,
                                .options = options_of(result->request, &to->point,
                                                      files->device_count)};
    if (!result->request->quiet && result->request->point_count * result->request->rounds > 1) {
        fprintf(stderr, "k3ring: round %u of %u, point %u of %u: depth %u x %llu KiB, %s\n",
                round + 1, result->request->rounds, index + 1, result->request->point_count,
                to->point.io_depth, (unsigned long long)(to->point.io_size_bytes / KIB),
                to->point.policy);
    }
    TRY(look_at_point(&stage));
    TRY(look_at_window(&stage));
    int rc = run_round(&stage);
    /* A round that was stopped counts when it has measured something. */
    to->rounds += rc == 0 || (rc == ERR_STOPPED && stage.round->inference.tokens > 0);
    return rc;
}

/* A point that cannot be is refused before any time is spent. */
static int check_points(struct bench_result *result, const struct io_files *files)
{
    for (uint32_t i = 0; i < result->request->point_count; i++) {
        struct bench_stage stage = {.request = result->request, .result = result,
                                    .to = &result->point[i], .files = files,
                                    .options = options_of(result->request,
                                                          &result->point[i].point,
                                                          files->device_count)};
        TRY(look_at_point(&stage));
        TRY(bench_records_fit(&stage));
    }
    return 0;
}

static int run_all(struct bench_result *result, const struct io_files *files)
{
    const struct bench_request *request = result->request;
    struct bench_status status;
    TRY(check_points(result, files));
    bench_status_open(&status, request->status_ns, &result->environment);
    for (uint32_t round = 0; round < request->rounds; round++) {
        for (uint32_t i = 0; i < request->point_count; i++) {
            uint32_t index = round % 2 == 0 ? i : request->point_count - 1 - i;
            TRY(run_point(result, index, round, files, &status));
        }
    }
    return 0;
}

static int make_points(struct bench_result *result)
{
    const struct bench_request *request = result->request;
    result->point = calloc(request->point_count, sizeof *result->point);
    for (uint32_t i = 0; i < request->point_count && result->point != NULL; i++) {
        result->point[i].point = request->point[i];
        result->point[i].round = calloc(request->rounds, sizeof *result->point[i].round);
        if (result->point[i].round == NULL) {
            return err_set(ERR_MEMORY, "no memory for %u rounds", request->rounds);
        }
    }
    return result->point != NULL ? 0 : err_set(ERR_MEMORY, "no memory for %u points",
                                               request->point_count);
}

int bench_run(const struct bench_request *request, struct bench_result *out)
{
    struct io_files files = {.file = NULL};
    *out = (struct bench_result){.request = request, .environment = {.diskstats_fd = -1}};
    TRY(make_points(out));
    int rc = look_at_model(out, &files);
    if (rc == 0) {
        rc = run_all(out, &files);
        out->interrupted = rc == ERR_STOPPED;
        if (rc == ERR_IO || rc == ERR_NUMERIC) {
            snprintf(out->failure, sizeof out->failure, "%s", err_message());
        }
        bench_judge(out);
    }
    io_files_close(&files);
    return rc;
}

void bench_fini(struct bench_result *result)
{
    uint32_t points = result->request != NULL && result->point != NULL
                          ? result->request->point_count : 0;
    for (uint32_t i = 0; i < points; i++) {
        struct bench_round *round = result->point[i].round;
        for (uint32_t k = 0; round != NULL && k < result->request->rounds; k++) {
            for (int job = 0; job < BENCH_JOBS; job++) {
                free(round[k].job[job].device);
            }
        }
        free(round);
    }
    free(result->point);
    for (uint32_t i = 0; i < result->file_count; i++) {
        free(result->paths[i]);
    }
    free(result->paths);
    free(result->span_layer);
    io_log_close(&result->log);
    journal_close(&result->journal);
    if (result->request != NULL) {
        environment_close(&result->environment); /* descriptor 0 of one never begun is not ours */
    }
    *result = (struct bench_result){0};
}
