/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/manual.h"

#include <ctype.h>
#include <string.h>

#include "core/base/err.h"

#define FILL_COLUMN 76U /* source lines end about here; the reader's terminal decides anew */
#define NAME_BYTES 64U

/* Text on its way out, filled word by word. */
struct page {
    FILE *out;
    size_t column;
    bool bold;
};

/* ---- characters ---- */

/* verbatim: as it is typed, so that a copied command works. */
static void put_char(struct page *p, char c, bool verbatim)
{
    static const struct {
        char plain;
        const char *escaped;
    } escapes[] = {{'\\', "\\e"}, {'~', "\\(ti"}, {'^', "\\(ha"}, {'`', "\\(ga"}};
    for (size_t i = 0; i < countof(escapes); i++) {
        if (c == escapes[i].plain) {
            fputs(escapes[i].escaped, p->out);
            return;
        }
    }
    if (verbatim && c == '-') {
        fputs("\\-", p->out);
    } else if (verbatim && c == '\'') {
        fputs("\\(aq", p->out);
    } else {
        fputc(c, p->out);
    }
}

/* A line must not begin with what the macros read as a request. */
static void guard(struct page *p, char first)
{
    if (first == '.' || first == '\'') {
        fputs("\\&", p->out);
    }
}

static void put_verbatim(struct page *p, const char *text, size_t bytes)
{
    guard(p, bytes > 0 ? text[0] : ' ');
    for (size_t i = 0; i < bytes; i++) {
        put_char(p, text[i], true);
    }
}

static void put_word(struct page *p, const char *word, size_t bytes)
{
    if (p->column > 0) {
        fputc(p->column + bytes > FILL_COLUMN ? '\n' : ' ', p->out);
        p->column = p->column + bytes > FILL_COLUMN ? 0 : p->column + 1;
    }
    if (p->column == 0) {
        guard(p, word[0]);
    }
    for (size_t i = 0; i < bytes; i++) {
        if (word[i] == '`') {
            p->bold = !p->bold;
            fputs(p->bold ? "\\fB" : "\\fR", p->out);
        } else {
            put_char(p, word[i], p->bold);
        }
    }
    p->column += bytes;
}

static void put_text(struct page *p, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t length = strcspn(text + at, " \n");
        length = length < bytes - at ? length : bytes - at;
        if (length > 0) {
            put_word(p, text + at, length);
        }
        at += length + 1;
    }
}

static void put_string(struct page *p, const char *text)
{
    put_text(p, text, strlen(text));
}

static void end_text(struct page *p)
{
    fputs(p->bold ? "\\fR\n" : p->column > 0 ? "\n" : "", p->out);
    p->column = 0;
    p->bold = false;
}

/* ---- usage and values ---- */

static size_t word_bytes(const char *at, const char *also)
{
    size_t bytes = 0;
    while (isalnum((unsigned char)at[bytes]) ||
           (at[bytes] != '\0' && strchr(also, at[bytes]) != NULL)) {
        bytes++;
    }
    return bytes;
}

/* Options and words in bold, names in italics, what is between them as it is. */
static void put_form(struct page *p, const char *form)
{
    for (const char *at = form; *at != '\0';) {
        bool option = at[0] == '-' && at[1] == '-';
        bool name = isupper((unsigned char)*at);
        bool literal = option || islower((unsigned char)*at);
        size_t bytes = option ? 2 + word_bytes(at + 2, "-") : literal ? word_bytes(at, "-+")
                     : name ? word_bytes(at, "%") : 1;
        if (name && at[bytes] == '.' && islower((unsigned char)at[bytes + 1])) {
            bytes += 1 + word_bytes(at + bytes + 1, ""); /* IN.jsonl */
        }
        fputs(literal ? "\\fB" : name ? "\\fI" : "", p->out);
        for (size_t i = 0; i < bytes; i++) {
            put_char(p, at[i], true);
        }
        fputs(literal || name ? "\\fR" : "", p->out);
        at += bytes;
    }
    fputc('\n', p->out);
}

