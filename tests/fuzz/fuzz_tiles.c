/* SPDX-License-Identifier: Apache-2.0 */
/* A coded tile. What packed_open() takes can be decoded without leaving it, which the sanitizers
 * watch: the tile ends where its memory does. */
#include <stdlib.h>
#include <string.h>

#include "kernels/packed.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct packed_tile tile;
    if (size < 3) {
        return 0;
    }
    uint32_t rows = 1 + data[0] % 8U;
    uint32_t cols = PACKED_BLOCK + (data[1] | (uint32_t)(data[2] & 1) << 8);
    unsigned char *coded = malloc(size - 3);
    unsigned char *out = malloc((size_t)rows * cols * 2);
    tiny_need((coded != NULL || size == 3) && out != NULL, "memory");
    memcpy(coded, data + 3, size - 3);
    if (packed_open(&tile, coded, size - 3, rows, cols)) {
        packed_decode_rows(out, &tile, rows, cols);
    }
    free(coded);
    free(out);
    return 0;
}
