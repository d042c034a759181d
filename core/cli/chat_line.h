/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CHAT_LINE_H
#define CLI_CHAT_LINE_H

/* What a user types: on a terminal through libedit, with history and pasting (one that takes no
 * escape sequences gets none, and edits lines itself); from a pipe or file line by line. One reader
 * per program, on the main thread: a signal has to find it. */

#include "core/cli/text_limit.h"

struct line_reader;

enum line_result { LINE_END, LINE_TEXT, LINE_CANCELLED };

/* history: a file for the lines typed on a terminal, or NULL. It is begun when it is not there.
 * ERR_MEMORY, ERR_RUN when the terminal cannot be used. */
int line_open(struct line_reader **out, const char *history);
void line_close(struct line_reader *r); /* NULL is fine */

/* Whether input is a terminal. */
bool line_terminal(const struct line_reader *r);

/* Reads what is said next, without its last line break: LINE_TEXT, *text to be free()d. On a
 * terminal prompt comes before it, a line that ends in `\` goes on with the next one, and a paste
 * may have any number of lines. From a pipe the CR of a CR LF and a byte order mark at the very
 * beginning are left out, and no line is read beyond the limit. LINE_END: no more will come.
 * LINE_CANCELLED: line_cancel() was called. ERR_IO; ERR_USAGE for a zero byte and what is no UTF-8;
 * ERR_FIT for a line longer than the limit; ERR_MEMORY. */
int line_read(struct line_reader *r, const char *prompt, const struct text_limit *limit,
              char **text);

/* For a signal handler: drops the line that is being typed on a terminal. */
void line_cancel(void);
/* For a handler that ends the program at once: gives the terminal back as it was. */
void line_restore_terminal(void);

#endif
