/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/terminal.h"

#include <stdlib.h>
#include <string.h>

bool terminal_escapes(void)
{
    const char *name = getenv("TERM");
    return name != NULL && name[0] != '\0' && strcmp(name, "dumb") != 0;
}
