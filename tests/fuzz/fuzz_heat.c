/* SPDX-License-Identifier: Apache-2.0 */
/* A heat file, for the policy that the first byte chooses. */
#include "cache/heat.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const learning[] = {"lar", "lfu", "lhr"};
    const struct policy_shape shape = {.layers = 4, .experts = 16, .per_token = 4, .slots = 8};
    char path[TINY_PATH_BYTES];
    if (size == 0) {
        return 0;
    }
    const struct policy_ops *ops = policy_find(learning[data[0] % countof(learning)]);
    struct policy *policy = ops->open(&shape);
    tiny_need(policy != NULL, "a policy");
    tiny_path(fuzz_folder(false), "heat", path);
    fuzz_put("heat", data + 1, size - 1, 0);
    fuzz_expect(heat_load(path, ops, &shape, policy));
    ops->close(policy);
    return 0;
}
