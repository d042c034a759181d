/* SPDX-License-Identifier: Apache-2.0 */
/* Messages -> ids. A text never meets another one on its way through the tokenizer. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/model/chat_priv.h"

/* Places of control tokens behind those of the tokenizer's file. */
enum { ADDED_EOS = 1, ADDED_END = 2, ADDED_OPEN = 3, ADDED_CLOSE = 4, ADDED_SEP = 5 };

struct chat_tokens chat_tokens(const struct tokenizer *t)
{
    uint32_t first = tokenizer_first_added(t);
    return (struct chat_tokens){.open = first + ADDED_OPEN, .close = first + ADDED_CLOSE,
                                .sep = first + ADDED_SEP, .end = first + ADDED_END,
                                .eos = first + ADDED_EOS};
}

struct writer {
    const struct tokenizer *tokenizer;
    struct chat_tokens control;
    struct token_list *ids;
    int rc; /* the first failure; nothing is written after it */
};

static struct writer writer_on(const struct tokenizer *t, struct token_list *ids)
{
    return (struct writer){.tokenizer = t, .control = chat_tokens(t), .ids = ids};
}

int chat_put_id(struct token_list *ids, uint32_t id)
{
    return token_list_append(ids, &id, 1);
}

/* A fragment: plain text, whatever it says. */
int chat_put_text(const struct tokenizer *t, const char *text, struct token_list *ids)
{
    return tokenizer_encode(t, text, strlen(text), 0, ids);
}

static void put_id(struct writer *w, uint32_t id)
{
    w->rc = w->rc == 0 ? chat_put_id(w->ids, id) : w->rc;
}

static void put_text(struct writer *w, const char *text)
{
    w->rc = w->rc == 0 ? chat_put_text(w->tokenizer, text, w->ids) : w->rc;
}

/* A value between quotation marks. */
static void put_escaped(struct writer *w, const char *value)
{
    char *text = malloc(strlen(value) * strlen("&quot;") + 1);
    char *at = text;
    if (text == NULL) {
        w->rc = w->rc < 0 ? w->rc : err_set(ERR_MEMORY, "no memory for a value");
        return;
    }
    for (; *value != '\0'; value++) {
        const char *instead = *value == '&' ? "&amp;" : *value == '"' ? "&quot;" : NULL;
        if (instead != NULL) {
            at = stpcpy(at, instead);
        } else {
            *at++ = *value;
        }
    }
    *at = '\0';
    put_text(w, text);
    free(text);
}

/* key: with the space before it. A value that is NULL leaves the attribute out. */
static void put_attribute(struct writer *w, const char *key, const char *value)
{
    if (value != NULL) {
        put_text(w, key);
        put_text(w, "=\"");
        put_escaped(w, value);
        put_text(w, "\"");
    }
}

static void put_number(struct writer *w, const char *key, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof text, "%u", number);
    put_attribute(w, key, text);
}

/* `open` and the tag; attributes may follow, then open_end(). */
static void open_begin(struct writer *w, const char *tag)
{
    put_id(w, w->control.open);
    put_text(w, tag);
}

static void open_end(struct writer *w)
{
    put_id(w, w->control.sep);
}

static void put_open(struct writer *w, const char *tag)
{
    open_begin(w, tag);
    open_end(w);
}

static void put_close(struct writer *w, const char *tag)
{
    put_id(w, w->control.close);
    put_text(w, tag);
    put_id(w, w->control.sep);
}

int chat_put_open(const struct tokenizer *t, const char *tag, struct token_list *ids)
{
    struct writer w = writer_on(t, ids);
    put_open(&w, tag);
    return w.rc;
}

int chat_put_close(const struct tokenizer *t, const char *tag, struct token_list *ids)
{
    struct writer w = writer_on(t, ids);
    put_close(&w, tag);
    return w.rc;
}

static void end_message(struct writer *w)
{
    put_close(w, "message");
    put_id(w, w->control.end);
}

/* ---- messages of the system itself ---- */

static void put_internal(struct writer *w, const char *type, const char *body)
{
    open_begin(w, "message");
    put_attribute(w, " role", "system");
    put_attribute(w, " type", type);
    open_end(w);
    put_text(w, body);
    end_message(w);
}

