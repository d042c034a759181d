/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/signals.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t caught;
static void (*first_handler)(void);
static void (*end_handler)(void);

static void on_signal(int number)
{
    int saved = errno; /* the interrupted code may be about to read it */
    if (caught == 0) {
        caught = number;
        if (first_handler != NULL) {
            first_handler();
        }
    } else if (number != SIGPIPE) {
        if (end_handler != NULL) {
            end_handler();
        }
        (void)!write(STDERR_FILENO, "\n", 1);
        _exit(128 + number);
    }
    errno = saved;
}

void signals_catch(void (*on_first)(void), void (*on_end)(void))
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    first_handler = on_first;
    end_handler = on_end;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGPIPE, &action, NULL);
}

int signals_caught(void)
{
    return caught;
}
