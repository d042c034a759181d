/* SPDX-License-Identifier: Apache-2.0 */
/* Settings with their figures by name, and what each round was: tokens, and percent of what the
 * drive can give. */
#include <math.h>
#include <stdlib.h>

#include "core/cli/bench_json_priv.h"
#include "core/cli/report.h"

/* ---- tokens ---- */

static void add_causes(cJSON *to, const struct bench_inference *i)
{
    cJSON *causes = cJSON_AddObjectToObject(to, "stall_cause_ns");
    for (int cause = 0; cause < STALL_CAUSES; cause++) {
        bench_json_number(causes, report_cause_names[cause], i->stall_ns[cause]);
    }
}

static void add_experts(cJSON *to, const struct bench_inference *i)
{
    bench_json_number(to, "experts_requested", i->demands);
    bench_json_number(to, "experts_hit", i->hits);
    bench_json_figure(to, "hit_rate",
                      i->demands > 0 ? (double)i->hits / (double)i->demands : NAN);
    bench_json_number(to, "experts_repeated", i->repeats);
    bench_json_number(to, "experts_repeated_hit", i->repeat_hits);
}

static void add_inference(cJSON *object, const struct bench_result *result, uint32_t point,
                          const struct bench_round *round, bool plus)
{
    const struct bench_inference *i = &round->inference;
    const struct bench_facts *f = &result->point[point].facts;
    cJSON *to = cJSON_AddObjectToObject(object, "inference");
    char hash[65];
    bench_json_number(to, "tokens", i->tokens);
    bench_json_number(to, "wall_ns", i->wall_ns);
    bench_json_number(to, "first_token_ns", i->first_ns);
    bench_json_figure(to, "tok_per_s", bench_metric(result, round, METRIC_TOKENS));
    bench_json_figure(to, "bytes_per_token", bench_metric(result, round, METRIC_BYTES));
    add_experts(to, i);
    bench_json_latency(to, "token_ns", &i->token, plus);
    bench_json_latency(to, "stall_ns", &i->stall, plus);
    bench_json_latency(to, "expert_ready_ns", &i->ready, plus);
    bench_json_latency(to, "layer_stall_ns", &i->layer_stall, plus);
    add_causes(to, i);
    bench_json_number(to, "compute_ns", i->busy_ns);
    bench_json_figure(to, "all_in_memory_s_per_token",
                      round->compute_s > 0 ? round->compute_s : NAN);
    cJSON_AddStringToObject(to, "cache_policy", f->policy);
    bench_json_number(to, "cache_bytes", f->cache_slots * result->expert_bytes);
    bench_json_number(to, "peak_bytes", i->peak_bytes);
    bench_json_number(to, "reads_not_logged", i->missed);
    generate_hash_text(i->hash, hash);
    cJSON_AddStringToObject(to, "logits_hash", hash);
}

/* ---- percent of the limit ---- */

/* null when it was not measured, or is refused. */
static void rate(cJSON *to, const char *name, double value, bool refused)
{
    bench_json_figure(to, name, value != 0 && !refused ? value : NAN);
}

static void add_sweep(cJSON *to, const char *name, const struct bench_limit *limits, bool refused)
{
    cJSON *array = cJSON_AddArrayToObject(to, name);
    for (uint32_t i = 0; i < BENCH_LIMITS; i++) {
        if (limits[i].rate > 0) {
            cJSON *one = cJSON_CreateObject();
            bench_json_number(one, "depth", limits[i].depth);
            bench_json_number(one, "chunk_bytes", limits[i].chunk_bytes);
            bench_json_number(one, "window_bytes", limits[i].depth * limits[i].chunk_bytes);
            rate(one, "bw_bytes", limits[i].rate, refused);
            cJSON_AddItemToArray(array, one);
        }
    }
}

