/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/thread.h"

#include <signal.h>

#include "core/base/base.h"

int thread_create(pthread_t *thread, const pthread_attr_t *attributes, void *run(void *ctx),
                  void *ctx)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t held, before;
    sigfillset(&held);
    for (size_t i = 0; i < countof(own); i++) {
        sigdelset(&held, own[i]);
    }
    pthread_sigmask(SIG_SETMASK, &held, &before); /* a thread begins with its maker's mask */
    int rc = pthread_create(thread, attributes, run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
