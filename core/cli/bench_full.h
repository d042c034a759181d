/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_FULL_H
#define CLI_BENCH_FULL_H

/* What the released model would take on the drive that was measured, for benchmarks of a part of
 * it: its bytes per token over the measured rate. */

#include "core/cli/bench.h"

struct bench_full {
    double model_share;           /* of its bytes that the measured model has */
    double token_share;           /* of the bytes its token reads with nothing in memory */
    double rate;                  /* bytes per second: the replay's, else the run's; 0 = none */
    bool measured;                /* else the limit's: the tokens read too little to tell */
    double streamed_s;            /* a token with nothing in memory */
    double experts_s;             /* with trunk and lm_head in memory, experts read */
};

/* Of the last round of the point shown first. False for the whole model and without a rate. */
bool bench_full(const struct bench_result *result, struct bench_full *out);

#endif
