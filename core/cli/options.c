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

/* Of what is no size, where that says more than what a size is; else NULL. */
static const char *what_is_wrong(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    const char *tail = text + digits;
    if (digits == 0) {
        return text[0] == '-'   ? "it is negative"
               : text[0] == '.' ? "a digit goes before the point"
                                : NULL;
    }
    if (tail[0] == ',') {
        return "a point goes before a fraction, and nothing between thousands";
    }
    size_t number = strspn(text, "0123456789.");
    tail = text + number;
    if (tail[0] != '\0' && strchr("KMGTkmgt", tail[0]) != NULL && strcasecmp(tail + 1, "B") == 0) {
        return "in powers of 1000 it would be less than in those of 1024";
    }
    if (tail[0] == ' ') {
        return "nothing goes between number and unit";
    }
    static const char *const units[] = {"", "K", "M", "G", "T", "KiB", "MiB", "GiB", "TiB"};
    for (size_t i = 0; number == digits && i < countof(units); i++) {
        if (strcasecmp(tail, units[i]) == 0) {
            return "it is more than 2^64 bytes";
        }
    }
    return NULL;
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
    if (suffix_ok && read_number(text, unit, text + length, bytes)) {
        return 0;
    }
    const char *wrong = what_is_wrong(text);
    return err_set(ERR_USAGE, "--%s: '%s' is not a size%s%s; write bytes or binary units, like "
                   "4096, 512K, 16G or 1.5GiB", name, text, wrong != NULL ? ": " : "",
                   wrong != NULL ? wrong : "");
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
        return err_set(ERR_USAGE, "--%s: '%s' is not a whole number from %llu to %llu%s%s",
                       row->name, text, (unsigned long long)row->min,
                       (unsigned long long)row->max, row->words != NULL ? ", nor " : "",
                       row->words != NULL ? row->words : "");
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
    char range[OPTION_RANGE_BYTES];
    TRY(options_size(row->name, text, value));
    options_range(row, range);
    if (*value < row->min || *value > row->max) {
        return err_set(ERR_USAGE, "--%s: %s is outside what it may be: %s", row->name, text,
                       range[0] != '\0' ? range : "1 byte or more");
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
    if (options_size(row->name, text, &share->bytes) < 0) {
        err_clear();
        return err_set(ERR_USAGE, "--%s: '%s' is none of %s; a size is written like 512K, 16G or "
                       "1.5GiB", row->name, text, options_value(row));
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

#define WORDS_MAX 32U

static int unknown_word(const struct option_row *row, const char *text)
{
    char copy[256];
    const char *word[WORDS_MAX];
    uint32_t count = 0;
    char *rest = NULL;
    snprintf(copy, sizeof copy, "%s", row->words);
    for (char *at = strtok_r(copy, "|", &rest); at != NULL && count < WORDS_MAX;
         at = strtok_r(NULL, "|", &rest)) {
        word[count++] = at;
    }
    const char *near = options_nearest(text, word, count, sizeof word[0]);
    return err_set(ERR_USAGE, "--%s: '%s' is none of %s%s%s%s", row->name, text, row->words,
                   near != NULL ? " (did you mean " : "", near != NULL ? near : "",
                   near != NULL ? "?)" : "");
}

/* Standard output by another name: opened anew it would be cut to nothing where it is a file. */
static const char *plain_name(const struct option_row *row, const char *text)
{
    static const char *const names[] = {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
    for (size_t i = 0; i < countof(names); i++) {
        if (strncmp(row->value, "FILE", 4) == 0 && strcmp(text, names[i]) == 0) {
            return "-";
        }
    }
    return text;
}

/* Words beside numbers, then the number itself. */
static int store(const struct option_row *row, const char *text, void *field)
{
    uint64_t index;
    uint64_t *number = field;
    if (row->type == OPTION_TEXT) {
        *(const char **)field = plain_name(row, text);
        return 0;
    }
    if (row->type == OPTION_LIST) {
        return append(row, text, field);
    }
    if (row->type == OPTION_REAL) {
        return parse_real(row, text, field);
    }
    if (row->type == OPTION_CHOICE) {
        return word_listed(row->words, text, number) ? 0 : unknown_word(row, text);
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
        if (row->type == OPTION_HEADING) {
            continue;
        }
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
        if (row != NULL && strlen(row) == length && memcmp(row, name, length) == 0) {
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

/* Whether the word is an option of the command rather than a value that happens to have dashes. */
static bool is_option(const struct command *command, const char *word)
{
    return strncmp(word, "--", 2) == 0 &&
           find_row(command, word + 2, strcspn(word + 2, "=")) != NULL;
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
            return err_set(ERR_USAGE, "--%s needs a value: %s", row->name, options_value(row));
        }
        text = argv[++*at];
        if (row->type != OPTION_TEXT && row->type != OPTION_LIST && is_option(command, text)) {
            return err_set(ERR_USAGE, "--%s needs a value: %s; '%s' follows it", row->name,
                           options_value(row), text);
        }
    }
    return store(row, text, field);
}

/* A word that is neither an option nor wanted. */
static int refuse_word(const struct command *command, const char *word, bool too_many)
{
    size_t dashes = strspn(word, "-");
    size_t length = strcspn(word + dashes, "=");
    const struct option_row *row =
        dashes == 1 ? find_row(command, word + dashes, length) : NULL;
    if (row != NULL) {
        return err_set(ERR_USAGE, "%s: what is '%s'? write it with two dashes: --%s %s",
                       command->name, word, row->name, options_value(row));
    }
    return err_set(ERR_USAGE, "%s: what is '%s'?%s usage: k3ring %s %s (`k3ring %s --help` lists "
                   "the options)", command->name, word, too_many ? " One word too many;" : "",
                   command->name, command->usage, command->name);
}

/* Words of usage that stand before its first option: "MODEL", "OUT". */
static int refuse_missing(const struct command *command, uint32_t found)
{
    char name[64] = "something";
    const char *at = command->usage;
    for (uint32_t i = 0; i < found && at != NULL; i++) {
        at = strchr(at, ' ');
        at += at != NULL;
    }
    if (at != NULL && *at >= 'A' && *at <= 'Z') {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " "), at);
    }
    return err_set(ERR_USAGE, "%s: %s is missing; usage: k3ring %s %s (`k3ring %s --help` lists "
                   "the options)", command->name, name, command->name, command->usage,
                   command->name);
}

int options_parse(const struct command *command, void *target, int argc, char **argv,
                  const char **positional, bool *help)
{
    uint32_t found = 0;
    bool options_over = false;
    *help = false;
    TRY(set_defaults(command, target));
    for (int i = 1; i < argc; i++) {
        bool dashed = !options_over && argv[i][0] == '-' && argv[i][1] != '\0';
        if (dashed && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            *help = true;
            return 0;
        }
        if (dashed && strcmp(argv[i], "--") == 0) {
            options_over = true;
        } else if (dashed && argv[i][1] == '-') {
            TRY(parse_option(command, target, argc, argv, &i));
        } else if (dashed || found == command->positional_max) {
            return refuse_word(command, argv[i], !dashed);
        } else {
            positional[found++] = argv[i];
        }
    }
    return found < command->positional_min ? refuse_missing(command, found) : (int)found;
}

#define BLANKS " \t\r\n"

/* Reads one number and what parts it from the next: a comma, blanks or both. *more: another must
 * follow. NULL on anything else. */
static const char *take_id(const char *p, uint32_t *id, bool *more)
{
    uint64_t value;
    size_t digits = strspn(p, "0123456789");
    if (!read_number(p, 1, p + digits, &value) || value > UINT32_MAX) {
        return NULL;
    }
    *id = (uint32_t)value;
    const char *after = p + digits;
    p = after + strspn(after, BLANKS);
    bool comma = *p == ',';
    if (comma) {
        p++;
        p += strspn(p, BLANKS);
    }
    *more = comma || (*p != '\0' && *p != ']');
    return p > after || !*more ? p : NULL;
}

/* Returns how many there are, or -1. */
static int take_ids(const char *text, uint32_t *ids)
{
    int count = 0;
    bool more = true;
    const char *p = text + strspn(text, BLANKS);
    bool bracket = *p == '[';
    if (bracket) {
        p++;
        p += strspn(p, BLANKS);
    }
    while (more) {
        p = take_id(p, &ids[count++], &more);
        if (p == NULL) {
            return -1;
        }
    }
    if (bracket && *p == ']') {
        p++;
        p += strspn(p, BLANKS);
        bracket = false;
    }
    return *p == '\0' && !bracket ? count : -1;
}

int options_ids(const char *name, const char *text, uint32_t **ids, uint32_t *count)
{
    *count = 0;
    *ids = malloc((strlen(text) / 2 + 1) * sizeof **ids); /* a digit and what parts it */
    if (*ids == NULL) {
        return err_set(ERR_MEMORY, "--%s: no memory for its ids", name);
    }
    int taken = take_ids(text, *ids);
    if (taken < 0) {
        free(*ids);
        *ids = NULL;
        return err_set(ERR_USAGE, "--%s: '%s' is not a list of token ids like 3,141,59", name,
                       text);
    }
    *count = (uint32_t)taken;
    return taken;
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
