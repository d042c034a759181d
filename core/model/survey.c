/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/survey.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/scan.h"
#include "core/model/model_priv.h"

#define INDEX_NAME "model.safetensors.index.json"
#define INDEX_CAP_BYTES (512 * MIB)
#define SHARD_SUFFIX ".safetensors"

/* A tensor that is none of the text model's: model_open() looks at the others. */
struct stranger {
    char *name;
    uint32_t file;
};

struct surveyor {
    const struct model *model;
    struct model_survey *out;
    uint32_t file; /* whose header is visited */
    struct stranger *strangers;
    size_t stranger_count, stranger_capacity;
};

static void count_one(struct survey_count *count, const char *name)
{
    if (count->count++ == 0) {
        snprintf(count->first, sizeof count->first, "%s", name);
    }
}

/* ---- headers ---- */

static int add_stranger(struct surveyor *s, const char *name)
{
    if (s->stranger_count == s->stranger_capacity) {
        size_t capacity = s->stranger_capacity == 0 ? 256 : s->stranger_capacity * 2;
        struct stranger *larger = realloc(s->strangers, capacity * sizeof *larger);
        if (larger == NULL) {
            return err_set(ERR_MEMORY, "no memory for names of tensors");
        }
        s->strangers = larger;
        s->stranger_capacity = capacity;
    }
    char *copy = strdup(name);
    if (copy == NULL) {
        return err_set(ERR_MEMORY, "no memory for names of tensors");
    }
    s->strangers[s->stranger_count++] = (struct stranger){copy, s->file};
    return 0;
}

static int visit(void *context, const struct header *header, const struct header_tensor *tensor,
                 bool *bound)
{
    struct surveyor *s = context;
    struct tensor_place place;
    (void)header;
    s->out->files[s->file].tensors++;
    s->out->tensor_bytes += tensor->end_bytes - tensor->begin_bytes;
    *bound = inventory_locate(&s->model->config, tensor->name, &place);
    return *bound ? 0 : add_stranger(s, tensor->name);
}

/* The spans are sorted and do not overlap, and the last one ends with the file. */
static void count_gaps(struct surveyor *s, const struct header *header)
{
    uint64_t end_bytes = 0;
    for (size_t i = 0; i < header->span_count; i++) {
        const struct header_span *span = &header->spans[i];
        if (span->begin_bytes > end_bytes) {
            count_one(&s->out->gaps, path_name(header->path));
            s->out->gap_bytes += span->begin_bytes - end_bytes;
        }
        end_bytes = max_u64(end_bytes, span->end_bytes);
    }
}

static int survey_headers(struct surveyor *s)
{
    struct header header = {.fd = -1};
    int rc = 0;
    for (s->file = 0; rc == 0 && s->file < s->model->file_count; s->file++) {
        struct survey_file *file = &s->out->files[s->file];
        rc = header_open(&header, s->model->files[s->file].path);
        rc = rc < 0 ? rc : header_visit_all(&header, visit, s);
        if (rc == 0) {
            count_gaps(s, &header);
            file->header_bytes = header.base_bytes;
            s->out->header_bytes += file->header_bytes;
            s->out->tensors += file->tensors;
        }
        header_close(&header);
    }
    header_free(&header);
    return rc;
}

static int compare_strangers(const void *a, const void *b)
{
    return strcmp(((const struct stranger *)a)->name, ((const struct stranger *)b)->name);
}

/* Within one file model_open() has refused them. */
static void find_twice(struct surveyor *s)
{
    if (s->stranger_count > 0) {
        qsort(s->strangers, s->stranger_count, sizeof *s->strangers, compare_strangers);
    }
    for (size_t i = 1; i < s->stranger_count; i++) {
        if (compare_strangers(&s->strangers[i - 1], &s->strangers[i]) == 0) {
            count_one(&s->out->twice, s->strangers[i].name);
        }
    }
}

/* ---- the index ---- */