static void add_best(cJSON *to, const struct bench_round *round)
{
    uint32_t best = round->limit_best[0];
    if (best < BENCH_LIMITS && round->limit[0][best].rate > 0) {
        const struct bench_limit *l = &round->limit[0][best];
        bench_json_number(to, "chunk_bytes", l->chunk_bytes);
        bench_json_number(to, "window_bytes", l->depth * l->chunk_bytes);
    } else {
        cJSON_AddNullToObject(to, "chunk_bytes");
        cJSON_AddNullToObject(to, "window_bytes");
    }
}

static void add_limit(cJSON *object, const struct bench_result *result,
                      const struct bench_round *round)
{
    const char *why = bench_refusal(result);
    bool refused = why != NULL;
    cJSON *to = cJSON_AddObjectToObject(object, "device_limit");
    struct bench_shares s;
    bench_shares(round, &s);
    rate(to, "bw_bytes_before", s.limit_before, refused);
    rate(to, "bw_bytes_after", s.limit_after, refused);
    rate(to, "bw_bytes", s.limit, refused);
    bool both = s.limit_before > 0 && s.limit_after > 0 && !refused;
    bench_json_figure(to, "drift_pct", both ? 100 * s.drift : NAN);
    add_best(to, round);
    rate(to, "replay_bw_bytes", s.replay, refused);
    rate(to, "busy_bw_bytes", s.busy, refused);
    rate(to, "run_bw_bytes", s.run, refused);
    rate(to, "pct_replay", 100 * s.of_replay, refused);
    rate(to, "pct_busy", 100 * s.of_busy, refused);
    rate(to, "pct_run", 100 * s.of_run, refused);
    rate(to, "pct_disk_busy", 100 * s.disk_busy, refused);
    rate(to, "compute_s_per_token", s.compute_s, false);
    cJSON_AddBoolToObject(to, "compute_measured", s.compute_measured);
    rate(to, "io_s_per_token", s.io_s, refused);
    rate(to, "overlap_tok_per_s", s.overlap_tokens_s, refused);
    rate(to, "drive_twice_tok_per_s", s.faster_tokens_s, refused);
    add_sweep(to, "before", round->limit[0], refused);
    add_sweep(to, "after", round->limit[1], refused);
    if (refused) {
        cJSON_AddStringToObject(to, "refused", why);
    } else {
        cJSON_AddNullToObject(to, "refused");
    }
}

void bench_json_round(cJSON *object, const struct bench_result *result, uint32_t point,
                      const struct bench_round *round, bool plus)
{
    add_inference(object, result, point, round, plus);
    add_limit(object, result, round);
}

/* ---- points ---- */

static void add_settings(cJSON *one, const struct bench_point *p)
{
    cJSON *to = cJSON_AddObjectToObject(one, "settings");
    bench_json_number(to, "io_depth", p->io_depth);
    bench_json_number(to, "io_size_bytes", p->io_size_bytes);
    cJSON_AddStringToObject(to, "cache_policy", p->policy);
    if (p->ram_bytes == ENGINE_RAM_AUTO) {
        cJSON_AddStringToObject(to, "ram_bytes", "auto");
    } else {
        bench_json_number(to, "ram_bytes", p->ram_bytes);
    }
}

static void add_facts(cJSON *one, const struct bench_facts *f)
{
    cJSON *to = cJSON_AddObjectToObject(one, "in_force");
    cJSON_AddStringToObject(to, "isa", f->isa);
    cJSON_AddStringToObject(to, "io_engine", f->io_engine);
    cJSON_AddStringToObject(to, "io_features", f->io_features);
    cJSON_AddStringToObject(to, "cache_policy", f->policy);
    cJSON_AddBoolToObject(to, "fixed_buffers", f->fixed_buffers);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"threads", f->threads}, {"workers", f->workers}, {"devices", f->devices},
        {"files", f->files}, {"direct_files", f->direct_files}, {"io_depth", f->io_depth},
        {"io_size_bytes", f->io_size_bytes}, {"tile_bytes", f->tile_bytes},
        {"working_slots", f->working_slots}, {"cache_slots", f->cache_slots},
        {"alignment", f->alignment}, {"ram_bytes", f->ram_bytes},
        {"pinned_bytes", f->pinned_bytes}, {"plan_bytes", f->plan_bytes}};
    for (size_t i = 0; i < countof(numbers); i++) {
        bench_json_number(to, numbers[i].name, numbers[i].value);
    }
    if (f->slab_mapped_bytes > 0) {
        bench_json_number(to, "slab_mapped_bytes", f->slab_mapped_bytes);
        bench_json_number(to, "slab_resident_bytes", f->slab_resident_bytes);
        bench_json_number(to, "slab_huge_bytes", f->slab_huge_bytes);
    } else { /* interrupted: not counted */
        cJSON_AddNullToObject(to, "slab_mapped_bytes");
        cJSON_AddNullToObject(to, "slab_resident_bytes");
        cJSON_AddNullToObject(to, "slab_huge_bytes");
    }
}

