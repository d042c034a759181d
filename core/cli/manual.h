/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_MANUAL_H
#define CLI_MANUAL_H

/* Pages of the manual, made of the option tables and of a text beside them (docs/man): what cannot
 * be told from a table, such as examples. */

#include <stdio.h>

#include "core/cli/commands.h"

/* A page in the man macros. sub: the command, or NULL for the page of the program.
 *
 * prose is plain text: paragraphs parted by empty lines, of which those before the first heading
 * follow the summary; "# HEADING" begins a section; lines indented by four are examples, kept as
 * they are; "- TAG: text" is an entry of a list; what stands between `two of these` is set in bold.
 * The statuses of err.h become a section before FILES or SEE ALSO, or the last one. */
void manual_page(FILE *out, const struct subcommand *sub, const char *prose);

#endif
