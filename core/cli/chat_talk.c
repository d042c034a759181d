/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/chat_talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

void talk_init(struct talk *talk, const struct tokenizer *t)
{
    *talk = (struct talk){.tokenizer = t};
    chat_init(&talk->chat);
}

void talk_fini(struct talk *talk)
{
    chat_fini(&talk->chat);
    free(talk->ids.ids);
    free(talk->ends.ids);
    talk->ends = (struct token_list){.ids = NULL};
    talk->ids = (struct token_list){.ids = NULL};
}

void talk_restart(struct talk *talk)
{
    talk->ids.count = 0;
    talk->rendered = 0;
    talk->known = 0;
    talk->asked = false;
}

/* ---- an answer ---- */

struct answering {
    const struct talk_request *request;
    struct chat_parser *parser;
    int rc; /* of the parser */
};

static void on_token(void *ctx, uint32_t step, uint32_t id)
{
    struct answering *a = ctx;
    (void)step;
    if (a->request->on_token != NULL) {
        a->request->on_token(a->request->ctx);
    }
    if (a->rc == 0 && !chat_parser_over(a->parser)) {
        int rc = chat_parser_push(a->parser, id);
        a->rc = rc < 0 ? rc : 0;
    }
}

static void on_logits(void *ctx, uint32_t step, const float *logits)
{
    struct answering *a = ctx;
    if (a->request->on_logits != NULL) {
        a->request->on_logits(a->request->ctx, step, logits);
    }
}

static bool stops(void *ctx, uint32_t step, uint32_t id)
{
    struct answering *a = ctx;
    (void)step;
    (void)id;
    return a->rc < 0 || chat_parser_over(a->parser);
}

/* Ids of all messages, and the beginning of the answer. What is asked of an answer stands before
 * that one only: behind it, all is read again without. */
static int render(struct talk *talk)
{
    struct chat *chat = &talk->chat;
    if (talk->asked) {
        talk_restart(talk);
        chat->choice = CHAT_CHOICE_AUTO; /* it was of the answer before */
    }
    talk->asked = chat->choice != CHAT_CHOICE_AUTO || chat->format != CHAT_FORMAT_TEXT;
    if (talk->rendered == 0) {
        talk->ids.count = 0;
        TRY(chat_render_head(&talk->chat, talk->tokenizer, &talk->ids));
    }
    TRY(chat_render_messages(&talk->chat, talk->rendered, talk->tokenizer, &talk->ids));
    return chat_render_tail(&talk->chat, talk->tokenizer, &talk->ids);
}

static int run(struct talk *talk, struct engine *e, struct answering *a,
               struct talk_answer *answer)
{
    uint32_t room = engine_plan_of(e)->request.context - answer->prompt_tokens;
    uint32_t chunk = engine_plan_of(e)->chunk;
    struct generate_request request = {
        .resume = talk->known > 0, .past = talk->ids.ids, .past_count = talk->known,
        .ids = talk->ids.ids + talk->known, .id_count = answer->read_tokens,
        .gen = (uint32_t)min_u64(a->request->gen, room), .sample = a->request->sample,
        .drafts = a->request->drafts, .on_token = on_token, .on_logits = on_logits,
        .stops = stops, .ctx = a};
    answer->result.ids = malloc((size_t)request.gen * sizeof *answer->result.ids);
    if (answer->result.ids == NULL) {
        return err_set(ERR_MEMORY, "no memory for an answer of %u tokens", request.gen);
    }
    if (a->request->on_begin != NULL) {
        a->request->on_begin(a->request->ctx, request.id_count,
                             (uint32_t)div_ceil(request.id_count, chunk));
    }
    int rc = generate(e, &request, &answer->result);
    if (answer->result.finish == FINISH_LENGTH && answer->result.count == room) {
        answer->result.finish = FINISH_CONTEXT;
    }
    bool stopped = rc == ERR_STOPPED && answer->result.finish == FINISH_INTERRUPTED;
    if (stopped) {
        err_clear();
        rc = 0;
    }
    return rc < 0 ? rc : a->rc;
}

