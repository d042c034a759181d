/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RUN_TEXT_H
#define CLI_RUN_TEXT_H

/* What a run makes, as text: token by token, up to a text that ends it. */

#include <cjson/cJSON.h>

#include "core/cli/stop_text.h"
#include "core/model/chat_parse.h"

struct run_text {
    const struct tokenizer *tokenizer; /* NULL: nobody asked for text, and nothing is done */
    struct tokenizer *own;             /* opened for the texts that end a run of ids */
    struct tokenizer_stream stream;
    struct stop_text stop;
    struct byte_list piece, shown;     /* of the latest token; what of it can be shown now */
    bool keeps;
    struct byte_list kept;             /* all that was shown */
    struct chat_parser *chat;          /* what is made is an answer: its response is shown */
    struct token_list ends;            /* ids that the model's files say end one */
    struct byte_list reasoning;        /* of it */
    bool answered;                     /* there is something of its response, or a call */
    int rc;                            /* the first failure: the run ends with it */
};

/* given: the prompt's, or NULL; then one is opened at path if there are stop texts. keeps: for
 * run_text_json. What tokenizer_open says, and ERR_USAGE for an empty text. Undone by
 * run_text_fini, also after a failure. */
int run_text_open(struct run_text *t, const struct tokenizer *given, const char *path,
                  const struct option_list *stops, bool keeps);
/* What will be made is an answer of a conversation with the model in this folder. After
 * run_text_open. ERR_MEMORY, and what model_endings() says. */
int run_text_chat(struct run_text *t, const char *model, bool thinking);
/* The id is one that ends an answer. */
bool run_text_ends_with(const struct run_text *t, uint32_t id);
/* It was, and nothing of a response has come, and no call. */
bool run_text_unanswered(const struct run_text *t);
void run_text_fini(struct run_text *t);

/* What it takes in memory, a run of gen tokens through. */
uint64_t run_text_bytes(const struct run_text *t, uint64_t gen);

/* Leaves in shown what a token adds; NULL: what was held back, for nothing follows. A token that
 * the model has and the tokenizer has not adds nothing. */
void run_text_take(struct run_text *t, const uint32_t *id);

/* The run ends here: a text was found, the answer is over, or memory was refused. */
bool run_text_over(const struct run_text *t);

/* Adds "text", "stop_text" when one ended the run, and an answer's "reasoning". */
void run_text_json(const struct run_text *t, cJSON *parent);

#endif
