/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_PROCESS_H
#define TESTS_SUPPORT_PROCESS_H

/* The program as a user meets it: started with arguments, its two outputs caught in files, its
 * exit status collected. Failures of the helper itself abort. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESS_TEXT_BYTES 65536

struct process {
    pid_t pid;
    char folder[256];             /* where the outputs are caught; the caller's */
    int status;                   /* exit status; 128 + signal when one ended it */
    char out[PROCESS_TEXT_BYTES]; /* as much as fits, with a zero byte */
    char err[PROCESS_TEXT_BYTES];
};

/* "$BUILD/k3ring" when this is "$BUILD/tests/x_test"; NULL when it is not there. */
const char *process_binary(void);

/* Starts program with arguments cut at spaces (none may hold one), outputs into folder. Its input
 * is the file "in" of the folder, if there is one. */
void process_start(struct process *p, const char *folder, const char *program,
                   const char *arguments, ...) __attribute__((format(printf, 4, 5)));
/* Waits, at most a few minutes, and reads what was said. */
void process_wait(struct process *p);
/* What stands on standard output so far. */
void process_peek(struct process *p);
/* Waits until it is the program that has been started and catches the signal, at most a minute. */
void process_await_handler(const struct process *p, int signal_number);

#endif