/* Numbers calls, so that results can refer to them. */
static int name_calls(struct talk *talk, struct chat_message *message)
{
    for (uint32_t i = 0; i < message->call_count; i++) {
        if (asprintf(&message->call[i].id, "call_%u", ++talk->calls) < 0) {
            message->call[i].id = NULL;
            return err_set(ERR_MEMORY, "no memory for a call");
        }
    }
    return 0;
}

/* The answer becomes history: its tokens but the one that ended it, what closes the rest. */
static int keep(struct talk *talk, struct engine *e, struct answering *a,
                struct talk_answer *answer)
{
    struct chat_tokens control = chat_tokens(talk->tokenizer);
    struct chat_message message = {.role = CHAT_ASSISTANT};
    uint32_t count = answer->result.count;
    uint32_t last = count > 0 ? answer->result.ids[count - 1] : control.sep;
    answer->by_id = chat_parser_ends_with(a->parser, last);
    count -= answer->by_id;
    TRY(token_list_append(&talk->ids, answer->result.ids, count));
    TRY(chat_parser_finish(a->parser, &talk->ids));
    TRY(chat_parser_end(a->parser, &message));
    int rc = name_calls(talk, &message);
    if (rc < 0) {
        chat_message_fini(&message);
        return rc;
    }
    TRY(chat_take(&talk->chat, &message));
    talk->rendered = talk->chat.count;
    talk->known = engine_position(e);
    assert(talk->known <= talk->ids.count);
    return 0;
}

static int answer_with(struct talk *talk, struct engine *e, struct answering *a,
                       struct talk_answer *answer)
{
    uint32_t context = engine_plan_of(e)->request.context;
    size_t before = talk->ids.count;
    int rc = render(talk);
    if (rc == 0 && talk->ids.count >= context) {
        rc = err_set(ERR_FIT, "the conversation would take %zu of %u positions, and an answer "
                     "more; a larger --context has room for it", talk->ids.count, context);
    }
    if (rc < 0) {
        talk->asked = false;
        talk->ids.count = talk->rendered > 0 ? before : 0;
        return rc;
    }
    answer->prompt_tokens = (uint32_t)talk->ids.count;
    answer->read_tokens = answer->prompt_tokens - talk->known;
    TRY(run(talk, e, a, answer));
    return keep(talk, e, a, answer);
}

int talk_answer(struct talk *talk, struct engine *e, const struct talk_request *request,
                struct talk_answer *answer)
{
    struct answering a = {.request = request};
    *answer = (struct talk_answer){.prompt_tokens = 0};
    int rc = chat_parser_open(&a.parser, talk->tokenizer, talk->chat.thinking, request->events);
    if (rc == 0) {
        chat_parser_ends(a.parser, &talk->ends);
        rc = answer_with(talk, e, &a, answer);
    }
    chat_parser_close(a.parser);
    return rc;
}

void talk_answer_fini(struct talk_answer *answer)
{
    free(answer->result.ids);
    answer->result.ids = NULL;
}

/* ---- calls ---- */

uint32_t talk_calls_open(const struct talk *talk, const struct chat_call **next)
{
    uint32_t results = 0;
    const struct chat *chat = &talk->chat;
    while (results < chat->count && chat->message[chat->count - 1 - results].role == CHAT_TOOL) {
        results++;
    }
    const struct chat_message *caller =
        results < chat->count ? &chat->message[chat->count - 1 - results] : NULL;
    if (caller == NULL || caller->role != CHAT_ASSISTANT || results >= caller->call_count) {
        *next = NULL;
        return 0;
    }
    *next = &caller->call[results];
    return caller->call_count - results;
}

int talk_add_result(struct talk *talk, const char *text)
{
    struct chat_message message = {.role = CHAT_TOOL};
    const struct chat_call *call;
    talk_calls_open(talk, &call);
    assert(call != NULL);
    message.call_id = call->id != NULL ? strdup(call->id) : NULL;
    message.name = strdup(call->name);
    int rc = chat_message_part(&message, text);
    if (rc == 0 && (message.name == NULL || (call->id != NULL && message.call_id == NULL))) {
        rc = err_set(ERR_MEMORY, "no memory for a result");
    }
    if (rc < 0) {
        chat_message_fini(&message);
        return rc;
    }
    return chat_take(&talk->chat, &message);
}
