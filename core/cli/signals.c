/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/cli/terminal.h"

/* A signal may run its handler on any thread: what handlers share is atomic. */
static _Atomic int caught;
static _Atomic bool waiting;
static _Atomic bool escapes; /* standard error is a terminal that takes them */
static void (*_Atomic first_handler)(void);
static void (*_Atomic end_handler)(void);

static void end_at_once(int number)
{
    void (*end)(void) = atomic_load(&end_handler);
    if (end != NULL) {
        end();
    }
    if (number != SIGPIPE) {
        (void)!write(STDERR_FILENO, "\n", 1);
    }
    _exit(128 + number);
}

static void on_signal(int number)
{
    int saved = errno; /* the interrupted code may be about to read it */
    int none = 0;
    if (atomic_compare_exchange_strong(&caught, &none, number)) {
        void (*first)(void) = atomic_load(&first_handler);
        if (atomic_load(&waiting)) {
            end_at_once(number);
        }
        if (first != NULL) {
            first();
        }
    } else if (number != SIGPIPE) {
        end_at_once(number);
    }
    errno = saved;
}

void signals_catch(void (*on_first)(void), void (*on_end)(void))
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    atomic_store(&first_handler, on_first);
    atomic_store(&end_handler, on_end);
    atomic_store(&escapes, isatty(STDERR_FILENO) == 1 && terminal_escapes());
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGXCPU, &action, NULL); /* a limit of processor time, which batch systems set */
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) { /* nohup */
        sigaction(SIGHUP, &action, NULL);
    }
    sigaction(SIGPIPE, &action, NULL);
}

void signals_say(const char *line)
{
    if (signals_caught() == SIGPIPE) {
        return;
    }
    if (atomic_load(&escapes)) {
        (void)!write(STDERR_FILENO, "\r\033[K", 4);
    }
    (void)!write(STDERR_FILENO, line, strlen(line));
}

int signals_wait_begin(void)
{
    atomic_store(&waiting, true); /* first: a signal is either seen below or ends all */
    return signals_caught() != 0 ? err_set(ERR_STOPPED, "stopped before there was any input") : 0;
}

void signals_wait_end(void)
{
    atomic_store(&waiting, false);
}

int signals_caught(void)
{
    return atomic_load(&caught);
}
