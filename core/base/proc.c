/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/proc.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_text(char *text, size_t capacity, const char *format, va_list args)
{
    char path[PROC_PATH_BYTES];
    size_t used = 0;
    text[0] = '\0';
    int length = vsnprintf(path, sizeof path, format, args);
    int fd = length > 0 && (size_t)length < sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        return false;
    }
    for (;;) {
        ssize_t got = read(fd, text + used, capacity - 1 - used);
        if (got <= 0) {
            break;
        }
        used += (size_t)got;
    }
    text[used] = '\0';
    close(fd);
    return used > 0;
}

bool proc_text(char *text, size_t capacity, const char *path_format, ...)
{
    va_list args;
    va_start(args, path_format);
    bool found = read_text(text, capacity, path_format, args);
    va_end(args);
    return found;
}

void proc_printable(char *text)
{
    for (char *at = text; *at != '\0'; at++) {
        *at = *at < ' ' || *at > '~' ? '?' : *at;
    }
}

bool proc_line(char *line, size_t capacity, const char *path_format, ...)
{
    va_list args;
    va_start(args, path_format);
    bool found = read_text(line, capacity, path_format, args);
    va_end(args);
    line[strcspn(line, "\n")] = '\0';
    for (size_t end = strlen(line); end > 0 && line[end - 1] == ' '; end--) {
        line[end - 1] = '\0';
    }
    proc_printable(line);
    return found && line[0] != '\0';
}

uint64_t proc_value(uint64_t otherwise, const char *path_format, ...)
{
    char text[64];
    va_list args;
    va_start(args, path_format);
    bool found = read_text(text, sizeof text, path_format, args);
    va_end(args);
    return found && text[0] >= '0' && text[0] <= '9' ? strtoull(text, NULL, 10) : otherwise;
}

bool proc_number(const char *text, const char *name, uint64_t *value)
{
    size_t length = strlen(name);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == '\t')) {
            *value = strtoull(line + length, NULL, 10);
            return true;
        }
    }
    return false;
}
