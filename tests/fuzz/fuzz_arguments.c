/* SPDX-License-Identifier: Apache-2.0 */
/* A command line: the first byte chooses the command, the rest are its words, a line each. */
#include <stdlib.h>
#include <string.h>

#include "core/cli/commands.h"
#include "tests/fuzz/fuzz.h"

#define WORDS_MAX 64
#define TARGET_BYTES 8192 /* more than the struct of any command */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static max_align_t target[TARGET_BYTES / sizeof(max_align_t)];
    const char *positional[WORDS_MAX];
    char *word[WORDS_MAX + 1];
    int count = 1;
    bool help;
    if (size == 0) {
        return 0;
    }
    const struct command *command = subcommands[data[0] % subcommand_count].command;
    char *text = malloc(size);
    tiny_need(text != NULL, "memory");
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    word[0] = text + size - 1;
    for (char *at = text; at < text + size - 1 && count < WORDS_MAX; at += strlen(at) + 1) {
        word[count++] = at;
        at[strcspn(at, "\n")] = '\0';
    }
    word[count] = NULL;
    memset(target, 0, sizeof target);
    tiny_need(command->positional_max <= WORDS_MAX, "room for what is no option");
    fuzz_expect(options_parse(command, target, count, word, positional, &help));
    free(text);
    return 0;
}
