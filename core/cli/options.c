/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/options.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"

/* Reads digits with an optional fraction; false on signs, exponents and overflow. */
static bool read_number(const char *text, uint64_t unit, const char *end, uint64_t *value)
{
    uint64_t whole = 0;
    const char *p = text;
    if (p == end || *p < '0' || *p > '9') {
        return false;
    }
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(whole, 10U, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole)) {
            return false;
        }
    }
    if (__builtin_mul_overflow(whole, unit, &whole)) {
        return false;
    }
    uint64_t fraction = 0;
    uint64_t scale = 1;
    if (p < end && *p == '.') {
        p++;
        if (unit == 1 || p == end) {
            return false;
        }
        for (; p < end && *p >= '0' && *p <= '9' && scale < 1000000; p++) {
            fraction = fraction * 10 + (uint64_t)(*p - '0');
            scale *= 10;
        }
    }
    *value = whole + fraction * unit / scale;
    return p == end && *value >= whole;
}

int options_size(const char *name, const char *text, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    size_t length = strlen(text);
    if (length > 3 && strcasecmp(text + length - 2, "iB") == 0) {
        length -= 2;
    }
    uint64_t unit = 1;
    if (length > 0) {
        const char *at = strchr(units, text[length - 1] & ~0x20);
        if (at != NULL && *at != '\0') {
            unit = (uint64_t)1 << (10 * (uint64_t)(at - units + 1));
            length--;
        }
    }
    bool suffix_ok = unit > 1 || strlen(text) == length;
    if (!suffix_ok || !read_number(text, unit, text + length, bytes)) {
        return err_set(ERR_USAGE, "--%s: '%s' is not a size; write bytes or binary units, like "
                       "4096, 512K, 16G or 1.5GiB", name, text);
    }
    return 0;
}

static bool word_listed(const char *words, const char *text, uint64_t *index)
{
    uint64_t at = 0;
    size_t length = strlen(text);
    for (const char *word = words; word != NULL; at++) {
        const char *bar = strchr(word, '|');
        size_t size = bar != NULL ? (size_t)(bar - word) : strlen(word);
        if (size == length && memcmp(word, text, size) == 0) {
            *index = at;
            return true;
        }
        word = bar != NULL ? bar + 1 : NULL;
    }
    return false;
}

static int parse_count(const struct option_row *row, const char *text, uint64_t *value)
{
    if (!read_number(text, 1, text + strlen(text), value) || *value < row->min ||
        *value > row->max) {
        return err_set(ERR_USAGE, "--%s: '%s' is not a whole number from %llu to %llu", row->name,
                       text, (unsigned long long)row->min, (unsigned long long)row->max);
    }
    return 0;
}

bool options_real(const char *text, size_t size_bytes, bool is_signed, double *value)
{
    char copy[64];
    size_t sign = is_signed && size_bytes > 0 && text[0] == '-';
    size_t digits = 0;
    size_t points = 0;
    if (size_bytes >= sizeof copy) {
        return false;
    }
    for (size_t i = sign; i < size_bytes; i++) {
        bool digit = text[i] >= '0' && text[i] <= '9';
        digits += digit;
        points += text[i] == '.';
        if (!digit && (text[i] != '.' || i + 1 == size_bytes)) {
            return false;
        }
    }
    memcpy(copy, text, size_bytes);
    copy[size_bytes] = '\0';
    *value = strtod(copy, NULL); /* the C locale: a point is a point */
    return digits > 0 && points <= 1;
}

static int parse_real(const struct option_row *row, const char *text, double *value)
{
    double min = (double)row->min / 1000;
    double max = (double)row->max / 1000;
    if (!options_real(text, strlen(text), false, value) || *value < min || *value > max) {
        return err_set(ERR_USAGE, "--%s: '%s' is not a number from %g to %g, like 0.95", row->name,
                       text, min, max);
    }
    return 0;
}

static int parse_size(const struct option_row *row, const char *text, uint64_t *value)
{
    TRY(options_size(row->name, text, value));
    if (*value < row->min || *value > row->max) {
        return err_set(ERR_USAGE, "--%s: %s is outside %llu..%llu bytes", row->name, text,
                       (unsigned long long)row->min, (unsigned long long)row->max);
    }
    return 0;
}

