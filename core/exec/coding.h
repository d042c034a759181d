/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_CODING_H
#define EXEC_CODING_H

/* The coder of a pack's tiles, for programs that write or prove one (they know no kernels). */

#include "core/base/base.h"

/* Codes rows x cols bf16 elements. Returns the bytes written to out, or 0 when they would exceed
 * capacity_bytes, which is at least packed_tile_bytes(rows, cols, 0). */
uint64_t coding_encode(unsigned char *out, uint64_t capacity_bytes, const unsigned char *rows_bf16,
                       uint32_t rows, uint32_t cols);

/* The rows again. False when coded is no such tile. */
bool coding_decode(unsigned char *rows_bf16, const unsigned char *coded, uint64_t coded_bytes,
                   uint32_t rows, uint32_t cols);

#endif
