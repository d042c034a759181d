/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/chat_show.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/nondet.h"
#include "core/cli/terminal.h"
#include "core/cli/text.h"

#define DIM "\033[2m"
#define PLAIN "\033[0m"
#define SECOND_NS 1000000000ULL
#define STATUS_INTERVAL_NS (SECOND_NS / 5)

/* Below the present line, whatever its column: makes sure of a line there, goes, and comes back. */
#define BELOW "\033D\033[A\0337\033[B"
#define BACK "\0338"

void show_open(struct show *s, bool quiet)
{
    bool escapes = terminal_escapes();
    *s = (struct show){.terminal = isatty(STDOUT_FILENO) == 1};
    s->escapes = s->terminal && escapes;
    s->status_wanted = !quiet && escapes && isatty(STDERR_FILENO) == 1;
}

/* ---- the status line ---- */

static void status_clear(struct show *s)
{
    if (s->status_shown) {
        fputs(s->terminal && s->line_begun ? BELOW "\r\033[K" BACK : "\r\033[K", stderr);
        s->status_shown = false;
    }
}

/* A line that would wrap could not be cleared. */
static void status_print(struct show *s, char *text)
{
    struct winsize size = {.ws_col = 80};
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    size_t columns = size.ws_col > 1 ? size.ws_col : 80;
    if (strlen(text) >= columns) {
        text[columns - 1] = '\0';
    }
    fflush(stdout);
    bool below = s->terminal && s->line_begun;
    fprintf(stderr, "%s\r\033[K%s%s", below ? BELOW : "", text, below ? BACK : "");
    s->status_shown = true;
}

static void first_token_text(const struct show *s, const struct engine_progress *p, uint64_t now,
                             char *text, size_t capacity)
{
    double seconds = (double)(now - s->begun_ns) / 1e9;
    double done = (double)(p->done_bytes - s->base_bytes);
    double planned = (double)(p->planned_bytes - s->base_bytes);
    double wanted = p->passes > 0 ? planned * s->prompt_passes / p->passes : 0;
    double rate = seconds > 0 ? done / seconds : 0;
    int at = snprintf(text, capacity, "reading %u token%s, pass %u of %u: %.2f GB",
                      s->prompt_tokens, s->prompt_tokens == 1 ? "" : "s", p->pass + 1,
                      s->prompt_passes, done / 1e9);
    if (wanted > done) {
        at += snprintf(text + at, capacity - (size_t)at, " of about %.2f", wanted / 1e9);
    }
    at += snprintf(text + at, capacity - (size_t)at, ", %.2f GB/s", rate / 1e9);
    if (rate > 0 && wanted > done) {
        snprintf(text + at, capacity - (size_t)at, ", first token in about %.0f s",
                 (wanted - done) / rate);
    }
}

static void next_token_text(const struct show *s, const struct engine_progress *p, uint64_t now,
                            char *text, size_t capacity)
{
    double seconds = (double)(now - s->begun_ns) / 1e9;
    double done = (double)(p->done_bytes - s->base_bytes);
    double each = s->tokens > 1 ? (double)(s->token_ns - s->begun_ns) / 1e9 / s->tokens : seconds;
    double left = each - (double)(now - s->token_ns) / 1e9;
    int at = snprintf(text, capacity, "token %u, %.1f s/token, %.2f GB/s", s->tokens + 1, each,
                      seconds > 0 ? done / seconds / 1e9 : 0);
    if (left > 0) {
        snprintf(text + at, capacity - (size_t)at, ", next in about %.0f s", left);
    }
}

void show_progress(struct show *s, const struct engine_progress *p)
{
    char text[256];
    uint64_t now = nondet_now_ns();
    s->base_bytes = s->base_bytes == UINT64_MAX ? p->done_bytes : s->base_bytes;
    bool soon = s->tokens > 0 && now - s->token_ns < SECOND_NS;
    soon = soon || (s->status_ns != 0 && now - s->status_ns < STATUS_INTERVAL_NS);
    if (!s->status_wanted || soon) {
        return;
    }
    s->status_ns = now;
    if (s->stopping) {
        snprintf(text, sizeof text, "stopping after this pass; Ctrl-C once more ends the program");
    } else if (s->tokens == 0) {
        first_token_text(s, p, now, text, sizeof text);
    } else {
        next_token_text(s, p, now, text, sizeof text);
    }
    status_print(s, text);
}

/* ---- answers ---- */

void show_begin(struct show *s, uint32_t prompt_tokens, uint32_t prompt_passes)
{
    s->begun = s->line_begun = s->stopping = false;
    s->channel = CHAT_RESPONSE;
    s->begun_ns = s->token_ns = nondet_now_ns();
    s->status_ns = 0;
    s->base_bytes = UINT64_MAX;
    s->prompt_tokens = prompt_tokens;
    s->prompt_passes = prompt_passes;
    s->tokens = 0;
}

void show_token(struct show *s)
{
    s->tokens++;
    s->token_ns = nondet_now_ns();
}

static void end_line(struct show *s)
{
    if (s->line_begun) {
        fputc('\n', stdout);
        s->line_begun = false;
    }
}

/* A change of channels on a terminal. */
static void enter(struct show *s, enum chat_channel channel)
{
    if (s->begun && channel != s->channel) {
        end_line(s);
        fputc('\n', stdout);
    }
    if (s->escapes && (!s->begun || channel != s->channel)) {
        fputs(channel == CHAT_REASONING ? DIM : PLAIN, stdout);
    }
    s->begun = true;
    s->channel = channel;
}

void show_text(struct show *s, enum chat_channel channel, const char *text, size_t size_bytes)
{
    if (!s->terminal) {
        if (channel == CHAT_RESPONSE) {
            status_clear(s);
            fwrite(text, 1, size_bytes, stdout);
            s->line_begun = text[size_bytes - 1] != '\n';
            fflush(stdout);
        }
        return;
    }
    status_clear(s);
    enter(s, channel);
    text_show(stdout, text, size_bytes);
    s->line_begun = text[size_bytes - 1] != '\n';
    fflush(stdout);
}

void show_call(struct show *s, const struct chat_call *call)
{
    char *arguments = chat_call_text(call);
    status_clear(s);
    if (s->terminal) {
        enter(s, CHAT_CALLS);
    }
    end_line(s);
    fputs("call ", stdout);
    text_put(stdout, call->name, NULL, 0, false);
    fputc(' ', stdout);
    text_put(stdout, arguments != NULL ? arguments : "", NULL, 0, false);
    fputc('\n', stdout);
    fflush(stdout);
    free(arguments);
}

void show_end(struct show *s, const char *why)
{
    status_clear(s);
    end_line(s);
    if (s->escapes && s->begun) {
        fputs(PLAIN, stdout);
    }
    if (s->terminal && why != NULL) {
        printf("%s[%s]%s\n", s->escapes ? DIM : "", why, s->escapes ? PLAIN : "");
    }
    fputc('\n', stdout); /* an empty line is between turns, wherever they go */
    fflush(stdout);
}

void show_note(struct show *s, const char *format, ...)
{
    FILE *out = s->terminal ? stdout : stderr;
    va_list list;
    va_start(list, format);
    status_clear(s);
    vfprintf(out, format, list);
    fputc('\n', out);
    fflush(out);
    va_end(list);
}
