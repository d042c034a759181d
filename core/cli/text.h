/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

/* Texts of others (paths, names in files) on their way to a terminal or into a file. */

#include <stdio.h>

#include "core/base/base.h"

/* Bytes of the character text begins with; 0 when that must not be passed on: the end, a control
 * character, or what is no UTF-8. */
size_t text_step(const char *text);

/* A rule for bytes that mean something where text goes. */
struct text_rule {
    char byte;
    const char *instead;
};

/* text with every rule applied and '?' for what must not be passed on. A tab or a line break is
 * taken as it is when lines is set, otherwise it becomes a space. */
void text_put(FILE *out, const char *text, const struct text_rule *rules, uint32_t rule_count,
              bool lines);

/* Bytes of any kind, whole characters but for what is no UTF-8, for a terminal: line breaks and
 * tabs as they are, '?' for all else that must not be passed on. */
void text_show(FILE *out, const void *bytes, size_t size_bytes);

/* Bytes of any kind as a JSON string with its quotes, on the heap; NULL when memory is refused.
 * What is no UTF-8 becomes U+FFFD, and so does a zero byte, which few readers can hold. */
char *text_json(const void *bytes, size_t size_bytes);

/* text for a terminal, cut to fit with its zero byte. */
void text_clean(char *to, size_t capacity_bytes, const char *text);

/* text as one word of a shell, quoted when it has to be, cut to fit with its zero byte. Returns the
 * bytes written before that; TEXT_SHELL_BYTES(strlen(text)) always are enough. */
#define TEXT_SHELL_BYTES(length) (4 * (length) + 3)
size_t text_shell(char *to, size_t capacity_bytes, const char *text);

#endif
