/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/bench_full.h"

/* Of the released files: 108.81 GB of trunk, 2.35 of lm_head, and 16 experts of 17,547,264 bytes
 * in each of 92 layers. */
#define FULL_MODEL_BYTES 1.56e12
#define FULL_EXPERT_BYTES (16.0 * 92 * 17547264)
#define FULL_TOKEN_BYTES (108.81e9 + 2.35e9 + FULL_EXPERT_BYTES)
#define EXPERT_PART 0.5           /* less of an expert's bytes: other widths, other reads */
#define ENOUGH 0.25               /* of a token's bytes read: its rate is that of a streamed one */
#define WHOLE 0.95                /* more than this share is the model itself */

/* The rate of large reads: of those that were measured when most of a token was read, otherwise of
 * the limit. A run that reads little reads odds and ends. */
static double rate_of(const struct bench_result *result, const struct bench_round *round,
                      bool *measured)
{
    struct bench_shares s;
    uint64_t bytes = round->job[JOB_INFERENCE].all.bytes;
    bench_shares(round, &s);
    *measured = (double)bytes >= ENOUGH * (double)result->pass_bytes * round->inference.tokens;
    return !*measured ? s.limit : s.replay > 0 ? s.replay : s.run;
}

bool bench_full(const struct bench_result *result, struct bench_full *out)
{
    const struct bench_point_result *point = &result->point[0];
    bool measured = false;
    double rate = point->rounds > 0
                      ? rate_of(result, &point->round[point->rounds - 1], &measured) : 0;
    *out = (struct bench_full){.model_share = (double)result->model_bytes / FULL_MODEL_BYTES,
                               .token_share = (double)result->pass_bytes / FULL_TOKEN_BYTES,
                               .rate = rate, .measured = measured};
    if (rate > 0) {
        out->streamed_s = FULL_TOKEN_BYTES / rate;
        out->experts_s = FULL_EXPERT_BYTES / rate;
    }
    bool widths = (double)result->expert_bytes >= EXPERT_PART * FULL_EXPERT_BYTES / (16.0 * 92);
    return result->synthetic && widths && rate > 0 && out->model_share < WHOLE &&
           result->verdict.invalid == 0;
}
