/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CHAT_SHOW_H
#define CLI_CHAT_SHOW_H

/* Answers on their way out. On a terminal: reasoning dimmed, the response below it, control
 * characters made harmless, and while nothing comes a line below that says what is being done; one
 * that takes no escape sequences gets neither dim text nor that line.
 * Anywhere else: the response alone, byte for byte. */

#include "core/exec/engine.h"
#include "core/model/chat_parse.h"

struct show {
    bool terminal;           /* standard output is one */
    bool escapes;            /* and takes escape sequences */
    bool status_wanted;      /* standard error is one that does, and nobody wants quiet */
    /* of the answer being shown */
    bool begun;              /* some of it was */
    enum chat_channel channel;
    bool line_begun;         /* the last line shown has no end yet */
    /* the status line */
    bool status_shown;
    uint64_t status_ns;      /* when it last was */
    uint64_t begun_ns, token_ns; /* the answer, and its latest token */
    uint64_t base_bytes;     /* read before the answer */
    uint32_t prompt_tokens, prompt_passes, tokens; /* to be read, and made so far */
    bool stopping;
};

void show_open(struct show *s, bool quiet);
/* An answer begins, after prompt_tokens in so many passes. */
void show_begin(struct show *s, uint32_t prompt_tokens, uint32_t prompt_passes);
/* A token was made, whatever it shows. */
void show_token(struct show *s);
void show_text(struct show *s, enum chat_channel channel, const char *text, size_t size_bytes);
void show_call(struct show *s, const struct chat_call *call);
/* The engine's progress. */
void show_progress(struct show *s, const struct engine_progress *p);
/* The answer is over; why may be NULL, or what a terminal is told of its end. Flushes. */
void show_end(struct show *s, const char *why);

/* A line of talk: on the terminal, or on standard error. */
__attribute__((format(printf, 2, 3)))
void show_note(struct show *s, const char *format, ...);

#endif
