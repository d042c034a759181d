/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of a pack whose data files are there, but hold zeros behind their heads. */
#include "core/model/pack.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct model_options options = {.threads = 1};
    struct model *model = NULL;
    fuzz_folder(false);
    fuzz_put(PACK_TRUNK, "K3RINGPK\1\0\0\0\0\0\0\0", 16, 8 * MIB);
    fuzz_put(PACK_MANIFEST, data, size, 0);
    fuzz_expect(model_open(fuzz_folder(false)->dir, &options, &model));
    model_close(model);
    return 0;
}
