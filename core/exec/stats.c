/* SPDX-License-Identifier: Apache-2.0 */
/* The figures a report is made of. */
#include <string.h>

#include "core/exec/exec_priv.h"

void engine_stats_between(const struct engine_stats *from, const struct engine_stats *to,
                          uint64_t stall_ns[STALL_CAUSES], uint64_t *busy_ns)
{
    uint64_t workers_ns = to->workers_ns - from->workers_ns;
    uint64_t passes_ns = to->passes_ns - from->passes_ns;
    double workers = workers_ns > 0 ? (double)workers_ns / (double)max_u64(1, passes_ns) : 1;
    for (int cause = 0; cause < STALL_CAUSES; cause++) {
        uint64_t sum_ns = to->stall_sum_ns[cause] - from->stall_sum_ns[cause];
        stall_ns[cause] = (uint64_t)((double)sum_ns / workers);
    }
    *busy_ns = (uint64_t)((double)(to->busy_sum_ns - from->busy_sum_ns) / workers);
}

void engine_stats(struct engine *e, struct engine_stats *out)
{
    static const struct engine_stats nothing;
    *out = (struct engine_stats){.open_bytes = e->open_bytes,
                                 .discarded_bytes = e->discarded_bytes,
                                 .checked_bytes = atomic_load(&e->checks.checked_bytes),
                                 .sums_bytes = atomic_load(&e->checks.sums_bytes),
                                 .sums_requests = atomic_load(&e->checks.sums_requests),
                                 .cache_demands = e->cache_stats.demands,
                                 .cache_hits = e->cache_stats.hits,
                                 .cache_misses = e->cache_stats.misses,
                                 .cache_evictions = e->cache_stats.evictions,
                                 .passes = e->passes_ever,
                                 .positions = e->positions_made,
                                 .io_cpu_ns = e->io_cpu_ns,
                                 .io = e->io_stats};
    for (int i = 0; i < READ_CLASSES; i++) {
        out->class[i] = (struct engine_class_stats){
            .requests = atomic_load(&e->class_requests[i]),
            .bytes = atomic_load(&e->class_bytes[i]),
            .payload_bytes = atomic_load(&e->class_payload[i])};
    }
    uint64_t spent_ns[WORKER_DOINGS];
    workers_spent(e, spent_ns);
    memcpy(out->stall_sum_ns, spent_ns, sizeof out->stall_sum_ns);
    out->busy_sum_ns = spent_ns[WORKER_WORKS];
    out->passes_ns = e->passes_ns;
    out->workers_ns = e->active_ns;
    engine_stats_between(&nothing, out, out->stall_ns, &out->busy_ns);
}

const struct histogram *engine_latency(const struct engine *e, enum read_class class)
{
    return &e->latency[class];
}
