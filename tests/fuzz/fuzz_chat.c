/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation as JSON, rendered when it is taken. */
#include <stdlib.h>

#include "core/model/chat.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/vocabulary.h"

static struct tokenizer *tokenizer;

static void open_tokenizer(void)
{
    size_t size;
    char path[TINY_PATH_BYTES];
    char *text = vocabulary_text(NULL, 0, &size);
    tiny_path(fuzz_folder(false), "tiktoken.model", path);
    fuzz_put("tiktoken.model", text, size, 0);
    tiny_need(tokenizer_open(path, &tokenizer) == 0, err_message());
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct token_list ids = {0};
    struct chat chat;
    if (tokenizer == NULL) {
        open_tokenizer();
    }
    chat_init(&chat);
    int rc = chat_read_json(&chat, (const char *)data, size, "input");
    fuzz_expect(rc);
    if (rc == 0) {
        fuzz_expect(chat_render(&chat, tokenizer, &ids));
    }
    chat_fini(&chat);
    free(ids.ids);
    return 0;
}
