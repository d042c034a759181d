/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for people and as JSON: where the RAM goes, and per kind of layer what is pinned, what is
 * read in how many requests, and what a drive and cores of given rates make of it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/json.h"
#include "planner/planner_priv.h"

static const char *const kind_names[TRAFFIC_KINDS] = {"kda", "mla", "dense", "moe", "head"};

struct account_row {
    const char *name, *what;
    size_t offset;
};

static const struct account_row account_rows[] = {
    {"pins", "weights that stay", offsetof(struct plan_account, pins)},
    {"ring", "trunk tiles passing by", offsetof(struct plan_account, ring)},
    {"working", "experts being read and used", offsetof(struct plan_account, working)},
    {"cached", "expert cache", offsetof(struct plan_account, cached)},
    {"cache_heap", "policy and lists of the cache", offsetof(struct plan_account, cache_heap)},
    {"state", "recurrent state", offsetof(struct plan_account, state)},
    {"kv", "latent cache of the context", offsetof(struct plan_account, kv)},
    {"drafts", "what drafted tokens leave until accepted", offsetof(struct plan_account, drafts)},
    {"routing", "what a pass's routing leaves to be recorded",
     offsetof(struct plan_account, routing)},
    {"small", "norms, taps, biases", offsetof(struct plan_account, small)},
    {"index", "where tensors lie", offsetof(struct plan_account, index)},
    {"schedule", "steps and tiles", offsetof(struct plan_account, schedule)},
    {"activations", "a chunk of tokens, and logits", offsetof(struct plan_account, activations)},
    {"scratch", "of the workers", offsetof(struct plan_account, scratch)},
    {"rows", "embedding rows", offsetof(struct plan_account, rows)},
    {"sums", "of pages being read, to compare", offsetof(struct plan_account, sums)},
    {"reserve", "code, libraries, stacks, allocator, ids and results",
     offsetof(struct plan_account, reserve)},
};

static uint64_t account_value(const struct plan *plan, const struct account_row *row)
{
    uint64_t value;
    memcpy(&value, (const char *)&plan->account + row->offset, sizeof value);
    return value;
}

/* One decode step with nothing of the expert cache hit. */
struct pass_total {
    uint64_t streamed_bytes, requests, payload_bytes, expert_bytes, expert_requests;
};

static struct pass_total total_of(const struct plan *plan)
{
    struct pass_total t = {0};
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        t.streamed_bytes += plan->traffic[kind].streamed_bytes;
        t.requests += plan->traffic[kind].requests;
        t.payload_bytes += plan->traffic[kind].payload_bytes;
    }
    t.expert_bytes = plan->experts_per_pass * plan->expert_window_bytes;
    t.expert_requests = (uint64_t)plan->experts_per_pass * plan->expert_requests;
    return t;
}

/* Text that stops growing when its room is used up. */
struct text {
    char *at;
    size_t left;
};

static void say(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int wrote = vsnprintf(t->at, t->left, format, args);
    va_end(args);
    size_t step = wrote < 0 ? 0 : min_u64((uint64_t)wrote, t->left > 0 ? t->left - 1 : 0);
    t->at += step;
    t->left -= step;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (double)MIB;
}

static void say_account(struct text *t, const struct plan *plan)
{
    say(t, "RAM      %.2f MiB allowed, %.2f MiB planned, floor %.2f MiB (%llu bytes)\n",
        mib(plan->request.ram_bytes), mib(plan->account.total), mib(plan->floor_bytes),
        (unsigned long long)plan->floor_bytes);
    for (size_t i = 0; i < countof(account_rows); i++) {
        uint64_t value = account_value(plan, &account_rows[i]);
        if (value > 0) {
            say(t, "  %-12s %12.2f MiB  %s\n", account_rows[i].name, mib(value),
                account_rows[i].what);
        }
    }
    if (plan->page_tables_bytes > 0) {
        say(t, "  %-12s %12.2f MiB  left free for those of the kernel, beside what is planned\n",
            "page tables", mib(plan->page_tables_bytes));
    }
}

