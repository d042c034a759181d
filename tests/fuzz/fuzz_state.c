/* SPDX-License-Identifier: Apache-2.0 */
/* A saved state. Checksums of header and whole are made right first, or nothing behind them would
 * ever be looked at; the last byte of the input says which are left as they are. */
#include <string.h>
#include <xxhash.h>

#include "core/exec/saved_state.h"
#include "tests/fuzz/fuzz.h"

#define SUM_AT (SAVED_HEADER_BYTES - 8)

static void mend(unsigned char *file, size_t size, unsigned keep)
{
    if (size >= SAVED_HEADER_BYTES && (keep & 1) == 0) {
        XXH64_hash_t sum = XXH3_64bits(file, SUM_AT);
        memcpy(file + SUM_AT, &sum, sizeof sum);
    }
    if (size >= SAVED_HEADER_BYTES + 8 && (keep & 2) == 0) {
        XXH64_hash_t sum = XXH3_64bits(file, size - 8);
        memcpy(file + size - 8, &sum, sizeof sum);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char file[1 << 17];
    struct saved_state state;
    char path[TINY_PATH_BYTES];
    if (size == 0 || size > sizeof file) {
        return 0;
    }
    memcpy(file, data, size - 1);
    mend(file, size - 1, data[size - 1]);
    tiny_path(fuzz_folder(false), "state", path);
    fuzz_put("state", file, size - 1, 0);
    fuzz_expect(saved_state_open(&state, path));
    saved_state_close(&state);
    return 0;
}
