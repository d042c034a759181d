/* SPDX-License-Identifier: Apache-2.0 */
/* What the five jobs of a round say together. */
#include "core/cli/bench.h"

static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static double best_rate(const struct bench_round *round, uint32_t which)
{
    uint32_t best = round->limit_best[which];
    return best < BENCH_LIMITS ? round->limit[which][best].rate : 0;
}

/* One of the two stands for both when the other was not measured. */
static void find_limit(const struct bench_round *round, struct bench_shares *out)
{
    out->limit_before = best_rate(round, 0);
    out->limit_after = best_rate(round, 1);
    bool both = out->limit_before > 0 && out->limit_after > 0;
    out->limit = (out->limit_before + out->limit_after) / (both ? 2 : 1);
    out->drift = both ? (out->limit_after - out->limit_before) / out->limit : 0;
}

static void find_rates(const struct bench_round *round, struct bench_shares *out)
{
    const struct io_figures *run = &round->job[JOB_INFERENCE].all;
    const struct io_figures *replay = &round->job[JOB_REPLAY].all;
    double wall_s = (double)run->wall_ns / 1e9;
    double busy_s = (double)run->busy_ns / 1e9;
    out->run = per((double)run->bytes, wall_s);
    out->busy = per((double)run->bytes, busy_s);
    out->replay = per((double)replay->bytes, (double)replay->wall_ns / 1e9);
    out->disk_busy = per(busy_s, wall_s);
    out->of_run = per(out->run, out->limit);
    out->of_busy = per(out->busy, out->limit);
    out->of_replay = per(out->replay, out->limit);
}

static double read_stall_s(const struct bench_inference *i)
{
    uint64_t ns = i->stall_ns[STALL_TRUNK] + i->stall_ns[STALL_EXPERTS] +
                  i->stall_ns[STALL_EMBED] + i->stall_ns[STALL_HEAD];
    return (double)ns / 1e9;
}

static void project(const struct bench_round *round, struct bench_shares *out)
{
    const struct bench_inference *i = &round->inference;
    double tokens = i->tokens;
    double token_s = per((double)i->wall_ns / 1e9, tokens);
    double bytes = per((double)round->job[JOB_INFERENCE].all.bytes, tokens);
    out->compute_measured = round->compute_s > 0;
    out->compute_s =
        out->compute_measured ? round->compute_s : per((double)i->busy_ns / 1e9, tokens);
    out->io_s = per(bytes, out->replay > 0 ? out->replay : out->limit);
    out->overlap_tokens_s = per(1, out->compute_s > out->io_s ? out->compute_s : out->io_s);
    out->faster_tokens_s = per(1, token_s - per(read_stall_s(i), tokens) / 2);
}

void bench_shares(const struct bench_round *round, struct bench_shares *out)
{
    *out = (struct bench_shares){0};
    find_limit(round, out);
    find_rates(round, out);
    project(round, out);
}
