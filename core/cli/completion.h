/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

/* What a shell offers when Tab is pressed, made of the option tables: subcommands, options, words
 * a value may be, and files or folders where a value or an operand names one. */

#include <stdio.h>

void completion_bash(FILE *out);
void completion_zsh(FILE *out);

#endif
