/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_SCAN_H
#define BASE_SCAN_H

/* A strict pull scanner for JSON text: no tree, no allocation, no recursion. It serves what is
 * too big or too hostile for a tree, and vets text before a tree is made of it. The caller owns
 * the text and the struct; one thread each. After the first fault every call returns false. */

#include "core/base/base.h"

struct scan {
    const char *begin, *at, *end;
    const char *fault;  /* NULL, or what is wrong at `at`; a static string */
    bool integers_only; /* a number may consist of digits only */
};

static inline struct scan scan_start(const char *text, size_t size_bytes)
{
    return (struct scan){.begin = text, .at = text, .end = text + size_bytes};
}

/* Byte of the text the scanner stands at: where a fault lies. */
static inline size_t scan_offset(const struct scan *scan)
{
    return (size_t)(scan->at - scan->begin);
}

/* NULL, or how text is encoded that is no plain UTF-8, by its first bytes, and what to do about it:
 * the fault of a scan that fails there. A static string. */
const char *scan_encoding(const char *text, size_t size_bytes);

/* Skips white space. The next byte, or '\0' at the end of the text. */
char scan_peek(struct scan *scan);

/* Skips white space, then takes c if it comes next; no fault otherwise. */
bool scan_take(struct scan *scan, char c);

/* As scan_take(), but anything else is a fault. */
bool scan_expect(struct scan *scan, char c);

/* Steps through the members of an object or array whose opening bracket has been taken: true
 * when another member follows, false at the closing bracket (taken) or a fault. *first is true
 * before the first call. */
bool scan_next(struct scan *scan, char close, bool *first);

/* Takes a string, decoded, into text (capacity_bytes > 0, NUL included); one that does not fit
 * is a fault. Escaped control characters become '?', so the text may appear in a message. */
bool scan_string(struct scan *scan, char *text, size_t capacity_bytes);

/* An object's key and the colon after it. */
bool scan_key(struct scan *scan, char *text, size_t capacity_bytes);

/* Takes a number of digits only that fits 64 bits. */
bool scan_u64(struct scan *scan, uint64_t *value);

/* Takes one value of any kind, at most JSON_DEPTH_MAX brackets deep. */
bool scan_skip(struct scan *scan);

/* True when nothing but white space is left; otherwise a fault. */
bool scan_finish(struct scan *scan);

#endif