/* ---- sections ---- */

static void put_section(struct page *p, const char *name, size_t bytes)
{
    end_text(p);
    fprintf(p->out, ".SH \"%.*s\"\n", (int)bytes, name);
}

static void put_option(struct page *p, const struct option_row *row)
{
    char range[OPTION_RANGE_BYTES], more[2 * OPTION_RANGE_BYTES];
    fputs(".TP\n\\fB\\-\\-", p->out);
    put_verbatim(p, row->name, strlen(row->name));
    fputs("\\fR ", p->out);
    put_form(p, options_value(row));
    put_string(p, row->help);
    fputc('.', p->out);
    options_range(row, range);
    if (range[0] != '\0') {
        snprintf(more, sizeof more, "From %s.", range);
        put_string(p, more);
    }
    if (row->fallback != NULL) {
        snprintf(more, sizeof more, "Default: `%s`.", row->fallback);
        put_string(p, more);
    }
    end_text(p);
}

static void put_options(struct page *p, const struct command *command)
{
    put_section(p, "OPTIONS", strlen("OPTIONS"));
    put_string(p, "`--name value` and `--name=value` mean the same; `--` ends the options.");
    end_text(p);
    for (uint32_t i = 0; i < command->row_count; i++) {
        const struct option_row *row = &command->rows[i];
        if (row->type == OPTION_HEADING) {
            fprintf(p->out, ".SS \"%s\"\n", row->help);
        } else if (options_shown(row)) {
            put_option(p, row);
        }
    }
}

static void put_commands(struct page *p)
{
    put_section(p, "COMMANDS", strlen("COMMANDS"));
    for (uint32_t i = 0; i < subcommand_count; i++) {
        fprintf(p->out, ".TP\n\\fBk3ring\\-%s\\fR(1)\n", subcommands[i].command->name);
        put_string(p, subcommands[i].brief);
        end_text(p);
    }
}

static void put_statuses(struct page *p)
{
    static const struct {
        int status;
        const char *meaning;
    } errors[] = {
#define X(name, code, status, meaning) {status, meaning},
        ERR_LIST(X)
#undef X
    };
    put_section(p, "EXIT STATUS", strlen("EXIT STATUS"));
    fputs(".TP\n0\nsuccess\n", p->out);
    for (size_t i = 0; i < countof(errors); i++) {
        bool first = i == 0 || errors[i].status != errors[i - 1].status;
        end_text(p);
        if (errors[i].status > 128) {
            break; /* signals follow, all of them */
        }
        if (first) {
            fprintf(p->out, ".TP\n%d\n", errors[i].status);
        }
        put_string(p, first ? "" : "or");
        put_string(p, errors[i].meaning);
    }
    end_text(p);
    fputs(".TP\n129, 130, 143, 141\n", p->out);
    put_string(p, "stopped by SIGHUP, SIGINT (Ctrl-C) or SIGTERM; the reader of the output went "
               "away");
    end_text(p);
}

/* ---- prose ---- */

struct prose {
    const char *at;
    const struct subcommand *sub; /* NULL: the program */
    bool block;                   /* an example or an entry was last: the next text begins anew */
    bool tables, statuses;        /* written already */
};

/* The line at prose->at without its end; moves behind it. */
static size_t take_line(struct prose *prose, const char **line)
{
    size_t bytes = strcspn(prose->at, "\n");
    *line = prose->at;
    prose->at += bytes + (prose->at[bytes] == '\n');
    return bytes;
}

static void put_example(struct page *p, struct prose *prose, const char *line, size_t bytes)
{
    bool apart = p->column > 0 || prose->block;
    end_text(p);
    fputs(apart ? ".PP\n.RS 4\n.nf\n" : ".RS 4\n.nf\n", p->out);
    for (;;) {
        put_verbatim(p, line + 4, bytes - 4);
        fputc('\n', p->out);
        if (strncmp(prose->at, "    ", 4) != 0) {
            break;
        }
        bytes = take_line(prose, &line);
    }
    fputs(".fi\n.RE\n", p->out);
}

