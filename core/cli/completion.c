/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/completion_priv.h"

#include <ctype.h>
#include <string.h>

enum completion_kind completion_kind(const char *text)
{
    static const char *const files[] = {"FILE", "TRACE", "PREFIX", ".json"};
    static const char *const folders[] = {"MODEL", "DIR", "OUT"};
    for (size_t i = 0; i < countof(files); i++) {
        if (strstr(text, files[i]) != NULL) {
            return COMPLETE_FILE;
        }
    }
    for (size_t i = 0; i < countof(folders); i++) {
        if (strstr(text, folders[i]) != NULL) {
            return COMPLETE_FOLDER;
        }
    }
    return COMPLETE_NOTHING;
}

void completion_words(const struct option_row *row, char text[COMPLETION_WORDS_BYTES])
{
    const char *value = options_value(row);
    size_t used = 0;
    text[0] = '\0';
    for (const char *at = value; *at != '\0';) {
        size_t length = strcspn(at, "|");
        if (islower((unsigned char)*at) && used + length + 2 < COMPLETION_WORDS_BYTES) {
            used += (size_t)snprintf(text + used, COMPLETION_WORDS_BYTES - used, "%.*s ",
                                     (int)length, at);
        }
        at += length + (at[length] == '|');
    }
}

bool completion_operand(const struct command *command, uint32_t index,
                        char text[COMPLETION_OPERAND_BYTES])
{
    const char *at = command->usage;
    uint32_t found = 0;
    if (index >= command->positional_max) {
        return false;
    }
    text[0] = '\0';
    while (*at != '\0' && found <= index) {
        size_t length = strcspn(at, " ");
        const char *name = at + (at[0] == '[');
        if (!isupper((unsigned char)*name)) {
            break;
        }
        snprintf(text, COMPLETION_OPERAND_BYTES, "%.*s", (int)length, at);
        found++;
        at += length + (at[length] == ' ');
    }
    return found > 0;
}