static int parse_share(const struct option_row *row, const char *text, struct option_share *share)
{
    size_t length = strlen(text);
    share->percent = -1.0;
    if (length > 1 && text[length - 1] == '%') {
        uint64_t percent;
        if (!read_number(text, 1, text + length - 1, &percent) || percent > 100) {
            return err_set(ERR_USAGE, "--%s: '%s' is not a share from 0%% to 100%%", row->name,
                           text);
        }
        share->percent = (double)percent;
        return 0;
    }
    return parse_size(row, text, &share->bytes);
}

static int append(const struct option_row *row, const char *text, struct option_list *list)
{
    if (list->count == OPTION_LIST_MAX) {
        return err_set(ERR_USAGE, "--%s: given more than %u times", row->name, OPTION_LIST_MAX);
    }
    list->item[list->count++] = text;
    return 0;
}

/* Words beside numbers, then the number itself. */
static int store(const struct option_row *row, const char *text, void *field)
{
    uint64_t index;
    uint64_t *number = field;
    if (row->type == OPTION_TEXT) {
        *(const char **)field = text;
        return 0;
    }
    if (row->type == OPTION_LIST) {
        return append(row, text, field);
    }
    if (row->type == OPTION_REAL) {
        return parse_real(row, text, field);
    }
    if (row->type == OPTION_CHOICE) {
        if (!word_listed(row->words, text, number)) {
            return err_set(ERR_USAGE, "--%s: '%s' is none of %s", row->name, text, row->words);
        }
        return 0;
    }
    if (row->words != NULL && word_listed(row->words, text, &index)) {
        uint64_t value = strcmp(text, "all") == 0 ? OPTION_ALL : OPTION_AUTO;
        if (row->type == OPTION_SHARE) {
            *(struct option_share *)field = (struct option_share){.bytes = value, .percent = -1.0};
        } else {
            *number = value;
        }
        return 0;
    }
    if (row->type == OPTION_COUNT) {
        return parse_count(row, text, number);
    }
    return row->type == OPTION_SIZE ? parse_size(row, text, number)
                                    : parse_share(row, text, field);
}

static int set_defaults(const struct command *command, void *target)
{
    for (uint32_t i = 0; i < command->row_count; i++) {
        const struct option_row *row = &command->rows[i];
        void *field = (char *)target + row->offset;
        if (row->type == OPTION_FLAG) {
            *(bool *)field = false;
        } else if (row->type == OPTION_LIST) {
            ((struct option_list *)field)->count = 0;
        } else if (row->fallback != NULL) {
            TRY(store(row, row->fallback, field));
        }
    }
    return 0;
}

static const struct option_row *find_row(const struct command *command, const char *name,
                                         size_t length)
{
    for (uint32_t i = 0; i < command->row_count; i++) {
        const char *row = command->rows[i].name;
        if (strlen(row) == length && memcmp(row, name, length) == 0) {
            return &command->rows[i];
        }
    }
    return NULL;
}

static int unknown_option(const struct command *command, const char *typed)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(typed, "="), typed);
    const char *near = options_nearest(name, &command->rows[0].name, command->row_count,
                                       sizeof command->rows[0]);
    return err_set(ERR_USAGE, "%s: no option --%s%s%s%s; `k3ring %s --help` lists them",
                   command->name, name, near ? " (did you mean --" : "", near ? near : "",
                   near ? "?)" : "", command->name);
}

/* How help and messages show what the option takes. */
static const char *value_shown(const struct option_row *row)
{
    return row->value != NULL ? row->value : row->type == OPTION_CHOICE ? row->words : "";
}

/* Reads the option at argv[*at] and its value. */
static int parse_option(const struct command *command, void *target, int argc, char **argv,
                        int *at)
{
    const char *typed = argv[*at] + 2;
    const char *equals = strchr(typed, '=');
    size_t length = equals != NULL ? (size_t)(equals - typed) : strlen(typed);
    const struct option_row *row = find_row(command, typed, length);
    if (row == NULL) {
        return unknown_option(command, typed);
    }
    void *field = (char *)target + row->offset;
    if (row->type == OPTION_FLAG) {
        if (equals != NULL) {
            return err_set(ERR_USAGE, "--%s takes no value", row->name);
        }
        *(bool *)field = true;
        return 0;
    }
    const char *text = equals != NULL ? equals + 1 : NULL;
    if (text == NULL) {
        if (*at + 1 >= argc) {
            return err_set(ERR_USAGE, "--%s needs a value: %s", row->name, value_shown(row));
        }
        text = argv[++*at];
    }
    return store(row, text, field);
}

