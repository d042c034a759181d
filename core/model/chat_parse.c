/* SPDX-License-Identifier: Apache-2.0 */
/* A stack of open elements, and what stands between a control token and its `sep`: a head.
 *
 *   text --open or close--> head --sep--> text, an element more or less on the stack
 *
 * The stack is message, then think, response or tools; in tools a call, in a call an argument. */
#include "core/model/chat_parse.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/model/chat_priv.h"
#include "core/model/endings.h"

enum element { MESSAGE, THINK, RESPONSE, TOOLS, CALL, ARGUMENT, RAW, ELEMENTS };

static const struct {
    const char *tag;
    enum element parent;
} grammar[ELEMENTS] = {
    [MESSAGE] = {"message", ELEMENTS}, [THINK] = {"think", MESSAGE},
    [RESPONSE] = {"response", MESSAGE}, [TOOLS] = {"tools", MESSAGE},
    [CALL] = {"call", TOOLS},           [ARGUMENT] = {"argument", CALL},
    [RAW] = {"json", CALL},
};

#define DEPTH_MAX 4U

enum head { HEAD_NONE, HEAD_OPEN, HEAD_CLOSE };

/* What is open. */
struct path {
    enum element at[DEPTH_MAX];
    uint32_t depth;
    bool responded;              /* a response was opened */
};

struct chat_parser {
    const struct tokenizer *tokenizer;
    struct chat_tokens control;
    const struct token_list *ends; /* ids that end an answer as well, or NULL */
    struct chat_events events;
    struct tokenizer_stream stream;
    struct byte_list piece;      /* what a token adds */
    struct path path;
    enum head head;
    struct byte_list head_text;
    bool over;
    struct byte_list reasoning, response;
    /* The call being read. */
    struct chat_call call;
    struct byte_list call_text;  /* all of it as it was written */
    struct byte_list value;      /* of the argument being read */
    char *key, *type;            /* the same */
    bool broken;                 /* it is no call after all */
    struct chat_message message;
};

static int append(struct byte_list *list, const void *bytes, size_t size_bytes)
{
    if (list->capacity - list->count < size_bytes + 1) {
        size_t capacity = 2 * (list->count + size_bytes) + 64;
        unsigned char *grown = realloc(list->bytes, capacity);
        if (grown == NULL) {
            return err_set(ERR_MEMORY, "no memory for %zu bytes of an answer", capacity);
        }
        list->bytes = grown;
        list->capacity = capacity;
    }
    assert(list->bytes != NULL);
    if (size_bytes > 0) {
        memcpy(list->bytes + list->count, bytes, size_bytes);
    }
    list->count += size_bytes;
    list->bytes[list->count] = '\0';
    return 0;
}

static const char *text_of(const struct byte_list *list)
{
    return list->count > 0 ? (const char *)list->bytes : "";
}

static bool is_blank(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strchr(" \t\r\n", bytes[i]) == NULL) { /* zero bytes are no longer there */
            return false;
        }
    }
    return true;
}

static enum element top(const struct path *path)
{
    return path->depth > 0 ? path->at[path->depth - 1] : ELEMENTS;
}

static bool within(const struct path *path, enum element element)
{
    for (uint32_t i = 0; i < path->depth; i++) {
        if (path->at[i] == element) {
            return true;
        }
    }
    return false;
}

static void push(struct path *path, enum element element)
{
    assert(path->depth < DEPTH_MAX);
    path->at[path->depth++] = element;
    path->responded = path->responded || element == RESPONSE;
}

/* ---- text ---- */

static int show(struct chat_parser *p, enum chat_channel channel, const void *text, size_t size)
{
    TRY(append(channel == CHAT_REASONING ? &p->reasoning : &p->response, text, size));
    if (size > 0 && p->events.on_text != NULL) {
        p->events.on_text(p->events.ctx, channel, text, size);
    }
    return 0;
}

