/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/report.h"

#include <stdio.h>

#include "core/base/memory.h"
#include "core/base/retry.h"

const char *const report_class_names[READ_CLASSES] = {"trunk", "experts", "embed", "head"};
const char *const report_cause_names[STALL_CAUSES] = {"trunk", "experts", "embed",
                                                      "head", "slab_pages", "compute"};

static void number(cJSON *object, const char *name, uint64_t value)
{
    cJSON_AddNumberToObject(object, name, (double)value);
}

bool report_ids_json(cJSON *root, const char *key, const uint32_t *ids, uint32_t count)
{
    cJSON *list = cJSON_AddArrayToObject(root, key);
    bool whole = list != NULL;
    for (uint32_t i = 0; i < count && whole; i++) {
        whole = cJSON_AddItemToArray(list, cJSON_CreateNumber(ids[i]));
    }
    return whole;
}

cJSON *report_latency_json(cJSON *parent, const char *name, const struct histogram *h)
{
    cJSON *lat = cJSON_AddObjectToObject(parent, name);
    number(lat, "min", h->least);
    number(lat, "max", h->most);
    cJSON_AddNumberToObject(lat, "mean", h->mean);
    cJSON_AddNumberToObject(lat, "stddev", histogram_deviation(h));
    number(lat, "N", h->count);
    cJSON *percentile = cJSON_AddObjectToObject(lat, "percentile");
    for (int i = 0; i < HISTOGRAM_PERCENTILES && h->count > 0; i++) {
        char key[16];
        snprintf(key, sizeof key, "%f", histogram_percentiles[i]);
        number(percentile, key, histogram_percentile(h, histogram_percentiles[i]));
    }
    return lat;
}

static void add_reads(cJSON *root, const struct run_report *r)
{
    cJSON *reads = cJSON_AddObjectToObject(root, "reads");
    uint64_t bytes = 0;
    uint64_t requests = 0;
    for (int i = 0; i < READ_CLASSES; i++) {
        const struct engine_class_stats *s = &r->stats.class[i];
        cJSON *class = cJSON_AddObjectToObject(reads, report_class_names[i]);
        number(class, "bytes", s->bytes);
        number(class, "payload_bytes", s->payload_bytes);
        number(class, "requests", s->requests);
        report_latency_json(class, "lat_ns", engine_latency(r->engine, (enum read_class)i));
        bytes += s->bytes;
        requests += s->requests;
    }
    number(reads, "bytes", bytes);
    number(reads, "requests", requests);
    number(reads, "bytes_discarded", r->stats.discarded_bytes);
    number(reads, "bytes_at_open", r->stats.open_bytes);
    number(reads, "bytes_checked", r->stats.checked_bytes);
    number(reads, "bytes_of_sums", r->stats.sums_bytes);
    number(reads, "storage_read_bytes", r->storage_read_bytes);
    number(reads, "in_flight_max", r->stats.io.in_flight_max);
    if (r->facts.devices > 1) {
        cJSON *devices = cJSON_AddArrayToObject(reads, "in_flight_max_by_device");
        for (uint32_t i = 0; i < r->facts.devices; i++) {
            cJSON_AddItemToArray(devices, cJSON_CreateNumber(r->stats.io.device_max[i]));
        }
    }
    number(reads, "short_reads", r->stats.io.short_reads);
    number(reads, "retries", r->stats.io.retries);
    number(reads, "retries_at_open", retry_total());
    number(reads, "stray_completions", r->stats.io.strays);
    number(reads, "submits", r->stats.io.submits);
}

static void add_cache(cJSON *root, const struct run_report *r)
{
    cJSON *cache = cJSON_AddObjectToObject(root, "cache");
    cJSON_AddStringToObject(cache, "policy", r->facts.policy);
    number(cache, "slots", engine_plan_of(r->engine)->cache_slots);
    number(cache, "working_slots", engine_plan_of(r->engine)->working_slots);
    number(cache, "demands", r->stats.cache_demands);
    number(cache, "hits", r->stats.cache_hits);
    number(cache, "misses", r->stats.cache_misses);
    number(cache, "evictions", r->stats.cache_evictions);
}

static void add_drafts(cJSON *root, const struct run_report *r)
{
    const struct generate_result *g = r->result;
    cJSON *drafts = cJSON_AddObjectToObject(root, "drafts");
    number(drafts, "tokens_max", r->request->drafts);
    number(drafts, "steps", g->steps);
    number(drafts, "drafted", g->drafted);
    number(drafts, "accepted", g->accepted);
}

