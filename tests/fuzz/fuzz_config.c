/* SPDX-License-Identifier: Apache-2.0 */
/* config.json, and a model of what it says that lies nowhere. */
#include "core/model/model.h"
#include "tests/fuzz/fuzz.h"

#define PARTS_MAX 4096U /* layers x experts: more takes long, not other paths */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct model_options options = {.threads = 1};
    struct model_config config;
    struct model *model = NULL;
    fuzz_folder(true);
    fuzz_put("config.json", data, size, 0);
    int rc = config_load(fuzz_folder(true)->dir, &config);
    fuzz_expect(rc);
    if (rc == 0 && (uint64_t)config.layers * config.experts <= PARTS_MAX) {
        fuzz_expect(model_imagine(&config, &model));
        model_close(model);
        model = NULL;
        fuzz_expect(model_open(fuzz_folder(true)->dir, &options, &model));
        model_close(model);
    }
    return 0;
}
