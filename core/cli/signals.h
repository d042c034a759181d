/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

/* SIGINT and SIGTERM ask the running command to stop at its next border; the second one ends the
 * program at once. */

/* on_signal runs inside the handler: async-signal-safe code only. */
void signals_catch(void (*on_signal)(void));

/* The first signal caught, or 0. */
int signals_caught(void);

#endif
