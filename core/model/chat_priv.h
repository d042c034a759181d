/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHAT_PRIV_H
#define CHAT_PRIV_H

/* What the files of chat share. No other folder includes it. */

#include <cjson/cJSON.h>

#include "core/model/chat.h"

/* A copy in *to, whatever was there before. ERR_MEMORY. */
int chat_copy(char **to, const char *text);

/* Adds an argument. value: a string as it is when type is CHAT_STRING, else JSON. ERR_MEMORY. */
int chat_call_add(struct chat_call *call, const char *key, enum chat_type type,
                  const char *value);
/* The same from an item of a JSON tree. */
int chat_call_add_item(struct chat_call *call, const cJSON *item);

void chat_call_fini(struct chat_call *call);
/* Moves call behind those of message; nothing is left in it. ERR_MEMORY. */
int chat_message_call(struct chat_message *message, struct chat_call *call);

enum chat_type chat_type_of(const cJSON *item);

/* Append an id, a text by itself, `open` and `close` of a tag without attributes. ERR_MEMORY. */
int chat_put_id(struct token_list *ids, uint32_t id);
int chat_put_text(const struct tokenizer *t, const char *text, struct token_list *ids);
int chat_put_open(const struct tokenizer *t, const char *tag, struct token_list *ids);
int chat_put_close(const struct tokenizer *t, const char *tag, struct token_list *ids);

#endif
