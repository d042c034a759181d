/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_PACKED_H
#define TESTS_SUPPORT_PACKED_H

/* Packs of the tiny model as input of tests, and ways to lie in their manifests. Failures of the
 * helpers themselves abort. */

#include "tests/support/tiny.h"

struct packed_form {
    uint64_t tile_bytes;       /* 0: auto */
    bool trunk_only;
    const struct tiny *second; /* an empty folder that gets half; NULL: one folder */
};

/* Scatters values of rare exponents over matrices that a pack codes: the tiny model has none, and
 * without them no tile has an escape. Changes what the model computes. */
void packed_sprinkle(const struct tiny *model);

/* to gets a folder of its own; from must stay when the experts do. */
void packed_make(struct tiny *to, const struct tiny *from, enum tiny_place place,
                 const struct packed_form *form);

/* Replaces the first occurrence of a text in the manifest and makes its checksum right again: what
 * is refused then is refused for what it says. */
void packed_edit(const struct tiny *pack, const char *before, const char *after);

/* A tile of a matrix as its manifest describes it. */
struct packed_line {
    char text[128];   /* "[file,offset,bytes,rows,\"checksum\"]" */
    uint32_t file, rows;
    uint64_t offset_bytes, size_bytes;
    char checksum[17];
};

/* The number-th tile (from 0) of the first matrix whose name holds part. */
void packed_find(const struct tiny *pack, const char *part, uint32_t number,
                 struct packed_line *out);

/* The line with other numbers, as text for packed_edit(). */
void packed_print(const struct packed_line *line, char text[128]);

#endif
