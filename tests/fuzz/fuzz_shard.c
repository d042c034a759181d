/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning of a shard: length, header, some data. The rest of it is zeros. */
#include "core/model/model.h"
#include "tests/fuzz/fuzz.h"

#define SHARD 2U /* with the fewest tensors */
#define ROOM_BYTES (256 * KIB)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct model_options options = {.threads = 1};
    struct model *model = NULL;
    fuzz_folder(true);
    fuzz_put(tiny_shard(SHARD), data, size, ROOM_BYTES);
    fuzz_expect(model_open(fuzz_folder(true)->dir, &options, &model));
    model_close(model);
    return 0;
}
