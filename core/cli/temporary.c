/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".tmp."
#define TRIES_MAX 100

static bool digits(const char **at, long *number)
{
    char *end;
    if (**at < '0' || **at > '9') {
        return false;
    }
    errno = 0;
    *number = strtol(*at, &end, 10);
    *at = end;
    return errno == 0;
}

/* Whether entry is a name of ours for target, and of which process. */
static bool is_temporary(const char *entry, const char *target, long *process)
{
    size_t target_bytes = strlen(target);
    long again;
    if (strncmp(entry, target, target_bytes) != 0 ||
        strncmp(entry + target_bytes, SUFFIX, strlen(SUFFIX)) != 0) {
        return false;
    }
    const char *at = entry + target_bytes + strlen(SUFFIX);
    if (!digits(&at, process) || *process <= 0 || *process != (pid_t)*process) {
        return false;
    }
    if (*at == '.') {
        at++;
        return digits(&at, &again) && *at == '\0';
    }
    return *at == '\0';
}

/* A process of our own number is us, or is elsewhere, or is dead: then only the lock tells. */
static bool lives(long process)
{
    return process != getpid() && (kill((pid_t)process, 0) == 0 || errno != ESRCH);
}

static void remove_unless_held(int folder, const char *entry)
{
    struct stat held, named;
    int fd = openat(folder, entry, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (fstat(fd, &held) == 0 && S_ISREG(held.st_mode) && held.st_nlink == 1 &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        fstatat(folder, entry, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        named.st_dev == held.st_dev && named.st_ino == held.st_ino) {
        unlinkat(folder, entry, 0);
    }
    close(fd);
}

void temporary_sweep(const char *path)
{
    char *copy = strdup(path);
    DIR *folder = copy != NULL ? opendir(dirname(copy)) : NULL;
    const char *target = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    for (struct dirent *e; folder != NULL && (e = readdir(folder)) != NULL;) {
        long process;
        if (is_temporary(e->d_name, target, &process) && !lives(process)) {
            remove_unless_held(dirfd(folder), e->d_name);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    free(copy);
}

static char *name_of(const char *path, int again)
{
    char *name;
    int rc = again == 0 ? asprintf(&name, "%s" SUFFIX "%ld", path, (long)getpid())
                        : asprintf(&name, "%s" SUFFIX "%ld.%d", path, (long)getpid(), again);
    return rc >= 0 ? name : NULL;
}

/* Between a file's making and its lock another may take it for a dead one's. Where there are no
 * locks nobody removes anything. */
static bool lock(int fd)
{
    struct stat status;
    bool taken = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    return taken && fstat(fd, &status) == 0 && status.st_nlink > 0;
}

int temporary_open(const char *path, char **name)
{
    int fd = -1;
    temporary_sweep(path);
    *name = NULL;
    for (int again = 0; again < TRIES_MAX && fd < 0; again++) {
        *name = name_of(path, again);
        if (*name == NULL) {
            errno = ENOMEM;
            return -1;
        }
        fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        int error = errno;
        if (fd >= 0 && !lock(fd)) {
            close(fd);
            fd = -1;
            error = EEXIST;
        }
        if (fd < 0) {
            free(*name);
            *name = NULL;
            errno = error;
        }
        if (fd < 0 && error != EEXIST) {
            break;
        }
    }
    return fd;
}