/* total_size, when it is a whole number; some writers make another of it. */
static bool read_metadata(struct surveyor *s, struct scan *scan)
{
    char key[256];
    bool first = true;
    if (scan_peek(scan) != '{') {
        return scan_skip(scan);
    }
    scan_take(scan, '{');
    while (scan_next(scan, '}', &first) && scan_key(scan, key, sizeof key)) {
        struct scan before = *scan;
        uint64_t total;
        if (strcmp(key, "total_size") == 0 && scan_u64(scan, &total)) {
            s->out->has_total = true;
            s->out->index_total_bytes = total;
        } else {
            *scan = before;
            scan_skip(scan);
        }
    }
    return scan->fault == NULL;
}

static void compare_named(struct surveyor *s, const char *name, const char *file)
{
    struct tensor_place place;
    const struct stranger key = {.name = (char *)(uintptr_t)name};
    if (inventory_locate(&s->model->config, name, &place)) {
        return;
    }
    const struct stranger *at =
        s->stranger_count == 0 ? NULL
                               : bsearch(&key, s->strangers, s->stranger_count,
                                         sizeof *s->strangers, compare_strangers);
    bool there = at != NULL &&
                 strcmp(path_name(s->model->files[at->file].path), file) == 0;
    if (!there && s->out->twice.count == 0) { /* of two, either may be the one found here */
        count_one(&s->out->index_absent, name);
    }
}

static bool read_map(struct surveyor *s, struct scan *scan)
{
    char name[HEADER_NAME_BYTES];
    char file[256];
    bool first = true;
    if (!scan_expect(scan, '{')) {
        return false;
    }
    while (scan_next(scan, '}', &first) && scan_key(scan, name, sizeof name) &&
           scan_string(scan, file, sizeof file)) {
        s->out->index_tensors++;
        compare_named(s, name, file);
    }
    return scan->fault == NULL;
}

/* model_open() has parsed it and found every text tensor in its place. */
static int survey_index(struct surveyor *s)
{
    struct file_text file;
    char key[256];
    bool first = true;
    char *path = path_join(s->model->dir, INDEX_NAME);
    if (path == NULL) {
        return ERR_MEMORY;
    }
    s->out->has_index = file_exists(path);
    int rc = s->out->has_index ? file_read(path, INDEX_CAP_BYTES, &file) : 0;
    free(path);
    if (rc < 0 || !s->out->has_index) {
        return rc;
    }
    struct scan scan = scan_start(file.text, file.size_bytes);
    scan_expect(&scan, '{');
    while (scan_next(&scan, '}', &first) && scan_key(&scan, key, sizeof key)) {
        bool good = strcmp(key, "weight_map") == 0 ? read_map(s, &scan)
                    : strcmp(key, "metadata") == 0 ? read_metadata(s, &scan)
                                                   : scan_skip(&scan);
        if (!good) {
            break;
        }
    }
    bool good = scan_finish(&scan);
    file_text_free(&file);
    uint64_t present = s->out->index_tensors - s->out->index_absent.count;
    s->out->unnamed = s->out->tensors > present ? s->out->tensors - present : 0;
    return good ? 0 : err_set(ERR_MODEL, "%s/" INDEX_NAME ": %s at byte %zu; fetch it again",
                              s->model->dir, scan.fault, scan_offset(&scan));
}

/* ---- the folder ---- */

static bool ends(const char *name, const char *suffix)
{
    size_t length = strlen(name), tail = strlen(suffix);
    return length > tail && strcmp(name + length - tail, suffix) == 0;
}

static bool is_partial(const char *name)
{
    static const char *const suffixes[] = {".incomplete", ".part", ".partial", ".aria2", ".tmp",
                                           ".crdownload", ".download", ".lock"};
    for (size_t i = 0; i < countof(suffixes); i++) {
        if (ends(name, suffixes[i])) {
            return true;
        }
    }
    return false;
}

static bool is_models(const struct model *model, const char *name)
{
    static const char *const known[] = {
        "config.json", INDEX_NAME, "tiktoken.model", "tokenizer_config.json",
        "generation_config.json", MODEL_SYNTH_MARKER, PACK_MANIFEST};
    for (size_t i = 0; i < countof(known); i++) {
        if (strcmp(name, known[i]) == 0) {
            return true;
        }
    }
    for (uint32_t i = 0; i < model->file_count; i++) {
        if (strcmp(path_name(model->files[i].path), name) == 0) {
            return true;
        }
    }
    return false;
}

