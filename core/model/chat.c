/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/chat.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/model/chat_priv.h"

static int no_memory(void)
{
    return err_set(ERR_MEMORY, "no memory for the conversation");
}

int chat_copy(char **to, const char *text)
{
    char *copy = strdup(text);
    if (copy == NULL) {
        return no_memory();
    }
    free(*to);
    *to = copy;
    return 0;
}

/* Room for one more behind count; arrays grow by doubling whenever count is a power of two. */
static int grow(void **array, uint32_t count, size_t size_bytes)
{
    if (count > 0 && (count & (count - 1)) != 0) {
        return 0;
    }
    void *grown = realloc(*array, (count == 0 ? 1 : 2 * (size_t)count) * size_bytes);
    if (grown == NULL) {
        return no_memory();
    }
    *array = grown;
    return 0;
}

/* ---- names ---- */

const char *chat_role_name(enum chat_role role)
{
    static const char *const names[CHAT_ROLES] = {"system", "user", "assistant", "tool"};
    return names[role];
}

const char *chat_type_name(enum chat_type type)
{
    static const char *const names[CHAT_TYPES] = {"string", "number", "boolean", "null", "object",
                                                  "array"};
    return names[type];
}

const char *chat_effort_name(enum chat_effort effort)
{
    static const char *const names[] = {"none", "low", "high", "max"};
    return names[effort];
}

/* ---- calls ---- */

enum chat_type chat_type_of(const cJSON *item)
{
    return cJSON_IsString(item)   ? CHAT_STRING
           : cJSON_IsNumber(item) ? CHAT_NUMBER
           : cJSON_IsBool(item)   ? CHAT_BOOLEAN
           : cJSON_IsObject(item) ? CHAT_OBJECT
           : cJSON_IsArray(item)  ? CHAT_ARRAY
                                  : CHAT_NULL;
}

int chat_call_add(struct chat_call *call, const char *key, enum chat_type type, const char *value)
{
    struct chat_argument argument = {.type = type, .key = strdup(key), .value = strdup(value)};
    void *array = call->argument;
    int rc = argument.key != NULL && argument.value != NULL ? 0 : no_memory();
    rc = rc == 0 ? grow(&array, call->argument_count, sizeof argument) : rc;
    if (rc < 0) {
        free(argument.key);
        free(argument.value);
        return rc;
    }
    call->argument = array;
    call->argument[call->argument_count++] = argument;
    return 0;
}

int chat_call_add_item(struct chat_call *call, const cJSON *item)
{
    if (cJSON_IsString(item)) {
        return chat_call_add(call, item->string, CHAT_STRING, item->valuestring);
    }
    char *value = json_text(item, JSON_SPACED);
    int rc = value != NULL ? chat_call_add(call, item->string, chat_type_of(item), value)
                           : ERR_MEMORY;
    free(value);
    return rc;
}

int chat_call_arguments(struct chat_call *call, const char *text)
{
    bool clear = err_message()[0] == '\0';
    cJSON *root = json_parse_exact(text, strlen(text), "arguments");
    int rc = 0;
    if (clear) {
        err_clear(); /* no JSON is no error */
    }
    if (!cJSON_IsObject(root)) {
        rc = chat_copy(&call->raw, text);
    } else {
        for (const cJSON *item = root->child; item != NULL && rc == 0; item = item->next) {
            rc = chat_call_add_item(call, item);
        }
    }
    cJSON_Delete(root);
    return rc;
}

/* The JSON value of an argument; false: no memory. */
static bool add_value(cJSON *object, const struct chat_argument *argument)
{
    const cJSON *added = argument->type == CHAT_STRING
                             ? cJSON_AddStringToObject(object, argument->key, argument->value)
                             : cJSON_AddRawToObject(object, argument->key, argument->value);
    return added != NULL;
}

