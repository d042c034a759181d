/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"

#define MEMORY_CURE "; free memory, or raise the limits of the process (ulimit -v, its cgroup)"

#undef err_set

static _Thread_local char message[ERR_MESSAGE_BYTES];
static _Thread_local int message_code;

/* Names come from users and files: nothing in them may steer a terminal or spoil JSON. */
static void clean(char *text)
{
    char *to = text;
    const char *end = text + strlen(text);
    for (const char *at = text; at < end;) {
        uint32_t code = 0;
        size_t size = utf8_read((const unsigned char *)at, (size_t)(end - at), &code);
        if (size > 0 && utf8_harmless(code)) {
            if (to != at) {
                memmove(to, at, size);
            }
            to += size;
        } else {
            size = size > 0 ? size : 1;
            *to++ = '?';
        }
        at += size;
    }
    *to = '\0';
}

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
        clean(message);
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

int err_after(int code, const char *first)
{
    char then[sizeof message];
    memcpy(then, message, sizeof then);
    err_clear();
    return then[0] == '\0' ? err_set(code, "%s", first)
                           : err_set(code, "%s; nor could that be reported: %s", first, then);
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
