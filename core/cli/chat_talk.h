/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CHAT_TALK_H
#define CLI_CHAT_TALK_H

/* A conversation with a model: what was said, the ids the model has read and made of it, and how
 * many of these its state holds. A turn feeds only what the state does not hold. Ids stay as they
 * were made; what an answer left open is closed behind it, and it ends as histories end. */

#include "core/exec/generate.h"
#include "core/model/chat_parse.h"

struct talk {
    struct chat chat;
    const struct tokenizer *tokenizer;
    struct token_list ends;  /* ids that end an answer besides the format's own; may be filled in */
    struct token_list ids;   /* of the first `rendered` messages */
    uint32_t rendered;       /* 0: ids is empty */
    uint32_t known;          /* ids in the engine's state, from the first */
    uint32_t calls;          /* numbered so far */
    bool asked;              /* ids hold what was asked of one answer only: choice or format */
};

struct talk_request {
    const struct sample_options *sample;  /* or NULL: the likeliest */
    uint32_t gen;                         /* most tokens of the answer */
    uint32_t drafts;
    const struct chat_events *events;
    /* All may be NULL. How much will be read, before it is; a token; logits of a step. */
    void (*on_begin)(void *ctx, uint32_t tokens, uint32_t passes);
    void (*on_token)(void *ctx);
    void (*on_logits)(void *ctx, uint32_t step, const float *logits);
    void *ctx;
};

struct talk_answer {
    struct generate_result result; /* its ids are the answer's; talk_answer_fini frees them */
    uint32_t prompt_tokens;        /* ids before the answer */
    uint32_t read_tokens;          /* of them, those that were fed */
    bool by_id;                    /* the last of its ids is one that ends answers */
};

void talk_init(struct talk *talk, const struct tokenizer *t);
void talk_fini(struct talk *talk);

/* After chat was changed otherwise than by talk_answer(): all of it is read again. */
void talk_restart(struct talk *talk);

/* Lets the model answer the messages, and adds its answer to them. Interrupted at a pass border, it
 * is as long as it came. ERR_FIT when the messages do not fit into the context: nothing has changed
 * then. After other failures the engine is of no more use. Undone by talk_answer_fini. */
int talk_answer(struct talk *talk, struct engine *e, const struct talk_request *request,
                struct talk_answer *answer);
void talk_answer_fini(struct talk_answer *answer);

/* Whether the model waits for results of its calls: how many are still to come, and the call that
 * the next one answers (NULL when there is none). */
uint32_t talk_calls_open(const struct talk *talk, const struct chat_call **next);
/* Adds a result of that call. */
int talk_add_result(struct talk *talk, const char *text);

#endif
