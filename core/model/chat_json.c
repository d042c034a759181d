/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations as others write them, read strictly: a key nobody knows is a mistake. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/model/chat_priv.h"

/* A message on its way in. */
struct reader {
    const char *name;   /* of the text */
    uint32_t index;     /* of the message */
    struct chat *chat;
    struct chat_message *message;
};

__attribute__((format(printf, 2, 3)))
static int refuse(const struct reader *r, const char *format, ...)
{
    char what[256];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    return err_set(ERR_USAGE, "%s: message %u: %s", r->name, r->index + 1, what);
}

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* Of a string; NULL for anything else, and for nothing. */
static const char *text_of(const cJSON *item)
{
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static const char *member_text(const cJSON *object, const char *key)
{
    return text_of(member(object, key));
}

static bool is_word(const cJSON *item, const char *word)
{
    return cJSON_IsString(item) && strcmp(item->valuestring, word) == 0;
}

/* The first key that is none of a list ended by NULL, or NULL. */
static const char *stray_key(const cJSON *object, const char *const *known)
{
    for (const cJSON *item = object->child; item != NULL; item = item->next) {
        const char *const *at = known;
        while (*at != NULL && strcmp(*at, item->string) != 0) {
            at++;
        }
        if (*at == NULL) {
            return item->string;
        }
    }
    return NULL;
}

/* A key that may be there, null, or a string. */
static int take_text(const struct reader *r, const cJSON *object, const char *key, char **to)
{
    const cJSON *item = member(object, key);
    if (item == NULL || cJSON_IsNull(item)) {
        return 0;
    }
    return cJSON_IsString(item) ? chat_copy(to, item->valuestring)
                                : refuse(r, "\"%s\" is not a string", key);
}

/* ---- content ---- */

static int take_part(const struct reader *r, const cJSON *part)
{
    static const char *const known[] = {"type", "text", NULL};
    const char *type = member_text(part, "type");
    const char *text = member_text(part, "text");
    if (type != NULL && strcmp(type, "text") != 0) {
        return refuse(r, "a part of \"content\" is of type \"%.40s\"; only \"text\" is understood",
                      type);
    }
    if (type == NULL || text == NULL || stray_key(part, known) != NULL) {
        return refuse(r, "a part of \"content\" is not {\"type\": \"text\", \"text\": ...}");
    }
    return chat_message_part(r->message, text);
}

static int take_content(const struct reader *r, const cJSON *content)
{
    if (content == NULL || cJSON_IsNull(content)) {
        return 0;
    }
    if (cJSON_IsString(content)) {
        return chat_message_part(r->message, content->valuestring);
    }
    if (!cJSON_IsArray(content)) {
        return refuse(r, "\"content\" is neither a string nor a list of parts");
    }
    for (const cJSON *part = content->child; part != NULL; part = part->next) {
        TRY(take_part(r, part));
    }
    return 0;
}

/* ---- calls ---- */

/* A string of JSON, or what it would hold. */
static int take_arguments(const struct reader *r, struct chat_call *call, const cJSON *arguments)
{
    if (cJSON_IsString(arguments)) {
        return chat_call_arguments(call, arguments->valuestring);
    }
    if (!cJSON_IsObject(arguments)) {
        return refuse(r, "\"arguments\" of a call is neither a string nor an object");
    }
    for (const cJSON *item = arguments->child; item != NULL; item = item->next) {
        TRY(chat_call_add_item(call, item));
    }
    return 0;
}

static int fill_call(const struct reader *r, struct chat_call *call, const cJSON *item)
{
    static const char *const known[] = {"id", "type", "function", "index", NULL};
    static const char *const function_known[] = {"name", "arguments", NULL};
    const cJSON *function = member(item, "function");
    const char *type = member_text(item, "type");
    const char *name = member_text(function, "name");
    if (!cJSON_IsObject(item) || !cJSON_IsObject(function) || name == NULL || name[0] == '\0') {
        return refuse(r, "a call is not {\"id\", \"function\": {\"name\", \"arguments\"}}");
    }
    const char *stray = stray_key(item, known);
    stray = stray != NULL ? stray : stray_key(function, function_known);
    if (stray != NULL || (type != NULL && strcmp(type, "function") != 0)) {
        return refuse(r, "a call has %s \"%.40s\", which nobody knows",
                      stray != NULL ? "the key" : "the type", stray != NULL ? stray : type);
    }
    TRY(chat_copy(&call->name, name));
    TRY(take_text(r, item, "id", &call->id));
    return take_arguments(r, call, member(function, "arguments"));
}

static int take_calls(const struct reader *r, const cJSON *calls)
{
    if (calls == NULL || cJSON_IsNull(calls)) {
        return 0;
    }
    if (!cJSON_IsArray(calls)) {
        return refuse(r, "\"tool_calls\" is not a list");
    }
    for (const cJSON *item = calls->child; item != NULL; item = item->next) {
        struct chat_call call = {.id = NULL};
        int rc = fill_call(r, &call, item);
        if (rc < 0) {
            chat_call_fini(&call);
            return rc;
        }
        TRY(chat_message_call(r->message, &call));
    }
    return 0;
}

/* ---- tools ---- */

/* Tools as one text, checked no further than being a list of objects. */
static int take_tools(const cJSON *tools, const char *name, char **to)
{
    bool good = cJSON_IsArray(tools) && tools->child != NULL;
    for (const cJSON *tool = good ? tools->child : NULL; tool != NULL; tool = tool->next) {
        good = good && cJSON_IsObject(tool);
    }
    if (!good) {
        return err_set(ERR_USAGE, "%s: \"tools\" is not a list of objects", name);
    }
    char *text = json_text(tools, JSON_SORTED);
    free(text != NULL ? *to : NULL);
    *to = text != NULL ? text : *to;
    return text != NULL ? 0 : ERR_MEMORY;
}

static cJSON *parse(const char *text, size_t size_bytes, const char *name)
{
    return json_parse_exact(text, size_bytes, name);
}

int chat_read_tools(struct chat *chat, const char *text, size_t size_bytes, const char *name)
{
    cJSON *root = parse(text, size_bytes, name);
    if (root == NULL) {
        return ERR_USAGE;
    }
    int rc = take_tools(root, name, &chat->tools);
    cJSON_Delete(root);
    return rc;
}

/* ---- a message ---- */

static int take_role(const struct reader *r, const cJSON *item)
{
    const char *role = member_text(item, "role");
    for (int i = 0; role != NULL && i < CHAT_ROLES; i++) {
        if (strcmp(role, chat_role_name((enum chat_role)i)) == 0) {
            r->message->role = (enum chat_role)i;
            return 0;
        }
    }
    return role == NULL ? refuse(r, "has no \"role\"")
                        : refuse(r, "role \"%.40s\" is none of system, user, assistant, tool",
                                 role);
}

/* What a message of its role may hold. */
static int check_keys(const struct reader *r, const cJSON *item)
{
    static const char *const known[CHAT_ROLES][8] = {
        [CHAT_SYSTEM] = {"role", "content", "name", "tools"},
        [CHAT_USER] = {"role", "content", "name"},
        [CHAT_ASSISTANT] = {"role", "content", "name", "reasoning_content", "tool_calls"},
        [CHAT_TOOL] = {"role", "content", "name", "tool_call_id"},
    };
    const char *stray = stray_key(item, known[r->message->role]);
    return stray == NULL ? 0 : refuse(r, "a message of role %s has no \"%.40s\"",
                                      chat_role_name(r->message->role), stray);
}

static int fill_message(const struct reader *r, const cJSON *item)
{
    struct chat_message *message = r->message;
    const cJSON *tools = member(item, "tools");
    TRY(take_role(r, item));
    TRY(check_keys(r, item));
    TRY(take_text(r, item, "name", &message->name));
    TRY(take_text(r, item, "reasoning_content", &message->reasoning));
    TRY(take_text(r, item, "tool_call_id", &message->call_id));
    TRY(take_content(r, member(item, "content")));
    TRY(take_calls(r, member(item, "tool_calls")));
    if (tools != NULL) {
        TRY(take_tools(tools, r->name, &message->tools));
    }
    if (tools != NULL && message->part_count > 0) {
        return refuse(r, "holds \"content\" and \"tools\"; make two messages of it");
    }
    if (tools == NULL && message->part_count == 0 && message->call_count == 0 &&
        message->role != CHAT_ASSISTANT) {
        return refuse(r, "has no \"content\"");
    }
    return 0;
}

/* A result has to say of which tool it is. Asked when the message has its place. */
static int check_result(const struct reader *r)
{
    uint32_t number;
    const struct chat *chat = r->chat;
    const struct chat_message *message = &chat->message[chat->count - 1];
    if (message->role == CHAT_TOOL && message->name == NULL &&
        chat_answered(chat, chat->count - 1, &number) == NULL) {
        return refuse(r, "a result needs the \"tool_call_id\" of a call right before it, or a "
                      "\"name\"");
    }
    return 0;
}

static int take_message(const struct reader *r, const cJSON *item)
{
    if (!cJSON_IsObject(item)) {
        return refuse(r, "is not an object");
    }
    int rc = fill_message(r, item);
    if (rc < 0) {
        chat_message_fini(r->message);
        return rc;
    }
    TRY(chat_take(r->chat, r->message));
    rc = check_result(r);
    if (rc < 0) {
        chat_cut(r->chat, 1);
    }
    return rc;
}

static int take_messages(struct chat *chat, const cJSON *list, const char *name)
{
    struct chat_message message = {.role = CHAT_SYSTEM};
    struct reader r = {.name = name, .chat = chat, .message = &message};
    if (!cJSON_IsArray(list)) {
        return err_set(ERR_USAGE, "%s: neither a list of messages nor an object with \"messages\"",
                       name);
    }
    for (const cJSON *item = list->child; item != NULL; item = item->next) {
        TRY(take_message(&r, item));
        r.index++;
    }
    return 0;
}

/* ---- settings ---- */

static int take_effort(struct chat *chat, const cJSON *item, const char *name)
{
    for (int i = CHAT_EFFORT_NONE; item != NULL && i <= CHAT_EFFORT_MAX; i++) {
        if (is_word(item, chat_effort_name((enum chat_effort)i))) {
            chat->effort = (enum chat_effort)i;
            return 0;
        }
    }
    return item == NULL ? 0 : err_set(ERR_USAGE, "%s: \"reasoning_effort\" is none of \"low\", "
                                      "\"high\", \"max\", \"none\"", name);
}

static int take_choice(struct chat *chat, const cJSON *item, const char *name)
{
    static const char *const words[] = {"auto", "required", "none"};
    for (int i = 0; item != NULL && i < 3; i++) {
        if (is_word(item, words[i])) {
            chat->choice = (enum chat_choice)i;
            return 0;
        }
    }
    return item == NULL ? 0 : err_set(ERR_USAGE, "%s: \"tool_choice\" is none of \"auto\", "
                                      "\"required\", \"none\"; a choice of one tool is not known "
                                      "to the model", name);
}

static int take_format(struct chat *chat, const cJSON *item, const char *name)
{
    const cJSON *type = member(item, "type");
    const cJSON *schema = member(member(item, "json_schema"), "schema");
    if (item == NULL) {
        return 0;
    }
    if (is_word(type, "json_schema") && cJSON_IsObject(schema)) {
        free(chat->schema);
        chat->schema = json_text(schema, JSON_SORTED);
        chat->format = chat->schema != NULL ? CHAT_FORMAT_SCHEMA : CHAT_FORMAT_TEXT;
        return chat->schema != NULL ? 0 : ERR_MEMORY;
    }
    if (!is_word(type, "text") && !is_word(type, "json_object")) {
        return err_set(ERR_USAGE, "%s: \"response_format\" is none of {\"type\": \"text\"}, "
                       "{\"type\": \"json_object\"}, {\"type\": \"json_schema\", \"json_schema\": "
                       "{\"schema\": {...}}}", name);
    }
    chat->format = is_word(type, "text") ? CHAT_FORMAT_TEXT : CHAT_FORMAT_OBJECT;
    return 0;
}

static int take_document(struct chat *chat, const cJSON *root, const char *name)
{
    static const char *const known[] = {"messages", "tools", "tool_choice", "response_format",
                                        "reasoning_effort", "thinking", NULL};
    const char *stray = stray_key(root, known);
    const cJSON *thinking = member(root, "thinking");
    const cJSON *tools = member(root, "tools");
    if (stray != NULL) {
        return err_set(ERR_USAGE, "%s: nobody knows the key \"%.40s\"", name, stray);
    }
    if (thinking != NULL && !cJSON_IsBool(thinking)) {
        return err_set(ERR_USAGE, "%s: \"thinking\" is neither true nor false", name);
    }
    chat->thinking = thinking != NULL ? cJSON_IsTrue(thinking) : chat->thinking;
    TRY(tools != NULL ? take_tools(tools, name, &chat->tools) : 0);
    TRY(take_effort(chat, member(root, "reasoning_effort"), name));
    TRY(take_choice(chat, member(root, "tool_choice"), name));
    TRY(take_format(chat, member(root, "response_format"), name));
    return take_messages(chat, member(root, "messages"), name);
}

int chat_read_json(struct chat *chat, const char *text, size_t size_bytes, const char *name)
{
    cJSON *root = parse(text, size_bytes, name);
    if (root == NULL) {
        return ERR_USAGE;
    }
    int rc = cJSON_IsObject(root) ? take_document(chat, root, name)
                                  : take_messages(chat, root, name);
    cJSON_Delete(root);
    return rc;
}
