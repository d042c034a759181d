/* SPDX-License-Identifier: Apache-2.0 */
/* A .k3rt file; when it is taken, its every group can be written again. */
#include "cache/trace.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace trace;
    char path[TINY_PATH_BYTES];
    char again[TINY_PATH_BYTES];
    tiny_path(fuzz_folder(false), "in.k3rt", path);
    tiny_path(fuzz_folder(false), "out.k3rt", again);
    fuzz_put("in.k3rt", data, size, 0);
    int rc = trace_load(&trace, path);
    fuzz_expect(rc);
    if (rc == 0) {
        fuzz_expect(trace_save(&trace, again));
        trace_fini(&trace);
    }
    return 0;
}
