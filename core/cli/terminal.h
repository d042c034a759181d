/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <stdbool.h>

/* Whether the user's terminal takes escape sequences: $TERM names one, and not "dumb". Says nothing
 * of where outputs go (isatty). Not for signal handlers. */
bool terminal_escapes(void);

#endif