/* What is made of tables, once it is its turn. */
static void put_tables(struct page *p, struct prose *prose, bool late)
{
    if (!prose->tables && prose->sub != NULL) {
        put_options(p, prose->sub->command);
    } else if (!prose->tables) {
        put_commands(p);
    }
    if (late && !prose->statuses) {
        put_statuses(p);
    }
    prose->tables = true;
    prose->statuses = prose->statuses || late;
}

static void put_heading(struct page *p, struct prose *prose, const char *line, size_t bytes)
{
    put_tables(p, prose, strncmp(line, "# FILES", 7) == 0 || strncmp(line, "# SEE", 5) == 0);
    put_section(p, line + 2, bytes - 2);
    prose->block = false;
}

/* "- TAG: text": the tag ends at a colon and a blank. */
static void put_entry(struct page *p, const char *line, size_t bytes)
{
    const char *colon = memmem(line, bytes, ": ", 2);
    size_t tag = colon != NULL ? (size_t)(colon - line) : bytes;
    end_text(p);
    fputs(".TP\n", p->out);
    put_text(p, line + 2, tag - 2);
    end_text(p);
    if (tag < bytes) {
        put_text(p, line + tag + 2, bytes - tag - 2);
    }
}

static void put_prose(struct page *p, struct prose *prose)
{
    bool parted = true; /* an empty line has been met */
    while (*prose->at != '\0') {
        const char *line;
        size_t bytes = take_line(prose, &line);
        if (bytes == 0) {
            parted = true;
            continue;
        }
        if (strncmp(line, "# ", 2) == 0) {
            put_heading(p, prose, line, bytes);
        } else if (strncmp(line, "- ", 2) == 0) {
            put_entry(p, line, bytes);
            prose->block = true;
        } else if (strncmp(line, "    ", 4) == 0) {
            put_example(p, prose, line, bytes);
            prose->block = true;
        } else {
            if (parted && (p->column > 0 || prose->block)) {
                end_text(p);
                fputs(".PP\n", p->out);
                prose->block = false;
            }
            put_text(p, line, bytes);
        }
        parted = false;
    }
    end_text(p);
}

/* ---- pages ---- */

static void put_title(struct page *p, const char *name)
{
    fputs(".TH ", p->out);
    for (const char *c = name; *c != '\0'; c++) {
        put_char(p, (char)toupper((unsigned char)*c), true);
    }
    fprintf(p->out, " 1 %s \"k3ring %s\"\n", k3ring_version_day, k3ring_version);
}

void manual_page(FILE *out, const struct subcommand *sub, const char *text)
{
    static const char brief[] = "run Kimi K3 from an NVMe drive, and measure drives by it";
    struct page page = {.out = out};
    struct prose prose = {.at = text, .sub = sub, .block = sub != NULL};
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "k3ring%s%s", sub != NULL ? "-" : "",
             sub != NULL ? sub->command->name : "");
    put_title(&page, name);
    put_section(&page, "NAME", strlen("NAME"));
    put_verbatim(&page, name, strlen(name));
    fprintf(out, " \\- %s\n", sub != NULL ? sub->brief : brief);
    put_section(&page, "SYNOPSIS", strlen("SYNOPSIS"));
    fprintf(out, "\\fBk3ring%s%s\\fR ", sub != NULL ? " " : "",
            sub != NULL ? sub->command->name : "");
    put_form(&page, sub != NULL ? sub->command->usage : "COMMAND [options]");
    put_section(&page, "DESCRIPTION", strlen("DESCRIPTION"));
    if (sub != NULL) {
        put_string(&page, sub->command->summary);
        end_text(&page);
    }
    put_prose(&page, &prose);
    put_tables(&page, &prose, true);
}
