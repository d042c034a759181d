/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/measured_priv.h"
#include "core/cli/text.h"

/* A figure of a run's JSON: where it lies, and what it is called here. */
struct figure {
    const char *object, *member, *name, *unit;
    enum measured_better better;
};

static const struct figure figures[] = {
    {"seconds_per_token", "first", "first_token_seconds", "s", MEASURED_LOWER},
    {"seconds_per_token", "rest", "seconds_per_token", "s", MEASURED_LOWER},
    {"reads", "bytes", "bytes_read", "bytes", MEASURED_LOWER},
    {"reads", "requests", "requests", "requests", MEASURED_NEITHER},
    {"reads", "storage_read_bytes", "storage_read_bytes", "bytes", MEASURED_LOWER},
    {"stall_seconds", "trunk", "stall_trunk_seconds", "s", MEASURED_LOWER},
    {"stall_seconds", "experts", "stall_experts_seconds", "s", MEASURED_LOWER},
    {"stall_seconds", "head", "stall_head_seconds", "s", MEASURED_LOWER},
    {"stall_seconds", "compute", "stall_compute_seconds", "s", MEASURED_LOWER},
    {NULL, "busy_seconds", "busy_seconds", "s", MEASURED_LOWER},
    {"costs", "io_cpu_seconds_per_gb", "io_cpu_seconds_per_gb", "s/GB", MEASURED_LOWER},
    {NULL, "peak_rss_bytes", "peak_rss_bytes", "bytes", MEASURED_LOWER},
};

/* And those that are worked out. */
#define DERIVED 5U

static const cJSON *member(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* NAN when it is not there or no number. */
static double number(const cJSON *tree, const char *object, const char *name)
{
    return cJSON_GetNumberValue(member(object != NULL ? member(tree, object) : tree, name));
}

static double p99_ms(const cJSON *tree, const char *class)
{
    const cJSON *latency = member(member(member(tree, "reads"), class), "lat_ns");
    return number(latency, "percentile", "99.000000") / 1e6;
}

static int add_figures(struct measured_point *point, const cJSON *tree)
{
    double rest = number(tree, "seconds_per_token", "rest");
    double passes = number(tree, NULL, "passes");
    double demands = number(tree, "cache", "demands");
    TRY(measured_add(point, "tokens_per_second", "tokens/s", MEASURED_HIGHER,
                     rest > 0 ? 1 / rest : NAN));
    for (uint32_t i = 0; i < countof(figures); i++) {
        const struct figure *f = &figures[i];
        TRY(measured_add(point, f->name, f->unit, f->better, number(tree, f->object, f->member)));
    }
    TRY(measured_add(point, "bytes_per_pass", "bytes", MEASURED_LOWER,
                     passes > 0 ? number(tree, "reads", "bytes") / passes : NAN));
    TRY(measured_add(point, "hit_rate", "1", MEASURED_HIGHER,
                     demands > 0 ? number(tree, "cache", "hits") / demands : NAN));
    TRY(measured_add(point, "trunk_read_p99", "ms", MEASURED_LOWER, p99_ms(tree, "trunk")));
    return measured_add(point, "experts_read_p99", "ms", MEASURED_LOWER, p99_ms(tree, "experts"));
}

/* How many ids a list has, as a setting. */
static int add_count(struct measured_fields *fields, const cJSON *tree, const char *list,
                     const char *name)
{
    cJSON *count = cJSON_CreateObject();
    if (count == NULL ||
        cJSON_AddNumberToObject(count, name, cJSON_GetArraySize(member(tree, list))) == NULL) {
        cJSON_Delete(count);
        return err_set(ERR_MEMORY, "no memory for a file of measurements");
    }
    int rc = measured_flatten(fields, count, "");
    cJSON_Delete(count);
    return rc;
}

bool measured_is_run(const cJSON *tree)
{
    return cJSON_IsObject(tree) && cJSON_IsArray(member(tree, "generated_ids")) &&
           cJSON_IsObject(member(tree, "seconds_per_token"));
}

int measured_take_run(struct measured *m, const cJSON *tree)
{
    m->is_run = true;
    if (cJSON_IsString(member(tree, "error"))) {
        m->verdict = MEASURED_INVALID;
        measured_text(m->reason[m->reason_count++], MEASURED_TEXT_BYTES, tree, "error");
    }
    TRY(measured_points_init(m, 1));
    struct measured_point *point = &m->point[0];
    measured_text(point->logits_hash, sizeof point->logits_hash, tree, "logits_hash");
    TRY(add_count(&point->settings, tree, "prompt_ids", "prompt_tokens"));
    TRY(add_count(&point->settings, tree, "generated_ids", "generated_tokens"));
    TRY(measured_flatten(&point->settings, member(tree, "settings"), ""));
    TRY(measured_metrics_init(point, countof(figures) + DERIVED));
    return add_figures(point, tree);
}
