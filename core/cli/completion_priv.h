/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_COMPLETION_PRIV_H
#define CLI_COMPLETION_PRIV_H

/* What the completions of all shells draw from the tables. */

#include "core/cli/completion.h"
#include "core/cli/options.h"

#define COMPLETION_WORDS_BYTES 256
#define COMPLETION_OPERAND_BYTES 64

enum completion_kind { COMPLETE_NOTHING, COMPLETE_FILE, COMPLETE_FOLDER };

/* What a name in a usage line, or the value of an option, stands for: "FILE|-", "[MODEL]",
 * "SIZE|auto", "IN.jsonl", "DIR". */
enum completion_kind completion_kind(const char *text);

/* The words among what an option takes, a blank behind each: "auto all ". */
void completion_words(const struct option_row *row, char text[COMPLETION_WORDS_BYTES]);

/* The operand at index as the usage line calls it; false when there is none. The last one in that
 * line stands for all that follow, as far as the command takes more. */
bool completion_operand(const struct command *command, uint32_t index,
                        char text[COMPLETION_OPERAND_BYTES]);

#endif
