/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_TIDY_H
#define TESTS_SUPPORT_TIDY_H

/* The house rules that a program can check, as functions over the text of one file. Paths are
 * relative to the root of the checkout, with '/'. Nothing here reads a file. */

#include <stdbool.h>
#include <stddef.h>

#define TIDY_FILE_LINES_MAX 600
#define TIDY_LINE_COLUMNS_MAX 100
#define TIDY_FUNCTION_LINES_MAX 70
#define TIDY_README_LINES_MAX 40
#define TIDY_FINDINGS_MAX 256

enum tidy_rule {
    TIDY_INCLUDE,  /* an include against the direction of knowledge */
    TIDY_FILE,     /* too many lines in a file */
    TIDY_LINE,     /* too many columns in a line */
    TIDY_FUNCTION, /* too many lines in a function */
    TIDY_CALL,     /* a name used outside its home */
    TIDY_LICENSE,  /* no license line */
    TIDY_MARK,     /* a note that something is unfinished */
    TIDY_README    /* a folder without a short README.md */
};

struct tidy_finding {
    enum tidy_rule rule;
    int line; /* from 1; 0 for a whole file or folder */
    char path[128];
    char what[128];
};

/* Findings beyond TIDY_FINDINGS_MAX are counted and not kept. */
struct tidy_report {
    int count;
    struct tidy_finding finding[TIDY_FINDINGS_MAX];
};

/* The rules, one by one. text ends with a zero byte. */
void tidy_includes(const char *path, const char *text, struct tidy_report *report);
void tidy_sizes(const char *path, const char *text, struct tidy_report *report);
void tidy_calls(const char *path, const char *text, struct tidy_report *report);
void tidy_license(const char *path, const char *text, struct tidy_report *report);
void tidy_marks(const char *path, const char *text, struct tidy_report *report);

/* A folder with C files in it; readme_lines is negative when it has no README.md. */
void tidy_folder(const char *path, int readme_lines, struct tidy_report *report);

/* Every rule that applies to a C file or header. */
void tidy_source(const char *path, const char *text, struct tidy_report *report);

const char *tidy_rule_name(enum tidy_rule rule);

/* True when path ends with tail. */
bool tidy_ends(const char *path, const char *tail);

int tidy_count_lines(const char *text);

#endif
