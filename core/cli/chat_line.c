/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/chat_line.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "core/base/err.h"
#include "core/base/utf8.h"
#include "core/cli/output.h"
#include "core/cli/terminal.h"
#include "core/cli/xdg.h"

#define HISTORY_LINES 1000
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"

struct line_reader {
    bool terminal;
    bool escapes;               /* a terminal that takes them */
    /* a terminal's */
    EditLine *edit;
    HistoryW *history;
    char *history_path;         /* NULL: none is kept */
    wchar_t *prompt;
    unsigned char typed[256];   /* read and not yet taken */
    size_t typed_count;
    bool ended, cancelled;
    /* a pipe's */
    char *line;
    size_t line_capacity;
    uint64_t line_number;       /* of the latest one, from 1 */
};

/* ---- what signal handlers touch ---- */

enum { WAKE_CANCEL = 'c', WAKE_RESIZED = 'w', WAKE_CONTINUED = 'r' };

static int wake_pipe[2] = {-1, -1};
static struct termios terminal_before;
static _Atomic bool terminal_known, terminal_edits;

static void wake(char what)
{
    int saved = errno;
    (void)!write(wake_pipe[1], &what, 1);
    errno = saved;
}

void line_cancel(void)
{
    wake(WAKE_CANCEL);
}

static void on_terminal(int number)
{
    wake(number == SIGCONT ? WAKE_CONTINUED : WAKE_RESIZED);
}

void line_restore_terminal(void)
{
    if (atomic_load(&terminal_known)) {
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before); /* draining may wait for ever */
        if (atomic_load(&terminal_edits)) {
            (void)!write(STDOUT_FILENO, PASTE_OFF, sizeof PASTE_OFF - 1);
        }
    }
}

/* ---- characters ---- */

/* What a signal has asked for. True when it ends the line. */
static bool woken(struct line_reader *r)
{
    char what = '\0';
    (void)!read(wake_pipe[0], &what, 1);
    if (what == WAKE_RESIZED) {
        el_resize(r->edit);
    } else if (what == WAKE_CONTINUED) {
        el_wset(r->edit, EL_PREP_TERM, 1);
        el_wset(r->edit, EL_REFRESH);
    }
    r->cancelled = what == WAKE_CANCEL;
    return r->cancelled;
}

