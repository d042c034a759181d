/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/model/chat_priv.h"

/* Each of these is false when memory ran out; what was added belongs to the object then too. */

static bool add_text(cJSON *object, const char *key, const char *text)
{
    return text == NULL || cJSON_AddStringToObject(object, key, text) != NULL;
}

static bool add_raw(cJSON *object, const char *key, const char *json)
{
    return json == NULL || cJSON_AddRawToObject(object, key, json) != NULL;
}

static bool add_content(cJSON *object, const struct chat_message *message)
{
    if (message->part_count == 0) {
        return message->tools != NULL || cJSON_AddNullToObject(object, "content") != NULL;
    }
    if (message->part_count == 1) {
        return add_text(object, "content", message->part[0]);
    }
    cJSON *list = cJSON_AddArrayToObject(object, "content");
    bool whole = list != NULL;
    for (uint32_t i = 0; i < message->part_count && whole; i++) {
        cJSON *part = cJSON_CreateObject();
        whole = part != NULL && cJSON_AddItemToArray(list, part) &&
                add_text(part, "type", "text") && add_text(part, "text", message->part[i]);
    }
    return whole;
}

static bool add_call(cJSON *list, const struct chat_call *call)
{
    cJSON *item = cJSON_CreateObject();
    if (item == NULL || !cJSON_AddItemToArray(list, item)) {
        return false;
    }
    char *arguments = chat_call_text(call);
    bool whole = arguments != NULL && add_text(item, "id", call->id) &&
                 add_text(item, "type", "function");
    cJSON *function = whole ? cJSON_AddObjectToObject(item, "function") : NULL;
    whole = function != NULL && add_text(function, "name", call->name) &&
            add_text(function, "arguments", arguments);
    free(arguments);
    return whole;
}

static bool add_calls(cJSON *object, const struct chat_message *message)
{
    if (message->call_count == 0) {
        return true;
    }
    cJSON *list = cJSON_AddArrayToObject(object, "tool_calls");
    bool whole = list != NULL;
    for (uint32_t i = 0; i < message->call_count && whole; i++) {
        whole = add_call(list, &message->call[i]);
    }
    return whole;
}

struct cJSON *chat_message_json(const struct chat_message *message)
{
    cJSON *object = cJSON_CreateObject();
    bool whole = object != NULL && add_text(object, "role", chat_role_name(message->role)) &&
                 add_text(object, "name", message->name) &&
                 add_text(object, "reasoning_content", message->reasoning) &&
                 add_content(object, message) && add_calls(object, message) &&
                 add_text(object, "tool_call_id", message->call_id) &&
                 add_raw(object, "tools", message->tools);
    if (!whole) {
        err_set(ERR_MEMORY, "no memory for a message as JSON");
        cJSON_Delete(object);
        return NULL;
    }
    return object;
}

static bool add_format(cJSON *root, const struct chat *chat)
{
    if (chat->format == CHAT_FORMAT_TEXT) {
        return true;
    }
    bool schema = chat->format == CHAT_FORMAT_SCHEMA;
    cJSON *format = cJSON_AddObjectToObject(root, "response_format");
    if (format == NULL || !add_text(format, "type", schema ? "json_schema" : "json_object")) {
        return false;
    }
    cJSON *holder = schema ? cJSON_AddObjectToObject(format, "json_schema") : NULL;
    return !schema || (holder != NULL && add_raw(holder, "schema", chat->schema));
}

static bool add_settings(cJSON *root, const struct chat *chat)
{
    const char *choice = chat->choice == CHAT_CHOICE_REQUIRED ? "required"
                         : chat->choice == CHAT_CHOICE_NONE   ? "none"
                                                              : NULL;
    return cJSON_AddBoolToObject(root, "thinking", chat->thinking) != NULL &&
           add_text(root, "reasoning_effort", chat_effort_name(chat->effort)) &&
           add_raw(root, "tools", chat->tools) && add_text(root, "tool_choice", choice) &&
           add_format(root, chat);
}

char *chat_json_text(const struct chat *chat)
{
    cJSON *root = cJSON_CreateObject();
    bool whole = root != NULL && add_settings(root, chat);
    cJSON *list = whole ? cJSON_AddArrayToObject(root, "messages") : NULL;
    whole = list != NULL;
    for (uint32_t i = 0; i < chat->count && whole; i++) {
        cJSON *message = chat_message_json(&chat->message[i]);
        whole = message != NULL && cJSON_AddItemToArray(list, message);
    }
    char *text = whole ? json_text(root, JSON_SPACED) : NULL;
    cJSON_Delete(root);
    if (text == NULL) {
        err_set(ERR_MEMORY, "no memory for the conversation as JSON");
    }
    return text;
}