/* Text where it stands. */
static int take_text(struct chat_parser *p, const unsigned char *text, size_t size)
{
    enum element where = top(&p->path);
    if (where == THINK) {
        return show(p, CHAT_REASONING, text, size);
    }
    if (!within(&p->path, CALL)) {
        return where == TOOLS && is_blank(text, size) ? 0 : show(p, CHAT_RESPONSE, text, size);
    }
    TRY(append(&p->call_text, text, size));
    if (where != CALL) {
        return append(&p->value, text, size);
    }
    p->broken = p->broken || !is_blank(text, size);
    return 0;
}

/* The same, zero bytes replaced. */
static int take_bytes(struct chat_parser *p, const struct byte_list *bytes)
{
    for (size_t at = 0; at < bytes->count;) {
        const unsigned char *begin = bytes->bytes + at;
        const unsigned char *zero = memchr(begin, '\0', bytes->count - at);
        size_t size = zero != NULL ? (size_t)(zero - begin) : bytes->count - at;
        TRY(take_text(p, begin, size));
        if (zero != NULL) {
            TRY(take_text(p, (const unsigned char *)"\xEF\xBF\xBD", 3));
        }
        at += size + (zero != NULL);
    }
    return 0;
}

static int append_token(struct chat_parser *p, struct byte_list *list, uint32_t id)
{
    size_t size;
    const unsigned char *text = tokenizer_token(p->tokenizer, id, &size, NULL);
    return append(list, text, size);
}

/* Lets go of the bytes of a character that another token was to complete. */
static int flush(struct chat_parser *p)
{
    p->piece.count = 0;
    TRY(tokenizer_stream_end(&p->stream, &p->piece));
    return p->head == HEAD_NONE ? take_bytes(p, &p->piece)
                                : append(&p->head_text, p->piece.bytes, p->piece.count);
}

/* A head as it was written. */
static int spell_head(struct chat_parser *p, struct byte_list *list, bool whole)
{
    TRY(append_token(p, list, p->head == HEAD_OPEN ? p->control.open : p->control.close));
    TRY(append(list, p->head_text.bytes, p->head_text.count));
    return whole ? append_token(p, list, p->control.sep) : 0;
}

/* A head that is none is text. */
static int head_is_text(struct chat_parser *p, bool whole)
{
    struct byte_list spelled = {.bytes = NULL};
    int rc = spell_head(p, &spelled, whole);
    p->head = HEAD_NONE;
    rc = rc == 0 ? take_bytes(p, &spelled) : rc;
    free(spelled.bytes);
    return rc;
}

/* ---- calls ---- */

static bool has_key(const struct chat_call *call, const char *key)
{
    for (uint32_t i = 0; i < call->argument_count; i++) {
        if (strcmp(call->argument[i].key, key) == 0) {
            return true;
        }
    }
    return false;
}

/* A value that is what its type says, spelled as histories spell it; otherwise a string. */
static int add_argument(struct chat_parser *p)
{
    const char *text = text_of(&p->value);
    bool clear = err_message()[0] == '\0';
    cJSON *item = strcmp(p->type, "string") == 0
                      ? NULL
                      : json_parse_exact(text, strlen(text), "argument");
    if (clear) {
        err_clear();
    }
    bool typed = item != NULL && strcmp(p->type, chat_type_name(chat_type_of(item))) == 0;
    char *spelled = typed ? json_text(item, JSON_SPACED) : NULL;
    enum chat_type type = typed ? chat_type_of(item) : CHAT_STRING;
    int rc = typed && spelled == NULL
                 ? ERR_MEMORY
                 : chat_call_add(&p->call, p->key, type, typed ? spelled : text);
    free(spelled);
    cJSON_Delete(item);
    return rc;
}

