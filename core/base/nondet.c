/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/nondet.h"

#include <sys/random.h>
#include <time.h>

uint64_t nondet_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

uint64_t nondet_thread_cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000U + (uint64_t)used.tv_nsec;
}

int64_t nondet_date_s(void)
{
    return (int64_t)time(NULL);
}

/* Where the system gives none, the clock differs from run to run as well. */
uint32_t nondet_seed(void)
{
    uint32_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        seed = (uint32_t)rng_mix(nondet_now_ns());
    }
    return seed;
}
