/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64
#define PATIENCE_SECONDS 300

static void need(bool condition, const char *what)
{
    if (!condition) {
        perror(what);
        abort();
    }
}

const char *process_binary(void)
{
    static char path[512];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 8);
    need(length > 0, "/proc/self/exe");
    path[length] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        need(slash != NULL, path);
        *slash = '\0';
    }
    strcat(path, "/k3ring");
    return access(path, X_OK) == 0 ? path : NULL;
}

static void catch_output(const char *folder, const char *name, int fd)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    need(file >= 0 && dup2(file, fd) == fd, path);
    close(file);
}

/* A file called "in" in the folder is what the program reads. */
static void feed_input(const char *folder)
{
    char path[512];
    snprintf(path, sizeof path, "%s/in", folder);
    int file = open(path, O_RDONLY);
    if (file >= 0) {
        need(dup2(file, STDIN_FILENO) == STDIN_FILENO, path);
        close(file);
    }
}

/* In the child. */
static void become(const struct process *p, const char *program, char *line)
{
    char *argument[ARGUMENTS_MAX + 2] = {NULL};
    char name[512];
    char *rest = NULL;
    int count = 1;
    snprintf(name, sizeof name, "%s", program);
    argument[0] = name;
    for (char *word = strtok_r(line, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        need(count <= ARGUMENTS_MAX, "too many arguments");
        argument[count++] = word;
    }
    feed_input(p->folder);
    catch_output(p->folder, "out", STDOUT_FILENO);
    catch_output(p->folder, "err", STDERR_FILENO);
    alarm(PATIENCE_SECONDS);
    execv(program, argument);
    _exit(126);
}

static void forget(const struct process *p, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    unlink(path);
}

void process_start(struct process *p, const char *folder, const char *program,
                   const char *arguments, ...)
{
    char line[2048];
    va_list list;
    va_start(list, arguments);
    int wrote = vsnprintf(line, sizeof line, arguments, list);
    va_end(list);
    need(wrote >= 0 && (size_t)wrote < sizeof line, "a command line");
    need(program != NULL, "the program under test");
    snprintf(p->folder, sizeof p->folder, "%s", folder);
    p->out[0] = p->err[0] = '\0';
    forget(p, "out"); /* or process_peek() might show what the last one said */
    forget(p, "err");
    fflush(NULL);
    p->pid = fork();
    need(p->pid >= 0, "fork");
    if (p->pid == 0) {
        become(p, program, line);
    }
}

static void slurp(const struct process *p, const char *name, char text[PROCESS_TEXT_BYTES])
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    FILE *file = fopen(path, "rb");
    size_t size = file != NULL ? fread(text, 1, PROCESS_TEXT_BYTES - 1, file) : 0;
    text[size] = '\0';
    if (file != NULL) {
        fclose(file);
    }
}

void process_peek(struct process *p)
{
    slurp(p, "out", p->out);
}

void process_wait(struct process *p)
{
    int status = 0;
    need(waitpid(p->pid, &status, 0) == p->pid, "waitpid");
    p->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    slurp(p, "out", p->out);
    slurp(p, "err", p->err);
}

static bool catches(const struct process *p, int signal_number)
{
    char path[64], line[256];
    unsigned long long caught = 0;
    snprintf(path, sizeof path, "/proc/%d/exe", (int)p->pid);
    ssize_t length = readlink(path, line, sizeof line - 1);
    line[length > 0 ? length : 0] = '\0';
    if (strcmp(line, process_binary()) != 0) {
        return false;
    }
    snprintf(path, sizeof path, "/proc/%d/status", (int)p->pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        sscanf(line, "SigCgt: %llx", &caught);
    }
    if (file != NULL) {
        fclose(file);
    }
    return (caught >> (signal_number - 1) & 1) != 0;
}

void process_await_handler(const struct process *p, int signal_number)
{
    for (int turn = 0; turn < 60000 && !catches(p, signal_number); turn++) {
        usleep(1000);
    }
}
