/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MEMORY_CURE "; free memory, or raise the limits of the process (ulimit -v, its cgroup)"

static _Thread_local char message[ERR_MESSAGE_BYTES];
static _Thread_local int message_code;

int err_set(int code, const char *format, ...)
{
    if (message[0] == '\0') {
        va_list args;
        va_start(args, format);
        vsnprintf(message, sizeof message, format, args);
        va_end(args);
        message_code = code;
        if (code == ERR_MEMORY && strchr(message, ';') == NULL) {
            size_t used = strlen(message);
            snprintf(message + used, sizeof message - used, "%s", MEMORY_CURE);
        }
        for (char *c = message; *c != '\0'; c++) {
            /* Names come from users and files: no control character reaches a terminal. */
            *c = (unsigned char)*c < 0x20 || *c == 0x7F ? '?' : *c;
        }
    }
    return code;
}

const char *err_message(void)
{
    return message;
}

int err_code(void)
{
    return message[0] != '\0' ? message_code : 0;
}

void err_clear(void)
{
    message[0] = '\0';
}

int err_exit_status(int code)
{
    switch (code) {
#define X(name, value, status, meaning) \
    case name:                          \
        return status;
        ERR_LIST(X)
#undef X
    default:
        return code < 0 ? 1 : 0;
    }
}
