/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PROMPT_H
#define CLI_PROMPT_H

/* A prompt as a user gives it: ids, text, or a file of text. Text is encoded by the tokenizer that
 * lies with the model; nothing is put before or behind it unless it is a turn of a conversation,
 * and what looks like a control token in it is text. */

#include "core/cli/options.h"
#include "core/model/tokenizer.h"

struct prompt_cli {
    const char *ids, *text, *file, *tokenizer;
    const char *file_called; /* by messages; NULL: --prompt-file */
    uint64_t ram_bytes;      /* what --ram says bounds the text; 0 as OPTION_AUTO */
    bool chat;               /* the text is what a user says: the model is to answer it */
    uint64_t effort;         /* then: one of PROMPT_EFFORTS; see prompt_settle_effort() */
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

/* type: as above. Rows of a command that takes a turn of a conversation for a prompt. */
#define PROMPT_EFFORTS "low|high|max|off"
#define PROMPT_EFFORT_MAX 2U
#define PROMPT_EFFORT_OFF 3U
#define PROMPT_EFFORT_UNSET UINT64_MAX /* what the member begins with */
#define PROMPT_CHAT_ROWS(type)                                                                    \
    {"chat", OPTION_FLAG, offsetof(type, prompt.chat), NULL, 0, 0, NULL, NULL,                    \
     "the prompt is what a user says; prints the response to it"},                                \
    {"effort", OPTION_CHOICE, offsetof(type, prompt.effort), NULL, 0, 0, PROMPT_EFFORTS, NULL,    \
     "with --chat: how much the model thinks first; max unless given"}

struct prompt {
    uint32_t *ids;
    uint32_t count;               /* > 0 */
    struct tokenizer *tokenizer;  /* of text; NULL when ids were given */
};

/* The tokenizer that lies with the model in dir, unless another one is given. */
int prompt_open_tokenizer(const char *given, const char *dir, struct tokenizer **out);

/* ERR_USAGE for an effort without a conversation; max where none is given. */
int prompt_settle_effort(struct prompt_cli *cli);

/* Whether the user gave one. */
bool prompt_given(const struct prompt_cli *cli);

/* fallback: ids that stand for none given, or NULL: then one is required. ERR_USAGE, ERR_IO,
 * ERR_FIT for a text too long for the memory (text_limit.h), and what tokenizer_open() says.
 * Undone by prompt_fini, also after a failure. */
int prompt_read(struct prompt *prompt, const struct prompt_cli *cli, const char *dir,
                const char *fallback);
void prompt_fini(struct prompt *prompt);

#endif
