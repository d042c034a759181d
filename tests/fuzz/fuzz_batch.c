/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of a batch. */
#include "core/cli/batch_input.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct batch_input input;
    char path[TINY_PATH_BYTES];
    tiny_path(fuzz_folder(false), "in.jsonl", path);
    fuzz_put("in.jsonl", data, size, 0);
    fuzz_expect(batch_input_read(path, 16, 0, &input));
    batch_input_free(&input);
    return 0;
}