static void add_times(cJSON *root, const struct run_report *r)
{
    const struct generate_result *g = r->result;
    cJSON *times = cJSON_AddObjectToObject(root, "seconds_per_token");
    cJSON_AddNumberToObject(times, "first", (double)g->first_ns / 1e9);
    if (g->count > 1) {
        cJSON_AddNumberToObject(times, "rest", (double)g->rest_ns / 1e9 / (g->count - 1));
    } else {
        cJSON_AddNullToObject(times, "rest");
    }
}

static void add_stalls(cJSON *root, const struct run_report *r)
{
    cJSON *stalls = cJSON_AddObjectToObject(root, "stall_seconds");
    for (int i = 0; i < STALL_CAUSES; i++) {
        cJSON_AddNumberToObject(stalls, report_cause_names[i], (double)r->stats.stall_ns[i] / 1e9);
    }
    cJSON_AddNumberToObject(root, "busy_seconds", (double)r->stats.busy_ns / 1e9);
}

static void add_costs(cJSON *root, const struct run_report *r)
{
    cJSON *costs = cJSON_AddObjectToObject(root, "costs");
    double gb = (double)r->stats.io.bytes / 1e9;
    cJSON_AddNumberToObject(costs, "io_cpu_seconds", (double)r->stats.io_cpu_ns / 1e9);
    if (gb > 0) {
        cJSON_AddNumberToObject(costs, "io_cpu_seconds_per_gb",
                                (double)r->stats.io_cpu_ns / 1e9 / gb);
    } else {
        cJSON_AddNullToObject(costs, "io_cpu_seconds_per_gb");
    }
    number(costs, "steady_tokens", r->steady_tokens);
    number(costs, "steady_minor_faults", r->steady_minor_faults);
    number(costs, "steady_major_faults", r->steady_major_faults);
}

static void add_settings(cJSON *root, const struct run_report *r)
{
    const struct plan *p = engine_plan_of(r->engine);
    const struct engine_facts *f = &r->facts;
    cJSON *s = cJSON_AddObjectToObject(root, "settings");
    number(s, "ram_bytes", f->ram_bytes);
    cJSON_AddStringToObject(s, "isa", f->isa);
    number(s, "threads", f->threads);
    number(s, "workers", f->workers);
    cJSON_AddStringToObject(s, "workers_why", f->workers_why);
    cJSON_AddStringToObject(s, "io", f->io_engine);
    cJSON_AddStringToObject(s, "io_features", f->io_features);
    if (f->io_refused != NULL) {
        cJSON_AddStringToObject(s, "io_refused", f->io_refused);
    } else {
        cJSON_AddNullToObject(s, "io_refused");
    }
    number(s, "io_depth", p->request.io_depth);
    number(s, "io_size", p->io_size_bytes);
    cJSON_AddBoolToObject(s, "fixed_buffers", f->fixed_buffers);
    number(s, "direct_files", f->direct_files);
    number(s, "files", f->files);
    number(s, "alignment", f->alignment);
    cJSON *places = cJSON_AddArrayToObject(s, "places");
    for (uint32_t i = 0; i < f->place_count; i++) {
        cJSON *place = cJSON_CreateObject();
        cJSON_AddStringToObject(place, "file_system", f->place[i].file_system);
        cJSON_AddStringToObject(place, "drive", f->place[i].drive);
        cJSON_AddStringToObject(place, "model", f->place[i].model);
        number(place, "max_sectors_kb", f->place[i].request_kib_max);
        cJSON_AddItemToArray(places, place);
    }
    tuning_json(r->tuning, s);
    number(s, "tile", p->tile_bytes);
    number(s, "chunk", p->chunk);
    number(s, "context", p->request.context);
    if (f->slab_mapped_bytes > 0) {
        number(s, "slab_bytes", f->slab_mapped_bytes);
        number(s, "slab_resident_bytes", f->slab_resident_bytes);
        number(s, "slab_huge_bytes", f->slab_huge_bytes);
    } else {
        cJSON_AddNullToObject(s, "slab_bytes");
        cJSON_AddNullToObject(s, "slab_resident_bytes");
        cJSON_AddNullToObject(s, "slab_huge_bytes");
    }
}

cJSON *report_json(const struct run_report *r)
{
    cJSON *root = cJSON_CreateObject();
    char hash[65];
    if (root == NULL) {
        return NULL;
    }
    generate_hash_text(r->result->hash, hash);
    report_ids_json(root, "prompt_ids", r->request->ids, r->request->id_count);
    report_ids_json(root, "generated_ids", r->result->ids, r->result->count);
    cJSON_AddStringToObject(root, "logits_hash", hash);
    cJSON_AddStringToObject(root, "finish_reason", generate_finish_name(r->result->finish));
    if (r->error != NULL) {
        cJSON_AddStringToObject(root, "error", r->error);
    }
    add_drafts(root, r);
    add_times(root, r);
    report_engine_json(root, r);
    return root;
}

