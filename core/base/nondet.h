/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_NONDET_H
#define BASE_NONDET_H

/* The only clock and the only source of chance. Nothing else in the project may call
 * clock_gettime, time or rand: what enters here can be replaced or seeded. */

#include <stdint.h>

/* Monotonic nanoseconds since an arbitrary start. Any thread. */
uint64_t nondet_now_ns(void);

/* Processor time the calling thread has taken, system calls included. */
uint64_t nondet_thread_cpu_ns(void);

/* Seconds since 1970 by the wall clock: for dates that people read, never for intervals. */
int64_t nondet_date_s(void);

/* 32 bits from the system: for a seed that is told to the user. */
uint32_t nondet_seed(void);

/* SplitMix64: a small seeded generator with a full 2^64 period. One owner, no locking. */
struct rng {
    uint64_t state;
};

static inline struct rng rng_seed(uint64_t seed)
{
    return (struct rng){.state = seed};
}

/* The finaliser of SplitMix64: a bijection of 64-bit words. */
static inline uint64_t rng_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

static inline uint64_t rng_next(struct rng *rng)
{
    rng->state += 0x9E3779B97F4A7C15ULL;
    return rng_mix(rng->state);
}

/* Uniform in [0, bound); bound > 0. The bias is below bound / 2^64. */
static inline uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    return rng_next(rng) % bound;
}

#endif
