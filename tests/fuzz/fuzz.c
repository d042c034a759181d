/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct tiny folder;

static void remove_folder(void)
{
    tiny_remove(&folder);
}

const struct tiny *fuzz_folder(bool with_model)
{
    if (folder.dir[0] == '\0') {
        if (with_model) {
            tiny_make(&folder, TINY_MEMORY);
        } else {
            tiny_folder(&folder, TINY_MEMORY);
        }
        atexit(remove_folder);
    }
    return &folder;
}

void fuzz_put(const char *name, const void *data, size_t size, uint64_t total_bytes)
{
    char path[TINY_PATH_BYTES];
    tiny_path(&folder, name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    tiny_need(fd >= 0 && write(fd, data, size) == (ssize_t)size, path);
    tiny_need(total_bytes <= size || ftruncate(fd, (off_t)total_bytes) == 0, path);
    close(fd);
}

void fuzz_expect(int rc)
{
    const char *message = err_message();
    if (rc < 0 && (message[0] == '\0' || strpbrk(message, "\n\r\033") != NULL)) {
        fprintf(stderr, "an error without a message of one line: %d '%s'\n", rc, message);
        abort();
    }
    err_clear();
}
