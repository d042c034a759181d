/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
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

/* A config may claim any number of tensors: no table of a size that the index belies is made. */
#define SLOTS_UNCHECKED_MAX ((uint64_t)1 << 20)
#define ENTRY_BYTES_MIN 32

#define TABLE_SLOTS (1U << 17) /* at least twice SHARD_COUNT_MAX, so that a probe always ends */

/* The index while it is scanned. The released one has 497,220 entries in 60 MB: its text is gone
 * through once, and only a file number per tensor is kept. */
struct index {
    const char *path;
    const struct model_config *config;
    struct shard_list *list;
    uint32_t *table;  /* hash table of file names: 1 + position in list->names */
    uint32_t latest;  /* position of the name seen last: neighbours often share a file */
};

static bool is_shard_name(const char *name)
{
    const size_t length = strlen(name);
    const size_t suffix = strlen(SHARD_SUFFIX);
    return length > suffix && name[0] != '.' && strchr(name, '/') == NULL &&
           strcmp(name + length - suffix, SHARD_SUFFIX) == 0;
}

static int add_name(struct shard_list *list, const char *name)
{
    if (list->count == SHARD_COUNT_MAX) {
        return err_set(ERR_MODEL, "more than %u shards in one model", SHARD_COUNT_MAX);
    }
    if ((list->count & (list->count - 1)) == 0) { /* full at powers of two */
        const size_t capacity = list->count == 0 ? 1 : (size_t)list->count * 2;
        char **names = realloc(list->names, capacity * sizeof *names);
        if (names == NULL) {
            return err_set(ERR_MEMORY, "no memory for the list of shards");
        }
        list->names = names;
    }
    char *copy = strdup(name);
    if (copy == NULL) {
        return err_set(ERR_MEMORY, "no memory for the list of shards");
    }
    list->names[list->count++] = copy;
    return 0;
}

/* Position of a file name, which is added when new. */
static int intern(struct index *index, const char *name, uint32_t *position)
{
    struct shard_list *list = index->list;
    if (list->count > 0 && strcmp(list->names[index->latest], name) == 0) {
        *position = index->latest;
        return 0;
    }
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (const char *at = name; *at != '\0'; at++) {
        hash = (hash ^ (unsigned char)*at) * 16777619U;
    }
    uint32_t slot = hash % TABLE_SLOTS;
    while (index->table[slot] != 0 &&
           strcmp(list->names[index->table[slot] - 1], name) != 0) {
        slot = (slot + 1) % TABLE_SLOTS;
    }
    if (index->table[slot] == 0) {
        if (!is_shard_name(name)) {
            return err_set(ERR_MODEL, "%s: '%.100s' is not the name of a " SHARD_SUFFIX
                           " file in this folder", index->path, name);
        }
        TRY(add_name(list, name));
        index->table[slot] = list->count;
    }
    index->latest = index->table[slot] - 1;
    *position = index->latest;
    return 0;
}

/* One "tensor": "file" pair. */
static int read_pair(struct index *index, struct scan *scan)
{
    char name[HEADER_NAME_BYTES];
    char file[256];
    struct tensor_place place;
    uint32_t position = 0;
    if (!scan_key(scan, name, sizeof name) || !scan_string(scan, file, sizeof file)) {
        return ERR_MODEL; /* the scanner's fault is told at the end */
    }
    TRY(intern(index, file, &position));
    if (!inventory_locate(index->config, name, &place)) {
        return 0;
    }
    uint16_t *expected = &index->list->expected[bind_slot(index->config, &place)];
    if (*expected != 0) {
        return err_set(ERR_MODEL, "%s: names tensor %s twice", index->path, name);
    }
    *expected = (uint16_t)(position + 1);
    return 0;
}

static int read_map(struct index *index, struct scan *scan)
{
    bool first = true;
    if (!scan_expect(scan, '{')) {
        return ERR_MODEL;
    }
    while (scan_next(scan, '}', &first)) {
        TRY(read_pair(index, scan));
    }
    return scan->fault == NULL ? 0 : ERR_MODEL;
}

