/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_CHAT_H
#define MODEL_CHAT_H

/* Conversations: messages, the token ids Kimi K3 reads them as, and what it answers taken apart
 * again. docs/CHAT.md shows the format.
 *
 * Every text of a message is encoded by itself and as plain text, and control tokens are put in as
 * ids: whatever stands in a text, none of its tokens is a control token.
 *
 * Nothing here prints, reads files or knows of an engine. A struct belongs to one thread. All texts
 * are UTF-8 with a zero byte behind, allocated by malloc and owned by the struct that points to
 * them; NULL is allowed where said. */

#include <stdio.h>

#include "core/model/tokenizer.h"

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL, CHAT_ROLES };
enum chat_effort { CHAT_EFFORT_NONE, CHAT_EFFORT_LOW, CHAT_EFFORT_HIGH, CHAT_EFFORT_MAX };
enum chat_choice { CHAT_CHOICE_AUTO, CHAT_CHOICE_REQUIRED, CHAT_CHOICE_NONE };
enum chat_format { CHAT_FORMAT_TEXT, CHAT_FORMAT_OBJECT, CHAT_FORMAT_SCHEMA };
enum chat_type { CHAT_STRING, CHAT_NUMBER, CHAT_BOOLEAN, CHAT_NULL, CHAT_OBJECT, CHAT_ARRAY,
                 CHAT_TYPES };

struct chat_argument {
    enum chat_type type;
    char *key;
    char *value;                    /* a string as it is; others as JSON */
};

struct chat_call {
    char *id;                       /* what a result refers to, or NULL */
    char *name;
    struct chat_argument *argument; /* [argument_count] */
    uint32_t argument_count;
    char *raw;                      /* arguments that are no JSON object; NULL: they are */
};

struct chat_message {
    enum chat_role role;
    char *name;                     /* who speaks, or the tool; or NULL */
    char **part;                    /* [part_count] the content; each part is encoded by itself */
    uint32_t part_count;
    char *reasoning;                /* assistant's, or NULL */
    struct chat_call *call;         /* [call_count] assistant's */
    uint32_t call_count;
    char *call_id;                  /* the call a tool's message answers, or NULL */
    char *tools;                    /* declared by a system message instead of content, or NULL */
};

/* Begin with chat_init. */
struct chat {
    struct chat_message *message;   /* [count] */
    uint32_t count, capacity;
    char *tools;                    /* declared from the start: a JSON array, or NULL */
    char *schema;                   /* of CHAT_FORMAT_SCHEMA: JSON */
    enum chat_effort effort;        /* asked for, when thinking */
    enum chat_choice choice;        /* whether the next answer has to call tools */
    enum chat_format format;        /* of the next answer */
    bool thinking;                  /* answers have a channel for reasoning */
};

/* Thinking with the effort the model's makers recommend: max. */
void chat_init(struct chat *chat);
void chat_fini(struct chat *chat);
void chat_message_fini(struct chat_message *message);

/* Appends a message of one text, copied. ERR_MEMORY. */
int chat_add(struct chat *chat, enum chat_role role, const char *text);
/* Appends a message, whose texts are the chat's from then on. Also after a failure, which is
 * ERR_MEMORY, nothing is left in *message. */
int chat_take(struct chat *chat, struct chat_message *message);
/* Drops messages from the end. */
void chat_cut(struct chat *chat, uint32_t count);

/* Appends a copy of text as a part of the content. ERR_MEMORY. */
int chat_message_part(struct chat_message *message, const char *text);
/* Arguments of a call from text: those of a JSON object, or else the text as it is. ERR_MEMORY. */
int chat_call_arguments(struct chat_call *call, const char *text);
/* The arguments as one text, JSON unless they were none. free() it; NULL: ERR_MEMORY. */
char *chat_call_text(const struct chat_call *call);
/* The call that a tool's message at index answers, *number being its place among the calls (from
 * 1); NULL when there is none, or no knowing. */
const struct chat_call *chat_answered(const struct chat *chat, uint32_t index, uint32_t *number);

const char *chat_role_name(enum chat_role role);
const char *chat_type_name(enum chat_type type);
const char *chat_effort_name(enum chat_effort effort); /* "none" for CHAT_EFFORT_NONE */

/* ---- control tokens (chat_render.c) --------------------------------------------------- */

struct chat_tokens {
    uint32_t open, close, sep;
    uint32_t end, eos;              /* each ends an answer; histories are written with end */
};

/* Their ids, which follow the tokens of the tokenizer's file. */
struct chat_tokens chat_tokens(const struct tokenizer *t);

/* ---- messages to ids (chat_render.c) -------------------------------------------------- */

/* The parts of a conversation's ids, in their order; each appends to ids. ERR_MEMORY.
 * Declared tools and effort; messages from index first on; what is asked of the next answer; and
 * the beginning of that answer. */
int chat_render_head(const struct chat *chat, const struct tokenizer *t, struct token_list *ids);
int chat_render_messages(const struct chat *chat, uint32_t first, const struct tokenizer *t,
                         struct token_list *ids);
int chat_render_tail(const struct chat *chat, const struct tokenizer *t, struct token_list *ids);

/* All of them. */
int chat_render(const struct chat *chat, const struct tokenizer *t, struct token_list *ids);

/* ---- JSON (chat_json.c, chat_json_write.c) -------------------------------------------- */

/* Reads a list of messages, or an object that has one beside tools and settings, into chat, whose
 * settings stay where the text says nothing. ERR_USAGE says what is wrong at which message of
 * name; chat then holds the messages before that one. */
int chat_read_json(struct chat *chat, const char *text, size_t size_bytes, const char *name);
/* Reads a list of tools. ERR_USAGE. */
int chat_read_tools(struct chat *chat, const char *text, size_t size_bytes, const char *name);
/* What chat_read_json() reads. free() it; NULL: ERR_MEMORY. */
char *chat_json_text(const struct chat *chat);
/* One message the same way, as an item to be placed in a document. NULL: ERR_MEMORY. */
struct cJSON *chat_message_json(const struct chat_message *message);

#endif