/* Waits for bytes. 1: more are there, 0: the end, -1: cancelled or failed. */
static int more_typed(struct line_reader *r)
{
    struct pollfd polled[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = wake_pipe[0], .events = POLLIN}};
    for (;;) {
        if (poll(polled, 2, -1) < 0) {
            if (errno != EINTR) {
                return -1;
            }
            continue;
        }
        if ((polled[1].revents & POLLIN) != 0 && woken(r)) {
            return -1;
        }
        if ((polled[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0) {
            continue;
        }
        ssize_t got = read(STDIN_FILENO, r->typed + r->typed_count,
                           sizeof r->typed - r->typed_count);
        if (got >= 0 || errno != EINTR) {
            r->typed_count += got > 0 ? (size_t)got : 0;
            r->ended = got <= 0; /* EIO: the terminal is gone */
            return got > 0;
        }
    }
}

/* The next character, for libedit. What is no UTF-8 becomes U+FFFD. */
static int next_character(EditLine *edit, wchar_t *character)
{
    void *data;
    el_wget(edit, EL_CLIENTDATA, &data);
    struct line_reader *r = data;
    uint32_t code = 0xFFFD;
    while (r->typed_count == 0 || utf8_unfinished(r->typed, r->typed_count) == r->typed_count) {
        int rc = more_typed(r);
        if (rc <= 0) {
            return rc;
        }
    }
    size_t size = utf8_read(r->typed, r->typed_count, &code);
    size = size > 0 ? size : utf8_bad_bytes(r->typed, r->typed_count);
    r->typed_count -= size;
    memmove(r->typed, r->typed + size, r->typed_count);
    *character = (wchar_t)code;
    return 1;
}

/* text of characters to UTF-8; free() it. NULL: no memory. */
static char *narrow(const wchar_t *text, size_t count)
{
    char *bytes = malloc(count * 4 + 1), *at = bytes;
    for (size_t i = 0; bytes != NULL && i < count; i++) {
        uint32_t code = (uint32_t)text[i];
        size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        utf8_write((unsigned char *)at, size, code);
        at += size;
    }
    if (bytes != NULL) {
        *at = '\0';
    }
    return bytes;
}

static wchar_t *widen(const char *text)
{
    size_t size = strlen(text), count = 0;
    wchar_t *wide = malloc((size + 1) * sizeof *wide);
    for (size_t at = 0; wide != NULL && at < size;) {
        uint32_t code = 0xFFFD;
        size_t step = utf8_read((const unsigned char *)text + at, size - at, &code);
        at += step > 0 ? step : 1;
        wide[count++] = (wchar_t)code;
    }
    if (wide != NULL) {
        wide[count] = L'\0';
    }
    return wide;
}

/* ---- editing ---- */

static wchar_t *show_prompt(EditLine *edit)
{
    void *data;
    el_wget(edit, EL_CLIENTDATA, &data);
    return ((struct line_reader *)data)->prompt;
}

/* Whether the paste so far ends with the mark of its end. */
static bool paste_over(const wchar_t *text, size_t count)
{
    static const wchar_t mark[] = L"\033[201~";
    size_t length = countof(mark) - 1;
    return count >= length && wmemcmp(text + count - length, mark, length) == 0;
}

/* Line breaks as they are meant, control characters left out. Returns the characters left. */
static size_t clean_paste(wchar_t *text, size_t count)
{
    size_t to = 0;
    for (size_t i = 0; i < count; i++) {
        wchar_t c = text[i];
        if (c == L'\r') {
            c = i + 1 < count && text[i + 1] == L'\n' ? L'\0' : L'\n';
        }
        if (c == L'\n' || c == L'\t' || (c >= 0x20 && c != 0x7F && !(c >= 0x80 && c < 0xA0))) {
            text[to++] = c;
        }
    }
    while (to > 0 && text[to - 1] == L'\n') {
        to--;
    }
    text[to] = L'\0';
    return to;
}

/* Takes a bracketed paste into the line at once, line breaks and all. */
static unsigned char take_paste(EditLine *edit, wint_t key)
{
    size_t count = 0, capacity = 0;
    wchar_t *text = NULL, character;
    (void)key;
    while (el_wgetc(edit, &character) == 1) {
        if (count + 2 > capacity) {
            capacity = 2 * capacity + 256;
            wchar_t *grown = realloc(text, capacity * sizeof *text);
            if (grown == NULL) {
                free(text);
                return CC_ERROR;
            }
            text = grown;
        }
        text[count++] = character;
        if (paste_over(text, count)) {
            count = clean_paste(text, count - 6);
            int rc = count > 0 ? el_winsertstr(edit, text) : 0;
            free(text);
            return rc == 0 ? CC_REFRESH : CC_ERROR;
        }
    }
    free(text);
    return CC_EOF;
}

/* ---- history ---- */

/* A history that cannot be read or written is no reason not to talk. */
static void load_history(struct line_reader *r)
{
    HistEventW event;
    history_w(r->history, &event, H_SETSIZE, HISTORY_LINES);
    history_w(r->history, &event, H_SETUNIQUE, 1);
    if (r->history_path != NULL) {
        xdg_make_folders(r->history_path);
        history_w(r->history, &event, H_LOAD, r->history_path);
    }
}

static void save_history(struct line_reader *r, const wchar_t *line)
{
    HistEventW event;
    struct output out;
    history_w(r->history, &event, H_ENTER, line);
    if (r->history_path == NULL) {
        return;
    }
    bool clear = err_message()[0] == '\0';
    if (output_open(&out, r->history_path) == 0) {
        output_private(&out);
        history_w(r->history, &event, H_SAVE_FP, out.file);
        if (output_commit(&out) < 0) {
            free(r->history_path); /* not once more */
            r->history_path = NULL;
        }
    }
    if (clear) {
        err_clear();
    }
}

/* ---- life ---- */

/* Characters beyond ASCII are lines' own whatever the user's locale is. */
static void choose_locale(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) {
        setlocale(LC_CTYPE, "C.UTF-8");
    }
}

