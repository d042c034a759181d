/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

/* One row per option: name, type, default, range, help. Parsing and --help read the same rows,
 * so they cannot differ. Values are stored in the command's own struct at the row's offset. */

#include <stdio.h>

#include "core/base/base.h"

#define OPTION_AUTO UINT64_MAX       /* the word `auto` */
#define OPTION_ALL (UINT64_MAX - 1)  /* the word `all` */

enum option_type {
    OPTION_FLAG,   /* bool; takes no value */
    OPTION_COUNT,  /* uint64_t within min..max */
    OPTION_REAL,   /* double within min..max thousandths; digits and a point: 0, 0.95, .5 */
    OPTION_SIZE,   /* uint64_t bytes within min..max: 4096, 4K, 1.25G, 16GiB */
    OPTION_SHARE,  /* struct option_share: SIZE, N%, all or auto */
    OPTION_TEXT,   /* const char * into argv */
    OPTION_LIST,   /* struct option_list: given again, it takes one more */
    OPTION_CHOICE, /* uint64_t index into words ("a|b|c") */
    OPTION_HEADING /* no option: where help begins a group, whose title its help is */
};

struct option_share {
    uint64_t bytes; /* or OPTION_AUTO, OPTION_ALL */
    double percent; /* >= 0 when given as N%; else -1 */
};

#define OPTION_LIST_MAX 7U

struct option_list {
    const char *item[OPTION_LIST_MAX]; /* into argv */
    uint32_t count;
};

struct option_row {
    const char *name;     /* without the dashes */
    enum option_type type;
    size_t offset;        /* of the field in the command's struct */
    const char *fallback; /* default as a user would type it; NULL leaves the field as it is */
    uint64_t min, max;    /* of counts and sizes; of reals in thousandths */
    const char *words;    /* CHOICE: all of them; others: words taken beside numbers */
    const char *value;    /* how help shows the value; NULL for flags */
    const char *help;     /* NULL: an option of tests, which no list shows */
};

/* The rows behind it are a group of their own in help and manual. */
#define OPTION_GROUP(title) {NULL, OPTION_HEADING, 0, NULL, 0, 0, NULL, NULL, title}

struct command {
    const char *name;
    const char *usage;   /* after the name: "MODEL --ids LIST" */
    const char *summary; /* one line */
    const struct option_row *rows;
    uint32_t row_count;
    uint32_t positional_min, positional_max;
};

/* Fills target with defaults, then with argv[1..]. Non-options go to positional (capacity
 * positional_max). `--name value` and `--name=value` are both read; `--` ends options.
 * Returns the number of positionals, or ERR_USAGE. *help is set when --help was asked. */
int options_parse(const struct command *command, void *target, int argc, char **argv,
                  const char **positional, bool *help);

/* `--json` at the end or before another option becomes `--json=-`: for commands whose page that
 * replaces. Before options_parse(). */
void options_complete_json(int argc, char **argv);

/* The --help of a command, as wide as the terminal that out is, or 80 columns. */
void options_help(FILE *out, const struct command *command);

/* Whether lists show the row: it is an option, and none of tests. */
bool options_shown(const struct option_row *row);
/* What the option takes, as help has it: "SIZE|auto". "" of a flag. */
const char *options_value(const struct option_row *row);

#define OPTION_RANGE_BYTES 64

/* "1 to 1024", "4K to 16M", "at least 4K"; "" where any number will do. */
void options_range(const struct option_row *row, char text[OPTION_RANGE_BYTES]);

/* The closest of count names (every step bytes apart, a const char * first; NULL is none), or NULL
 * when none is near enough to be what was meant: two edits away in any case, or cut short. */
const char *options_nearest(const char *typed, const void *names, uint32_t count, size_t step);

/* Sizes as users type them; binary units only. ERR_USAGE names the option. */
int options_size(const char *name, const char *text, uint64_t *bytes);

/* A decimal number of size_bytes: digits, a point, and with is_signed a minus before them. False on
 * all else, exponents, nan and inf among it. */
bool options_real(const char *text, size_t size_bytes, bool is_signed, double *value);

/* "3,141,59" -> ids; as they come out of other commands, too: "3 141 59", "[3, 141, 59]".
 * ERR_USAGE on anything else. Returns the count; free *ids. */
int options_ids(const char *name, const char *text, uint32_t **ids, uint32_t *count);

#endif
