/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/tidy.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Who may include whom, besides its own folder. Lists are separated by spaces. */
static const struct {
    const char *folder;
    const char *may;
} layer[] = {
    {"core/cli/", "core/exec/ planner/ cache/ io/ core/model/ core/base/"},
    {"core/exec/", "planner/ cache/ io/ kernels/ core/model/ core/base/"},
    {"planner/", "core/model/ core/base/"},
    {"core/model/", "core/base/"},
    {"cache/", "core/base/"},
    {"io/", "core/base/"},
    {"kernels/", "core/base/"},
    {"core/base/", ""},
    {"tests/", "core/ planner/ cache/ io/ kernels/ tests/"},
    {"bench/", "core/ planner/ cache/ io/ kernels/ tests/support/"},
};

/* Words that have a home, or that some folders must not use. An empty list is "nowhere" as a
 * home and "everywhere" as a scope. */
static const struct {
    const char *words;
    bool called;       /* only as a call; otherwise any mention counts */
    const char *home;  /* paths that may */
    const char *scope; /* paths that are looked at */
} ban[] = {
    {"clock_gettime gettimeofday timespec_get time clock rand random srand srandom rand_r "
     "drand48 getrandom",
     true, "core/base/nondet.c", ""},
    {"getenv secure_getenv", true, "", ""},
    {"printf vprintf puts putchar perror", true, "core/cli/ bench/ tests/", ""},
    {"stdout stderr", false, "core/cli/ bench/ tests/", ""},
    {"exp exp2 exp10 expm1 expf exp2f exp10f expm1f log log2 log10 log1p logf log2f log10f log1pf "
     "pow powf sin cos tan sinf cosf tanf sinh cosh tanh sinhf coshf tanhf erf erff cbrt cbrtf "
     "hypot hypotf",
     true, "", "kernels/ core/exec/"},
    {"malloc calloc realloc aligned_alloc posix_memalign free", true, "", "kernels/"},
    {"pthread_mutex_lock pthread_mutex_trylock pthread_cond_wait pthread_cond_timedwait "
     "pthread_spin_lock pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_barrier_wait sem_wait",
     true, "core/exec/engine.c core/exec/fetch.c core/exec/checks_row.c", /* reads a drive */
     "core/exec/ cache/ kernels/"},
    {"pthread_create", true, "core/base/thread.c", "cache/ core/ io/ planner/"},
    {"pthread_create thread_create open fopen read pread", true, "", "kernels/"},
};

/* Split in two so that this file does not find itself. */
static const char *const mark[] = {"TO"
                                   "DO",
                                   "FIX"
                                   "ME",
                                   "XX"
                                   "X"};

static const char license[] = "/* SPDX-License-Identifier: Apache-2.0 */\n";

const char *tidy_rule_name(enum tidy_rule rule)
{
    static const char *const name[] = {
        [TIDY_INCLUDE] = "include",  [TIDY_FILE] = "file size",
        [TIDY_LINE] = "line width",  [TIDY_FUNCTION] = "function size",
        [TIDY_CALL] = "banned name", [TIDY_LICENSE] = "license",
        [TIDY_MARK] = "mark",        [TIDY_README] = "readme",
    };
    return name[rule];
}

static void found(struct tidy_report *report, enum tidy_rule rule, const char *path, int line,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));

static void found(struct tidy_report *report, enum tidy_rule rule, const char *path, int line,
                  const char *format, ...)
{
    if (report->count < TIDY_FINDINGS_MAX) {
        struct tidy_finding *f = &report->finding[report->count];
        va_list args;
        f->rule = rule;
        f->line = line;
        snprintf(f->path, sizeof f->path, "%s", path);
        va_start(args, format);
        vsnprintf(f->what, sizeof f->what, format, args);
        va_end(args);
    }
    report->count++;
}

bool tidy_ends(const char *path, const char *tail)
{
    size_t n = strlen(path), t = strlen(tail);
    return n >= t && strcmp(path + n - t, tail) == 0;
}

int tidy_count_lines(const char *text)
{
    int lines = 0;
    for (const char *end = strchr(text, '\n'); end != NULL; end = strchr(end + 1, '\n')) {
        lines++;
    }
    return lines;
}

/* Next member of a list separated by spaces; its length goes to *size. NULL at the end. */
static const char *next_member(const char **list, size_t *size)
{
    const char *start = *list + strspn(*list, " ");
    *size = strcspn(start, " ");
    *list = start + *size;
    return *size > 0 ? start : NULL;
}

