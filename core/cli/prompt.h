/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PROMPT_H
#define CLI_PROMPT_H

/* A prompt as a user gives it: ids, text, or a file of text. Text is encoded by the tokenizer that
 * lies with the model; nothing is put before or behind it, and what looks like a control token in
 * it is text. */

#include "core/cli/options.h"
#include "core/model/tokenizer.h"

struct prompt_cli {
    const char *ids, *text, *file, *tokenizer;
    const char *file_called; /* by messages; NULL: --prompt-file */
};

/* type: the command's struct, with a member `prompt` of struct prompt_cli. */
#define PROMPT_OPTION_ROWS(type, ids_help)                                                        \
    {"ids", OPTION_TEXT, offsetof(type, prompt.ids), NULL, 0, 0, NULL, "LIST",                    \
     ids_help},                                                                                   \
    {"prompt", OPTION_TEXT, offsetof(type, prompt.text), NULL, 0, 0, NULL, "TEXT",                \
     "prompt as text, for the tokenizer that lies with MODEL"},                                   \
    {"prompt-file", OPTION_TEXT, offsetof(type, prompt.file), NULL, 0, 0, NULL, "FILE|-",         \
     "the same from a file, or from standard input"},                                             \
    {"tokenizer", OPTION_TEXT, offsetof(type, prompt.tokenizer), NULL, 0, 0, NULL, "FILE",        \
     "a tiktoken.model elsewhere than with MODEL"}

struct prompt {
    uint32_t *ids;
    uint32_t count;               /* > 0 */
    struct tokenizer *tokenizer;  /* of text; NULL when ids were given */
};

/* Whether the user gave one. */
bool prompt_given(const struct prompt_cli *cli);

/* fallback: ids that stand for none given, or NULL: then one is required. ERR_USAGE, ERR_IO, and
 * what tokenizer_open() says. Undone by prompt_fini, also after a failure. */
int prompt_read(struct prompt *prompt, const struct prompt_cli *cli, const char *dir,
                const char *fallback);
void prompt_fini(struct prompt *prompt);

#endif
