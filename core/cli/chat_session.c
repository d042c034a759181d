/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation in a file: messages, ids and the model's state (core/exec/saved_state.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/cli/chat.h"

static struct stat look(const struct chat_session *s)
{
    struct stat now;
    return stat(s->cli->session, &now) == 0 ? now : (struct stat){.st_ino = 0};
}

/* Two conversations in one file would take turns in losing what was said. */
static int check_unchanged(const struct chat_session *s)
{
    struct stat now = look(s);
    bool same = now.st_ino == s->seen.st_ino && now.st_dev == s->seen.st_dev &&
                now.st_size == s->seen.st_size &&
                now.st_mtim.tv_sec == s->seen.st_mtim.tv_sec &&
                now.st_mtim.tv_nsec == s->seen.st_mtim.tv_nsec;
    return same || now.st_ino == 0
               ? 0 : err_set(ERR_OUTPUT, "--session: another process has written %s meanwhile, "
                             "which stays as it is; give each conversation a file of its own",
                             s->cli->session);
}

static int refuse_option(const struct chat_session *s, const char *name)
{
    return err_set(ERR_USAGE, "--%s: the conversation in %s has begun; leave --%s out, or give "
                   "--session another file", name, s->cli->session, name);
}

int chat_session_read(struct chat_session *s, const char *model)
{
    const struct chat_cli *cli = s->cli;
    if (cli->session == NULL) {
        return 0;
    }
    TRY(output_check_regular("session", cli->session));
    TRY(output_check_outside("session", cli->session, model));
    TRY(output_check(cli->session)); /* before the first turn, not after it */
    s->seen = look(s);
    if (!file_exists(cli->session)) {
        return 0;
    }
    if (cli->system != NULL || cli->tools != NULL) {
        return refuse_option(s, cli->system != NULL ? "system" : "tools");
    }
    TRY(saved_state_open(&s->saved, cli->session));
    if (s->saved.tag != SAVED_CHAT) {
        return err_set(ERR_USAGE, "--session: %s holds a state that is no conversation of `k3ring "
                       "chat`; give another file", cli->session);
    }
    s->resumed = true;
    int rc = chat_read_json(&s->talk.chat, s->saved.notes, s->saved.notes_bytes, cli->session);
    for (uint32_t i = 0; i < s->talk.chat.count; i++) {
        s->talk.calls += s->talk.chat.message[i].call_count;
    }
    return rc == ERR_USAGE ? ERR_MODEL : rc;
}

int chat_session_load(struct chat_session *s)
{
    if (!s->resumed) {
        return 0;
    }
    struct talk *talk = &s->talk;
    if (talk->chat.count == 0 ||
        talk->chat.message[talk->chat.count - 1].role != CHAT_ASSISTANT) {
        return err_set(ERR_MODEL, "--session: %s holds a state whose conversation does not end in "
                       "an answer; it was not written by `k3ring chat`", s->cli->session);
    }
    TRY(saved_state_load(&s->saved, s->engine));
    TRY(engine_check_ids(s->engine, s->cli->session, s->saved.ids, s->saved.id_count));
    talk->ids = (struct token_list){.ids = s->saved.ids, .count = s->saved.id_count,
                                    .capacity = s->saved.id_count};
    talk->known = s->saved.positions;
    talk->rendered = talk->chat.count;
    talk->asked = talk->chat.choice != CHAT_CHOICE_AUTO || talk->chat.format != CHAT_FORMAT_TEXT;
    s->saved.ids = NULL;
    saved_state_close(&s->saved);
    if (s->reread) {
        talk_restart(talk);
    }
    return 0;
}

static int write_session(struct chat_session *s, const char *notes, struct output *out)
{
    const struct saved_extra extra = {
        .tag = SAVED_CHAT, .ids = s->talk.ids.ids, .id_count = (uint32_t)s->talk.ids.count,
        .notes = notes, .notes_bytes = strlen(notes)};
    struct stat made = {.st_ino = 0};
    output_private(out); /* what was said is nobody else's */
    int rc = saved_state_write(s->engine, &extra, out->file);
    if (rc == 0 && fflush(out->file) == 0) { /* what fails is seen again at the end */
        (void)fsync(fileno(out->file));      /* the long part of it, before the last look */
        (void)fstat(fileno(out->file), &made);
    }
    rc = rc == 0 ? check_unchanged(s) : rc;
    if (rc < 0) {
        output_abandon(out);
        return rc;
    }
    TRY(output_commit(out));
    output_flush_folders();
    s->seen = made;
    return 0;
}

int chat_session_keep(struct chat_session *s)
{
    struct output out;
    if (s->cli->session == NULL) {
        return 0;
    }
    TRY(check_unchanged(s));
    char *notes = chat_json_text(&s->talk.chat);
    int rc = notes != NULL ? output_open(&out, s->cli->session) : ERR_MEMORY;
    rc = rc == 0 ? write_session(s, notes, &out) : rc;
    free(notes);
    return rc;
}