static void watch_terminal(void)
{
    struct sigaction action = {.sa_handler = on_terminal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGWINCH, &action, NULL);
    sigaction(SIGCONT, &action, NULL);
}

static int open_terminal(struct line_reader *r)
{
    if (tcgetattr(STDIN_FILENO, &terminal_before) == 0) {
        atomic_store(&terminal_known, true);
    }
    choose_locale();
    r->escapes = terminal_escapes();
    if (!r->escapes) {
        setenv("TERM", "dumb", 1); /* libedit complains of one it does not know */
    }
    r->edit = el_init("k3ring", stdin, stdout, stderr);
    r->history = history_winit();
    if (r->edit == NULL || r->history == NULL) {
        return err_set(ERR_RUN, "the terminal cannot be set up for typing; give input from a pipe");
    }
    el_wset(r->edit, EL_CLIENTDATA, r);
    el_wset(r->edit, EL_EDITOR, L"emacs");
    el_wset(r->edit, EL_PROMPT, show_prompt);
    el_wset(r->edit, EL_GETCFN, next_character);
    el_wset(r->edit, EL_HIST, history_w, r->history);
    el_wset(r->edit, EL_ADDFN, L"take-paste", L"Takes a paste as it is", take_paste);
    el_source(r->edit, NULL);
    el_wset(r->edit, EL_BIND, L"\\e[200~", L"take-paste", NULL);
    load_history(r);
    watch_terminal();
    return 0;
}

