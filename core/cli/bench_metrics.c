/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/bench_metrics.h"

#include <math.h>
#include <stdlib.h>

const struct bench_metric bench_metrics[BENCH_METRICS] = {
    [METRIC_TOKENS] = {"tokens_per_second", "tokens/s", "higher", false},
    [METRIC_TOKEN_S] = {"seconds_per_token", "s", "lower", false},
    [METRIC_RUN] = {"run_bw_bytes", "B/s", "higher", true},
    [METRIC_BUSY] = {"busy_bw_bytes", "B/s", "higher", true},
    [METRIC_REPLAY] = {"replay_bw_bytes", "B/s", "higher", true},
    [METRIC_LIMIT] = {"limit_bw_bytes", "B/s", "higher", true},
    [METRIC_OF_RUN] = {"pct_run", "%", "higher", true},
    [METRIC_OF_BUSY] = {"pct_busy", "%", "higher", true},
    [METRIC_STALL] = {"stall_seconds_per_token", "s", "lower", false},
    [METRIC_COMPUTE] = {"compute_seconds_per_token", "s", "lower", false},
    [METRIC_BYTES] = {"bytes_per_token", "B", "lower", false},
    [METRIC_HITS] = {"hit_rate", "1", "higher", false},
    [METRIC_READY_50] = {"expert_ready_p50_ns", "ns", "lower", false},
    [METRIC_READY_99] = {"expert_ready_p99_ns", "ns", "lower", false},
    [METRIC_CLAT_50] = {"clat_p50_ns", "ns", "lower", false},
    [METRIC_CLAT_99] = {"clat_p99_ns", "ns", "lower", false},
    [METRIC_CLAT_999] = {"clat_p99.9_ns", "ns", "lower", false},
    [METRIC_CPU] = {"cpu_seconds_per_gib", "s/GiB", "lower", false},
    [METRIC_FIRST] = {"first_token_seconds", "s", "lower", false},
};

const char *bench_refusal(const struct bench_result *result)
{
    return result->verdict.invalid > 0 ? result->verdict.reason[0] : NULL;
}

double bench_per_second(const struct io_figures *f, uint64_t count)
{
    return f->wall_ns > 0 ? (double)count / (double)f->wall_ns * 1e9 : 0;
}

double bench_aggregate(const struct io_figures *f)
{
    double rate = bench_per_second(f, f->bytes);
    return rate > 0 ? fmin(100, 100 * io_samples_mean(&f->rate) / rate) : 0;
}

double bench_job_wall_s(const struct bench_job *job)
{
    return (double)job->took_ns / 1e9;
}

double bench_job_share(const struct bench_job *job, double seconds)
{
    double wall_s = bench_job_wall_s(job);
    return wall_s > 0 ? 100 * seconds / wall_s : 0;
}

/* 0 stands for: there is none. */
static double known(double value)
{
    return value > 0 ? value : NAN;
}

