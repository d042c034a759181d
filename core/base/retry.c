/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/retry.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#define PAUSE_NS_MIN 10000ULL
#define PAUSE_NS_MAX 100000000ULL
#define DOUBLINGS_MAX 14U

static _Atomic uint64_t total;

uint64_t retry_pause_ns(uint32_t retries)
{
    uint32_t doublings = retries > DOUBLINGS_MAX ? DOUBLINGS_MAX : retries - (retries > 0);
    return min_u64(PAUSE_NS_MIN << doublings, PAUSE_NS_MAX);
}

bool retry_after(int error, uint32_t *retries)
{
    if ((error != EINTR && error != EAGAIN) || *retries >= RETRY_MAX) {
        return false;
    }
    ++*retries;
    retry_note();
    nanosleep(&(struct timespec){.tv_nsec = (long)retry_pause_ns(*retries)}, NULL);
    return true;
}

void retry_note(void)
{
    atomic_fetch_add(&total, 1);
}

uint64_t retry_total(void)
{
    return atomic_load(&total);
}