static int look_at(struct surveyor *s, const char *name)
{
    struct stat status;
    char *path = path_join(s->model->dir, name);
    if (path == NULL) {
        return ERR_MEMORY;
    }
    if (stat(path, &status) == 0 && S_ISREG(status.st_mode) && !is_models(s->model, name)) {
        count_one(&s->out->others, name);
        s->out->other_bytes += (uint64_t)status.st_size;
        if (is_partial(name)) {
            count_one(&s->out->partial, name);
        } else if (ends(name, SHARD_SUFFIX)) {
            count_one(&s->out->ignored, name);
        }
    }
    free(path);
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(char **names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(names[i]);
    }
    free(names);
}

/* All names of a folder that end in suffix, sorted: what is found first is then the same on every
 * file system. */
static int list_names(const char *dir, const char *suffix, char ***names, uint32_t *count)
{
    DIR *folder = file_open_folder(dir);
    uint32_t capacity = 0;
    *names = NULL;
    *count = 0;
    if (folder == NULL) {
        return file_refused(dir, "list this folder");
    }
    int rc = 0;
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.' || !(suffix[0] == '\0' || ends(entry->d_name, suffix))) {
            continue;
        }
        if (*count == capacity) {
            capacity = capacity == 0 ? 64 : capacity * 2;
            char **larger = realloc(*names, capacity * sizeof *larger);
            rc = larger == NULL ? ERR_MEMORY : 0;
            *names = larger == NULL ? *names : larger;
        }
        char *copy = rc == 0 ? strdup(entry->d_name) : NULL;
        rc = copy == NULL ? err_set(ERR_MEMORY, "%s: no memory for its list of files", dir) : 0;
        if (rc == 0) {
            (*names)[(*count)++] = copy;
        }
    }
    closedir(folder);
    if (rc == 0 && *count > 0) {
        qsort(*names, *count, sizeof **names, compare_names);
    }
    return rc;
}

static int survey_folder(struct surveyor *s)
{
    char **names;
    uint32_t count;
    int rc = list_names(s->model->dir, "", &names, &count);
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        rc = look_at(s, names[i]);
    }
    free_names(names, count);
    return rc;
}

int survey_shards(const char *dir, char ***names, uint32_t *count)
{
    int rc = list_names(dir, SHARD_SUFFIX, names, count);
    if (rc < 0) {
        free_names(*names, *count);
        *names = NULL;
        *count = 0;
    }
    return rc;
}

/* model-00007-of-00096.safetensors says how many there are to be. */
static void read_claims(struct surveyor *s)
{
    uint32_t claimed = 0;
    for (uint32_t i = 0; i < s->model->file_count; i++) {
        const char *of = strstr(path_name(s->model->files[i].path), "-of-");
        unsigned long count = of != NULL ? strtoul(of + 4, NULL, 10) : 0;
        if (count == 0 || count > SHARD_COUNT_MAX || (i > 0 && count != claimed)) {
            return;
        }
        claimed = (uint32_t)count;
    }
    s->out->shards_claimed = claimed;
}

int survey_model(const struct model *model, struct model_survey *out)
{
    struct surveyor s = {.model = model, .out = out};
    *out = (struct model_survey){.files = calloc(model->file_count, sizeof *out->files)};
    if (out->files == NULL) {
        return err_set(ERR_MEMORY, "%s: no memory for its list of files", model->dir);
    }
    int rc = 0;
    if (model->pack == NULL) {
        read_claims(&s);
        rc = survey_headers(&s);
        find_twice(&s);
        rc = rc < 0 ? rc : survey_index(&s);
    }
    rc = rc < 0 ? rc : survey_folder(&s);
    for (size_t i = 0; i < s.stranger_count; i++) {
        free(s.strangers[i].name);
    }
    free(s.strangers);
    return rc;
}

void survey_free(struct model_survey *survey)
{
    free(survey->files);
    survey->files = NULL;
}