int line_open(struct line_reader **out, const char *history)
{
    struct line_reader *r = calloc(1, sizeof *r);
    *out = r;
    if (r == NULL || (history != NULL && (r->history_path = strdup(history)) == NULL)) {
        return err_set(ERR_MEMORY, "no memory to read lines");
    }
    if (wake_pipe[0] < 0 && pipe2(wake_pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        return err_set(ERR_RUN, "no pipe for signals: %s", strerror(errno));
    }
    r->terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    return r->terminal ? open_terminal(r) : 0;
}

void line_close(struct line_reader *r)
{
    if (r != NULL) {
        if (r->history != NULL) {
            history_wend(r->history);
        }
        if (r->edit != NULL) {
            el_end(r->edit);
        }
        free(r->history_path);
        free(r->prompt);
        free(r->line);
        free(r);
    }
}

bool line_terminal(const struct line_reader *r)
{
    return r->terminal;
}

/* ---- lines ---- */

/* One line of a terminal, without its line break. */
static int edit_line(struct line_reader *r, const char *prompt, char **text)
{
    int count = 0;
    free(r->prompt);
    r->prompt = widen(prompt);
    r->cancelled = r->ended = false;
    atomic_store(&terminal_edits, r->escapes);
    el_wset(r->edit, EL_PREP_TERM, 1); /* before the prompt: keys are ours once it is seen */
    /* While the terminal cooks, Ctrl-D typed ahead is kept as itself. A shell that put this program
     * in the foreground again has set it back. */
    el_wset(r->edit, EL_SETTY, L"-x", L"eof=", NULL);
    fputs(r->escapes ? PASTE_ON : "", stdout);
    fflush(stdout);
    const wchar_t *line = r->prompt != NULL ? el_wgets(r->edit, &count) : NULL;
    fputs(r->escapes ? PASTE_OFF : "", stdout);
    fflush(stdout);
    atomic_store(&terminal_edits, false);
    if (line == NULL || count <= 0) {
        putchar('\n');
        return r->prompt == NULL ? err_set(ERR_MEMORY, "no memory for a line")
               : r->cancelled    ? LINE_CANCELLED
                                 : LINE_END;
    }
    size_t length = (size_t)count - (line[count - 1] == L'\n');
    *text = narrow(line, length);
    return *text != NULL ? LINE_TEXT : err_set(ERR_MEMORY, "no memory for a line");
}

/* Joins a line to those before it, a line break between. */
static int join(char **whole, char *line)
{
    char *joined = NULL;
    int length = *whole == NULL ? asprintf(&joined, "%s", line)
                                : asprintf(&joined, "%s\n%s", *whole, line);
    free(line);
    free(*whole);
    *whole = length < 0 ? NULL : joined;
    return length < 0 ? err_set(ERR_MEMORY, "no memory for a line") : LINE_TEXT;
}

/* Takes a `\` off the end of a line. */
static bool continues(char *line)
{
    size_t length = strlen(line);
    if (length == 0 || line[length - 1] != '\\') {
        return false;
    }
    line[length - 1] = '\0';
    return true;
}

static int read_terminal(struct line_reader *r, const char *prompt, char **text)
{
    char *whole = NULL, *line = NULL;
    bool more = true;
    int rc = LINE_TEXT;
    while (more && rc == LINE_TEXT) {
        rc = edit_line(r, whole == NULL ? prompt : "... ", &line);
        if (rc == LINE_TEXT) {
            more = continues(line);
            rc = join(&whole, line);
        }
    }
    if (rc != LINE_TEXT) {
        free(whole);
        return rc;
    }
    assert(whole != NULL);
    wchar_t *wide = whole[0] != '\0' ? widen(whole) : NULL;
    if (wide != NULL) {
        save_history(r, wide);
    }
    free(wide);
    *text = whole;
    return LINE_TEXT;
}

/* Makes room for one byte more. */
static int grow(struct line_reader *r, size_t count)
{
    if (r->line_capacity > count) {
        return 0;
    }
    size_t capacity = 2 * r->line_capacity + 128;
    char *grown = realloc(r->line, capacity);
    if (grown == NULL) {
        return err_set(ERR_MEMORY, "no memory for a line");
    }
    r->line = grown;
    r->line_capacity = capacity;
    return 0;
}

/* The bytes of a line into r->line, its line break with them. */
static int collect(struct line_reader *r, const struct text_limit *limit, const char *name,
                   size_t *count)
{
    *count = 0;
    for (int c = 0; c != '\n' && (c = getc_unlocked(stdin)) != EOF;) {
        if (c == '\0') {
            return err_set(ERR_USAGE, "standard input: %s holds a zero byte; give text", name);
        }
        if (*count == limit->bytes && c != '\n') {
            return text_limit_check(limit, "standard input", name, 0);
        }
        TRY(grow(r, *count));
        r->line[(*count)++] = (char)c;
    }
    return 0;
}

static int next_line(struct line_reader *r, const struct text_limit *limit, size_t *count)
{
    char name[32];
    snprintf(name, sizeof name, "line %llu", (unsigned long long)++r->line_number);
    errno = 0;
    TRY(collect(r, limit, name, count));
    if (ferror(stdin)) {
        return err_set(ERR_IO, "standard input cannot be read: %s", strerror(errno));
    }
    if (*count == 0) {
        return LINE_END;
    }
    if (!utf8_whole(r->line, *count)) { /* a session that kept it could not be read again */
        return err_set(ERR_USAGE, "standard input: %s is not UTF-8; convert it (iconv)", name);
    }
    return LINE_TEXT;
}

static int read_pipe(struct line_reader *r, const struct text_limit *limit, char **text)
{
    static const char mark[] = {'\xEF', '\xBB', '\xBF'}; /* of byte order */
    size_t begin = 0, count;
    int rc = next_line(r, limit, &count);
    if (rc != LINE_TEXT) {
        return rc;
    }
    if (r->line_number == 1 && count >= sizeof mark &&
        memcmp(r->line, mark, sizeof mark) == 0) {
        begin = sizeof mark;
    }
    if (r->line[count - 1] == '\n') {
        count--;
        count -= count > begin && r->line[count - 1] == '\r';
    }
    *text = strndup(r->line + begin, count - begin);
    free(r->line); /* a long one is not kept beside what becomes of it */
    r->line = NULL;
    r->line_capacity = 0;
    return *text != NULL ? LINE_TEXT : err_set(ERR_MEMORY, "no memory for a line");
}

int line_read(struct line_reader *r, const char *prompt, const struct text_limit *limit,
              char **text)
{
    *text = NULL;
    return r->terminal ? read_terminal(r, prompt, text) : read_pipe(r, limit, text);
}
