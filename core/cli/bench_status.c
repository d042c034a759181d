/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/bench_status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/nondet.h"

void bench_status_open(struct bench_status *status, uint64_t interval_ns,
                       const struct environment *environment)
{
    uint64_t now_ns = nondet_now_ns();
    *status = (struct bench_status){.interval_ns = interval_ns, .begun_ns = now_ns,
                                    .last_ns = now_ns, .environment = environment};
}

static void engine_part(char *text, size_t capacity, const struct bench_status_now *from,
                        const struct bench_status_now *to, double seconds)
{
    uint64_t demands = to->demands - from->demands;
    char rate[32] = "null";
    if (!to->engine) {
        snprintf(text, capacity, "\"iops\":null,\"depth\":null,\"in_flight_bytes\":null,"
                 "\"tok\":null,\"stall_ns\":null,\"hit_rate\":null");
        return;
    }
    if (demands > 0) {
        snprintf(rate, sizeof rate, "%.4f", (double)(to->hits - from->hits) / (double)demands);
    }
    snprintf(text, capacity, "\"iops\":%.1f,\"depth\":%u,\"in_flight_bytes\":%llu,\"tok\":%u,"
             "\"stall_ns\":%llu,\"hit_rate\":%s",
             (double)(to->requests - from->requests) / seconds, to->depth,
             (unsigned long long)to->in_flight_bytes, to->tokens,
             (unsigned long long)(to->stall_ns - min_u64(to->stall_ns, from->stall_ns)), rate);
}

static void print(struct bench_status *status, const struct bench_status_now *now, uint64_t now_ns)
{
    double seconds = (double)(now_ns - status->last_ns) / 1e9;
    double celsius = environment_temperature(status->environment);
    char part[256];
    char temperature[32] = "null";
    if (!isnan(celsius)) {
        snprintf(temperature, sizeof temperature, "%.1f", celsius);
    }
    engine_part(part, sizeof part, &status->last, now, seconds);
    fprintf(stderr, "{\"t_ms\":%llu,\"job\":\"%s\",\"bw_bytes\":%.0f,%s,\"temp_c\":%s}\n",
            (unsigned long long)((now_ns - status->begun_ns) / 1000000), now->job,
            (double)(now->bytes - status->last.bytes) / seconds, part, temperature);
}

void bench_status_show(struct bench_status *status, const struct bench_status_now *now)
{
    uint64_t now_ns = nondet_now_ns();
    bool other = status->last.job == NULL || strcmp(status->last.job, now->job) != 0 ||
                 now->bytes < status->last.bytes;
    if (status->interval_ns == 0) {
        return;
    }
    if (other) { /* counts of another job are no beginning */
        status->last = (struct bench_status_now){.job = now->job};
        status->last_ns = max_u64(status->last_ns, now_ns - status->interval_ns);
    }
    if (now_ns - status->last_ns >= status->interval_ns) {
        print(status, now, now_ns);
        status->last = *now;
        status->last_ns = now_ns;
    }
}