static int end_argument(struct chat_parser *p, enum element element)
{
    int rc = 0;
    if (element == RAW) {
        p->broken = p->broken || p->call.argument_count > 0 || p->call.raw != NULL;
        rc = p->broken ? 0 : chat_call_arguments(&p->call, text_of(&p->value));
    } else {
        p->broken = p->broken || p->key == NULL || p->type == NULL || p->call.raw != NULL ||
                    has_key(&p->call, p->key);
        rc = p->broken ? 0 : add_argument(p);
    }
    free(p->key);
    free(p->type);
    p->key = p->type = NULL;
    p->value.count = 0;
    return rc;
}

/* The element is no longer on the stack. */
static int end_call(struct chat_parser *p)
{
    int rc = 0;
    if (p->broken || p->call.name == NULL) {
        rc = take_bytes(p, &p->call_text);
    } else {
        if (p->events.on_call != NULL) {
            p->events.on_call(p->events.ctx, &p->call);
        }
        rc = chat_message_call(&p->message, &p->call);
    }
    chat_call_fini(&p->call);
    p->call_text.count = 0;
    p->broken = false;
    return rc;
}

/* ---- heads ---- */

/* The value of `key` in a head: ` key="value"`. Allocated; NULL when it is not there, or no memory:
 * then *rc says so. */
static char *attribute(const char *head, const char *key, int *rc)
{
    char *pattern = NULL;
    if (asprintf(&pattern, " %s=\"", key) < 0) {
        *rc = err_set(ERR_MEMORY, "no memory for a tag");
        return NULL;
    }
    const char *begin = strstr(head, pattern);
    const char *text = begin != NULL ? begin + strlen(pattern) : "";
    free(pattern);
    const char *end = strchr(text, '"');
    if (begin == NULL || end == NULL) {
        return NULL;
    }
    char *value = strndup(text, (size_t)(end - text));
    if (value == NULL) {
        *rc = err_set(ERR_MEMORY, "no memory for a tag");
        return NULL;
    }
    char *to = value;
    for (const char *at = value; *at != '\0'; to++) {
        bool amp = strncmp(at, "&amp;", 5) == 0, quote = strncmp(at, "&quot;", 6) == 0;
        *to = amp ? '&' : quote ? '"' : *at;
        at += amp ? 5 : quote ? 6 : 1;
    }
    *to = '\0';
    return value;
}

/* ` key="value"`, as often as it comes, and nothing else. */
static bool are_attributes(const char *text)
{
    while (*text == ' ') {
        size_t key = strcspn(text + 1, " =\"") + 1;
        if (key == 1 || strncmp(text + key, "=\"", 2) != 0) {
            return false;
        }
        text = strchr(text + key + 2, '"');
        if (text == NULL) {
            return false;
        }
        text++;
    }
    return *text == '\0';
}

/* What a head opens or closes; ELEMENTS when it is none of the grammar. */
static enum element element_of(const struct byte_list *text, bool opens)
{
    const char *head = text_of(text);
    size_t size = strcspn(head, " ");
    if (strlen(head) != text->count || !are_attributes(head + size) ||
        (!opens && head[size] != '\0')) {
        return ELEMENTS;
    }
    for (int i = 0; i < ELEMENTS; i++) {
        if (strlen(grammar[i].tag) == size && memcmp(grammar[i].tag, head, size) == 0) {
            return (enum element)i;
        }
    }
    return ELEMENTS;
}

/* Takes the topmost element off the stack. asked: its end was written. */
static int pop(struct chat_parser *p, bool asked)
{
    enum element element = p->path.at[--p->path.depth];
    if (element == ARGUMENT || element == RAW) {
        p->broken = p->broken || !asked;
        return end_argument(p, element);
    }
    if (element == CALL) {
        p->broken = p->broken || !asked;
        return end_call(p);
    }
    p->over = p->over || element == MESSAGE;
    return 0;
}

/* Elements above one that are still open were never ended. */
static int pop_down_to(struct chat_parser *p, enum element element)
{
    while (top(&p->path) != element) {
        TRY(pop(p, false));
    }
    return 0;
}

