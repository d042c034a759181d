/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/tuning_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/cli/output.h"
#include "core/cli/xdg.h"

#define FORMAT "k3ring_tuning"
#define FORMAT_VERSION 1
#define FILE_BYTES_MAX (256 * KIB)

static const struct {
    const char *name;
    size_t offset;
    uint64_t min, max;
} numbers[] = {
    {"io_depth", offsetof(struct tuning_entry, io_depth), 1, 1024},
    {"io_size", offsetof(struct tuning_entry, io_size_bytes), PAGE_BYTES, GIB},
    {"bytes_per_s", offsetof(struct tuning_entry, bytes_per_s), 1, UINT64_MAX},
    {"best_bytes_per_s", offsetof(struct tuning_entry, best_bytes_per_s), 1, UINT64_MAX},
    {"date", offsetof(struct tuning_entry, date_s), 0, 253402300799}, /* the end of 9999 */
};

char *tuning_file_path(void)
{
    return xdg_path(XDG_CACHE, "tuning.json");
}

static void tell(void (*note)(const char *line), const char *path, const char *what,
                 const char *then)
{
    char line[1024];
    snprintf(line, sizeof line, "%.400s: %.400s; %s", path, what, then);
    if (note != NULL) {
        note(line);
    }
}

static uint64_t *number_of(struct tuning_entry *entry, size_t i)
{
    return (uint64_t *)(void *)((char *)entry + numbers[i].offset);
}

static bool take_text(const cJSON *item, const char *name, char *text, size_t capacity)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, name));
    if (value == NULL || strlen(value) >= capacity) {
        return false;
    }
    memcpy(text, value, strlen(value) + 1);
    return true;
}

static bool take_entry(const cJSON *item, struct tuning_entry *entry)
{
    *entry = (struct tuning_entry){0};
    bool good = take_text(item, "device", entry->device, sizeof entry->device) &&
                take_text(item, "asked", entry->asked, sizeof entry->asked);
    for (size_t i = 0; i < countof(numbers) && good; i++) {
        uint64_t *value = number_of(entry, i);
        good = json_u64(cJSON_GetObjectItemCaseSensitive(item, numbers[i].name), value) &&
               *value >= numbers[i].min && *value <= numbers[i].max;
    }
    return good && entry->io_size_bytes % PAGE_BYTES == 0;
}

/* Entries of the document, at most TUNING_ENTRIES_MAX; -1 when it is not one of ours. */
static int take_all(const cJSON *root, struct tuning_entry *entries)
{
    uint64_t version;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "entries");
    if (!json_u64(cJSON_GetObjectItemCaseSensitive(root, FORMAT), &version) ||
        version != FORMAT_VERSION || !cJSON_IsArray(list) ||
        cJSON_GetArraySize(list) > TUNING_ENTRIES_MAX) {
        return -1;
    }
    int count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        if (!take_entry(item, &entries[count++])) {
            return -1;
        }
    }
    return count;
}

/* Entries of the file: 0 when it is absent or of no use, which is said. */
static int load(const char *path, struct tuning_entry *entries, void (*note)(const char *line))
{
    struct file_text file;
    if (!file_exists(path)) {
        return 0;
    }
    int count = -1;
    char what[ERR_MESSAGE_BYTES] = "not a tuning file of this version";
    if (file_read(path, FILE_BYTES_MAX, &file) < 0) {
        snprintf(what, sizeof what, "%s", err_message());
    } else {
        cJSON *root = json_parse(file.text, file.size_bytes, path, false);
        if (root == NULL) {
            snprintf(what, sizeof what, "%s", err_message());
        } else {
            count = take_all(root, entries);
        }
        cJSON_Delete(root);
        file_text_free(&file);
    }
    err_clear();
    if (count < 0) {
        tell(note, path, what, "ignored, the drive is measured anew");
    }
    return count < 0 ? 0 : count;
}

static bool same(const struct tuning_entry *a, const struct tuning_entry *b)
{
    return strcmp(a->device, b->device) == 0 && strcmp(a->asked, b->asked) == 0;
}

bool tuning_file_find(const char *path, struct tuning_entry *entry,
                      void (*note)(const char *line))
{
    struct tuning_entry *entries = calloc(TUNING_ENTRIES_MAX, sizeof *entries);
    bool found = false;
    int count = entries != NULL ? load(path, entries, note) : 0;
    for (int i = 0; i < count && !found; i++) {
        found = same(&entries[i], entry);
        if (found) {
            *entry = entries[i];
        }
    }
    free(entries);
    return found;
}

static cJSON *entry_json(struct tuning_entry *entry)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "device", entry->device);
    cJSON_AddStringToObject(item, "asked", entry->asked);
    for (size_t i = 0; i < countof(numbers); i++) {
        cJSON_AddNumberToObject(item, numbers[i].name, (double)*number_of(entry, i));
    }
    return item;
}

static char *document(struct tuning_entry *entries, int count)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, FORMAT, FORMAT_VERSION);
    cJSON *list = cJSON_AddArrayToObject(root, "entries");
    for (int i = 0; i < count; i++) {
        cJSON_AddItemToArray(list, entry_json(&entries[i]));
    }
    char *text = root != NULL ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    return text;
}

void tuning_file_store(const char *path, const struct tuning_entry *entry,
                       void (*note)(const char *line))
{
    struct tuning_entry *entries = calloc(TUNING_ENTRIES_MAX + 1, sizeof *entries);
    if (entries == NULL) {
        return;
    }
    int count = 0;
    int found = load(path, entries, NULL); /* what is wrong with it was told by the search */
    for (int i = 0; i < found; i++) {
        if (!same(&entries[i], entry)) {
            entries[count++] = entries[i];
        }
    }
    entries[count++] = *entry;
    int surplus = count > TUNING_ENTRIES_MAX ? count - TUNING_ENTRIES_MAX : 0;
    char *text = document(entries + surplus, count - surplus);
    xdg_make_folders(path);
    if (text == NULL || output_text(path, text) < 0) {
        tell(note, path, text == NULL ? "no memory" : err_message(),
             "the drive will be measured again next time");
        err_clear();
    }
    cJSON_free(text);
    free(entries);
}
