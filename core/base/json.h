/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

/* A thin layer over cJSON for hostile text: bounded depth, duplicate keys refused, integers
 * exact (digits only: 1e3, 128.0 and values above 2^53 are not integers here). */

#include <cjson/cJSON.h>

#include "core/base/base.h"

#define JSON_DEPTH_MAX 32

/* Parses exactly size_bytes (trailing white space allowed, anything else refused). With
 * integers_only, any fraction, exponent or sign of a number is refused.
 * A key twice in one object is refused as well.
 * Returns NULL with ERR_MODEL set (what, at which byte of name), or ERR_MEMORY: see err_code().
 * Free with cJSON_Delete. */
cJSON *json_parse(const char *text, size_t size_bytes, const char *name, bool integers_only);

/* The same for texts that go on to others: not UTF-8, or \u0000 anywhere, is refused too, and every
 * number's valuestring is how it was written, so that json_text() loses no digit. */
cJSON *json_parse_exact(const char *text, size_t size_bytes, const char *name);

/* False when any object of the tree holds a key twice; *key then names it, or is NULL when there
 * was no memory to find out. */
bool json_keys_unique(const cJSON *tree, const char **key);

/* True when item is a whole number in [0, 2^53]. */
bool json_u64(const cJSON *item, uint64_t *value);

/* The same of the key an item has in its object: digits as a number would have them. */
bool json_key_u64(const cJSON *item, uint64_t *value);

enum {
    JSON_SORTED = 1, /* keys of objects by code point, at every depth */
    JSON_SPACED = 2  /* `, ` and `: ` between things, else `,` and `:` */
};

/* The tree as text, on one line, characters beyond ASCII as they are: what Python's json.dumps()
 * makes of it. Whole numbers of json_parse_exact() keep all digits, others become the shortest
 * that means the same double; a cJSON_Raw item is put in as it is. free() it; NULL with ERR_MEMORY
 * set. */
char *json_text(const cJSON *tree, unsigned flags);

#endif
