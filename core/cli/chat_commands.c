/* SPDX-License-Identifier: Apache-2.0 */
/* Lines that begin with a slash. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/cli/chat.h"

struct slash {
    const char *name, *argument; /* NULL: takes none */
    int (*run)(struct chat_session *s, const char *argument);
    const char *help;
};

static int help(struct chat_session *s, const char *argument);

/* ---- files ---- */

static int write_text(struct output *out, const char *text)
{
    output_private(out); /* what was said is nobody else's */
    fprintf(out->file, "%s\n", text);
    return output_commit(out);
}

static int save(struct chat_session *s, const char *path)
{
    struct output out;
    char *text = chat_json_text(&s->talk.chat);
    int rc = text != NULL ? output_open(&out, path) : ERR_MEMORY;
    rc = rc == 0 ? write_text(&out, text) : rc;
    free(text);
    if (rc == 0) {
        show_note(&s->show, "saved %u messages in %s", s->talk.chat.count, path);
    }
    return rc;
}

int chat_read_file(const char *path, const char *called, const struct text_limit *limit,
                   struct file_text *file)
{
    struct stat status;
    if (stat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        TRY(text_limit_check(limit, called, path, (uint64_t)status.st_size));
    }
    int rc = file_read(path, CHAT_FILE_BYTES_MAX, file);
    return rc == ERR_MODEL ? ERR_USAGE : rc; /* it is none of the model's */
}

static int read_into(struct chat *chat, const char *called, const char *path,
                     const struct text_limit *limit)
{
    struct file_text file;
    TRY(chat_read_file(path, called, limit, &file));
    int rc = chat_read_json(chat, file.text, file.size_bytes, path);
    file_text_free(&file);
    return rc;
}

int chat_load(struct chat_session *s, const char *called, const char *path)
{
    struct chat chat;
    chat_init(&chat);
    chat.effort = s->talk.chat.effort;
    chat.thinking = s->talk.chat.thinking;
    int rc = read_into(&chat, called, path, &s->file_limit);
    if (rc < 0) {
        chat_fini(&chat);
        return rc;
    }
    if (chat.tools == NULL) { /* those of --tools hold for it too */
        chat.tools = s->talk.chat.tools;
        s->talk.chat.tools = NULL;
    }
    chat_fini(&s->talk.chat);
    s->talk.chat = chat;
    s->talk.calls = 0;
    for (uint32_t i = 0; i < chat.count; i++) {
        s->talk.calls += chat.message[i].call_count;
    }
    talk_restart(&s->talk);
    return 0;
}

static int load(struct chat_session *s, const char *path)
{
    TRY(chat_load(s, "/load", path));
    show_note(&s->show, "%u messages from %s; they are read with the next turn", s->talk.chat.count,
              path);
    return 0;
}

/* ---- the conversation ---- */

static int reset(struct chat_session *s, const char *argument)
{
    struct chat *chat = &s->talk.chat;
    uint32_t kept = 0;
    (void)argument;
    while (kept < chat->count && chat->message[kept].role == CHAT_SYSTEM) {
        kept++;
    }
    chat_cut(chat, chat->count - kept);
    talk_restart(&s->talk);
    show_note(&s->show, "a new conversation%s", kept > 0 ? ", with the same system message" : "");
    return 0;
}

bool chat_set_effort(struct chat *chat, const char *word)
{
    static const enum chat_effort efforts[] = {CHAT_EFFORT_LOW, CHAT_EFFORT_HIGH, CHAT_EFFORT_MAX};
    bool off = strcmp(word, "off") == 0;
    for (size_t i = 0; i < countof(efforts); i++) {
        if (strcmp(word, chat_effort_name(efforts[i])) == 0) {
            chat->effort = efforts[i];
            chat->thinking = true;
            return true;
        }
    }
    chat->thinking = chat->thinking && !off;
    return off;
}

const char *chat_effort_word(const struct chat *chat)
{
    return !chat->thinking ? "off" : chat_effort_name(chat->effort);
}

static int effort(struct chat_session *s, const char *word)
{
    struct chat *chat = &s->talk.chat;
    char before[16];
    snprintf(before, sizeof before, "%s", chat_effort_word(chat));
    if (!chat_set_effort(chat, word)) {
        return err_set(ERR_USAGE, "/effort %.40s: is none of low, high, max, off", word);
    }
    bool changed = strcmp(before, word) != 0;
    uint32_t known = s->talk.known;
    if (changed) {
        talk_restart(&s->talk); /* it is the first thing the model reads */
    }
    if (changed && known > 0) {
        show_note(&s->show, "effort %s; it stands at the beginning, so the conversation (some %u "
                  "tokens) is read again with the next turn", word, known);
    } else {
        show_note(&s->show, "effort %s", word);
    }
    return 0;
}

