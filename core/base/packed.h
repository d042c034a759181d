/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_PACKED_H
#define BASE_PACKED_H

/* Sizes of the coded form of bf16 rows (kernels/packed.h), which readers of a pack check and the
 * coder writes. Pure arithmetic. */

#include "core/base/base.h"

#define PACKED_TABLE_BYTES 16u         /* a row's common high bytes */
#define PACKED_BLOCK 128u              /* elements coded together */
#define PACKED_BLOCK_BYTES 192u        /* their nibbles and low bytes */
#define PACKED_COLS_MAX (1u << 24)     /* an escape holds its column in 24 bits */

/* Distance of coded rows. */
static inline uint64_t packed_row_bytes(uint32_t cols)
{
    return PACKED_TABLE_BYTES + (uint64_t)(cols / PACKED_BLOCK) * PACKED_BLOCK_BYTES +
           (uint64_t)(cols % PACKED_BLOCK) * 2;
}

/* A coded tile: its rows, u32 first[rows + 1], then one u32 per escape. */
static inline uint64_t packed_tile_bytes(uint32_t rows, uint32_t cols, uint64_t escapes)
{
    return rows * packed_row_bytes(cols) + (rows + 1ULL + escapes) * 4;
}

/* Whether a matrix of this width is coded at all. */
static inline bool packed_fits(uint32_t cols)
{
    return cols >= PACKED_BLOCK && cols < PACKED_COLS_MAX;
}

#endif