static int read_members(struct index *index, struct scan *scan, bool *has_map)
{
    char key[256];
    bool first = true;
    scan_expect(scan, '{');
    while (scan_next(scan, '}', &first) && scan_key(scan, key, sizeof key)) {
        if (strcmp(key, "weight_map") != 0) {
            scan_skip(scan);
            continue;
        }
        if (*has_map) {
            return err_set(ERR_MODEL, "%s: holds weight_map twice", index->path);
        }
        *has_map = true;
        TRY(read_map(index, scan));
    }
    return scan_finish(scan) ? 0 : ERR_MODEL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts the names. What was expected before keeps its numbers: list->moved translates them, so
 * that the table, which may be vast, need not be gone through. */
static int sort_names(struct shard_list *list)
{
    char **before = malloc(list->count * sizeof *before);
    list->moved = calloc((size_t)list->count + 1, sizeof *list->moved);
    if (before == NULL || list->moved == NULL) {
        free(before);
        return err_set(ERR_MEMORY, "no memory for the list of shards");
    }
    memcpy(before, list->names, list->count * sizeof *before);
    qsort(list->names, list->count, sizeof *list->names, compare_names);
    for (uint32_t i = 0; i < list->count; i++) {
        char **at = bsearch(&before[i], list->names, list->count, sizeof *list->names,
                            compare_names);
        list->moved[i + 1] = (uint16_t)(at - list->names + 1); /* 0, not named, stays 0 */
    }
    free(before);
    return 0;
}

uint32_t shard_list_expected(const struct shard_list *list, uint64_t slot)
{
    return list->moved[list->expected[slot]];
}

static int parse_index(struct index *index, const struct file_text *file)
{
    struct scan scan = scan_start(file->text, file->size_bytes);
    bool has_map = false;
    TRY(foreign_check(index->path, file->text, file->size_bytes, file->size_bytes));
    const int rc = read_members(index, &scan, &has_map);
    if (rc < 0) {
        /* No effect where a message was recorded already: the first one wins. */
        return err_set(rc, "%s: not an index of shards at byte %zu: %s; fetch it again",
                       index->path, scan_offset(&scan),
                       scan.fault == NULL ? "unreadable" : scan.fault);
    }
    if (!has_map || index->list->count == 0) {
        return err_set(ERR_MODEL, "%s: its weight_map is missing or empty", index->path);
    }
    return sort_names(index->list);
}

static int read_index(const char *path, const struct model_config *c, struct shard_list *list)
{
    struct index index = {.path = path, .config = c, .list = list};
    struct file_text file;
    TRY(file_read(path, INDEX_CAP_BYTES, &file));
    const uint64_t slots = bind_slot_count(c);
    int rc = 0;
    if (slots > SLOTS_UNCHECKED_MAX && slots > file.size_bytes / ENTRY_BYTES_MIN) {
        rc = err_set(ERR_MODEL, "%s: config.json asks for some %llu tensors, more than this index "
                     "of %zu bytes can name: they are not of one model", path,
                     (unsigned long long)slots, file.size_bytes);
        file_text_free(&file);
        return rc;
    }
    list->has_index = true;
    list->expected = calloc(slots, sizeof *list->expected);
    index.table = calloc(TABLE_SLOTS, sizeof *index.table);
    if (list->expected == NULL || index.table == NULL) {
        rc = err_set(ERR_MEMORY, "%s: no memory to read it", path);
    } else {
        rc = parse_index(&index, &file);
    }
    free(index.table);
    file_text_free(&file);
    return rc;
}

static int list_folder(const char *dir, struct shard_list *out)
{
    DIR *folder = file_open_folder(dir);
    if (folder == NULL) {
        return file_refused(dir, "list this folder");
    }
    int rc = 0;
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(folder)) != NULL) {
        if (is_shard_name(entry->d_name)) {
            rc = add_name(out, entry->d_name);
        }
    }
    closedir(folder);
    if (rc == 0 && out->count > 0) {
        qsort(out->names, out->count, sizeof *out->names, compare_names);
    }
    return rc;
}

/* Counts the shard files of the folder that the index does not name. */
static int count_ignored(const char *dir, struct shard_list *list)
{
    struct shard_list folder = {.names = NULL};
    int rc = list_folder(dir, &folder);
    for (uint32_t i = 0; rc == 0 && i < folder.count; i++) {
        if (bsearch(&folder.names[i], list->names, list->count, sizeof *list->names,
                    compare_names) != NULL) {
            continue;
        }
        if (list->ignored++ == 0) {
            list->first_ignored = strdup(folder.names[i]);
        }
    }
    shard_list_free(&folder);
    return rc;
}

static int check_present(const char *dir, const struct shard_list *list)
{
    const char *first = NULL;
    uint32_t missing = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        char *path = path_join(dir, list->names[i]);
        if (path == NULL) {
            return ERR_MEMORY;
        }
        if (!file_exists(path)) {
            first = missing++ == 0 ? list->names[i] : first;
        }
        free(path);
    }
    if (missing > 0) {
        return err_set(ERR_MODEL, "%s: %u of the %u shards named by the index %s, the first is "
                       "%s: fetch %s", dir, missing, list->count,
                       missing == 1 ? "is missing or links to nothing"
                                    : "are missing or link to nothing",
                       first, missing == 1 ? "it" : "them");
    }
    return 0;
}

int shard_list_read(const char *dir, const struct model_config *c, struct shard_list *out)
{
    *out = (struct shard_list){.names = NULL};
    char *path = path_join(dir, INDEX_NAME);
    if (path == NULL) {
        return ERR_MEMORY;
    }
    int rc;
    struct stat status;
    if (lstat(path, &status) == 0 && !file_exists(path)) {
        rc = err_set(ERR_MODEL, "%s: its link cannot be followed: %s; fetch the index again, or "
                     "let the link point to it", path, strerror(errno));
    } else if (file_exists(path)) {
        rc = read_index(path, c, out);
        rc = rc < 0 ? rc : check_present(dir, out);
        rc = rc < 0 ? rc : count_ignored(dir, out);
    } else {
        rc = list_folder(dir, out);
        if (rc == 0 && out->count == 0) {
            rc = err_set(ERR_MODEL, "%s: holds neither " INDEX_NAME " nor any *" SHARD_SUFFIX
                         " file", dir);
        }
    }
    free(path);
    if (rc < 0) {
        shard_list_free(out);
    }
    return rc;
}

void shard_list_free(struct shard_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        free(list->names[i]);
    }
    free(list->names);
    free(list->expected);
    free(list->moved);
    free(list->first_ignored);
    *list = (struct shard_list){.names = NULL};
}