int options_parse(const struct command *command, void *target, int argc, char **argv,
                  const char **positional, bool *help)
{
    uint32_t found = 0;
    bool options_over = false;
    *help = false;
    TRY(set_defaults(command, target));
    for (int i = 1; i < argc; i++) {
        if (!options_over && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            *help = true;
            return 0;
        }
        if (!options_over && strcmp(argv[i], "--") == 0) {
            options_over = true;
        } else if (!options_over && strncmp(argv[i], "--", 2) == 0) {
            TRY(parse_option(command, target, argc, argv, &i));
        } else if (found == command->positional_max ||
                   (!options_over && argv[i][0] == '-' && argv[i][1] != '\0')) {
            return err_set(ERR_USAGE, "%s: what is '%s'? usage: k3ring %s %s", command->name,
                           argv[i], command->name, command->usage);
        } else {
            positional[found++] = argv[i];
        }
    }
    if (found < command->positional_min) {
        return err_set(ERR_USAGE, "%s: something is missing; usage: k3ring %s %s (`k3ring %s "
                       "--help` lists the options)", command->name, command->name, command->usage,
                       command->name);
    }
    return (int)found;
}

void options_help(FILE *out, const struct command *command)
{
    fprintf(out, "usage: k3ring %s %s\n%s\n\n", command->name, command->usage, command->summary);
    for (uint32_t i = 0; i < command->row_count; i++) {
        const struct option_row *row = &command->rows[i];
        char left[64];
        snprintf(left, sizeof left, "--%s %s", row->name, value_shown(row));
        fprintf(out, strlen(left) > 30 ? "  %s\n  %-30s %s" : "  %-30s%.0s %s", left, "",
                row->help);
        if (row->fallback != NULL) {
            fprintf(out, " [%s]", row->fallback);
        }
        fputc('\n', out);
    }
}

/* Edits (insert, delete, replace) between two short words. */
static uint32_t edit_distance(const char *a, const char *b)
{
    uint32_t row[64];
    size_t width = strlen(b);
    if (width >= countof(row)) {
        return UINT32_MAX;
    }
    for (uint32_t j = 0; j <= width; j++) {
        row[j] = j;
    }
    for (uint32_t i = 0; a[i] != '\0'; i++) {
        uint32_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < width; j++) {
            uint32_t replace = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            uint32_t shift = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            row[j + 1] = replace < shift ? replace : shift;
        }
    }
    return row[width];
}

const char *options_nearest(const char *typed, const void *names, uint32_t count, size_t step)
{
    const char *best = NULL;
    uint32_t best_edits = 3;
    for (uint32_t i = 0; i < count; i++) {
        const char *name;
        memcpy(&name, (const char *)names + i * step, sizeof name);
        uint32_t edits = name != NULL ? edit_distance(typed, name) : UINT32_MAX;
        if (edits < best_edits && edits < strlen(typed)) {
            best_edits = edits;
            best = name;
        }
    }
    return best;
}

int options_ids(const char *name, const char *text, uint32_t **ids, uint32_t *count)
{
    size_t commas = 0;
    for (const char *p = text; *p != '\0'; p++) {
        commas += *p == ',';
    }
    *count = 0;
    *ids = malloc((commas + 1) * sizeof **ids);
    if (*ids == NULL) {
        return err_set(ERR_MEMORY, "--%s: no memory for %zu ids", name, commas + 1);
    }
    for (const char *p = text;; p++) {
        size_t length = strcspn(p, ",");
        uint64_t value;
        if (!read_number(p, 1, p + length, &value) || value > UINT32_MAX) {
            free(*ids);
            *ids = NULL;
            *count = 0;
            return err_set(ERR_USAGE, "--%s: '%s' is not a list of token ids like 3,141,59", name,
                           text);
        }
        (*ids)[(*count)++] = (uint32_t)value;
        p += length;
        if (*p == '\0') {
            return (int)*count;
        }
    }
}

void options_complete_json(int argc, char **argv)
{
    static char dash[] = "--json=-";
    for (int i = 1; i < argc; i++) {
        bool alone = i + 1 == argc || strncmp(argv[i + 1], "--", 2) == 0;
        if (strcmp(argv[i], "--json") == 0 && alone) {
            argv[i] = dash;
        }
    }
}
