/* SPDX-License-Identifier: Apache-2.0 */
/* The page, and the same as one JSON object. */
#include "core/cli/commands.h"
#include "core/cli/text.h"
#include "core/cli/verify.h"
#include "core/cli/verify_golden.h"

static const char *const mark_names[VERIFY_MARKS] = {
    [VERIFY_OK] = "ok", [VERIFY_NOTE] = "note", [VERIFY_BAD] = "BAD"};

void verify_print(FILE *out, const struct verify *v)
{
    for (uint32_t i = 0; i < v->line_count; i++) {
        const struct verify_line *line = &v->line[i];
        fprintf(out, "%-5s %-8s %s\n", mark_names[line->mark], line->what, line->text);
    }
    if (v->golden != NULL) {
        verify_golden_print(out, v->golden);
    }
    uint32_t notes = v->count[VERIFY_NOTE];
    fprintf(out, "%u ok, %u note%s, %u bad\n", v->count[VERIFY_OK], notes, notes == 1 ? "" : "s",
            v->count[VERIFY_BAD]);
}

static void add_hashes(cJSON *root, const struct verify *v)
{
    cJSON *files = cJSON_AddArrayToObject(root, "files");
    for (uint32_t i = 0; i < v->reading.count; i++) {
        const struct verify_job *job = &v->reading.job[i];
        cJSON *one = cJSON_CreateObject();
        char name[1024];
        text_clean(name, sizeof name, job->name);
        cJSON_AddStringToObject(one, "name", name);
        if (job->done) {
            cJSON_AddNumberToObject(one, "bytes", (double)job->size_bytes);
        }
        if (job->done && job->sha256) {
            char text[2 * VERIFY_HASH_BYTES + 1];
            for (uint32_t k = 0; k < VERIFY_HASH_BYTES; k++) {
                snprintf(text + 2 * k, 3, "%02x", job->hash[k]);
            }
            cJSON_AddStringToObject(one, "sha256", text);
        }
        cJSON_AddItemToArray(files, one);
    }
}

static void add_structure(cJSON *root, const struct verify *v)
{
    const struct model_survey *s = &v->survey;
    cJSON *one = cJSON_AddObjectToObject(root, "structure");
    cJSON_AddNumberToObject(one, "shards", v->model->file_count);
    cJSON_AddNumberToObject(one, "tensors", (double)s->tensors);
    cJSON_AddNumberToObject(one, "tensor_bytes", (double)s->tensor_bytes);
    cJSON_AddNumberToObject(one, "header_bytes", (double)s->header_bytes);
    cJSON_AddNumberToObject(one, "gap_bytes", (double)s->gap_bytes);
    cJSON_AddNumberToObject(one, "text_tensors", (double)v->model->tensor_count);
    cJSON_AddNumberToObject(one, "other_tensors", (double)v->model->skipped_count);
}

cJSON *verify_json(const struct verify *v, bool interrupted)
{
    static const char *const names[] = {"ok", "note", "bad"};
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "k3ring", k3ring_version);
    char dir[4096];
    text_clean(dir, sizeof dir, v->dir);
    cJSON_AddStringToObject(root, "model", dir);
    cJSON_AddBoolToObject(root, "passed", v->count[VERIFY_BAD] == 0 && !interrupted);
    cJSON_AddBoolToObject(root, "interrupted", interrupted);
    cJSON *checks = cJSON_AddArrayToObject(root, "checks");
    for (uint32_t i = 0; i < v->line_count; i++) {
        const struct verify_line *line = &v->line[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "mark", names[line->mark]);
        cJSON_AddStringToObject(one, "check", line->what);
        cJSON_AddStringToObject(one, "text", line->text);
        cJSON_AddItemToArray(checks, one);
    }
    if (v->model != NULL && v->survey.files != NULL) {
        add_structure(root, v);
    }
    if (v->reading.count > 0) {
        add_hashes(root, v);
    }
    if (v->golden != NULL) {
        cJSON_AddItemToObject(root, "golden", verify_golden_json(v->golden));
    }
    return root;
}
