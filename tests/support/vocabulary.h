/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_VOCABULARY_H
#define TESTS_SUPPORT_VOCABULARY_H

/* A tiktoken.model made by a test: the 256 single bytes where they belong, then merges. */

#include "core/base/base.h"

#define VOCABULARY_BYTES 256U /* ranks below are single bytes; the first merge has this one */

/* The byte whose token has this rank. */
unsigned char vocabulary_byte(uint32_t rank);

/* Appends `base64 rank\n`; text has to have room for 4 characters per 3 bytes and 13 more.
 * Returns the end of what it wrote. */
char *vocabulary_line(char *text, const void *bytes, size_t size_bytes, uint32_t rank);

/* The whole file as text, merges being C strings; free() it. */
char *vocabulary_text(const char *const *merges, size_t count, size_t *size_bytes);

/* Writes it to path. */
void vocabulary_write(const char *path, const char *const *merges, size_t count);

#endif