__attribute__((format(printf, 3, 4)))
static void put_formatted(struct writer *w, const char *type, const char *format, ...)
{
    char *body = NULL;
    va_list list;
    va_start(list, format);
    int length = vasprintf(&body, format, list);
    va_end(list);
    if (length < 0) {
        w->rc = w->rc < 0 ? w->rc : err_set(ERR_MEMORY, "no memory for a message");
        return;
    }
    put_internal(w, type, body);
    free(body);
}

static void put_tools(struct writer *w, const char *tools, bool more)
{
    static const char from_start[] = "# Tools\nHere are the available tools, described in "
                                     "JSONSchema.";
    static const char later[] = "## New Tools Available\nThe system dynamically extends the "
                                "toolset via lazy-loading.\nYou have access to all existing and "
                                "extended tools.\nHere are the specs for the extended tools.";
    put_formatted(w, "tool-declare", "%s\n\n```json\n%s\n```", more ? later : from_start, tools);
}

static void put_effort(struct writer *w, enum chat_effort effort)
{
    put_formatted(w, "thinking-effort", "`thinking_effort` guides on how much to think in your "
                  "thinking channel (not including the response channel), supported values include "
                  "`low`, `medium`, `high`, and `max`.\nNow the system is invoked with "
                  "`thinking_effort=%s`.", chat_effort_name(effort));
}

static void put_choice(struct writer *w, enum chat_choice choice)
{
    bool required = choice == CHAT_CHOICE_REQUIRED;
    put_formatted(w, "tool-choice", "The system is invoked with `tool_choice=%s`.\nYou MUST %s "
                  "tools in the next message.", required ? "required" : "none",
                  required ? "call" : "NOT call any");
}

static void put_format(struct writer *w, const struct chat *chat)
{
    static const char head[] = "The system is invoked with `response_format=%s`.\nYour response "
                               "must be raw JSON data without markdown code blocks (```json) or "
                               "any additional formatting.%s%s%s";
    bool schema = chat->format == CHAT_FORMAT_SCHEMA;
    put_formatted(w, "response-format", head, schema ? "json_schema" : "json_object",
                  schema ? "\nThe JSON data must match the following schema:\n```json\n" : "",
                  schema ? chat->schema : "", schema ? "\n```" : "");
}

/* ---- messages ---- */

static void put_content(struct writer *w, const struct chat_message *message)
{
    for (uint32_t i = 0; i < message->part_count; i++) {
        put_text(w, message->part[i]);
    }
}

static void open_message(struct writer *w, const struct chat_message *message)
{
    open_begin(w, "message");
    put_attribute(w, " role", chat_role_name(message->role));
    put_attribute(w, " name", message->name);
    open_end(w);
}

static void put_call(struct writer *w, const struct chat_call *call, uint32_t number)
{
    open_begin(w, "call");
    put_attribute(w, " tool", call->name);
    put_number(w, " index", number);
    open_end(w);
    if (call->raw != NULL) {
        open_begin(w, "json");
        put_attribute(w, " type", "object");
        open_end(w);
        put_text(w, call->raw);
        put_close(w, "json");
    }
    for (uint32_t i = 0; i < call->argument_count; i++) {
        open_begin(w, "argument");
        put_attribute(w, " key", call->argument[i].key);
        put_attribute(w, " type", chat_type_name(call->argument[i].type));
        open_end(w);
        put_text(w, call->argument[i].value);
        put_close(w, "argument");
    }
    put_close(w, "call");
}

static void put_assistant(struct writer *w, const struct chat_message *message, bool thinking)
{
    open_message(w, message);
    if (thinking) {
        put_open(w, "think");
        put_text(w, message->reasoning != NULL ? message->reasoning : "");
        put_close(w, "think");
    }
    put_open(w, "response");
    put_content(w, message);
    put_close(w, "response");
    if (message->call_count > 0) {
        put_open(w, "tools");
        for (uint32_t i = 0; i < message->call_count; i++) {
            put_call(w, &message->call[i], i + 1);
        }
        put_close(w, "tools");
    }
    end_message(w);
}

