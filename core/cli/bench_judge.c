/* SPDX-License-Identifier: Apache-2.0 */
/* What speaks against the figures of a benchmark: what was known before, and what the counters of
 * process and drives say afterwards. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/cli/bench.h"

#define DRIFT_MOST 0.05
#define HOT_C 70.0
#define SMALL_BYTES GIB

__attribute__((format(printf, 3, 4)))
static void add(struct bench_verdict *verdict, bool invalid, const char *format, ...)
{
    char text[BENCH_REASON_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (uint32_t i = 0; i < verdict->count; i++) {
        if (strcmp(verdict->reason[i], text) == 0) {
            return; /* another round has said it */
        }
    }
    verdict->valid = verdict->valid && !invalid;
    if (verdict->count == BENCH_REASONS_MAX) {
        if (!invalid || verdict->invalid == BENCH_REASONS_MAX) {
            return;
        }
        verdict->count--; /* the last warning makes room */
    }
    uint32_t at = invalid ? verdict->invalid : verdict->count;
    memmove(verdict->reason[at + 1], verdict->reason[at],
            (verdict->count - at) * sizeof verdict->reason[0]);
    memmove(verdict->reason[at], text, sizeof text);
    verdict->invalid += invalid;
    verdict->count++;
}

static void judge_environment(struct bench_result *result)
{
    struct environment_gate gates[ENVIRONMENT_GATES_MAX];
    uint32_t count = environment_gates(&result->environment, gates);
    for (uint32_t i = 0; i < count; i++) {
        add(&result->verdict, gates[i].severity == GATE_INVALID, "%s", gates[i].reason);
    }
}

static void judge_job(struct bench_verdict *verdict, const struct bench_job *job, const char *name)
{
    if (!job->made) {
        return;
    }
    char reason[ENVIRONMENT_TEXT_BYTES];
    if (job->disk_known &&
        !environment_delivered(&job->disk.files, job->requested_bytes, reason)) {
        add(verdict, true, "%s: %s", name, reason);
    }
    if (job->offloaded > 0) {
        add(verdict, false, "%s: %u kernel threads read in our stead: requests are larger than one "
            "command of the drive; try a smaller --io-size", name, job->offloaded);
    }
    if (job->all.errors > 0) {
        add(verdict, true, "%s: %llu reads failed", name, (unsigned long long)job->all.errors);
    }
}

/* Direct reads are from the drive, but drives have memory of their own. */
static void judge_size(struct bench_result *result)
{
    if (result->model_bytes > 0 && result->model_bytes < SMALL_BYTES) {
        add(&result->verdict, false, "the model has %.1f MB: a drive's own cache can hold that; a "
            "rate of the drive itself takes a model of some GB (bench --synth DIR --size 12G)",
            (double)result->model_bytes / 1e6);
    }
}

/* Rounds whose limits differ, and by how much most. */
struct drifted {
    uint32_t rounds;
    double most;
    bool hot;                     /* and slower for it, perhaps */
};

/* Less than the drives' links carry, all of them together; 0 = unknown. */
static double ceiling(const struct environment *env)
{
    double sum = 0;
    for (uint32_t i = 0; i < env->device_count; i++) {
        if (environment_lowest(env, i)) {
            if (env->device[i].link.bytes_per_s == 0) {
                return 0;
            }
            sum += (double)env->device[i].link.bytes_per_s;
        }
    }
    return sum;
}

/* A drive that says itself that it is too hot: what it lost meanwhile, it lost to that. */
static void judge_heat(struct bench_result *result, const struct bench_round *round, double drift)
{
    for (int job = 0; job < BENCH_JOBS; job++) {
        const struct bench_job *j = &round->job[job];
        if (!j->made || j->too_hot == 0) {
            continue;
        }
        const struct environment_device *d = &result->environment.device[j->too_hot - 1];
        bool slower = round->job[JOB_LIMIT_AFTER].made && drift < -DRIFT_MOST;
        if (slower) {
            add(&result->verdict, true, "%s throttled: at %.0f C or more, which it calls too hot, "
                "it lost %.0f %% of its limit; cool it", d->name, d->too_hot_c, -100 * drift);
        } else {
            add(&result->verdict, false, "%s was at %.0f C or more, which it calls too hot: cool "
                "it, or longer runs will be slower", d->name, d->too_hot_c);
        }
        return;
    }
}

