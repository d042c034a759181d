/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/model/tokenizer_priv.h"

#define CONFIG_NAME "tokenizer_config.json"
#define CONFIG_CAP_BYTES (16 * MIB)

/* Those of Kimi K3 that are in use; the others are reserved. */
static const struct {
    uint32_t index;
    const char *text;
    bool special;
} in_use[] = {
    {0, "[BOS]", true},
    {1, "[EOS]", true},
    {2, "<|end_of_msg|>", true},
    {3, "<|open|>", false},
    {4, "<|close|>", false},
    {5, "<|sep|>", false},
    {6, "[start_header_id]", true},
    {7, "[end_header_id]", true},
    {9, "[EOT]", true},
    {18, "<|media_begin|>", true},
    {19, "<|media_content|>", true},
    {20, "<|media_end|>", true},
    {21, "<|media_pad|>", true},
    {65, "<osagent_mode>", true},
    {254, "[UNK]", true},
    {255, "[PAD]", true},
};

static int set_text(struct added_tokens *added, uint32_t index, const char *text, bool special)
{
    char *copy = strdup(text);
    if (copy == NULL) {
        return err_set(ERR_MEMORY, "no memory for the added tokens");
    }
    free(added->text[index]);
    added->text[index] = copy;
    added->size_bytes[index] = strlen(copy);
    added->special[index] = special;
    return 0;
}

static int set_defaults(struct added_tokens *added)
{
    for (uint32_t i = 0; i < TOKENIZER_ADDED; i++) {
        char text[64];
        snprintf(text, sizeof text, "<|reserved_token_%u|>", added->first + i);
        TRY(set_text(added, i, text, false));
    }
    for (size_t i = 0; i < countof(in_use); i++) {
        TRY(set_text(added, in_use[i].index, in_use[i].text, in_use[i].special));
    }
    return 0;
}

/* ---- tokenizer_config.json ---- */

static bool is_in_use(uint32_t index)
{
    for (size_t i = 0; i < countof(in_use); i++) {
        if (in_use[i].index == index) {
            return true;
        }
    }
    return false;
}

/* "163584": {"content": "[BOS]", "special": true, ...} */
static int take_entry(struct added_tokens *added, const char *path, const cJSON *entry)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "content"));
    const cJSON *special = cJSON_GetObjectItemCaseSensitive(entry, "special");
    uint64_t id;
    if (!json_key_u64(entry, &id) || id < added->first || id - added->first >= TOKENIZER_ADDED) {
        return err_set(ERR_MODEL, "%s: added token '%.40s' is none of %u to %u, which follow "
                       "tiktoken.model: fetch both files from one checkpoint", path, entry->string,
                       added->first, added->first + TOKENIZER_ADDED - 1);
    }
    uint32_t index = (uint32_t)(id - added->first);
    if (text == NULL || text[0] == '\0' || (special != NULL && !cJSON_IsBool(special))) {
        return err_set(ERR_MODEL, "%s: added token %u has no content, or a \"special\" that is "
                       "neither true nor false: fetch the file again", path, added->first + index);
    }
    bool is_special = special != NULL ? cJSON_IsTrue(special) : added->special[index];
    if (is_in_use(index) && (strcmp(text, added->text[index]) != 0 ||
                             added->special[index] != is_special)) {
        return err_set(ERR_MODEL, "%s: added token %u is '%.40s', %sspecial, but in Kimi K3 '%s', "
                       "%sspecial: this is another model's file; fetch the one of the checkpoint",
                       path, added->first + index, text, is_special ? "" : "not ",
                       added->text[index], added->special[index] ? "" : "not ");
    }
    return set_text(added, index, text, is_special);
}

static int take_config(struct added_tokens *added, const char *path)
{
    struct file_text file;
    TRY(file_read(path, CONFIG_CAP_BYTES, &file));
    cJSON *root = json_parse(file.text, file.size_bytes, path, false);
    file_text_free(&file);
    if (root == NULL) {
        return err_code();
    }
    const cJSON *entries = cJSON_GetObjectItemCaseSensitive(root, "added_tokens_decoder");
    const cJSON *entry;
    int rc = 0;
    if (entries != NULL && !cJSON_IsObject(entries)) {
        rc = err_set(ERR_MODEL, "%s: added_tokens_decoder is not an object: fetch the file again",
                     path);
    }
    cJSON_ArrayForEach(entry, entries) {
        rc = rc == 0 ? take_entry(added, path, entry) : rc;
    }
    cJSON_Delete(root);
    return rc;
}

static int look_for_config(struct added_tokens *added, const char *dir)
{
    char *path = path_join(dir, CONFIG_NAME);
    if (path == NULL) {
        return ERR_MEMORY;
    }
    int rc = file_exists(path) ? take_config(added, path) : 0;
    free(path);
    return rc;
}

/* ---- order, and finding ---- */

static int compare(const struct added_tokens *added, uint32_t a, uint32_t b)
{
    return strcmp(added->text[a], added->text[b]);
}

/* By insertion: 256 texts, nearly in order. */
static void sort(struct added_tokens *added)
{
    for (uint32_t i = 0; i < TOKENIZER_ADDED; i++) {
        uint32_t at = i;
        while (at > 0 && compare(added, added->sorted[at - 1], i) > 0) {
            added->sorted[at] = added->sorted[at - 1];
            at--;
        }
        added->sorted[at] = (uint8_t)i;
        added->begins[(unsigned char)added->text[i][0]] = true;
    }
}

/* In order, a text that begins others stands right before one of them. */
static int check_distinct(const struct added_tokens *added)
{
    for (uint32_t i = 0; i + 1 < TOKENIZER_ADDED; i++) {
        uint32_t a = added->sorted[i], b = added->sorted[i + 1];
        if (strncmp(added->text[a], added->text[b], added->size_bytes[a]) == 0) {
            return err_set(ERR_MODEL, CONFIG_NAME ": added token %u, '%.40s', is the beginning of "
                           "%u, '%.40s', so that text could mean either: rename one",
                           added->first + a, added->text[a], added->first + b, added->text[b]);
        }
    }
    return 0;
}

int added_open(struct added_tokens *added, uint32_t first, const char *dir)
{
    *added = (struct added_tokens){.first = first};
    int rc = set_defaults(added);
    rc = rc == 0 && dir != NULL ? look_for_config(added, dir) : rc;
    if (rc == 0) {
        sort(added);
        rc = check_distinct(added);
    }
    if (rc < 0) {
        added_close(added);
    }
    return rc;
}

void added_close(struct added_tokens *added)
{
    for (uint32_t i = 0; i < TOKENIZER_ADDED; i++) {
        free(added->text[i]);
    }
    *added = (struct added_tokens){.first = 0};
}

/* The added token at the very beginning of text. */
static bool match(const struct added_tokens *added, const unsigned char *text, size_t size_bytes,
                  uint32_t *index)
{
    uint32_t low = 0, high = TOKENIZER_ADDED;
    while (low < high) {
        uint32_t middle = (low + high) / 2, candidate = added->sorted[middle];
        size_t size = added->size_bytes[candidate];
        int order = memcmp(text, added->text[candidate], min_u64(size, size_bytes));
        if (order == 0 && size <= size_bytes) {
            *index = candidate;
            return true;
        }
        if (order > 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return false;
}

size_t added_find(const struct added_tokens *added, const unsigned char *text, size_t size_bytes,
                  uint32_t *index)
{
    for (size_t at = 0; at < size_bytes; at++) {
        if (added->begins[text[at]] && match(added, text + at, size_bytes - at, index)) {
            return at;
        }
    }
    return size_bytes;
}
