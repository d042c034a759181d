/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/err.h"
#include "core/cli/compare_priv.h"

#define SCHEMA 1
#define METHOD "Welch's t, two-sided; on logarithms where all samples are positive"

static void add_strings(cJSON *object, const char *name, const char *const *text, uint32_t count)
{
    cJSON *array = cJSON_AddArrayToObject(object, name);
    for (uint32_t i = 0; i < count; i++) {
        cJSON_AddItemToArray(array, text[i] != NULL ? cJSON_CreateString(text[i])
                                                    : cJSON_CreateNull());
    }
}

static void add_file(cJSON *files, const struct measured *m)
{
    cJSON *file = cJSON_CreateObject();
    cJSON_AddItemToArray(files, file);
    cJSON_AddStringToObject(file, "path", m->path);
    cJSON_AddStringToObject(file, "kind", m->is_run ? "run" : "bench");
    cJSON_AddStringToObject(file, "version", m->version);
    if (m->verdict == MEASURED_UNSAID) {
        cJSON_AddNullToObject(file, "valid");
    } else {
        cJSON_AddBoolToObject(file, "valid", m->verdict == MEASURED_VALID);
    }
    cJSON *reasons = cJSON_AddArrayToObject(file, "reasons");
    for (uint32_t i = 0; i < m->reason_count; i++) {
        cJSON_AddItemToArray(reasons, cJSON_CreateString(m->reason[i]));
    }
}

static void add_note(void *to, const char *text)
{
    cJSON_AddItemToArray(to, cJSON_CreateString(text));
}

static void add_difference(void *to, const char *name, const char *const *value, uint32_t count)
{
    cJSON *row = cJSON_CreateObject();
    cJSON_AddItemToArray(to, row);
    cJSON_AddStringToObject(row, "name", name);
    add_strings(row, "values", value, count);
}

static void add_interval(cJSON *object, const char *name, bool given, double low, double high)
{
    if (!given) {
        cJSON_AddNullToObject(object, name);
        return;
    }
    cJSON *array = cJSON_AddArrayToObject(object, name);
    cJSON_AddItemToArray(array, cJSON_CreateNumber(low));
    cJSON_AddItemToArray(array, cJSON_CreateNumber(high));
}

static void add_change(cJSON *row, const struct compare_change *change, const char *unit)
{
    if (change->has_percent) {
        cJSON_AddNumberToObject(row, "change_percent", change->percent);
    } else {
        cJSON_AddNullToObject(row, "change_percent");
    }
    add_interval(row, "change_interval", change->has_interval, change->low, change->high);
    cJSON_AddStringToObject(row, "verdict", compare_verdict_name(change->verdict, unit));
}

/* Nothing when the file has no such metric there. */
static int add_metric_of(cJSON *files, const struct comparison *c, uint32_t file, uint32_t point,
                         const struct measured_metric *base)
{
    const struct measured_point *p = comparison_point(c, file, point);
    const struct measured_metric *m = p != NULL ? measured_metric(p, base->name) : NULL;
    struct compare_figure own;
    if (m == NULL) {
        return 0;
    }
    TRY(compare_figure(m, &own));
    cJSON *row = cJSON_CreateObject();
    cJSON_AddItemToArray(files, row);
    cJSON_AddNumberToObject(row, "file", file);
    cJSON_AddNumberToObject(row, "median", own.median);
    cJSON_AddNumberToObject(row, "samples", m->count);
    add_interval(row, "mean_interval", own.has_interval, own.low, own.high);
    cJSON_AddBoolToObject(row, "comparable", comparison_sound(c, file, point));
    if (file > 0) {
        struct compare_change change = compare_metric(base, m);
        add_change(row, &change, base->unit);
    }
    return 0;
}

static int add_metric(cJSON *metrics, const struct comparison *c, uint32_t point,
                      const struct measured_metric *base)
{
    static const char *const words[] = {"neither", "higher", "lower"};
    cJSON *metric = cJSON_CreateObject();
    cJSON_AddItemToArray(metrics, metric);
    cJSON_AddStringToObject(metric, "name", base->name);
    cJSON_AddStringToObject(metric, "unit", base->unit);
    cJSON_AddStringToObject(metric, "better", words[base->better]);
    cJSON *files = cJSON_AddArrayToObject(metric, "files");
    for (uint32_t file = 0; file < c->count; file++) {
        TRY(add_metric_of(files, c, file, point, base));
    }
    return 0;
}

static int add_point(cJSON *points, const struct comparison *c, uint32_t index)
{
    const struct measured_point *p = &c->file[0].point[index];
    cJSON *point = cJSON_CreateObject();
    cJSON_AddItemToArray(points, point);
    cJSON *settings = cJSON_AddObjectToObject(point, "settings");
    for (uint32_t i = 0; i < c->varying.count; i++) {
        const char *value = measured_value(&p->settings, c->varying.name[i]);
        if (value != NULL) {
            cJSON_AddStringToObject(settings, c->varying.name[i], value);
        }
    }
    cJSON *metrics = cJSON_AddArrayToObject(point, "metrics");
    for (uint32_t i = 0; i < p->metric_count; i++) {
        TRY(add_metric(metrics, c, index, &p->metric[i]));
    }
    return 0;
}

static int add_all(cJSON *root, const struct comparison *c)
{
    cJSON *head = cJSON_AddObjectToObject(root, "k3ring");
    cJSON_AddNumberToObject(head, "schema", SCHEMA);
    cJSON_AddNumberToObject(root, "confidence", COMPARE_LEVEL);
    cJSON_AddStringToObject(root, "method", METHOD);
    cJSON_AddNumberToObject(root, "repeats_needed", COMPARE_REPEATS_MIN);
    cJSON *files = cJSON_AddArrayToObject(root, "files");
    for (uint32_t i = 0; i < c->count; i++) {
        add_file(files, &c->file[i]);
    }
    comparison_notes(c, add_note, cJSON_AddArrayToObject(root, "notes"));
    comparison_differences(c, false, add_difference,
                           cJSON_AddArrayToObject(root, "settings_that_differ"));
    comparison_differences(c, true, add_difference,
                           cJSON_AddArrayToObject(root, "environment_that_differs"));
    cJSON *points = cJSON_AddArrayToObject(root, "points");
    for (uint32_t i = 0; i < c->file[0].point_count; i++) {
        TRY(add_point(points, c, i));
    }
    return 0;
}

cJSON *compare_json(const struct measured *file, uint32_t count)
{
    cJSON *root = cJSON_CreateObject();
    struct comparison c;
    int rc = root != NULL ? comparison_init(&c, file, count) : ERR_MEMORY;
    if (rc == 0) {
        rc = add_all(root, &c);
    }
    if (root != NULL) {
        comparison_fini(&c);
    }
    if (rc != 0) {
        cJSON_Delete(root);
        return NULL;
    }
    return root;
}
