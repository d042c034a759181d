/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/coding.h"

#include "kernels/packed.h"

uint64_t coding_encode(unsigned char *out, uint64_t capacity_bytes, const unsigned char *rows_bf16,
                       uint32_t rows, uint32_t cols)
{
    return packed_encode_rows(out, capacity_bytes, rows_bf16, rows, cols);
}

bool coding_decode(unsigned char *rows_bf16, const unsigned char *coded, uint64_t coded_bytes,
                   uint32_t rows, uint32_t cols)
{
    struct packed_tile tile;
    if (!packed_open(&tile, coded, coded_bytes, rows, cols)) {
        return false;
    }
    packed_decode_rows(rows_bf16, &tile, rows, cols);
    return true;
}
