/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

/* SIGINT, SIGTERM, SIGHUP, SIGXCPU and a reader of our output that went away (SIGPIPE) ask the
 * running command to stop at its next border; a second one of all but the last ends the program at
 * once. */

/* Both run inside the handler, async-signal-safe code only: on_first at the first signal, on_end
 * before the program ends at once. Either may be NULL. */
void signals_catch(void (*on_first)(void), void (*on_end)(void));

/* From on_first: a line of talk, where a progress line may stand; nothing when nobody reads. */
void signals_say(const char *line);

/* Between the two nothing is made, only input awaited, perhaps for ever: a signal ends the program
 * at once. ERR_STOPPED when one came before. */
int signals_wait_begin(void);
void signals_wait_end(void);

/* The first signal caught, or 0. */
int signals_caught(void);

#endif