char *chat_call_text(const struct chat_call *call)
{
    char *text = NULL;
    if (call->raw != NULL) {
        text = strdup(call->raw);
    } else {
        cJSON *object = cJSON_CreateObject();
        bool whole = object != NULL;
        for (uint32_t i = 0; i < call->argument_count && whole; i++) {
            whole = add_value(object, &call->argument[i]);
        }
        text = whole ? json_text(object, JSON_SPACED) : NULL;
        cJSON_Delete(object);
    }
    if (text == NULL) {
        no_memory();
    }
    return text;
}

void chat_call_fini(struct chat_call *call)
{
    for (uint32_t i = 0; i < call->argument_count; i++) {
        free(call->argument[i].key);
        free(call->argument[i].value);
    }
    free(call->argument);
    free(call->id);
    free(call->name);
    free(call->raw);
    *call = (struct chat_call){.id = NULL};
}

/* ---- messages ---- */

int chat_message_part(struct chat_message *message, const char *text)
{
    void *array = (void *)message->part;
    TRY(grow(&array, message->part_count, sizeof *message->part));
    message->part = array;
    assert(message->part != NULL);
    message->part[message->part_count] = NULL;
    TRY(chat_copy(&message->part[message->part_count], text));
    message->part_count++;
    return 0;
}

int chat_message_call(struct chat_message *message, struct chat_call *call)
{
    void *array = message->call;
    int rc = grow(&array, message->call_count, sizeof *call);
    if (rc < 0) {
        chat_call_fini(call);
        return rc;
    }
    message->call = array;
    message->call[message->call_count++] = *call;
    *call = (struct chat_call){.id = NULL};
    return 0;
}

void chat_message_fini(struct chat_message *message)
{
    for (uint32_t i = 0; i < message->part_count; i++) {
        free(message->part[i]);
    }
    for (uint32_t i = 0; i < message->call_count; i++) {
        chat_call_fini(&message->call[i]);
    }
    free((void *)message->part);
    free(message->call);
    free(message->name);
    free(message->reasoning);
    free(message->call_id);
    free(message->tools);
    *message = (struct chat_message){.role = CHAT_SYSTEM};
}

/* ---- conversations ---- */

void chat_init(struct chat *chat)
{
    *chat = (struct chat){.thinking = true, .effort = CHAT_EFFORT_MAX};
}

void chat_fini(struct chat *chat)
{
    chat_cut(chat, chat->count);
    free(chat->message);
    free(chat->tools);
    free(chat->schema);
    chat_init(chat);
}

int chat_take(struct chat *chat, struct chat_message *message)
{
    if (chat->count == chat->capacity) {
        uint32_t capacity = 2 * chat->capacity + 8;
        struct chat_message *grown = realloc(chat->message, capacity * sizeof *grown);
        if (grown == NULL) {
            chat_message_fini(message);
            return no_memory();
        }
        chat->message = grown;
        chat->capacity = capacity;
    }
    chat->message[chat->count++] = *message;
    *message = (struct chat_message){.role = CHAT_SYSTEM};
    return 0;
}

int chat_add(struct chat *chat, enum chat_role role, const char *text)
{
    struct chat_message message = {.role = role};
    int rc = chat_message_part(&message, text);
    if (rc < 0) {
        chat_message_fini(&message);
        return rc;
    }
    return chat_take(chat, &message);
}

void chat_cut(struct chat *chat, uint32_t count)
{
    assert(count <= chat->count);
    for (uint32_t i = 0; i < count; i++) {
        chat_message_fini(&chat->message[--chat->count]);
    }
}

const struct chat_call *chat_answered(const struct chat *chat, uint32_t index, uint32_t *number)
{
    const char *id = chat->message[index].call_id;
    uint32_t at = index;
    while (at > 0 && chat->message[at].role == CHAT_TOOL) {
        at--;
    }
    const struct chat_message *caller = &chat->message[at];
    for (uint32_t i = 0; id != NULL && caller->role == CHAT_ASSISTANT && i < caller->call_count;
         i++) {
        if (caller->call[i].id != NULL && strcmp(caller->call[i].id, id) == 0) {
            *number = i + 1;
            return &caller->call[i];
        }
    }
    return NULL;
}
