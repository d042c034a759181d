/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_CHAT_PARSE_H
#define MODEL_CHAT_PARSE_H

/* An answer taken apart while its tokens arrive: reasoning, response, calls of tools.
 *
 * Nothing of an answer is lost, however it is written: tags nobody knows, ends of what was never
 * begun and calls that are not whole become text of the response, control tokens written out; only
 * the beginning of a tag that the answer's end cut is dropped, outside of calls. White
 * space between elements is layout and dropped inside calls. A zero byte becomes U+FFFD, and so
 * does what is no UTF-8. */

#include "core/model/chat.h"

enum chat_channel { CHAT_REASONING, CHAT_RESPONSE, CHAT_CALLS };

struct chat_events {
    /* More text of a channel: whole characters. */
    void (*on_text)(void *ctx, enum chat_channel channel, const char *text, size_t size_bytes);
    /* A call that is whole. Valid during the call of this. May be NULL. */
    void (*on_call)(void *ctx, const struct chat_call *call);
    void *ctx;
};

struct chat_parser;

/* For an answer that begins where chat_render_tail() ends. events are copied. ERR_MEMORY. */
int chat_parser_open(struct chat_parser **out, const struct tokenizer *t, bool thinking,
                     const struct chat_events *events);
void chat_parser_close(struct chat_parser *p); /* NULL is fine */

/* Ids that end an answer besides those of chat_tokens(); ends must live as long as p. */
void chat_parser_ends(struct chat_parser *p, const struct token_list *ends);
/* Whether id ends an answer. */
bool chat_parser_ends_with(const struct chat_parser *p, uint32_t id);

/* Takes the next token. 1 when it ended the answer: nothing is taken after it. An id of no token
 * counts as U+FFFD. ERR_MEMORY. */
int chat_parser_push(struct chat_parser *p, uint32_t id);
bool chat_parser_over(const struct chat_parser *p);

/* No more tokens will come: shows what was held back. Then *message is the answer, the caller's to
 * free. Once per answer. ERR_MEMORY. */
int chat_parser_end(struct chat_parser *p, struct chat_message *message);

/* Appends the ids that close what is open, so that the answer is one of a history: all tokens
 * pushed (but those that ended it, chat_tokens) and these. Before chat_parser_end. ERR_MEMORY. */
int chat_parser_finish(const struct chat_parser *p, struct token_list *ids);

#endif
