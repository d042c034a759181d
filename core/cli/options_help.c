/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/ioctl.h>

#include "core/cli/options.h"

#define COLUMNS_DEFAULT 80U
#define COLUMNS_MIN 48U
#define COLUMNS_MAX 100U
#define HELP_COLUMN 28U
#define NUMBER_BYTES 24
/* Limits from here on are none that a user meets. */
#define ANY_COUNT (UINT32_MAX - 1ULL)
#define ANY_SIZE (UINT64_MAX / 4)

bool options_shown(const struct option_row *row)
{
    return row->type != OPTION_HEADING && row->help != NULL;
}

const char *options_value(const struct option_row *row)
{
    return row->value != NULL ? row->value : row->type == OPTION_CHOICE ? row->words : "";
}

/* In the largest unit that leaves no rest. */
static void number_text(const struct option_row *row, uint64_t value, char text[NUMBER_BYTES])
{
    static const char units[] = "KMGT";
    char unit[2] = "";
    bool bytes = row->type == OPTION_SIZE || row->type == OPTION_SHARE;
    for (size_t i = 0; bytes && i < sizeof units - 1 && value > 0 && value % KIB == 0; i++) {
        value /= KIB;
        unit[0] = units[i];
    }
    unsigned long long whole = row->type == OPTION_REAL ? value / 1000 : value;
    int wrote = snprintf(text, NUMBER_BYTES, "%llu%s", whole, unit);
    if (row->type == OPTION_REAL && value % 1000 > 0) { /* kept in thousandths */
        snprintf(text + wrote, NUMBER_BYTES - (size_t)wrote, ".%03llu", value % 1000ULL);
    }
}

void options_range(const struct option_row *row, char text[OPTION_RANGE_BYTES])
{
    char low[NUMBER_BYTES], high[NUMBER_BYTES];
    bool number = row->type == OPTION_COUNT || row->type == OPTION_SIZE ||
                  row->type == OPTION_REAL;
    text[0] = '\0';
    number_text(row, row->min, low);
    number_text(row, row->max, high);
    if (number && row->max < (row->type == OPTION_COUNT ? ANY_COUNT : ANY_SIZE)) {
        snprintf(text, OPTION_RANGE_BYTES, "%s to %s", low, high);
    } else if (number && row->min > 1) {
        snprintf(text, OPTION_RANGE_BYTES, "at least %s", low);
    }
}

static size_t columns_of(FILE *out)
{
    struct winsize size;
    int fd = fileno(out);
    if (fd < 0 || ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        return COLUMNS_DEFAULT;
    }
    return size.ws_col < COLUMNS_MIN ? COLUMNS_MIN : min_u64(size.ws_col, COLUMNS_MAX);
}

/* Prints words into the columns from indent to width; `at` is the column the cursor is in. */
static void put_words(FILE *out, const char *text, size_t indent, size_t width, size_t *at)
{
    for (const char *word = text; *word != '\0';) {
        size_t length = strcspn(word, " \n");
        size_t between = *at != 0 && *at != indent ? 1 : 0;
        if (between > 0 && *at + between + length > width) {
            fprintf(out, "\n%*s", (int)indent, "");
            *at = indent;
            between = 0;
        }
        fprintf(out, "%*s%.*s", (int)between, "", (int)length, word);
        *at += between + length;
        word += length + strspn(word + length, " \n");
    }
}

static void put_paragraph(FILE *out, const char *text, size_t indent, size_t width)
{
    size_t at = 0;
    put_words(out, text, indent, width, &at);
    fputc('\n', out);
}

static void put_row(FILE *out, const struct option_row *row, size_t width)
{
    char left[160];
    size_t at = (size_t)snprintf(left, sizeof left, "  --%s %s", row->name, options_value(row));
    fprintf(out, "%-*s", (int)HELP_COLUMN, left);
    if (at > HELP_COLUMN - 1) {
        fprintf(out, "\n%*s", (int)HELP_COLUMN, "");
    }
    at = HELP_COLUMN;
    put_words(out, row->help, HELP_COLUMN, width, &at);
    if (row->fallback != NULL) {
        char fallback[64];
        snprintf(fallback, sizeof fallback, "[%s]", row->fallback);
        put_words(out, fallback, HELP_COLUMN, width, &at);
    }
    fputc('\n', out);
}

static bool has_sizes(const struct command *command)
{
    bool found = false;
    for (uint32_t i = 0; i < command->row_count; i++) {
        found = found || strstr(options_value(&command->rows[i]), "SIZE") != NULL;
    }
    return found;
}

void options_help(FILE *out, const struct command *command)
{
    size_t width = columns_of(out);
    char usage[512];
    snprintf(usage, sizeof usage, "usage: k3ring %s %s", command->name, command->usage);
    put_paragraph(out, usage, 7, width);
    put_paragraph(out, command->summary, 0, width);
    fputc('\n', out);
    for (uint32_t i = 0; i < command->row_count; i++) {
        const struct option_row *row = &command->rows[i];
        if (row->type == OPTION_HEADING) {
            fprintf(out, "%s%s:\n", i > 0 ? "\n" : "", row->help);
        } else if (options_shown(row)) {
            put_row(out, row, width);
        }
    }
    fputc('\n', out);
    if (has_sizes(command)) {
        put_paragraph(out, "SIZE: bytes, or a number with a binary unit: 4096, 512K, 16G, 1.5GiB.",
                      0, width);
    }
    char more[128];
    snprintf(more, sizeof more, "In brackets: what holds when an option is not given. `man "
             "k3ring-%s` has examples.", command->name);
    put_paragraph(out, more, 0, width);
}