static void put_plain(struct writer *w, const struct chat_message *message)
{
    open_message(w, message);
    put_content(w, message);
    end_message(w);
}

static void put_result(struct writer *w, const struct chat *chat, uint32_t index, uint32_t place)
{
    const struct chat_message *message = &chat->message[index];
    uint32_t number;
    const struct chat_call *call = chat_answered(chat, index, &number);
    open_begin(w, "message");
    put_attribute(w, " role", "tool");
    put_attribute(w, " tool", message->name != NULL ? message->name
                              : call != NULL        ? call->name
                                                    : "");
    put_number(w, " index", place);
    open_end(w);
    put_content(w, message);
    end_message(w);
}

/* The run's message that answers the number-th call, or count when there is none. */
static uint32_t result_of(const struct chat *chat, uint32_t first, uint32_t count, uint32_t number)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t answered;
        if (chat_answered(chat, first + i, &answered) != NULL && answered == number) {
            return i;
        }
    }
    return count;
}

/* Whether every result of a run answers a call of its own. */
static bool all_answer(const struct chat *chat, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number;
        if (chat_answered(chat, first + i, &number) == NULL ||
            result_of(chat, first, count, number) != i) {
            return false;
        }
    }
    return true;
}

/* Results in the order of the calls, or as they came when not all of them can be told. */
static void put_results(struct writer *w, const struct chat *chat, uint32_t first, uint32_t count)
{
    if (!all_answer(chat, first, count)) {
        for (uint32_t i = 0; i < count; i++) {
            put_result(w, chat, first + i, i + 1);
        }
        return;
    }
    uint32_t done = 0;
    for (uint32_t number = 1; done < count; number++) {
        uint32_t at = result_of(chat, first, count, number);
        if (at < count) {
            put_result(w, chat, first + at, ++done);
        }
    }
}

/* Returns how many messages that took. */
static uint32_t put_next(struct writer *w, const struct chat *chat, uint32_t index)
{
    const struct chat_message *message = &chat->message[index];
    uint32_t count = 1;
    if (message->role == CHAT_TOOL) {
        while (index + count < chat->count && chat->message[index + count].role == CHAT_TOOL) {
            count++;
        }
        put_results(w, chat, index, count);
    } else if (message->role == CHAT_ASSISTANT) {
        put_assistant(w, message, chat->thinking);
    } else if (message->tools != NULL) {
        put_tools(w, message->tools, true);
    } else {
        put_plain(w, message);
    }
    return count;
}

/* ---- the parts ---- */

int chat_render_head(const struct chat *chat, const struct tokenizer *t, struct token_list *ids)
{
    struct writer w = writer_on(t, ids);
    if (chat->tools != NULL) {
        put_tools(&w, chat->tools, false);
    }
    if (chat->thinking && chat->effort != CHAT_EFFORT_NONE) {
        put_effort(&w, chat->effort);
    }
    return w.rc;
}

int chat_render_messages(const struct chat *chat, uint32_t first, const struct tokenizer *t,
                         struct token_list *ids)
{
    struct writer w = writer_on(t, ids);
    for (uint32_t i = first; i < chat->count;) {
        i += put_next(&w, chat, i);
    }
    return w.rc;
}

int chat_render_tail(const struct chat *chat, const struct tokenizer *t, struct token_list *ids)
{
    struct writer w = writer_on(t, ids);
    if (chat->choice != CHAT_CHOICE_AUTO) {
        put_choice(&w, chat->choice);
    }
    if (chat->format != CHAT_FORMAT_TEXT) {
        put_format(&w, chat);
    }
    const struct chat_message next = {.role = CHAT_ASSISTANT};
    open_message(&w, &next);
    put_open(&w, chat->thinking ? "think" : "response");
    return w.rc;
}

int chat_render(const struct chat *chat, const struct tokenizer *t, struct token_list *ids)
{
    TRY(chat_render_head(chat, t, ids));
    TRY(chat_render_messages(chat, 0, t, ids));
    return chat_render_tail(chat, t, ids);
}