/* True when path begins with a member of the list. */
static bool below(const char *path, const char *list)
{
    const char *member;
    size_t size;
    while ((member = next_member(&list, &size)) != NULL) {
        if (strncmp(path, member, size) == 0) {
            return true;
        }
    }
    return false;
}

static bool listed(const char *word, size_t word_size, const char *list)
{
    const char *member;
    size_t size;
    while ((member = next_member(&list, &size)) != NULL) {
        if (size == word_size && strncmp(word, member, size) == 0) {
            return true;
        }
    }
    return false;
}

/* First byte behind the comment, string or character that starts here; here when none does. */
static const char *skip_quiet(const char *at)
{
    const char *start = at;
    if (at[0] == '/' && at[1] == '*') {
        const char *end = strstr(at + 2, "*/");
        return end != NULL ? end + 2 : at + strlen(at);
    }
    if (at[0] == '/' && at[1] == '/') {
        return at + strcspn(at, "\n");
    }
    if (at[0] != '"' && at[0] != '\'') {
        return at;
    }
    for (at++; *at != '\0' && *at != *start && *at != '\n'; at++) {
        at += at[0] == '\\' && at[1] != '\0';
    }
    return *at == *start ? at + 1 : at;
}

/* A copy of the text with comments and quoted parts blanked; line breaks stay. Caller frees. */
static char *code_only(const char *text)
{
    char *copy = strdup(text);
    if (copy == NULL) {
        abort();
    }
    for (const char *at = text; *at != '\0';) {
        const char *end = skip_quiet(at);
        for (const char *quiet = at; quiet < end; quiet++) {
            copy[quiet - text] = *quiet == '\n' ? '\n' : ' ';
        }
        at = end > at ? end : at + 1;
    }
    return copy;
}

static const char *folder_rights(const char *path, const char **folder)
{
    for (size_t i = 0; i < sizeof layer / sizeof layer[0]; i++) {
        if (below(path, layer[i].folder)) {
            *folder = layer[i].folder;
            return layer[i].may;
        }
    }
    return NULL;
}

static bool same_folder(const char *a, const char *b)
{
    const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');
    return slash_a != NULL && slash_b != NULL && slash_a - a == slash_b - b &&
           strncmp(a, b, (size_t)(slash_a - a)) == 0;
}

static void check_include(const char *path, int line, const char *header,
                          struct tidy_report *report)
{
    const char *folder = NULL, *may = folder_rights(path, &folder);
    if (strchr(header, '/') == NULL) {
        return; /* beside the file itself */
    }
    if (may == NULL) {
        found(report, TIDY_INCLUDE, path, line, "this folder has no place in the table of layers");
    } else if (strstr(header, "..") != NULL) {
        found(report, TIDY_INCLUDE, path, line, "%s is not a path from the root", header);
    } else if (!below(header, folder) && !below(header, may)) {
        found(report, TIDY_INCLUDE, path, line, "%s may not know %s", folder, header);
    } else if (tidy_ends(header, "_priv.h") && !same_folder(path, header)) {
        found(report, TIDY_INCLUDE, path, line, "%s is private to its folder", header);
    }
}

void tidy_includes(const char *path, const char *text, struct tidy_report *report)
{
    char *code = code_only(text);
    int line = 1;
    for (const char *at = text; *at != '\0'; line++) {
        size_t length = strcspn(at, "\n");
        char header[128];
        if (code[at - text] == '#' && sscanf(at, "# include \"%127[^\"\n]\"", header) == 1) {
            check_include(path, line, header, report);
        }
        at += length + (at[length] == '\n');
    }
    free(code);
}

/* Characters of a line, not bytes: continuation bytes of UTF-8 do not count. */
static int columns(const char *line, size_t size_bytes)
{
    int count = 0;
    for (size_t i = 0; i < size_bytes; i++) {
        count += ((unsigned char)line[i] & 0xC0) != 0x80;
    }
    return count;
}

/* Functions are found by layout: a brace alone in column 0 opens a body, one in column 0 closes
 * it, and the head began on the first line in column 0 after the previous declaration or after a
 * line without code. */
struct function_scan {
    int head; /* line of the head, 0 between declarations */
    bool inside;
};