static struct plan_traffic sum_traffic(const struct plan *plan)
{
    struct plan_traffic sum = {0};
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        const struct plan_traffic *f = &plan->traffic[kind];
        sum.tiles += f->tiles;
        sum.payload_bytes += f->payload_bytes;
        sum.window_bytes += f->window_bytes;
        sum.pinned_tiles += f->pinned_tiles;
        sum.pinned_bytes += f->pinned_bytes;
        sum.streamed_tiles += f->streamed_tiles;
        sum.streamed_bytes += f->streamed_bytes;
        sum.streamed_payload_bytes += f->streamed_payload_bytes;
        sum.requests += f->requests;
    }
    return sum;
}

static double percent_of(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static void say_kind(struct text *t, const char *name, const struct plan_traffic *f)
{
    say(t, "  %-7s %8llu %11.2f %13.2f %10llu %8.3f\n", name, (unsigned long long)f->tiles,
        mib(f->pinned_bytes), mib(f->streamed_bytes), (unsigned long long)f->requests,
        percent_of(f->streamed_bytes - f->streamed_payload_bytes, f->streamed_bytes));
}

static void say_traffic(struct text *t, const struct plan *plan)
{
    say(t, "READS    one token; windows are aligned to 4 KiB\n"
        "  kind       tiles  pinned MiB  streamed MiB   requests  waste %%\n");
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        say_kind(t, kind_names[kind], &plan->traffic[kind]);
    }
    struct plan_traffic sum = sum_traffic(plan);
    struct pass_total total = total_of(plan);
    say(t, "  experts %8u %11s %13.2f %10llu %8.3f  (at most: every one a miss)\n",
        plan->experts_per_pass, "-", mib(total.expert_bytes),
        (unsigned long long)total.expert_requests,
        percent_of(plan->expert_window_bytes - plan->expert_payload_bytes,
                   plan->expert_window_bytes));
    sum.streamed_bytes += total.expert_bytes;
    sum.streamed_payload_bytes += plan->experts_per_pass * plan->expert_payload_bytes;
    sum.requests += total.expert_requests;
    say_kind(t, "total", &sum);
}

static void say_split(struct text *t, const struct plan *plan)
{
    say(t, "SPLIT    tile %.2f MiB (largest window %.2f), ring %.2f MiB, io %u x %.0f KiB%s, "
        "%u working + %u cached expert slots of %.2f MiB, chunk %u\n", mib(plan->tile_bytes),
        mib(plan->tile_window_max), mib(plan->ring_bytes), plan->request.io_depth,
        (double)plan->io_size_bytes / (double)KIB,
        plan->request.devices > 1 ? " on each drive" : "", plan->working_slots, plan->cache_slots,
        mib(plan->slot_bytes), plan->chunk);
    if (plan->request.pin_order == PIN_PREFIX && plan->pin_area_bytes > 0) {
        say(t, "         pins are the first tiles of the walk\n");
    }
    if (plan->request.io_size_bytes != plan->io_size_bytes) {
        say(t, "         io-size lowered from %llu to %llu bytes: depth x size must fit the ring\n",
            (unsigned long long)plan->request.io_size_bytes,
            (unsigned long long)plan->io_size_bytes);
    }
    bool explicit_pins = plan->request.pin_percent >= 0 || plan->request.pin_bytes != PLAN_AUTO;
    bool no_cache = plan->slot_bytes > 0 && plan->cache_slots == 0;
    uint64_t unused = plan->request.ram_bytes - plan->account.total - plan->page_tables_bytes;
    if (no_cache && explicit_pins && unused > 2 * plan->slot_bytes) {
        say(t, "         no expert cache, so no policy either: --pin leaves %.2f MiB unused; "
            "--expert-slots all takes them\n", mib(unused));
    } else if (no_cache && plan->request.expert_slots == PLAN_AUTO) {
        say(t, "         no expert cache, so no policy either: a pinned byte saves a byte per "
            "token, a cached one at most half, so pins come first\n");
    }
}