void report_engine_json(cJSON *root, const struct run_report *r)
{
    number(root, "passes", r->stats.passes);
    add_reads(root, r);
    add_cache(root, r);
    add_stalls(root, r);
    add_costs(root, r);
    number(root, "peak_rss_bytes", memory_status("VmHWM:"));
    add_settings(root, r);
    cJSON_AddItemToObject(root, "plan", plan_json(engine_plan_of(r->engine),
                                                  engine_model(r->engine), NULL));
}

void report_settings(const struct engine *e)
{
    const struct plan *p = engine_plan_of(e);
    struct engine_facts f;
    engine_facts(e, &f);
    fprintf(stderr, "k3ring: io=%s%s%s direct=%u/%u fixed=%s depth=%u x %llu KiB, isa=%s "
            "threads=%u, slab %.1f MiB (%.0f%% huge), %u expert slots (%s)\n", f.io_engine,
            f.io_features[0] != '\0' ? ":" : "", f.io_features, f.direct_files, f.files,
            f.fixed_buffers ? "yes" : "no", p->request.io_depth,
            (unsigned long long)(p->io_size_bytes / KIB), f.isa, f.threads,
            (double)f.slab_mapped_bytes / (double)MIB,
            f.slab_resident_bytes > 0
                ? 100.0 * (double)f.slab_huge_bytes / (double)f.slab_resident_bytes : 0.0,
            p->cache_slots, p->cache_slots > 0 ? f.policy : "no cache, no policy");
    for (uint32_t i = 0; i < f.place_count; i++) {
        const struct io_place *place = &f.place[i];
        fprintf(stderr, "k3ring: files on %s%s%s%s%s\n", place->file_system,
                place->drive[0] != '\0' ? " " : "", place->drive,
                place->model[0] != '\0' ? ", " : "", place->model);
    }
}

/* What went wrong on the way to a right result. */
static void print_repeats(const struct io_stats *io)
{
    uint64_t retries = io->retries + retry_total();
    if (retries + io->short_reads + io->strays > 0) {
        fprintf(stderr, "k3ring: the drive or kernel was in trouble: %llu reads repeated after "
                "transient errors, %llu read on after they came short, %llu stray completions\n",
                (unsigned long long)retries, (unsigned long long)io->short_reads,
                (unsigned long long)io->strays);
    }
}

void report_print(const struct run_report *r)
{
    uint64_t bytes = 0;
    uint64_t payload = 0;
    for (int i = 0; i < READ_CLASSES; i++) {
        bytes += r->stats.class[i].bytes;
        payload += r->stats.class[i].payload_bytes;
    }
    fprintf(stderr, "k3ring: read %.3f GB (%.3f GB of weights) in %llu requests, %llu in flight at "
            "most; experts %llu hits of %llu; peak %.1f MiB of %.1f MiB\n", (double)bytes / 1e9,
            (double)payload / 1e9, (unsigned long long)r->stats.io.requests,
            (unsigned long long)r->stats.io.in_flight_max,
            (unsigned long long)r->stats.cache_hits, (unsigned long long)r->stats.cache_demands,
            (double)memory_status("VmHWM:") / (double)MIB,
            (double)r->facts.ram_bytes / (double)MIB);
    if (r->stats.checked_bytes > 0) {
        fprintf(stderr, "k3ring: %.3f GB compared with checksums before use, for which %.3f GB of "
                "sums were read\n", (double)r->stats.checked_bytes / 1e9,
                (double)r->stats.sums_bytes / 1e9);
    }
    print_repeats(&r->stats.io);
    fprintf(stderr, "k3ring: workers: %u of %u, %s\n", r->facts.workers, r->facts.threads,
            r->facts.workers_why);
    if (r->result->count > 1) {
        fprintf(stderr, "k3ring: first token %.3f s, then %.3f s per token\n",
                (double)r->result->first_ns / 1e9,
                (double)r->result->rest_ns / 1e9 / (r->result->count - 1));
    }
    if (r->request->drafts > 0 && r->result->steps > 0) {
        const struct generate_result *g = r->result;
        fprintf(stderr, "k3ring: drafts: %u of %u tokens kept, %.2f tokens per pass\n",
                g->accepted, g->drafted, (double)(g->steps + g->accepted) / g->steps);
    }
}
