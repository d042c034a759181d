/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_FARM_H
#define TESTS_SUPPORT_FARM_H

/* Many independent jobs in a few processes. Most jobs of a storage engine wait, so several at once
 * cost little; and a job that aborts, hangs or leaks takes nothing with it but is named. The
 * caller must be single-threaded. Jobs see the caller's memory as it was; what they want to hand
 * back goes into farm_memory(). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FARM_WHY_BYTES 512

struct farm {
    uint32_t jobs, workers;
    uint32_t limit_seconds; /* of one job */
    /* Leaves why empty when all was well. */
    void (*run)(void *ctx, uint32_t job, char *why, size_t why_bytes);
    /* One line that says what a job is and how to repeat it. */
    void (*describe)(void *ctx, uint32_t job, char *text, size_t text_bytes);
    void *ctx;
};

/* Zeroed memory shared with the jobs; never freed. Aborts when refused. */
void *farm_memory(size_t size_bytes);

/* Returns how many jobs failed; prints at most `shown` of them on standard output. */
uint32_t farm_run(const struct farm *farm, uint32_t shown);

#endif
