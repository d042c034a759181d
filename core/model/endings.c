/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/endings.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/json.h"

#define FILE_BYTES_MAX (16 * MIB)
#define ENTRY "eos_token_id"

bool token_list_has(const struct token_list *list, uint32_t id)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* What the files name so far, and how many ids the model has. */
struct found {
    struct token_list *ids;
    uint32_t vocab;
};

static int add(const char *path, struct found *found, uint32_t id)
{
    if (id >= found->vocab) {
        return err_set(ERR_MODEL, "%s: the end id %u is not of this model, whose ids run from 0 to "
                       "%u: correct it, or give --stop a list of ids", path, id, found->vocab - 1);
    }
    return token_list_has(found->ids, id) ? 0 : token_list_append(found->ids, &id, 1);
}

static int add_item(const char *path, const cJSON *item, struct found *found)
{
    uint64_t id;
    if (!json_u64(item, &id) || id > INT32_MAX) {
        return err_set(ERR_MODEL, "%s: " ENTRY " must be a token id or a list of some", path);
    }
    return add(path, found, (uint32_t)id);
}

static int add_entry(const char *path, const cJSON *object, struct found *found)
{
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(object, ENTRY);
    if (entry == NULL || cJSON_IsNull(entry)) {
        return 0;
    }
    if (!cJSON_IsArray(entry)) {
        return add_item(path, entry, found);
    }
    for (const cJSON *item = entry->child; item != NULL; item = item->next) {
        TRY(add_item(path, item, found));
    }
    return 0;
}

static int add_config(const char *path, const cJSON *root, struct found *found)
{
    TRY(add_entry(path, root, found));
    return add_entry(path, cJSON_GetObjectItemCaseSensitive(root, "text_config"), found);
}

/* eos_token is a text, or an object that holds it; the table of added tokens has its id. */
static int add_named(const char *path, const cJSON *root, struct found *found)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(root, "eos_token");
    const cJSON *table = cJSON_GetObjectItemCaseSensitive(root, "added_tokens_decoder");
    name = cJSON_IsObject(name) ? cJSON_GetObjectItemCaseSensitive(name, "content") : name;
    for (const cJSON *row = table != NULL ? table->child : NULL; row != NULL; row = row->next) {
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(row, "content");
        if (cJSON_IsString(name) && cJSON_IsString(text) &&
            strcmp(text->valuestring, name->valuestring) == 0) {
            uint64_t id;
            return json_key_u64(row, &id) && id <= INT32_MAX
                       ? add(path, found, (uint32_t)id)
                       : err_set(ERR_MODEL, "%s: '%.40s' in added_tokens_decoder is no token id",
                                 path, row->string != NULL ? row->string : "");
        }
    }
    return 0;
}

static int add_file(const char *path, int take(const char *, const cJSON *, struct found *),
                    struct found *found)
{
    struct file_text file;
    if (!file_exists(path)) {
        return 0;
    }
    TRY(file_read(path, FILE_BYTES_MAX, &file));
    cJSON *root = json_parse(file.text, file.size_bytes, path, false);
    file_text_free(&file);
    int rc = root != NULL ? take(path, root, found) : err_code();
    cJSON_Delete(root);
    return rc;
}

int model_endings(const char *dir, uint32_t vocab, struct token_list *ids)
{
    struct found found = {.ids = ids, .vocab = vocab};
    const struct {
        const char *name;
        int (*take)(const char *, const cJSON *, struct found *);
    } files[] = {{"config.json", add_config},
                 {"generation_config.json", add_entry},
                 {"tokenizer_config.json", add_named}};
    for (size_t i = 0; i < countof(files); i++) {
        char *path = path_join(dir, files[i].name);
        int rc = path != NULL ? add_file(path, files[i].take, &found) : ERR_MEMORY;
        free(path);
        TRY(rc);
    }
    return 0;
}
