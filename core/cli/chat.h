/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CHAT_H
#define CLI_CHAT_H

/* `k3ring chat`: what its files share. cmd_chat.c opens everything and holds the conversation,
 * chat_commands.c has the lines that begin with `/`, chat_once.c answers a file. */

#include <sys/stat.h>

#include "core/base/file.h"
#include "core/cli/chat_line.h"
#include "core/cli/chat_show.h"
#include "core/cli/chat_talk.h"
#include "core/cli/engine_options.h"
#include "core/cli/output.h"
#include "core/cli/sample_options.h"
#include "core/cli/tuning.h"
#include "core/exec/saved_state.h"

#define CHAT_UNSET UINT64_MAX /* an option that was not given */

struct chat_cli {
    struct engine_cli engine;
    struct sample_cli sample;
    const char *tokenizer, *system, *tools, *messages, *json, *session;
    uint64_t effort, gen, draft;
    bool thinking, no_thinking, no_history;
};

struct chat_session {
    const struct chat_cli *cli;
    struct tokenizer *tokenizer;
    uint64_t positions;       /* of context that are asked for */
    struct text_limit line_limit, file_limit;
    struct talk talk;
    struct show show;
    struct line_reader *lines;
    struct engine *engine;
    struct sampling sampling;
    struct tuning tuning;
    struct progress progress;
    struct output json;
    struct saved_state saved; /* --session, between being read and being loaded */
    bool resumed;             /* there was one */
    struct stat seen;         /* the file as it was read or written last; st_ino 0 = none */
    bool reread;              /* but with another effort than is asked for now */
    /* all answers so far */
    uint32_t answers;
    uint32_t unanswered; /* that were cut before they said anything */
    uint64_t made_tokens, read_tokens;
    uint64_t first_ns, rest_ns, rest_tokens;
};

/* Files of conversations and tools. */
#define CHAT_FILE_BYTES_MAX (64 * MIB)

/* Lets the model answer what was said, on the screen; counts it. As talk_answer(). */
int chat_answer(struct chat_session *s, struct talk_answer *answer);

/* Reads a conversation in place of the present one, for the option or command called: ERR_USAGE,
 * ERR_FIT, ERR_IO and so on leave that as it was. */
int chat_load(struct chat_session *s, const char *called, const char *path);

/* --session (chat_session.c). Before the engine is open: reads the conversation kept there, if one
 * is. Then: makes it the engine's state. After a turn: keeps it. Nothing without the option. */
int chat_session_read(struct chat_session *s, const char *model);
int chat_session_load(struct chat_session *s);
int chat_session_keep(struct chat_session *s);

/* A JSON file a user named, by the option or command called. ERR_USAGE when there is none, ERR_FIT
 * when it is longer than limit; as file_read() otherwise. */
int chat_read_file(const char *path, const char *called, const struct text_limit *limit,
                   struct file_text *file);

/* 1: the session is to end. Errors of a command are told and are none. */
int chat_command(struct chat_session *s, const char *line);

/* Sets effort and thinking by a word, "low", "high", "max" or "off". False for any other. */
bool chat_set_effort(struct chat *chat, const char *word);
const char *chat_effort_word(const struct chat *chat);

/* ERR_RUN when an answer was cut before it said anything, unless a terminal shows it. */
int chat_tell_unanswered(const struct chat_session *s);

/* Answers once what was loaded. As chat_answer() and chat_tell_unanswered(). */
int chat_once(struct chat_session *s);

#endif
