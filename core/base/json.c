/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/scan.h"
#include "core/base/utf8.h"

/* A tree keeps numbers as doubles and forgets how they were written. This bit of an item's type,
 * above those cJSON uses, keeps what json_u64() needs: digits only and at most 2^53. */
#define JSON_WHOLE (1 << 20)

#define WHOLE_MAX ((uint64_t)1 << 53)

/* The item after item in the order of the text; NULL after the last. The path down to item is
 * kept by the caller, so no call depends on how deep the tree is. */
struct walk {
    const cJSON *path[JSON_DEPTH_MAX + 1];
    size_t depth;
};

static const cJSON *walk_next(struct walk *walk, const cJSON *item)
{
    if (item->child != NULL) {
        assert(walk->depth < countof(walk->path));
        walk->path[walk->depth++] = item;
        return item->child;
    }
    while (walk->depth > 0 && item->next == NULL) {
        item = walk->path[--walk->depth];
    }
    return walk->depth > 0 ? item->next : NULL;
}

/* Moves over everything that is not a number: punctuation, words and strings. */
static bool seek_number(struct scan *scan)
{
    while (scan->at < scan->end && *scan->at != '-' && (*scan->at < '0' || *scan->at > '9')) {
        if (*scan->at == '"') {
            if (!scan_skip(scan)) {
                return false;
            }
        } else {
            scan->at++;
        }
    }
    return scan->at < scan->end;
}

/* Marks the numbers written as whole ones, and with spelling gives each its text. The text and its
 * tree hold them in one order. False: no memory. */
static bool mark_numbers(cJSON *tree, const char *text, size_t size_bytes, bool spelling)
{
    struct scan scan = scan_start(text, size_bytes);
    struct walk walk = {.depth = 0};
    for (const cJSON *item = tree; item != NULL; item = walk_next(&walk, item)) {
        if (!cJSON_IsNumber(item) || !seek_number(&scan)) {
            continue;
        }
        struct scan number = scan;
        cJSON *marked = (cJSON *)(uintptr_t)item;
        uint64_t value;
        if (scan_u64(&number, &value) && value <= WHOLE_MAX) {
            marked->type |= JSON_WHOLE;
        }
        const char *begin = scan.at;
        scan_skip(&scan);
        if (spelling) {
            marked->valuestring = strndup(begin, (size_t)(scan.at - begin));
            if (marked->valuestring == NULL) {
                return false;
            }
        }
    }
    return true;
}

static cJSON *parse(const char *text, size_t size_bytes, const char *name, bool integers_only,
                    bool spelling)
{
    struct scan scan = scan_start(text, size_bytes);
    scan.integers_only = integers_only;
    if (!scan_skip(&scan) || !scan_finish(&scan)) {
        err_set(ERR_MODEL, "%s: not valid JSON at byte %zu: %s", name, scan_offset(&scan),
                scan.fault);
        return NULL;
    }
    errno = 0;
    cJSON *tree = cJSON_ParseWithLength(text, size_bytes);
    const char *key = NULL;
    if (tree == NULL && errno == ENOMEM) {
        err_set(ERR_MEMORY, "%s: no memory to read it", name);
    } else if (tree == NULL) {
        err_set(ERR_MODEL, "%s: not valid JSON", name);
    } else if (!json_keys_unique(tree, &key)) {
        if (key != NULL) {
            err_set(ERR_MODEL, "%s: key '%.100s' occurs twice in one object", name, key);
        } else {
            err_set(ERR_MEMORY, "%s: no memory to compare its keys", name);
        }
        cJSON_Delete(tree);
        tree = NULL;
    } else if (!mark_numbers(tree, text, size_bytes, spelling)) {
        err_set(ERR_MEMORY, "%s: no memory for its numbers", name);
        cJSON_Delete(tree);
        tree = NULL;
    }
    return tree;
}

cJSON *json_parse(const char *text, size_t size_bytes, const char *name, bool integers_only)
{
    return parse(text, size_bytes, name, integers_only, false);
}

/* What a tree of C strings cannot hold, and what is no text. NULL, or what it is at *at. */
static const char *unspeakable(const char *text, size_t size_bytes, size_t *at)
{
    for (*at = 0; *at < size_bytes;) {
        uint32_t code;
        size_t step = utf8_read((const unsigned char *)text + *at, size_bytes - *at, &code);
        if (step == 0) {
            const char *encoding = *at == 0 ? scan_encoding(text, size_bytes) : NULL;
            return encoding != NULL ? encoding : "not UTF-8";
        }
        if (code == '\\' && size_bytes - *at >= 6 && memcmp(text + *at, "\\u0000", 6) == 0) {
            return "\\u0000, which no text here can hold";
        }
        bool escape = code == '\\' && *at + 1 < size_bytes && (unsigned char)text[*at + 1] < 0x80;
        *at += escape ? 2 : step;
    }
    return NULL;
}

cJSON *json_parse_exact(const char *text, size_t size_bytes, const char *name)
{
    size_t at;
    const char *fault = unspeakable(text, size_bytes, &at);
    if (fault != NULL) {
        err_set(ERR_MODEL, "%s: not usable JSON at byte %zu: %s", name, at, fault);
        return NULL;
    }
    return parse(text, size_bytes, name, false, true);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The key an object holds twice, or NULL. keys has room for every item of the tree. */
static const char *repeated_key(const cJSON *object, const char **keys)
{
    size_t count = 0;
    for (const cJSON *item = object->child; item != NULL; item = item->next) {
        keys[count++] = item->string;
    }
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(keys[i - 1], keys[i]) == 0) {
            return keys[i];
        }
    }
    return NULL;
}

bool json_keys_unique(const cJSON *tree, const char **key)
{
    struct walk walk = {.depth = 0};
    size_t count = 0;
    for (const cJSON *item = tree; item != NULL; item = walk_next(&walk, item)) {
        count++;
    }
    const char **keys = calloc(count + 1, sizeof *keys);
    *key = NULL;
    if (keys == NULL) {
        return false;
    }
    walk.depth = 0;
    for (const cJSON *item = tree; item != NULL && *key == NULL; item = walk_next(&walk, item)) {
        if (cJSON_IsObject(item)) {
            *key = repeated_key(item, keys);
        }
    }
    free(keys);
    return *key == NULL;
}

bool json_u64(const cJSON *item, uint64_t *value)
{
    if (!cJSON_IsNumber(item) || (item->type & JSON_WHOLE) == 0) {
        return false;
    }
    *value = (uint64_t)item->valuedouble;
    return true;
}

bool json_key_u64(const cJSON *item, uint64_t *value)
{
    const char *key = item != NULL ? item->string : NULL;
    size_t digits = key != NULL ? strspn(key, "0123456789") : 0;
    if (digits == 0 || digits > 16 || key[digits] != '\0' || (key[0] == '0' && digits > 1)) {
        return false;
    }
    *value = strtoull(key, NULL, 10);
    return *value <= 1ULL << 53;
}
