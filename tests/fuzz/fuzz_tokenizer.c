/* SPDX-License-Identifier: Apache-2.0 */
/* tiktoken.model; when it is taken, text must come back from its ids. */
#include <stdlib.h>
#include <string.h>

#include "core/model/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static void round_trip(const struct tokenizer *t, const uint8_t *text, size_t size)
{
    struct token_list ids = {0};
    struct byte_list back = {0};
    fuzz_expect(tokenizer_encode(t, text, size, 0, &ids));
    fuzz_expect(tokenizer_decode(t, ids.ids, ids.count, 0, &back));
    tiny_need(back.count == size && (size == 0 || memcmp(back.bytes, text, size) == 0),
              "text comes back from its ids");
    free(ids.ids);
    free(back.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *t = NULL;
    char path[TINY_PATH_BYTES];
    tiny_path(fuzz_folder(false), "tiktoken.model", path);
    fuzz_put("tiktoken.model", data, size, 0);
    int rc = tokenizer_open(path, &t);
    fuzz_expect(rc);
    if (rc == 0) {
        round_trip(t, data, size < 4096 ? size : 4096);
    }
    tokenizer_close(t);
    return 0;
}
