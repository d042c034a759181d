/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/measured.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/cli/measured_priv.h"
#include "core/cli/text.h"

#define SCHEMA 1

static const cJSON *member(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

void measured_text(char *to, size_t capacity_bytes, const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(member(object, name));
    text_clean(to, capacity_bytes, text != NULL ? text : "");
}

static int no_memory(void)
{
    return err_set(ERR_MEMORY, "no memory for a file of measurements");
}

/* ---- settings and environment ---- */

static int add_field(struct measured_fields *fields, const cJSON *item, const char *name)
{
    struct measured_field *field = &fields->field[fields->count];
    const char *text = cJSON_GetStringValue(item);
    char *printed = text == NULL ? cJSON_PrintUnformatted(item) : NULL;
    if (text == NULL && printed == NULL) {
        return no_memory();
    }
    text_clean(field->name, sizeof field->name, name);
    text_clean(field->value, sizeof field->value, text != NULL ? text : printed);
    cJSON_free(printed);
    fields->count++;
    return 0;
}

static int flatten(struct measured_fields *fields, const cJSON *tree, const char *begin, int depth)
{
    uint32_t index = 0;
    for (const cJSON *item = tree->child; item != NULL; item = item->next, index++) {
        char name[MEASURED_NAME_BYTES], own[MEASURED_NAME_BYTES / 2];
        if (fields->count == MEASURED_FIELDS_MAX) {
            return 0;
        }
        if (item->string != NULL) {
            text_clean(own, sizeof own, item->string);
        } else {
            snprintf(own, sizeof own, "%u", index);
        }
        snprintf(name, sizeof name, "%.*s%s%s", (int)(sizeof name - sizeof own - 2), begin,
                 begin[0] != '\0' ? "." : "", own);
        if (cJSON_IsObject(item) || cJSON_IsArray(item)) {
            TRY(depth < JSON_DEPTH_MAX ? flatten(fields, item, name, depth + 1) : 0);
        } else {
            TRY(add_field(fields, item, name));
        }
    }
    return 0;
}

int measured_flatten(struct measured_fields *fields, const cJSON *tree, const char *begin)
{
    if (fields->field == NULL) {
        fields->field = calloc(MEASURED_FIELDS_MAX, sizeof *fields->field);
    }
    if (fields->field == NULL) {
        return no_memory();
    }
    return tree != NULL ? flatten(fields, tree, begin, 0) : 0;
}

/* ---- points ---- */

int measured_points_init(struct measured *m, uint32_t count)
{
    m->point = calloc(count, sizeof *m->point);
    m->point_count = m->point != NULL ? count : 0;
    return m->point != NULL ? 0 : no_memory();
}

int measured_metrics_init(struct measured_point *point, uint32_t count)
{
    point->metric = calloc(count + 1, sizeof *point->metric);
    return point->metric != NULL ? 0 : no_memory();
}

int measured_add(struct measured_point *point, const char *name, const char *unit,
                 enum measured_better better, double value)
{
    if (!(fabs(value) <= MEASURED_SAMPLE_MAX)) {
        return 0;
    }
    struct measured_metric *metric = &point->metric[point->metric_count];
    metric->sample = malloc(sizeof *metric->sample);
    if (metric->sample == NULL) {
        return no_memory();
    }
    snprintf(metric->name, sizeof metric->name, "%s", name);
    snprintf(metric->unit, sizeof metric->unit, "%s", unit);
    metric->better = better;
    metric->sample[0] = value;
    metric->count = 1;
    point->metric_count++;
    return 0;
}

const struct measured_metric *measured_metric(const struct measured_point *point,
                                              const char *name)
{
    for (uint32_t i = 0; i < point->metric_count; i++) {
        if (strcmp(point->metric[i].name, name) == 0) {
            return &point->metric[i];
        }
    }
    return NULL;
}

const char *measured_value(const struct measured_fields *fields, const char *name)
{
    for (uint32_t i = 0; i < fields->count; i++) {
        if (strcmp(fields->field[i].name, name) == 0) {
            return fields->field[i].value;
        }
    }
    return NULL;
}

/* ---- the JSON of bench ---- */

static int take_better(struct measured_metric *metric, const cJSON *item, const char *where)
{
    static const char *const words[] = {"neither", "higher", "lower"};
    char word[16];
    measured_text(word, sizeof word, item, "better");
    for (uint32_t i = 0; i < countof(words); i++) {
        if (strcmp(word, words[i]) == 0) {
            metric->better = (enum measured_better)i;
            return 0;
        }
    }
    return err_set(ERR_IO, "%s: metric %s: \"better\" must be higher, lower or neither", where,
                   metric->name);
}

static int take_samples(struct measured_metric *metric, const cJSON *samples, const char *where)
{
    int count = cJSON_GetArraySize(samples);
    metric->sample = calloc((size_t)count + 1, sizeof *metric->sample);
    if (metric->sample == NULL) {
        return no_memory();
    }
    for (const cJSON *s = cJSON_IsArray(samples) ? samples->child : NULL; s != NULL; s = s->next) {
        double value = cJSON_GetNumberValue(s);
        if (!(fabs(value) <= MEASURED_SAMPLE_MAX)) {
            return err_set(ERR_IO, "%s: metric %s: sample %u is not a number below 1e100", where,
                           metric->name, metric->count + 1);
        }
        metric->sample[metric->count++] = value;
    }
    return 0;
}

/* A metric without samples was not measured there: it is left out. */
static int take_metric(struct measured_point *point, const cJSON *item, const char *where)
{
    struct measured_metric *metric = &point->metric[point->metric_count];
    measured_text(metric->name, sizeof metric->name, item, "name");
    measured_text(metric->unit, sizeof metric->unit, item, "unit");
    if (metric->name[0] == '\0' || !cJSON_IsArray(member(item, "samples"))) {
        return err_set(ERR_IO, "%s: a metric needs \"name\" and \"samples\"", where);
    }
    if (measured_metric(point, metric->name) != NULL) {
        return err_set(ERR_IO, "%s: metric %s stands there twice", where, metric->name);
    }
    point->metric_count++; /* freed with the point from here on */
    TRY(take_better(metric, item, where));
    TRY(take_samples(metric, member(item, "samples"), where));
    if (metric->count == 0) {
        free(metric->sample);
        *metric = (struct measured_metric){.count = 0};
        point->metric_count--;
    }
    return 0;
}

static int take_point(struct measured_point *point, const cJSON *item, const char *where)
{
    const cJSON *metrics = member(item, "metrics");
    int count = cJSON_GetArraySize(metrics);
    if (!cJSON_IsObject(member(item, "settings")) || !cJSON_IsArray(metrics)) {
        return err_set(ERR_IO, "%s: needs \"settings\" and \"metrics\"", where);
    }
    if (count > (int)MEASURED_METRICS_MAX) {
        return err_set(ERR_IO, "%s: %d metrics are more than %u", where, count,
                       MEASURED_METRICS_MAX);
    }
    measured_text(point->logits_hash, sizeof point->logits_hash, item, "logits_hash");
    TRY(measured_flatten(&point->settings, member(item, "settings"), ""));
    TRY(measured_metrics_init(point, (uint32_t)count));
    for (const cJSON *metric = metrics->child; metric != NULL; metric = metric->next) {
        TRY(take_metric(point, metric, where));
    }
    return 0;
}

static int take_points(struct measured *m, const cJSON *points)
{
    int count = cJSON_GetArraySize(points);
    if (!cJSON_IsArray(points) || count == 0 || count > (int)MEASURED_POINTS_MAX) {
        return err_set(ERR_IO, "%s: \"points\" must be a list of 1 to %u measurements", m->path,
                       MEASURED_POINTS_MAX);
    }
    TRY(measured_points_init(m, (uint32_t)count));
    uint32_t index = 0;
    for (const cJSON *item = points->child; item != NULL; item = item->next, index++) {
        char where[600];
        snprintf(where, sizeof where, "%.500s: point %u", m->path, index + 1);
        TRY(take_point(&m->point[index], item, where));
    }
    return 0;
}

static void take_verdict(struct measured *m, const cJSON *verdict)
{
    const cJSON *valid = member(verdict, "valid");
    const cJSON *reasons = member(verdict, "reasons");
    m->verdict = !cJSON_IsBool(valid) ? MEASURED_UNSAID
                 : cJSON_IsTrue(valid) ? MEASURED_VALID : MEASURED_INVALID;
    for (const cJSON *r = cJSON_IsArray(reasons) ? reasons->child : NULL;
         r != NULL && m->reason_count < MEASURED_REASONS_MAX; r = r->next) {
        const char *text = cJSON_GetStringValue(r);
        text_clean(m->reason[m->reason_count++], MEASURED_TEXT_BYTES, text != NULL ? text : "?");
    }
}

static int take_bench(struct measured *m, const cJSON *tree)
{
    const cJSON *head = member(tree, "k3ring");
    const cJSON *schema = member(head, "schema");
    if (!cJSON_IsNumber(schema) || schema->valuedouble != SCHEMA) {
        return err_set(ERR_IO, "%s: its \"schema\" is not %d, which this k3ring reads: compare "
                       "with the one that wrote it", m->path, SCHEMA);
    }
    measured_text(m->version, sizeof m->version, head, "version");
    take_verdict(m, member(tree, "verdict"));
    TRY(measured_flatten(&m->environment, member(tree, "environment"), ""));
    return take_points(m, member(tree, "points"));
}

int measured_take(struct measured *m, const char *name, const cJSON *tree)
{
    *m = (struct measured){.path = name};
    if (cJSON_IsObject(member(tree, "k3ring")) && member(tree, "points") != NULL) {
        return take_bench(m, tree);
    }
    if (measured_is_run(tree)) {
        return measured_take_run(m, tree);
    }
    return err_set(ERR_IO, "%s: is not what `k3ring bench --output-format json` or `k3ring run "
                   "--json` writes", name);
}

/* What files and JSON call a refused model is an unreadable file here. */
static int unreadable(int rc)
{
    char message[ERR_MESSAGE_BYTES];
    if (rc != ERR_MODEL) {
        return rc;
    }
    snprintf(message, sizeof message, "%s", err_message());
    err_clear();
    return err_set(ERR_IO, "%s", message);
}

int measured_read(struct measured *m, const char *path)
{
    struct file_text file;
    *m = (struct measured){.path = path};
    if (!file_exists(path)) {
        return err_set(ERR_IO, "%s: there is no such file; give what `k3ring bench "
                       "--output-format json` wrote", path);
    }
    TRY(unreadable(file_read(path, MEASURED_BYTES_MAX, &file)));
    cJSON *tree = json_parse(file.text, file.size_bytes, path, false);
    file_text_free(&file);
    if (tree == NULL) {
        return unreadable(err_code());
    }
    int rc = measured_take(m, path, tree);
    cJSON_Delete(tree);
    return rc;
}

void measured_fini(struct measured *m)
{
    for (uint32_t i = 0; i < m->point_count; i++) {
        struct measured_point *point = &m->point[i];
        for (uint32_t k = 0; k < point->metric_count; k++) {
            free(point->metric[k].sample);
        }
        free(point->metric);
        free(point->settings.field);
    }
    free(m->point);
    free(m->environment.field);
    *m = (struct measured){.path = NULL};
}
