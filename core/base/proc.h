/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_PROC_H
#define BASE_PROC_H

/* Small texts of /proc, /sys and the cgroup tree, whose files have no size of their own. What is
 * not there is no error. Paths come as printf forms; one that is too long counts as not there.
 * Any thread. */

#include "core/base/base.h"

#define PROC_PATH_BYTES 4608

/* As much of the file as fits, with a NUL. False, and "", when there is nothing to read. */
bool proc_text(char *text, size_t capacity, const char *path_format, ...)
    __attribute__((format(printf, 3, 4)));

/* The first line without trailing blanks; bytes that are no printable ASCII become '?'. False, and
 * "", when there is none. */
bool proc_line(char *line, size_t capacity, const char *path_format, ...)
    __attribute__((format(printf, 3, 4)));

/* The number the file begins with, or otherwise: "max" is none, "-1" neither. */
uint64_t proc_value(uint64_t otherwise, const char *path_format, ...)
    __attribute__((format(printf, 2, 3)));

/* Makes every byte that is no printable ASCII a '?'. */
void proc_printable(char *text);

/* The number after a line's first word, such as "MemTotal:". */
bool proc_number(const char *text, const char *name, uint64_t *value);

#endif