/* Of the first round: all make the same tokens. */
static void add_hash(cJSON *one, const struct bench_point_result *p)
{
    char hash[65];
    if (p->rounds > 0) {
        generate_hash_text(p->round[0].inference.hash, hash);
        cJSON_AddStringToObject(one, "logits_hash", hash);
    }
}

/* Figures nobody measured are left out; a round without one is left out of its samples. */
static void add_metric(cJSON *metrics, const struct bench_metric *metric,
                       const struct samples *samples)
{
    if (samples->count == 0) {
        return;
    }
    cJSON *one = cJSON_CreateObject();
    cJSON_AddStringToObject(one, "name", metric->name);
    cJSON_AddStringToObject(one, "unit", metric->unit);
    cJSON_AddStringToObject(one, "better", metric->better);
    cJSON_AddItemToObject(one, "samples",
                          cJSON_CreateDoubleArray(samples->value, (int)samples->count));
    cJSON_AddItemToArray(metrics, one);
}

static void add_metrics(cJSON *one, const struct bench_result *result, uint32_t point)
{
    cJSON *metrics = cJSON_AddArrayToObject(one, "metrics");
    double *values = calloc(result->point[point].rounds + 1ULL, sizeof *values);
    for (int i = 0; i < BENCH_METRICS && values != NULL; i++) {
        struct samples s = bench_samples(result, point, (enum bench_metric_id)i, values);
        add_metric(metrics, &bench_metrics[i], &s);
    }
    free(values);
}

static void add_rounds(cJSON *one, const struct bench_result *result, uint32_t point, bool plus)
{
    cJSON *rounds = cJSON_AddArrayToObject(one, "rounds");
    for (uint32_t i = 0; i < result->point[point].rounds; i++) {
        cJSON *round = cJSON_CreateObject();
        bench_json_round(round, result, point, &result->point[point].round[i], plus);
        cJSON_AddItemToArray(rounds, round);
    }
}

static void add_choice(cJSON *root, const struct bench_result *result)
{
    struct bench_choice c;
    if (!bench_choose(result, &c)) {
        cJSON_AddNullToObject(root, "best_point");
        return;
    }
    cJSON *to = cJSON_AddObjectToObject(root, "best_point");
    bench_json_number(to, "fastest", c.fastest + 1);
    bench_json_number(to, "next", c.next + 1);
    cJSON_AddBoolToObject(to, "differs", c.differs);
    bench_json_figure(to, "chance", c.chance);
    bench_json_figure(to, "threshold", c.threshold);
}

void bench_json_points(cJSON *root, const struct bench_result *result, bool plus)
{
    cJSON *points = cJSON_AddArrayToObject(root, "points");
    for (uint32_t i = 0; i < result->request->point_count; i++) {
        cJSON *one = cJSON_CreateObject();
        add_settings(one, &result->point[i].point);
        add_hash(one, &result->point[i]);
        add_metrics(one, result, i);
        add_facts(one, &result->point[i].facts);
        add_rounds(one, result, i, plus);
        cJSON_AddItemToArray(points, one);
    }
    add_choice(root, result);
}
