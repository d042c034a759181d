/* SPDX-License-Identifier: Apache-2.0 */
/* model.safetensors.index.json. */
#include "core/model/model.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct model_options options = {.threads = 1};
    struct model *model = NULL;
    fuzz_folder(true);
    fuzz_put("model.safetensors.index.json", data, size, 0);
    fuzz_expect(model_open(fuzz_folder(true)->dir, &options, &model));
    model_close(model);
    return 0;
}