static int stats(struct chat_session *s, const char *argument)
{
    struct engine_stats st;
    uint64_t bytes = 0;
    (void)argument;
    engine_stats(s->engine, &st);
    for (int i = 0; i < READ_CLASSES; i++) {
        bytes += st.class[i].bytes;
    }
    uint32_t context = engine_plan_of(s->engine)->request.context;
    show_note(&s->show, "context: %zu of %u positions, %u of them read", s->talk.ids.count, context,
              s->talk.known);
    show_note(&s->show, "tokens:  %llu read, %llu made in %u answer%s",
              (unsigned long long)s->read_tokens, (unsigned long long)s->made_tokens, s->answers,
              s->answers == 1 ? "" : "s");
    if (s->answers > 0) {
        show_note(&s->show, "time:    %.3f s to the first token of an answer, %.3f s for each "
                  "other", (double)s->first_ns / 1e9 / s->answers,
                  s->rest_tokens > 0 ? (double)s->rest_ns / 1e9 / (double)s->rest_tokens : 0);
    }
    show_note(&s->show, "reads:   %.3f GB in %llu requests, %.2f GB/s; experts %llu hits of %llu",
              (double)bytes / 1e9, (unsigned long long)st.io.requests,
              s->first_ns + s->rest_ns > 0 ? (double)bytes / (double)(s->first_ns + s->rest_ns) : 0,
              (unsigned long long)st.cache_hits, (unsigned long long)st.cache_demands);
    show_note(&s->show, "memory:  %.1f MiB at most; effort %s",
              (double)memory_status("VmHWM:") / (double)MIB, chat_effort_word(&s->talk.chat));
    return 0;
}

static int leave(struct chat_session *s, const char *argument)
{
    (void)s;
    (void)argument;
    return 1;
}

/* ---- the table ---- */

static const struct slash table[] = {
    {"/help", NULL, help, "lists these"},
    {"/save", "FILE", save, "writes the conversation as JSON"},
    {"/load", "FILE", load, "goes on with a conversation in place of this one"},
    {"/reset", NULL, reset, "begins a new conversation"},
    {"/stats", NULL, stats, "what was read and made, and how fast"},
    {"/effort", "low|high|max|off", effort, "how much the model thinks"},
    {"/exit", NULL, leave, "ends; so does Ctrl-D"},
};

static int help(struct chat_session *s, const char *argument)
{
    (void)argument;
    for (size_t i = 0; i < countof(table); i++) {
        char left[40];
        snprintf(left, sizeof left, "%s%s%s", table[i].name, table[i].argument != NULL ? " " : "",
                 table[i].argument != NULL ? table[i].argument : "");
        show_note(&s->show, "  %-25s %s", left, table[i].help);
    }
    show_note(&s->show, "A line that ends in \\ goes on with the next; // begins a message with a "
              "slash.\nCtrl-C stops an answer after the pass that is running.");
    return 0;
}

static int unknown(const char *name)
{
    const char *near = options_nearest(name, &table[0].name, countof(table), sizeof table[0]);
    return err_set(ERR_USAGE, "there is no %.40s%s%s%s; /help lists what there is, // begins "
                   "a message with a slash", name, near != NULL ? " (did you mean " : "",
                   near != NULL ? near : "", near != NULL ? "?)" : "");
}

static int run(struct chat_session *s, const char *name, const char *argument)
{
    for (size_t i = 0; i < countof(table); i++) {
        if (strcmp(table[i].name, name) != 0) {
            continue;
        }
        if ((table[i].argument != NULL) != (argument[0] != '\0')) {
            return err_set(ERR_USAGE, "%s takes %s", name,
                           table[i].argument != NULL ? table[i].argument : "nothing");
        }
        return table[i].run(s, argument);
    }
    return unknown(name);
}

int chat_command(struct chat_session *s, const char *line)
{
    size_t length = strcspn(line, " \t\n");
    char *name = strndup(line, length);
    char *argument = strdup(line + length + strspn(line + length, " \t\n"));
    int rc = name == NULL || argument == NULL ? err_set(ERR_MEMORY, "no memory for a command") : 0;
    for (size_t end = rc == 0 ? strlen(argument) : 0; end > 0 &&
         strchr(" \t\n", argument[end - 1]) != NULL; end--) {
        argument[end - 1] = '\0';
    }
    rc = rc == 0 ? run(s, name, argument) : rc;
    free(name);
    free(argument);
    if (rc < 0) {
        show_note(&s->show, "%s", err_message());
        err_clear();
        rc = 0;
    }
    return rc;
}
