/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KERNELS_PACKED_H
#define KERNELS_PACKED_H

/* A lossless form of bf16 rows in 12 bits and a little per element: the low byte as it is, the
 * high byte (sign and seven bits of exponent) as the index of one of 15 values common in its row.
 *
 * row    table 16 B | cols / 128 superblocks of 192 B | cols % 128 elements as bf16
 * table  the row's 15 most common high bytes; entry 15 is 0
 * superblock  64 B of nibbles | 64 low bytes of elements 0..63 | 64 low bytes of 64..127
 *   Nibble byte p holds the index of position p of the first half in its low nibble, that of
 *   the second half in its high one. Low bytes are in order of position too.
 *   Position 16q + 4k + i of a half is its element 16k + 4q + i (q, k, i in 0..3): two in-lane
 *   unpacks of 64 byte registers, or of pairs of 32, then give elements in the order of lanes.
 * escapes  apart from the rows: u32 first[rows + 1], how many escapes lie before each row, then
 *   u32 entries by row and rising column, column << 8 | high byte. All little endian, at any
 *   address. An escaped element has index 15; the last cols % 128 never are.
 *
 * A tile is stored as rows, first, entries, with nothing between them. Plain C, the truth for the
 * kernels that compute from this form. No state, no allocation, any thread. */

#include "core/base/packed.h"

/* Where the parts of a coded tile begin. */
struct packed_tile {
    const unsigned char *row;    /* packed_row_bytes(cols) apart */
    const unsigned char *first;  /* u32 [rows + 1] */
    const unsigned char *escape; /* u32 [first[rows]] */
};

/* Codes rows x cols bf16 elements at w into out, which has room for capacity_bytes (at least
 * packed_tile_bytes(rows, cols, 0)); packed_fits(cols). Returns the bytes written, or 0 when
 * they would exceed capacity_bytes. */
uint64_t packed_encode_rows(unsigned char *out, uint64_t capacity_bytes, const unsigned char *w,
                            uint32_t rows, uint32_t cols);

/* Finds the parts of a tile of size_bytes. False when it cannot be one: the counts do not rise
 * from 0 to what size_bytes has room for, or a column is out of its row or out of order. Looks
 * at counts and escapes only: cheap beside the rows. */
bool packed_open(struct packed_tile *tile, const unsigned char *coded, uint64_t size_bytes,
                 uint32_t rows, uint32_t cols);

/* The rows as bf16 again: out has rows * cols * 2 bytes. */
void packed_decode_rows(unsigned char *out, const struct packed_tile *tile, uint32_t rows,
                        uint32_t cols);

#endif
