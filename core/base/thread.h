/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/* pthread_create() for a thread on which no handler of a signal runs: those sent to the process are
 * for the thread that began it. What a thread's own fault raises (SIGSEGV, ..) is not held back. */
int thread_create(pthread_t *thread, const pthread_attr_t *attributes, void *run(void *ctx),
                  void *ctx);

#endif
