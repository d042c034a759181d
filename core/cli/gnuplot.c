/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/gnuplot.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cli/text.h"

/* What gnuplot says is kept up to here, the rest is read and dropped. */
#define SAID_BYTES 4096

struct child {
    pid_t pid;
    int said; /* what it prints, both outputs */
};

static int start(const char *dir, const char *script, const char *define, struct child *child)
{
    char *const argument[] = {(char *)"gnuplot", (char *)"-d", (char *)"-e", (char *)define,
                              (char *)script, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return errno;
    }
    int error = posix_spawn_file_actions_init(&actions);
    if (error == 0) {
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
        error = posix_spawn_file_actions_addchdir_np(&actions, dir);
        if (error == 0) {
            error = posix_spawnp(&child->pid, "gnuplot", &actions, NULL, argument, environ);
        }
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (error != 0) {
        close(ends[0]);
    }
    child->said = ends[0];
    return error;
}

/* Until the child closes its outputs. */
static void listen_to(int fd, char text[SAID_BYTES])
{
    size_t used = 0;
    for (;;) {
        char rest[512];
        bool room = used < SAID_BYTES - 1;
        ssize_t got = room ? read(fd, text + used, SAID_BYTES - 1 - used)
                           : read(fd, rest, sizeof rest);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            break;
        }
        used += room && got > 0 ? (size_t)got : 0;
    }
    text[used] = '\0';
    close(fd);
}

static int wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return status;
}

/* gnuplot shows the faulty line and a caret, then the reason: the last line that is not empty. */
static void keep_reason(char *text, int status, char *said, size_t said_bytes)
{
    const char *reason = NULL;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        line += strspn(line, " \t^");
        reason = *line != '\0' ? line : reason;
    }
    if (WIFSIGNALED(status)) {
        snprintf(said, said_bytes, "ended by signal %d", WTERMSIG(status));
    } else if (reason != NULL) {
        text_clean(said, said_bytes, reason);
    } else {
        snprintf(said, said_bytes, "exit status %d", WEXITSTATUS(status));
    }
}

enum gnuplot_end gnuplot_run(const char *dir, const char *script, const char *part, char *said,
                             size_t said_bytes)
{
    struct child child = {.said = -1};
    char define[64];
    char text[SAID_BYTES];
    snprintf(define, sizeof define, "part='%s'", part);
    int error = start(dir, script, define, &child);
    if (error == ENOENT) {
        return GNUPLOT_MISSING;
    }
    if (error != 0) {
        snprintf(said, said_bytes, "cannot be started: %s", strerror(error));
        return GNUPLOT_FAILED;
    }
    listen_to(child.said, text);
    int status = wait_for(child.pid);
    if (status == 0) {
        return GNUPLOT_DRAWN;
    }
    keep_reason(text, status, said, said_bytes);
    return GNUPLOT_FAILED;
}