static void judge_drift(struct bench_verdict *verdict, const struct drifted *drifted)
{
    if (drifted->rounds > 0) {
        add(verdict, false, "the drive changed while it was measured, by %s%+.0f %%: take its "
            "limit as a range%s", drifted->rounds > 1 ? "up to " : "", 100 * drifted->most,
            drifted->hot ? "; it is hot and may have throttled" : "");
    }
}

static void judge_limit(struct bench_result *result, const struct bench_round *round,
                        struct drifted *drifted)
{
    struct bench_shares s;
    double most = ceiling(&result->environment);
    double hot = round->job[JOB_LIMIT_AFTER].temperature_c[1];
    bench_shares(round, &s);
    if (most > 0 && (s.limit_before > most || s.limit_after > most)) {
        add(&result->verdict, true, "%.2f GB/s is more than the drive's link carries (%.2f GB/s): "
            "it did not come from the drive", fmax(s.limit_before, s.limit_after) / 1e9,
            most / 1e9);
    }
    judge_heat(result, round, s.drift);
    if (round->job[JOB_LIMIT_AFTER].made && fabs(s.drift) > DRIFT_MOST) {
        drifted->rounds++;
        drifted->most = fabs(s.drift) > fabs(drifted->most) ? s.drift : drifted->most;
        drifted->hot = drifted->hot || (hot >= HOT_C && s.drift < 0);
    }
}

static void judge_inference(struct bench_result *result, const struct bench_round *round,
                            bool caches)
{
    const struct bench_inference *in = &round->inference;
    if (in->missed > 0) {
        add(&result->verdict, true, "%llu reads found the log full, so rates are too low; measure "
            "fewer --tokens or give more --ram", (unsigned long long)in->missed);
    } else if (in->tokens < result->request->tokens && result->request->runtime_ns == 0) {
        add(&result->verdict, false, "measuring ended after %u of %u tokens: no more reads could "
            "be written down, or it was stopped; more --ram gives more room", in->tokens,
            result->request->tokens);
    }
    if (in->tokens == 0) {
        add(&result->verdict, true, "no token was measured");
    }
    /* What comes for the first time no cache of any size or policy has. */
    if (caches && in->repeats * 2 < in->demands) {
        add(&result->verdict, false, "most experts of the measured tokens were asked for the first "
            "time: hit rates of so short a run say little of a longer one; give more --tokens");
    }
}

static bool differ(const struct bench_round *a, const struct bench_round *b)
{
    return a->inference.tokens == b->inference.tokens &&
           memcmp(a->inference.hash, b->inference.hash, LOGITS_HASH_BYTES) != 0;
}

void bench_judge(struct bench_result *result)
{
    struct bench_verdict *verdict = &result->verdict;
    const struct bench_round *first = NULL;
    struct drifted drifted = {.rounds = 0};
    *verdict = (struct bench_verdict){.valid = true};
    if (result->failure[0] != '\0') {
        add(verdict, true, "%s", result->failure);
    }
    judge_environment(result);
    judge_size(result);
    if (result->interrupted) {
        add(verdict, false, "stopped by a signal: these are the figures of what was measured "
            "before it");
    }
    for (uint32_t p = 0; p < result->request->point_count; p++) {
        const struct bench_point_result *point = &result->point[p];
        for (uint32_t k = 0; k < point->rounds; k++) {
            const struct bench_round *round = &point->round[k];
            first = first == NULL ? round : first;
            for (int job = 0; job < BENCH_JOBS; job++) {
                judge_job(verdict, &round->job[job], bench_job_names[job]);
            }
            judge_limit(result, round, &drifted);
            judge_inference(result, round, point->facts.cache_slots > 0);
            if (differ(first, round)) {
                add(verdict, true, "two rounds gave different logits: this must never be; please "
                    "report it");
            }
        }
        if (point->rounds > 0 && strcmp(point->facts.io_engine, "sim") == 0) {
            add(verdict, true, "read by the simulator (--io sim), which orders and delays reads on "
                "its own: use --io uring");
        } else if (point->rounds > 0 && strcmp(point->facts.io_engine, "io_uring") != 0) {
            add(verdict, false, "read by %s, not by io_uring: the figures are those of that engine",
                point->facts.io_engine);
        }
    }
    judge_drift(verdict, &drifted);
    if (first == NULL) {
        add(verdict, true, "no round was completed");
    }
}