static void scan_line(struct function_scan *scan, const char *path, int line, const char *code,
                      size_t length, struct tidy_report *report)
{
    if (length == 0) {
        scan->head = scan->inside ? scan->head : 0;
    } else if (code[0] == '#') {
        return;
    } else if (code[0] == '{' && scan->head != 0) {
        scan->inside = true;
    } else if (code[0] == '}') {
        int size = line - scan->head + 1;
        if (scan->inside && size > TIDY_FUNCTION_LINES_MAX) {
            found(report, TIDY_FUNCTION, path, scan->head, "%d lines, at most %d", size,
                  TIDY_FUNCTION_LINES_MAX);
        }
        *scan = (struct function_scan){.head = 0};
    } else if (!scan->inside) {
        if (scan->head == 0 && (isalpha((unsigned char)code[0]) || code[0] == '_')) {
            scan->head = line;
        }
        if (code[length - 1] == ';') {
            scan->head = 0;
        }
    }
}

void tidy_sizes(const char *path, const char *text, struct tidy_report *report)
{
    char *code = code_only(text);
    struct function_scan scan = {.head = 0};
    int line = 1;
    for (const char *at = text; *at != '\0'; line++) {
        size_t length = strcspn(at, "\n"), used = length;
        const char *same = code + (at - text);
        while (used > 0 && isspace((unsigned char)same[used - 1])) {
            used--;
        }
        scan_line(&scan, path, line, same, used, report);
        int width = columns(at, length);
        if (width > TIDY_LINE_COLUMNS_MAX) {
            found(report, TIDY_LINE, path, line, "%d columns, at most %d", width,
                  TIDY_LINE_COLUMNS_MAX);
        }
        at += length + (at[length] == '\n');
    }
    if (line - 1 > TIDY_FILE_LINES_MAX) {
        found(report, TIDY_FILE, path, 0, "%d lines, at most %d", line - 1, TIDY_FILE_LINES_MAX);
    }
    free(code);
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* True when the word at this place is called, and not as a member of a struct. */
static bool is_call(const char *code, const char *word, size_t size)
{
    const char *before = word, *after = word + size;
    after += strspn(after, " \t\n");
    while (before > code && isspace((unsigned char)before[-1])) {
        before--;
    }
    bool member = (before > code && before[-1] == '.') ||
                  (before > code + 1 && before[-1] == '>' && before[-2] == '-');
    return *after == '(' && !member;
}

static void check_word(const char *path, int line, const char *code, const char *word, size_t size,
                       struct tidy_report *report)
{
    for (size_t i = 0; i < sizeof ban / sizeof ban[0]; i++) {
        bool looked_at = ban[i].scope[0] == '\0' || below(path, ban[i].scope);
        if (looked_at && !below(path, ban[i].home) && listed(word, size, ban[i].words) &&
            (!ban[i].called || is_call(code, word, size))) {
            found(report, TIDY_CALL, path, line, "%.*s has no place here", (int)size, word);
        }
    }
}

void tidy_calls(const char *path, const char *text, struct tidy_report *report)
{
    char *code = code_only(text);
    int line = 1;
    for (const char *at = code; *at != '\0';) {
        size_t size = 0;
        while (is_word(at[size])) {
            size++;
        }
        if (size > 0) {
            check_word(path, line, code, at, size, report);
            at += size;
        } else {
            line += *at == '\n';
            at++;
        }
    }
    free(code);
}

void tidy_license(const char *path, const char *text, struct tidy_report *report)
{
    if (strncmp(text, license, sizeof license - 1) != 0) {
        found(report, TIDY_LICENSE, path, 1, "the first line is not the license line");
    }
}

void tidy_marks(const char *path, const char *text, struct tidy_report *report)
{
    int line = 1;
    for (const char *at = text; *at != '\0'; at++) {
        line += *at == '\n';
        for (size_t i = 0; i < sizeof mark / sizeof mark[0]; i++) {
            size_t size = strlen(mark[i]);
            if (strncmp(at, mark[i], size) == 0 && !is_word(at[size]) &&
                (at == text || !is_word(at[-1]))) {
                found(report, TIDY_MARK, path, line, "%s", mark[i]);
            }
        }
    }
}

void tidy_folder(const char *path, int readme_lines, struct tidy_report *report)
{
    if (readme_lines < 0) {
        found(report, TIDY_README, path, 0, "there is no README.md");
    } else if (readme_lines > TIDY_README_LINES_MAX) {
        found(report, TIDY_README, path, 0, "README.md has %d lines, at most %d", readme_lines,
              TIDY_README_LINES_MAX);
    }
}

void tidy_source(const char *path, const char *text, struct tidy_report *report)
{
    tidy_includes(path, text, report);
    tidy_sizes(path, text, report);
    tidy_calls(path, text, report);
    tidy_license(path, text, report);
    tidy_marks(path, text, report);
}
