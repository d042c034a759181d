/* SPDX-License-Identifier: Apache-2.0 */
/* peak FILE PROGRAM [ARGUMENTS]: runs a program and writes the peak of its resident memory in KiB,
 * as the kernel counts it until the very end, into FILE. Ends as the program did; with 128 and the
 * signal's number when one ended it. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int fail(const char *what)
{
    perror(what);
    return 126;
}

int main(int argc, char **argv)
{
    struct rusage usage;
    int status;
    if (argc < 3) {
        fprintf(stderr, "usage: peak FILE PROGRAM [ARGUMENTS]\n");
        return 126;
    }
    pid_t child = fork();
    if (child == 0) {
        execv(argv[2], argv + 2);
        _exit(fail(argv[2]));
    }
    if (child < 0 || wait4(child, &status, 0, &usage) < 0) {
        return fail("peak");
    }
    FILE *file = fopen(argv[1], "we");
    if (file == NULL || fprintf(file, "%ld\n", usage.ru_maxrss) < 0 || fclose(file) != 0) {
        return fail(argv[1]);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
