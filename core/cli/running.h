/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RUNNING_H
#define CLI_RUNNING_H

/* The engine that the first signal asks to stop, for commands that have one at a time. */

#include "core/exec/engine.h"

/* signals_catch(); the first signal stops the engine and says the line, or that the end is near
 * when none runs. line: with its line end; NULL: nothing is said. */
void running_catch(const char *line);

/* On the thread that runs it. A signal that came before stops it, too. */
void running_begin(struct engine *e);
/* Before it is closed. */
void running_end(void);

#endif
