/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/signals.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t caught;
static void (*handler)(void);

static void on_signal(int number)
{
    if (caught != 0) {
        _exit(128 + number);
    }
    caught = number;
    if (handler != NULL) {
        handler();
    }
}

void signals_catch(void (*callback)(void))
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    handler = callback;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int signals_caught(void)
{
    return caught;
}