static double seconds_of(uint64_t bytes, double gbps)
{
    return gbps > 0 ? (double)bytes / (gbps * 1e9) : 0;
}

static void say_times(struct text *t, const struct plan *plan, const struct plan_rates *rates)
{
    struct pass_total total = total_of(plan);
    double io = seconds_of(total.streamed_bytes + total.expert_bytes, rates->device_gbps);
    double compute = seconds_of(total.payload_bytes + plan->experts_per_pass *
                                plan->expert_payload_bytes, rates->compute_gbps);
    if (io > 0) {
        say(t, "TIME     reading %.3f s per token at %.2f GB/s\n", io, rates->device_gbps);
    }
    if (compute > 0) {
        say(t, "TIME     computing %.3f s per token at %.2f GB/s\n", compute, rates->compute_gbps);
    }
    if (io > 0 && compute > 0) {
        say(t, "TIME     %.3f s per token, bound by the %s\n", io > compute ? io : compute,
            io > compute ? "drive" : "cores");
    }
}

static void say_pack(struct text *t, const struct model *model)
{
    const struct model_pack *pack = model->pack;
    if (pack != NULL) {
        say(t, "PACK     of %s: %.3f GB of bf16 as %.3f GB (%.4f), experts %s\n", pack->source,
            (double)pack->raw_bytes / 1e9, (double)pack->stored_bytes / 1e9,
            pack->raw_bytes > 0 ? (double)pack->stored_bytes / (double)pack->raw_bytes : 1.0,
            pack->experts_in_source ? "left there" : "in the pack");
    }
}

void plan_explain(const struct plan *plan, const struct model *model,
                  const struct plan_rates *rates, char *text, size_t capacity)
{
    struct text t = {.at = text, .left = capacity};
    const struct model_config *c = &model->config;
    text[0] = '\0';
    say(&t, "MODEL    %s: %u layers, %u experts of which %u per token, %llu tensors in %u files, "
        "%.3f GB\n", model->dir, c->layers, c->experts, c->experts_per_token,
        (unsigned long long)model->tensor_count, model->file_count,
        (double)model->total_bytes / 1e9);
    say_pack(&t, model);
    say_account(&t, plan);
    say_split(&t, plan);
    say_traffic(&t, plan);
    if (rates != NULL) {
        say_times(&t, plan, rates);
    }
}

static void number(cJSON *object, const char *name, uint64_t value)
{
    cJSON_AddNumberToObject(object, name, (double)value);
}

static void json_kind(cJSON *all, const char *name, const struct plan_traffic *f)
{
    cJSON *one = cJSON_AddObjectToObject(all, name);
    number(one, "tiles", f->tiles);
    number(one, "payload_bytes", f->payload_bytes);
    number(one, "window_bytes", f->window_bytes);
    number(one, "pinned_tiles", f->pinned_tiles);
    number(one, "pinned_bytes", f->pinned_bytes);
    number(one, "streamed_tiles", f->streamed_tiles);
    number(one, "streamed_bytes", f->streamed_bytes);
    number(one, "requests", f->requests);
    number(one, "waste_bytes", f->streamed_bytes - f->streamed_payload_bytes);
}

static void json_pack(cJSON *root, const struct model *model)
{
    const struct model_pack *pack = model->pack;
    if (pack != NULL) {
        cJSON *one = cJSON_AddObjectToObject(root, "pack");
        cJSON_AddStringToObject(one, "source", pack->source);
        number(one, "raw_bytes", pack->raw_bytes);
        number(one, "stored_bytes", pack->stored_bytes);
        cJSON_AddStringToObject(one, "experts_in", pack->experts_in_source ? "source" : "pack");
    }
}