static double per(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

static double percentile(const struct histogram *h, double percent)
{
    return h->count > 0 ? (double)histogram_percentile(h, percent) : NAN;
}

/* Of reading alone: of the replay, where nothing is computed. */
static double cpu_per_gib(const struct bench_round *round)
{
    const struct bench_job *replay = &round->job[JOB_REPLAY];
    double used_s = replay->usage.user_s + replay->usage.system_s;
    return per(used_s, (double)replay->requested_bytes / (double)GIB);
}

static double of_shares(const struct bench_round *round, enum bench_metric_id id)
{
    struct bench_shares s;
    bench_shares(round, &s);
    switch (id) {
    case METRIC_RUN:
        return known(s.run);
    case METRIC_BUSY:
        return known(s.busy);
    case METRIC_REPLAY:
        return known(s.replay);
    case METRIC_LIMIT:
        return known(s.limit);
    case METRIC_OF_RUN:
        return known(100 * s.of_run);
    case METRIC_OF_BUSY:
        return known(100 * s.of_busy);
    default:
        assert(id == METRIC_COMPUTE);
        return known(s.compute_s);
    }
}

static double stall_s(const struct bench_inference *i)
{
    uint64_t ns = 0;
    for (int cause = 0; cause < STALL_CAUSES; cause++) {
        ns += i->stall_ns[cause];
    }
    return (double)ns / 1e9;
}

static double of_inference(const struct bench_round *round, enum bench_metric_id id)
{
    const struct bench_inference *i = &round->inference;
    const struct io_figures *reads = &round->job[JOB_INFERENCE].all;
    double wall_s = (double)i->wall_ns / 1e9;
    switch (id) {
    case METRIC_TOKENS:
        return known(per(i->tokens, wall_s));
    case METRIC_TOKEN_S:
        return per(wall_s, i->tokens);
    case METRIC_STALL:
        return per(stall_s(i), i->tokens);
    case METRIC_BYTES:
        return per((double)reads->bytes, i->tokens);
    case METRIC_HITS:
        return per((double)i->hits, (double)i->demands);
    case METRIC_READY_50:
        return percentile(&i->ready, 50);
    case METRIC_READY_99:
        return percentile(&i->ready, 99);
    case METRIC_CLAT_50:
        return percentile(&reads->clat, 50);
    case METRIC_CLAT_99:
        return percentile(&reads->clat, 99);
    case METRIC_CLAT_999:
        return percentile(&reads->clat, 99.9);
    case METRIC_FIRST:
        return known((double)i->first_ns / 1e9);
    default:
        return of_shares(round, id);
    }
}

double bench_metric(const struct bench_result *result, const struct bench_round *round,
                    enum bench_metric_id id)
{
    if (bench_metrics[id].of_drive && bench_refusal(result) != NULL) {
        return NAN;
    }
    return id == METRIC_CPU ? cpu_per_gib(round) : of_inference(round, id);
}

struct samples bench_samples(const struct bench_result *result, uint32_t point,
                             enum bench_metric_id id, double *values)
{
    const struct bench_point_result *p = &result->point[point];
    struct samples s = {.value = values};
    for (uint32_t i = 0; i < p->rounds; i++) {
        values[s.count] = bench_metric(result, &p->round[i], id);
        s.count += isnan(values[s.count]) ? 0 : 1;
    }
    return s;
}

/* ---- the best point ---- */

/* Tokens per second of all points, each a row of as many values as there may be rounds. */
struct race {
    double *values;
    struct samples of[BENCH_POINTS_MAX];
    uint32_t runners;         /* points with rounds */
};

static bool run_race(const struct bench_result *result, struct race *race)
{
    uint32_t points = result->request->point_count;
    uint32_t rounds = result->request->rounds;
    *race = (struct race){.values = calloc((size_t)points * rounds + 1, sizeof(double))};
    for (uint32_t i = 0; i < points && race->values != NULL; i++) {
        race->of[i] = bench_samples(result, i, METRIC_TOKENS, race->values + (size_t)i * rounds);
        race->runners += race->of[i].count > 0;
    }
    return race->values != NULL;
}

static void judge_race(const struct race *race, uint32_t points, struct bench_choice *out)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < points; i++) {
        double median = samples_median(&race->of[i]);
        best = median > samples_median(&race->of[best]) || race->of[best].count == 0 ? i : best;
    }
    out->best = out->fastest = best;
    out->chance = -1;
    out->threshold = SAMPLES_CHANCE / (race->runners - 1);
    for (uint32_t i = 0; i < points; i++) {
        double chance = samples_chance(&race->of[best], &race->of[i]);
        if (i != best && race->of[i].count > 0 && chance > out->chance) {
            out->chance = chance;
            out->next = i;
        }
    }
    out->differs = out->chance < out->threshold;
}

/* The first that was measured. */
static uint32_t first_runner(const struct race *race)
{
    uint32_t first = 0;
    while (race->of[first].count == 0) {
        first++;
    }
    return first;
}

bool bench_choose(const struct bench_result *result, struct bench_choice *out)
{
    struct race race;
    *out = (struct bench_choice){0};
    bool chosen = run_race(result, &race) && race.runners >= 2;
    if (chosen) {
        judge_race(&race, result->request->point_count, out);
    }
    if (chosen && !out->differs) {
        out->best = first_runner(&race);
    }
    free(race.values);
    return chosen;
}

const struct bench_round *bench_middle_round(const struct bench_result *result, uint32_t point)
{
    const struct bench_point_result *p = &result->point[point];
    double *values = malloc((p->rounds + 1ULL) * sizeof *values);
    uint32_t middle = 0;
    if (values != NULL) {
        struct samples s = bench_samples(result, point, METRIC_TOKENS, values);
        middle = s.count == p->rounds ? samples_middle(&s) : 0;
        free(values);
    }
    return p->rounds > 0 ? &p->round[middle] : NULL;
}
