/* SPDX-License-Identifier: Apache-2.0 */
/* What a replay on a drive found, as a table and as JSON. */
#include "core/cli/fio_text.h"
#include "core/cli/replay_device.h"
#include "core/cli/report.h"
#include "core/cli/text.h"

#define GB 1e9

static double per_token(const struct replay_device_result *r, uint64_t count)
{
    return r->tokens > 0 ? (double)count / r->tokens : 0;
}

static double token_seconds(const struct replay_device_result *r)
{
    return per_token(r, r->all.wall_ns) / 1e9;
}

/* Of those after the first; there are some. */
static double later_seconds(const struct replay_device_result *r)
{
    assert(r->tokens > 1);
    return (double)(r->all.wall_ns - min_u64(r->all.wall_ns, r->first_ns)) / 1e9 / (r->tokens - 1);
}

static double gb_per_s(const struct replay_device_result *r)
{
    return r->all.wall_ns > 0 ? (double)r->all.bytes / (double)r->all.wall_ns : 0;
}

static double hit_rate(const struct cache_stats *cache)
{
    return cache->demands > 0 ? (double)cache->hits / (double)cache->demands : 0;
}

static uint64_t pinned_bytes(const struct plan *plan)
{
    uint64_t sum = 0;
    for (int i = 0; i < TRAFFIC_KINDS; i++) {
        sum += plan->traffic[i].pinned_bytes;
    }
    return sum;
}

/* ---- for people ---- */

static void put_name(FILE *out, const char *text)
{
    text_put(out, text, NULL, 0, false);
}

static void print_head(FILE *out, const struct replay_device_result *r)
{
    const struct replay_device_request *q = r->request;
    const struct plan *plan = r->plan;
    char size[FIO_AMOUNT_BYTES];
    put_name(out, q->path);
    fprintf(out, " on ");
    put_name(out, q->dir);
    fprintf(out, ": %u of %u tokens%s, %u layers, %u of %u experts each\n", r->tokens,
            q->positions, r->stopped ? " (stopped)" : "", q->trace->layers, q->trace->top_k,
            q->model->config.experts);
    fprintf(out, "plan of %.2f GiB: %.3f GB pinned, %u expert slots, %s\n",
            (double)plan->request.ram_bytes / (double)GIB, (double)pinned_bytes(plan) / GB,
            plan->cache_slots, q->options->policy);
    fprintf(out, "reads by %s, %u in flight on each of %u drive%s, at most %s; direct for %u of "
            "%u files\n", r->io_engine, plan->request.io_depth, r->devices,
            r->devices == 1 ? "" : "s", fio_size(size, plan->io_size_bytes), r->direct_files,
            r->files);
}

/* A percentile in milliseconds; not above the most there was, which a bucket's middle can be. */
static double latency_ms(const struct io_figures *f, double percent)
{
    return (double)min_u64(f->lat.most, histogram_percentile(&f->lat, percent)) / 1e6;
}

static void print_class(FILE *out, const struct replay_device_result *r, const char *name,
                        const struct io_figures *f)
{
    fprintf(out, "%-8s %10llu %10.1f %12.6f %12.6f %9.2f %9.2f\n", name,
            (unsigned long long)f->requests, per_token(r, f->requests), (double)f->bytes / GB,
            per_token(r, f->bytes) / GB, latency_ms(f, 50), latency_ms(f, 99));
}

static void print_table(FILE *out, const struct replay_device_result *r)
{
    fprintf(out, "\n%-8s %10s %10s %12s %12s %9s %9s\n%-8s %10s %10s %12s %12s %9s %9s\n", "class",
            "requests", "per", "GB", "GB per", "lat p50", "lat p99", "", "", "token", "", "token",
            "msec", "msec");
    for (int i = 0; i < READ_CLASSES; i++) {
        print_class(out, r, report_class_names[i], &r->class[i]);
    }
    print_class(out, r, "all", &r->all);
}

static void print_rates(FILE *out, const struct replay_device_result *r)
{
    const char *refused = replay_device_refusal(r);
    if (refused != NULL) {
        fprintf(out, "reads alone: refused: ");
        put_name(out, refused);
        fprintf(out, "\n");
    } else {
        fprintf(out, "reads alone: %.3f GB/s, %.6g seconds per token", gb_per_s(r),
                token_seconds(r));
        if (r->tokens > 1) {
            fprintf(out, " (the first, with the pins, %.6g, later ones %.6g)",
                    (double)r->first_ns / 1e9, later_seconds(r));
        }
        fprintf(out, "\n");
    }
    for (uint32_t i = 0; i < r->gate_count; i++) {
        if (r->gate[i].reason != refused) {
            fprintf(out, "%s: ", r->gate[i].severity == GATE_INVALID ? "refused" : "note");
            put_name(out, r->gate[i].reason);
            fprintf(out, "\n");
        }
    }
}