static void json_traffic(cJSON *root, const struct plan *plan)
{
    cJSON *all = cJSON_AddObjectToObject(root, "traffic");
    for (int kind = 0; kind < TRAFFIC_KINDS; kind++) {
        json_kind(all, kind_names[kind], &plan->traffic[kind]);
    }
    struct plan_traffic sum = sum_traffic(plan);
    json_kind(all, "total", &sum);
    cJSON *experts = cJSON_AddObjectToObject(root, "experts");
    number(experts, "demanded_per_token", plan->experts_per_pass);
    number(experts, "window_bytes", plan->expert_window_bytes);
    number(experts, "payload_bytes", plan->expert_payload_bytes);
    number(experts, "requests", plan->expert_requests);
}

static void json_pass(cJSON *root, const struct plan *plan)
{
    static const struct {
        const char *name;
        bool first, first_head, head;
    } passes[] = {{"first", true, true, true},
                  {"first_without_head", true, true, false},
                  {"later", false, false, true},
                  {"later_first_head", false, true, true},
                  {"later_without_head", false, false, false}};
    cJSON *all = cJSON_AddObjectToObject(root, "pass_reads");
    for (size_t i = 0; i < countof(passes); i++) {
        uint64_t bytes;
        uint64_t requests;
        plan_pass_reads(plan, passes[i].first, passes[i].first_head, passes[i].head, &bytes,
                        &requests);
        cJSON *one = cJSON_AddObjectToObject(all, passes[i].name);
        number(one, "bytes", bytes);
        number(one, "requests", requests);
    }
}

static void json_times(cJSON *root, const struct plan *plan, const struct plan_rates *rates)
{
    struct pass_total total = total_of(plan);
    double io = seconds_of(total.streamed_bytes + total.expert_bytes, rates->device_gbps);
    double compute = seconds_of(total.payload_bytes + plan->experts_per_pass *
                                plan->expert_payload_bytes, rates->compute_gbps);
    cJSON *time = cJSON_AddObjectToObject(root, "seconds_per_token");
    if (io > 0) {
        cJSON_AddNumberToObject(time, "reading", io);
    }
    if (compute > 0) {
        cJSON_AddNumberToObject(time, "computing", compute);
    }
    if (io > 0 && compute > 0) {
        cJSON_AddStringToObject(time, "bottleneck", io > compute ? "drive" : "cores");
    }
}

cJSON *plan_json(const struct plan *plan, const struct model *model,
                 const struct plan_rates *rates)
{
    cJSON *root = cJSON_CreateObject();
    if (root == NULL) {
        return NULL;
    }
    number(root, "ram_bytes", plan->request.ram_bytes);
    number(root, "floor_bytes", plan->floor_bytes);
    cJSON *account = cJSON_AddObjectToObject(root, "account");
    for (size_t i = 0; i < countof(account_rows); i++) {
        number(account, account_rows[i].name, account_value(plan, &account_rows[i]));
    }
    number(account, "total", plan->account.total);
    number(root, "page_tables_bytes", plan->page_tables_bytes);
    json_pack(root, model);
    number(root, "devices", plan->request.devices);
    number(root, "tile_bytes", plan->tile_bytes);
    number(root, "tile_window_max", plan->tile_window_max);
    number(root, "ring_bytes", plan->ring_bytes);
    number(root, "io_depth", plan->request.io_depth);
    number(root, "io_size_bytes", plan->io_size_bytes);
    cJSON_AddStringToObject(root, "pin_order",
                            plan->request.pin_order == PIN_PREFIX ? "prefix" : "spread");
    number(root, "working_slots", plan->working_slots);
    number(root, "cache_slots", plan->cache_slots);
    number(root, "slot_bytes", plan->slot_bytes);
    number(root, "chunk", plan->chunk);
    number(root, "steps", plan->step_count);
    number(root, "tiles", plan->tile_count);
    number(root, "tensors", model->tensor_count);
    json_traffic(root, plan);
    json_pass(root, plan);
    if (rates != NULL && (rates->device_gbps > 0 || rates->compute_gbps > 0)) {
        json_times(root, plan, rates);
    }
    return root;
}
