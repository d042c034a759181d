/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "core/cli/commands.h"
#include "core/cli/completion_priv.h"

/* Inside single quotes and square brackets, where a colon parts fields. */
static void put_quoted(FILE *out, const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\'') {
            fputs("'\\''", out);
        } else if (strchr("[]:\\", *c) != NULL) {
            fprintf(out, "\\%c", *c);
        } else {
            fputc(*c == '\n' ? ' ' : *c, out);
        }
    }
}

static const char *action(enum completion_kind kind)
{
    return kind == COMPLETE_FILE ? "_files" : kind == COMPLETE_FOLDER ? "_files -/" : " ";
}

static void put_option(FILE *out, const struct option_row *row)
{
    char words[COMPLETION_WORDS_BYTES];
    enum completion_kind kind = completion_kind(options_value(row));
    fprintf(out, "            '%s--%s%s[", row->type == OPTION_LIST ? "*" : "", row->name,
            row->type != OPTION_FLAG ? "=" : "");
    put_quoted(out, row->help);
    fputc(']', out);
    if (row->type != OPTION_FLAG) {
        completion_words(row, words);
        fputc(':', out);
        put_quoted(out, row->type == OPTION_CHOICE ? row->name : options_value(row));
        if (kind == COMPLETE_NOTHING && words[0] != '\0') {
            fprintf(out, ":(%s)", words);
        } else {
            fprintf(out, ":%s", action(kind));
        }
    }
    fputs("' \\\n", out);
}

static void put_command(FILE *out, const struct command *command)
{
    char text[COMPLETION_OPERAND_BYTES];
    fprintf(out, "    %s)\n        _arguments -S \\\n", command->name);
    for (uint32_t i = 0; i < command->row_count; i++) {
        if (options_shown(&command->rows[i])) {
            put_option(out, &command->rows[i]);
        }
    }
    for (uint32_t i = 0; completion_operand(command, i, text); i++) {
        fprintf(out, "            '%u:", i + 1);
        put_quoted(out, text);
        fprintf(out, ":%s' \\\n", action(completion_kind(text)));
    }
    fputs("            '(- *)--help[lists the options]'\n        ;;\n", out);
}

void completion_zsh(FILE *out)
{
    fputs("#compdef k3ring\n# Completion of k3ring for zsh, made of its option tables.\n\n"
          "_k3ring() {\n"
          "    local -a names\n"
          "    names=(\n", out);
    for (uint32_t i = 0; i < subcommand_count; i++) {
        fprintf(out, "        '%s:", subcommands[i].command->name);
        put_quoted(out, subcommands[i].brief);
        fputs("'\n", out);
    }
    fputs("        'help:tells about a command'\n"
          "    )\n"
          "    if ((CURRENT == 2)) || [[ $words[2] == help ]]; then\n"
          "        _describe -t commands 'k3ring command' names\n"
          "        return\n"
          "    fi\n"
          "    local name=$words[2]\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "    case $name in\n", out);
    for (uint32_t i = 0; i < subcommand_count; i++) {
        put_command(out, subcommands[i].command);
    }
    fputs("    esac\n}\n\n_k3ring \"$@\"\n", out);
}
