/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/commands.h"
#include "core/cli/completion_priv.h"

static const char *action(enum completion_kind kind)
{
    return kind == COMPLETE_FILE ? "_k3ring_paths -f" : kind == COMPLETE_FOLDER
               ? "_k3ring_paths -d" : "";
}

static void put_options(FILE *out, const struct command *command, bool flags_only)
{
    for (uint32_t i = 0; i < command->row_count; i++) {
        const struct option_row *row = &command->rows[i];
        if (options_shown(row) && (!flags_only || row->type == OPTION_FLAG)) {
            fprintf(out, "--%s ", row->name);
        }
    }
    fputs("--help", out);
}

static void values(FILE *out, const struct command *command)
{
    for (uint32_t i = 0; i < command->row_count; i++) {
        const struct option_row *row = &command->rows[i];
        char words[COMPLETION_WORDS_BYTES];
        if (!options_shown(row) || row->type == OPTION_FLAG) {
            continue;
        }
        enum completion_kind kind = completion_kind(options_value(row));
        completion_words(row, words);
        fprintf(out, "    '%s --%s') ", command->name, row->name);
        if (kind != COMPLETE_NOTHING) {
            fputs(action(kind), out);
        } else if (words[0] != '\0') {
            fprintf(out, "_k3ring_words '%s'", words);
        } else {
            fputc(':', out);
        }
        fputs(" ;;\n", out);
    }
}

static void operands(FILE *out, const struct command *command)
{
    char text[COMPLETION_OPERAND_BYTES];
    for (uint32_t i = 0; completion_operand(command, i, text); i++) {
        enum completion_kind kind = completion_kind(text);
        if (kind != COMPLETE_NOTHING) {
            fprintf(out, "    '%s %u') %s ;;\n", command->name, i, action(kind));
        }
    }
}

static void put_names(FILE *out)
{
    for (uint32_t i = 0; i < subcommand_count; i++) {
        fprintf(out, "%s ", subcommands[i].command->name);
    }
}

static void put_cases(FILE *out, void (*part)(FILE *out, const struct command *command))
{
    for (uint32_t i = 0; i < subcommand_count; i++) {
        part(out, subcommands[i].command);
    }
    fputs("    esac\n}\n\n", out);
}

static void flags_case(FILE *out, const struct command *command)
{
    fprintf(out, "    %s) echo '", command->name);
    put_options(out, command, true);
    fputs("' ;;\n", out);
}

static void options_case(FILE *out, const struct command *command)
{
    fprintf(out, "    %s) _k3ring_words '", command->name);
    put_options(out, command, false);
    fputs("' ;;\n", out);
}

static void put_head(FILE *out)
{
    fputs("# Completion of k3ring for bash, made of its option tables.\n\n"
          "_k3ring_words()\n{\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\")\n}\n\n"
          "_k3ring_paths()\n{\n"
          "    compopt -o filenames 2> /dev/null\n"
          "    # A blank typed behind a backslash is one in the name.\n"
          "    mapfile -t COMPREPLY < <(compgen \"$1\" -- \"${cur//\\\\ / }\")\n}\n\n", out);
}

/* An equals sign is a word of its own in COMP_WORDS. */
static void put_tail(FILE *out)
{
    fputs("# How many operands stand before the word that is completed.\n"
          "_k3ring_operands()\n{\n"
          "    local i word flags count=0\n"
          "    flags=\" $(_k3ring_flags \"$1\") \"\n"
          "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
          "        word=${COMP_WORDS[i]}\n"
          "        if [[ $word != --* ]]; then\n"
          "            count=$((count + 1))\n"
          "        elif [[ $flags != *\" $word \"* ]]; then\n"
          "            i=$((i + 1))\n"
          "            if [[ ${COMP_WORDS[i]} == = ]]; then i=$((i + 1)); fi\n"
          "        fi\n"
          "    done\n"
          "    echo \"$count\"\n}\n\n"
          "_k3ring()\n{\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local command=${COMP_WORDS[1]}\n"
          "    COMPREPLY=()\n"
          "    if ((COMP_CWORD == 1)); then\n"
          "        _k3ring_words '", out);
    put_names(out);
    fputs("help --help --version'\n"
          "        return\n"
          "    fi\n"
          "    if [[ $command == help ]]; then\n"
          "        if ((COMP_CWORD == 2)); then _k3ring_words '", out);
    put_names(out);
    fputs("'; fi\n"
          "        return\n"
          "    fi\n"
          "    if [[ $cur == = ]]; then\n"
          "        cur=\n"
          "    elif [[ $prev == = ]]; then\n"
          "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    fi\n"
          "    local flags=\" $(_k3ring_flags \"$command\") \"\n"
          "    if [[ $prev == --* && $flags != *\" $prev \"* ]]; then\n"
          "        _k3ring_value \"$command\" \"$prev\"\n"
          "    elif [[ $cur == -* ]]; then\n"
          "        _k3ring_options \"$command\"\n"
          "    else\n"
          "        _k3ring_operand \"$command\" \"$(_k3ring_operands \"$command\")\"\n"
          "    fi\n}\n\n"
          "complete -F _k3ring k3ring\n", out);
}

void completion_bash(FILE *out)
{
    put_head(out);
    fputs("_k3ring_flags()\n{\n    case $1 in\n", out);
    put_cases(out, flags_case);
    fputs("_k3ring_options()\n{\n    case $1 in\n", out);
    put_cases(out, options_case);
    fputs("_k3ring_value()\n{\n    case \"$1 $2\" in\n", out);
    put_cases(out, values);
    fputs("_k3ring_operand()\n{\n    case \"$1 $2\" in\n", out);
    put_cases(out, operands);
    put_tail(out);
}