void replay_device_print(FILE *out, const struct replay_device_result *r)
{
    char mean[FIO_AMOUNT_BYTES];
    char most[FIO_AMOUNT_BYTES];
    print_head(out, r);
    print_table(out, r);
    fprintf(out, "\n");
    fio_print_levels(out, "IO depths", fio_depth_names, r->all.depth);
    fprintf(out, "in flight: avg=%s, max=%s\n", fio_size(mean, (uint64_t)r->all.flight_bytes_mean),
            fio_size(most, r->all.flight_bytes_max));
    fprintf(out, "experts: %llu asked for, %llu hits (%.2f %%)\n",
            (unsigned long long)r->cache.demands, (unsigned long long)r->cache.hits,
            100.0 * hit_rate(&r->cache));
    print_rates(out, r);
}

/* ---- for programs ---- */

static void number(cJSON *object, const char *name, double value)
{
    cJSON_AddNumberToObject(object, name, value);
}

/* Rates that are none of a drive are null. */
static void rate(cJSON *object, const char *name, const struct replay_device_result *r,
                 double value)
{
    if (replay_device_refusal(r) != NULL) {
        cJSON_AddNullToObject(object, name);
    } else {
        number(object, name, value);
    }
}

static void add_trace(cJSON *root, const struct replay_device_result *r)
{
    const struct trace *t = r->request->trace;
    cJSON *trace = cJSON_AddObjectToObject(root, "trace");
    cJSON_AddStringToObject(trace, "path", r->request->path);
    number(trace, "tokens", r->request->positions);
    number(trace, "layers", t->layers);
    number(trace, "experts", r->request->model->config.experts);
    number(trace, "experts_per_token", t->top_k);
}

static void add_settings(cJSON *root, const struct replay_device_result *r)
{
    const struct plan *plan = r->plan;
    cJSON *to = cJSON_AddObjectToObject(root, "settings");
    number(to, "ram_bytes", (double)plan->request.ram_bytes);
    number(to, "pinned_bytes", (double)pinned_bytes(plan));
    number(to, "expert_slots", plan->cache_slots);
    cJSON_AddStringToObject(to, "cache_policy", r->request->options->policy);
    number(to, "io_depth", plan->request.io_depth);
    number(to, "io_size", (double)plan->io_size_bytes);
    number(to, "tile", (double)plan->tile_bytes);
    cJSON_AddStringToObject(to, "io", r->io_engine);
    cJSON_AddStringToObject(to, "io_features", r->io_features);
    cJSON_AddBoolToObject(to, "fixed_buffers", r->fixed_buffers);
    number(to, "devices", r->devices);
    number(to, "files", r->files);
    number(to, "direct_files", r->direct_files);
    tuning_json(r->request->tuning, to);
}

static void add_figures(cJSON *to, const struct replay_device_result *r,
                        const struct io_figures *f)
{
    number(to, "bytes", (double)f->bytes);
    number(to, "requests", (double)f->requests);
    number(to, "bytes_per_token", per_token(r, f->bytes));
    number(to, "requests_per_token", per_token(r, f->requests));
    report_latency_json(to, "lat_ns", &f->lat);
}

static void add_reads(cJSON *root, const struct replay_device_result *r)
{
    cJSON *reads = cJSON_AddObjectToObject(root, "reads");
    for (int i = 0; i < READ_CLASSES; i++) {
        add_figures(cJSON_AddObjectToObject(reads, report_class_names[i]), r, &r->class[i]);
    }
    add_figures(reads, r, &r->all);
    rate(reads, "gb_per_s", r, gb_per_s(r));
    rate(reads, "seconds_per_token", r, token_seconds(r));
    rate(reads, "wall_seconds", r, (double)r->all.wall_ns / 1e9);
    if (r->tokens > 1) {
        rate(reads, "first_token_seconds", r, (double)r->first_ns / 1e9);
        rate(reads, "later_token_seconds", r, later_seconds(r));
    }
    number(reads, "in_flight_bytes_mean", r->all.flight_bytes_mean);
    number(reads, "in_flight_bytes_max", (double)r->all.flight_bytes_max);
    cJSON *depths = cJSON_AddObjectToObject(reads, "iodepth_level");
    uint64_t total = 0;
    for (int i = 0; i < IO_LEVELS; i++) {
        total += r->all.depth[i];
    }
    for (int i = 0; i < IO_LEVELS; i++) {
        number(depths, fio_depth_names[i], fio_share(r->all.depth[i], total));
    }
}

static void add_cache(cJSON *root, const struct replay_device_result *r)
{
    cJSON *cache = cJSON_AddObjectToObject(root, "cache");
    number(cache, "demands", (double)r->cache.demands);
    number(cache, "hits", (double)r->cache.hits);
    number(cache, "misses", (double)r->cache.misses);
    number(cache, "evictions", (double)r->cache.evictions);
    number(cache, "hit_rate", hit_rate(&r->cache));
}

cJSON *replay_device_json(const struct replay_device_result *r)
{
    cJSON *root = cJSON_CreateObject();
    if (root == NULL) {
        return NULL;
    }
    add_trace(root, r);
    cJSON_AddStringToObject(root, "model", r->request->dir);
    number(root, "tokens", r->tokens);
    cJSON_AddBoolToObject(root, "stopped", r->stopped);
    add_settings(root, r);
    add_reads(root, r);
    add_cache(root, r);
    cJSON_AddBoolToObject(root, "valid", replay_device_refusal(r) == NULL);
    environment_gates_json(root, "gates", r->gate, r->gate_count);
    environment_json(root, &r->environment);
    return root;
}
