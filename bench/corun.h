/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_CORUN_H
#define BENCH_CORUN_H

/* The mark for a streamed token: the reads and the kernel calls of a plan's token, made at once by
 * as many threads over as many bytes, but nobody waits for anybody. What the machine allows
 * when nothing depends on anything; each half can also be run alone.
 *
 * Reads go through the same backend with the plan's depth and request size into a ring and slots
 * of the plan's size. Kernels run over that same memory, and over a block that stands for the
 * pins (bounded, but far larger than the caches). Experts are a seeded draw. The small vector
 * steps between matrices (norms, gates, router choice) are left out. */

#include "core/model/model.h"
#include "io/io.h"
#include "planner/plan.h"

enum corun_half { CORUN_READS = 1, CORUN_COMPUTE = 2, CORUN_BOTH = 3 };

struct corun;

/* One thread opens, runs and closes it. threads workers beside the caller, who reads. With
 * cached_experts none is read. Model and plan must outlive it. */
int corun_open(struct corun **out, const struct model *model, const struct plan *plan,
               uint32_t threads, bool cached_experts);
void corun_close(struct corun *c); /* NULL is fine */

/* Runs `tokens` tokens of what is asked. *seconds is the wall time, *bytes what was read. */
int corun_run(struct corun *c, enum corun_half what, uint32_t tokens, double *seconds,
              uint64_t *bytes);

#endif