static int open_element(struct chat_parser *p, enum element element)
{
    const char *head = text_of(&p->head_text);
    int rc = 0;
    TRY(pop_down_to(p, grammar[element].parent));
    if (element == CALL || within(&p->path, CALL)) {
        TRY(spell_head(p, &p->call_text, true));
    }
    push(&p->path, element);
    if (element == CALL) {
        p->call.name = attribute(head, "tool", &rc);
    } else if (element == ARGUMENT) {
        p->key = attribute(head, "key", &rc);
        p->type = attribute(head, "type", &rc);
    }
    return rc;
}

static int close_element(struct chat_parser *p, enum element element)
{
    TRY(pop_down_to(p, element));
    if (within(&p->path, CALL)) {
        TRY(spell_head(p, &p->call_text, true));
    }
    return pop(p, true);
}

/* What has to be open so that element may be opened or closed. */
static enum element needed(enum element element, bool opens)
{
    return element == ELEMENTS || !opens ? element : grammar[element].parent;
}

/* Whether a head that will not be completed was to become a tag that has its place here. */
static bool is_cut_tag(const struct chat_parser *p)
{
    size_t size = p->head_text.count;
    for (int i = 0; i < ELEMENTS; i++) {
        if (size <= strlen(grammar[i].tag) &&
            memcmp(grammar[i].tag, text_of(&p->head_text), size) == 0 &&
            within(&p->path, needed((enum element)i, p->head == HEAD_OPEN))) {
            return true;
        }
    }
    return false;
}

/* A `sep`: the head is whole. */
static int end_head(struct chat_parser *p)
{
    bool opens = p->head == HEAD_OPEN;
    enum element element = element_of(&p->head_text, opens);
    if (!within(&p->path, needed(element, opens))) {
        return head_is_text(p, true);
    }
    int rc = opens ? open_element(p, element) : close_element(p, element);
    p->head = HEAD_NONE;
    p->head_text.count = 0;
    return rc;
}

static int begin_head(struct chat_parser *p, enum head head)
{
    if (p->head != HEAD_NONE) {
        TRY(head_is_text(p, false));
    }
    p->head = head;
    p->head_text.count = 0;
    return 0;
}

/* ---- tokens ---- */

static int take_control(struct chat_parser *p, uint32_t id)
{
    TRY(flush(p));
    if (id == p->control.open || id == p->control.close) {
        return begin_head(p, id == p->control.open ? HEAD_OPEN : HEAD_CLOSE);
    }
    if (id == p->control.sep && p->head != HEAD_NONE) {
        return end_head(p);
    }
    p->piece.count = 0;
    if (id == p->control.sep) {
        TRY(append_token(p, &p->piece, id));
        return take_bytes(p, &p->piece);
    }
    p->over = true; /* what is open stays so: chat_parser_finish() closes it */
    return 0;
}

static int take_token(struct chat_parser *p, uint32_t id)
{
    p->piece.count = 0;
    if (id >= tokenizer_count(p->tokenizer)) {
        TRY(flush(p));
        p->piece.count = 0;
        TRY(append(&p->piece, "\xEF\xBF\xBD", 3));
    } else {
        TRY(tokenizer_stream_push(&p->stream, id, &p->piece));
    }
    return p->head == HEAD_NONE ? take_bytes(p, &p->piece)
                                : append(&p->head_text, p->piece.bytes, p->piece.count);
}

static bool is_mark(const struct chat_parser *p, uint32_t id)
{
    return id == p->control.open || id == p->control.close || id == p->control.sep;
}

void chat_parser_ends(struct chat_parser *p, const struct token_list *ends)
{
    p->ends = ends;
}

bool chat_parser_ends_with(const struct chat_parser *p, uint32_t id)
{
    return id == p->control.end || id == p->control.eos ||
           (p->ends != NULL && !is_mark(p, id) && token_list_has(p->ends, id));
}

