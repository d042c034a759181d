/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_VERIFY_H
#define CLI_VERIFY_H

/* k3ring verify: is this model what it should be? Findings are lines of a page; whoever looks at
 * something adds some. docs/VERIFY.md has what each looks at.
 *
 *   verify.c            the list of findings; opening a model, or what is there of one
 *   verify_structure.c  headers, index, folder
 *   verify_list.c       lists of sha256sum, both ways
 *   verify_read.c       files through the ring, one thread each: hashes, sums of pages
 *   verify_files.c      which files are read for what, and what came of it
 *   verify_pages.c      sums of pages, written and compared
 *   verify_golden.c     a model's known output; verify_tables.c the figures
 *   verify_print.c      the page, and the same as JSON
 */

#include "core/cli/output.h"
#include "core/cli/verify_read.h"
#include "core/model/page_sums.h"
#include "core/model/survey.h"

enum verify_mark { VERIFY_OK, VERIFY_NOTE, VERIFY_BAD, VERIFY_MARKS };

struct verify_line {
    enum verify_mark mark;
    const char *what; /* one word: "sizes"; static */
    char *text;
};

struct verify {
    const char *dir;
    struct model *model;         /* NULL when it was refused */
    struct model_survey survey;  /* with model */
    struct verify_line *line;
    uint32_t line_count, line_capacity;
    uint32_t count[VERIFY_MARKS];
    int rc;                      /* of the first bad line */
    struct verify_reading reading; /* files that were read, if any */
    const struct verify_golden *golden; /* what was computed, or NULL */
    uint64_t taken_ns, read_bytes;      /* of reading */
};

/* Adds a line; control characters in it become '?'. A bad one makes code the verdict unless there
 * is one. ERR_MEMORY is kept until verify_verdict(). */
void verify_say(struct verify *v, enum verify_mark mark, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void verify_fail(struct verify *v, int code, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A model that is refused becomes a bad line. ERR_MEMORY. */
int verify_open(struct verify *v, const char *dir);
void verify_close(struct verify *v);

/* Lines for all that headers, index and folder tell. */
int verify_structure(struct verify *v);

/* 0, or the code of what is bad, with one line that says how much. */
int verify_verdict(const struct verify *v);

/* ---- verify_list.c ---- */

/* A line of a list: hash and name. */
struct verify_entry {
    unsigned char hash[VERIFY_HASH_BYTES];
    char *name;    /* unescaped */
    uint32_t line; /* from 1 */
};

struct verify_list {
    struct verify_entry *entry;
    uint32_t count;
};

/* Reads a list of sha256sum. Lines that are none become bad lines of v. ERR_IO, ERR_MODEL (no
 * such file, too long), ERR_MEMORY. Free it, also then. */
int verify_list_read(struct verify *v, const char *path, struct verify_list *out);
void verify_list_free(struct verify_list *list);

/* One line as sha256sum writes it, read as binary. */
void verify_list_write(FILE *out, const unsigned char hash[VERIFY_HASH_BYTES], const char *name);

/* ---- verify_files.c ---- */

struct verify_wish {
    const char *checksums;       /* list to compare with, or NULL */
    bool hash;                   /* print hashes of the model's files */
    const char *write_pages;     /* file of page sums to write, or NULL */
    const char *check_pages;     /* one to compare with, or NULL */
    uint32_t threads;
    bool quiet;
};

/* Reads what the wish asks for and adds lines. ERR_STOPPED, ERR_MEMORY, ERR_IO (of the list). */
int verify_files(struct verify *v, const struct verify_wish *wish);

/* ---- verify_pages.c ---- */

struct verify_pages_out {
    struct output out;
    struct page_sums_head *head;
    uint64_t head_bytes;
};

/* Makes the jobs of the model's files, which are the first of v->reading, write or check sums.
 * ERR_USAGE, ERR_OUTPUT, ERR_MODEL, ERR_MEMORY. */
int verify_pages_write(struct verify *v, const char *path, struct verify_pages_out *out);
int verify_pages_check(struct verify *v, const char *path, int *fd);
/* When all was read: head and name for the file. Only a note when something is bad; what was bad
 * before was not even read for it. */
int verify_pages_written(struct verify *v, struct verify_pages_out *out);
void verify_pages_abandon(struct verify_pages_out *out); /* an empty one is fine */
/* Lines for what the pages were. */
void verify_pages_checked(struct verify *v, const char *path);

/* ---- verify_print.c ---- */

void verify_print(FILE *out, const struct verify *v);
/* interrupted: before all was looked at. NULL without memory. */
cJSON *verify_json(const struct verify *v, bool interrupted);

#endif
