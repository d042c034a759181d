/* SPDX-License-Identifier: Apache-2.0 */
/* One answer to a conversation from a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/chat.h"
#include "core/cli/report.h"

static const char *finish_name(const struct chat_message *message,
                               const struct talk_answer *answer)
{
    bool calls = answer->result.finish == FINISH_STOP && message->call_count > 0;
    return calls ? "tool_calls" : generate_finish_name(answer->result.finish);
}

/* The id that ended it, when it was not the end of its message. */
static bool add_stop(cJSON *root, const struct talk_answer *answer)
{
    const struct generate_result *r = &answer->result;
    return r->finish != FINISH_STOP || !answer->by_id ||
           cJSON_AddNumberToObject(root, "stop_id", r->ids[r->count - 1]) != NULL;
}

static bool add_usage(cJSON *root, const struct talk_answer *answer)
{
    cJSON *usage = cJSON_AddObjectToObject(root, "usage");
    return usage != NULL &&
           cJSON_AddNumberToObject(usage, "prompt_tokens", answer->prompt_tokens) != NULL &&
           cJSON_AddNumberToObject(usage, "completion_tokens", answer->result.count) != NULL &&
           cJSON_AddNumberToObject(usage, "first_token_s",
                                   (double)answer->result.first_ns / 1e9) != NULL &&
           cJSON_AddNumberToObject(usage, "other_tokens_s",
                                   (double)answer->result.rest_ns / 1e9) != NULL;
}

static cJSON *document(struct chat_session *s, const struct talk_answer *answer,
                       const char *error)
{
    char hash[65];
    const struct chat *chat = &s->talk.chat;
    const struct chat_message *message = &chat->message[chat->count - 1];
    cJSON *root = cJSON_CreateObject();
    cJSON *said = chat_message_json(message);
    generate_hash_text(answer->result.hash, hash);
    bool whole = root != NULL && said != NULL && cJSON_AddItemToObject(root, "message", said);
    if (!whole) {
        cJSON_Delete(said);
    }
    whole = whole &&
            cJSON_AddStringToObject(root, "finish_reason", finish_name(message, answer)) != NULL &&
            add_stop(root, answer) && add_usage(root, answer) &&
            report_ids_json(root, "prompt_ids", s->talk.ids.ids, answer->prompt_tokens) &&
            report_ids_json(root, "generated_ids", answer->result.ids, answer->result.count) &&
            cJSON_AddStringToObject(root, "logits_hash", hash) != NULL &&
            (error == NULL || cJSON_AddStringToObject(root, "error", error) != NULL);
    if (!whole) {
        cJSON_Delete(root);
        return NULL;
    }
    sampling_json(&s->sampling, root);
    return root;
}

static int write_json(struct chat_session *s, const struct talk_answer *answer,
                      const char *error)
{
    TRY(output_json(s->json.file, document(s, answer, error)));
    return output_commit(&s->json);
}

int chat_once(struct chat_session *s)
{
    struct talk_answer answer;
    int rc = chat_answer(s, &answer);
    if (rc == 0) {
        rc = chat_tell_unanswered(s);
        int json_rc = s->json.file == NULL
                          ? 0 : write_json(s, &answer, rc < 0 ? err_message() : NULL);
        rc = rc < 0 ? rc : json_rc;
    }
    talk_answer_fini(&answer);
    return rc;
}