int chat_parser_push(struct chat_parser *p, uint32_t id)
{
    assert(!p->over);
    bool control = is_mark(p, id) || chat_parser_ends_with(p, id);
    TRY(control ? take_control(p, id) : take_token(p, id));
    return p->over;
}

bool chat_parser_over(const struct chat_parser *p)
{
    return p->over;
}

/* ---- life ---- */

int chat_parser_open(struct chat_parser **out, const struct tokenizer *t, bool thinking,
                     const struct chat_events *events)
{
    struct chat_parser *p = calloc(1, sizeof *p);
    *out = p;
    if (p == NULL) {
        return err_set(ERR_MEMORY, "no memory for an answer");
    }
    p->tokenizer = t;
    p->control = chat_tokens(t);
    p->events = *events;
    p->message.role = CHAT_ASSISTANT;
    tokenizer_stream_start(&p->stream, t, DETOKENIZE_REPAIR);
    push(&p->path, MESSAGE);
    push(&p->path, thinking ? THINK : RESPONSE);
    return 0;
}

void chat_parser_close(struct chat_parser *p)
{
    if (p != NULL) {
        struct byte_list *lists[] = {&p->piece, &p->head_text, &p->reasoning, &p->response,
                                     &p->call_text, &p->value};
        for (size_t i = 0; i < countof(lists); i++) {
            free(lists[i]->bytes);
        }
        free(p->key);
        free(p->type);
        chat_call_fini(&p->call);
        chat_message_fini(&p->message);
        free(p);
    }
}

int chat_parser_end(struct chat_parser *p, struct chat_message *message)
{
    TRY(flush(p));
    if (p->head != HEAD_NONE && (within(&p->path, CALL) || !is_cut_tag(p))) {
        TRY(head_is_text(p, false)); /* in a call, which is text now too */
    }
    while (p->path.depth > 0) {
        TRY(pop(p, false));
    }
    TRY(chat_message_part(&p->message, text_of(&p->response)));
    if (p->reasoning.count > 0) {
        TRY(chat_copy(&p->message.reasoning, text_of(&p->reasoning)));
    }
    *message = p->message;
    p->message = (struct chat_message){.role = CHAT_ASSISTANT};
    return 0;
}

/* ---- closings ---- */

/* What `open` without a tag was about to open, as likely as not. */
static enum element likely(const struct path *path)
{
    enum element where = top(path);
    return where == TOOLS                     ? CALL
           : where == CALL || where == ARGUMENT ? ARGUMENT
           : path->responded                  ? TOOLS
                                              : RESPONSE;
}

/* Completes a head that was begun, and follows it. */
static int finish_head(const struct chat_parser *p, struct path *path, struct token_list *ids)
{
    bool opens = p->head == HEAD_OPEN;
    enum element element = element_of(&p->head_text, opens);
    if (p->head_text.count + p->stream.held_bytes == 0) {
        element = opens ? likely(path) : top(path);
        TRY(chat_put_text(p->tokenizer, grammar[element].tag, ids));
    }
    TRY(chat_put_id(ids, p->control.sep));
    enum element down_to = needed(element, opens);
    if (!within(path, down_to)) {
        return 0; /* it never meant anything */
    }
    while (top(path) != down_to) {
        path->depth--;
    }
    if (opens) {
        push(path, element);
    } else {
        path->depth--;
    }
    return 0;
}

int chat_parser_finish(const struct chat_parser *p, struct token_list *ids)
{
    struct path path = p->path;
    if (p->head != HEAD_NONE) {
        TRY(finish_head(p, &path, ids));
    }
    for (; path.depth > 0; path.depth--) {
        enum element element = top(&path);
        if (element == MESSAGE && !path.responded) {
            TRY(chat_put_open(p->tokenizer, grammar[RESPONSE].tag, ids));
            TRY(chat_put_close(p->tokenizer, grammar[RESPONSE].tag, ids));
        }
        TRY(chat_put_close(p->tokenizer, grammar[element].tag, ids));
    }
    return chat_put_id(ids, p->control.end);
}
