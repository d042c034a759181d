/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/account.h"

#include <stdio.h>
#include <stdlib.h>

#include "cache/cache.h"
#include "core/base/err.h"

struct accountant {
    const struct plan *plan;
    const struct model *model;
    struct cache *cache;
    struct account *out;
};

/* Every pass with its place in the order of passes; pins are read where first met. */
static void add_trunk(const struct plan *plan, bool first, bool first_head, bool head,
                      struct engine_class_stats *sum)
{
    uint64_t bytes;
    uint64_t requests;
    plan_pass_reads(plan, first, first_head, head, &bytes, &requests);
    sum->bytes += bytes;
    sum->requests += requests;
}

static void add_row(struct accountant *a, uint32_t id)
{
    const struct tensor_ref *embed = model_tensor(a->model, TENSOR_MODEL_LEVEL, T_EMBED);
    uint64_t row_bytes = (uint64_t)embed->cols * dtype_bytes(embed->dtype);
    uint64_t begin = embed->offset_bytes + id * row_bytes;
    a->out->embed.bytes += align_up(begin + row_bytes, PAGE_BYTES) - align_down(begin, PAGE_BYTES);
    a->out->embed.payload_bytes += row_bytes;
    a->out->embed.requests++;
}

static void add_expert(struct accountant *a, uint32_t layer, uint32_t expert)
{
    struct extent extents[EXPERT_PARTS];
    uint32_t part_at[EXPERT_PARTS];
    uint32_t count = model_expert_extents(a->model, layer, expert, extents, part_at);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t end = extents[i].offset_bytes + extents[i].size_bytes;
        uint64_t window = align_up(end, PAGE_BYTES) - align_down(extents[i].offset_bytes,
                                                                 PAGE_BYTES);
        a->out->experts.bytes += window;
        a->out->experts.requests += plan_requests_of(a->plan, window);
    }
    for (int part = 0; part < EXPERT_PARTS; part++) {
        a->out->experts.payload_bytes += a->model->part_bytes[part];
    }
}

/* One layer of one pass through a cache of its own. Any slot number will do. */
static void add_batch(struct accountant *a, uint32_t layer, const uint16_t *ids, uint32_t tokens)
{
    uint32_t moe = layer - a->model->config.first_dense;
    const struct cache_batch *batch = cache_demand(a->cache, moe, ids, tokens);
    for (uint32_t i = 0; i < batch->demand_count; i++) {
        const struct cache_demand *demand = &batch->demand[i];
        if (demand->slot != CACHE_NO_SLOT) {
            continue;
        }
        add_expert(a, layer, demand->expert);
        if (demand->keep) {
            cache_bind(a->cache, moe, demand->expert, 0);
        }
    }
}

static void add_pass(struct accountant *a, const struct account_routes *routes,
                     const uint32_t *ids, uint32_t position, uint32_t tokens)
{
    uint16_t batch[GOLDEN_PROMPT * REF_TOP];
    for (uint32_t t = 0; t < tokens; t++) {
        add_row(a, ids[position + t]);
    }
    for (uint32_t layer = a->model->config.first_dense; layer < REF_LAYERS; layer++) {
        for (uint32_t i = 0; i < tokens * REF_TOP; i++) {
            batch[i] = routes->expert[position + i / REF_TOP][layer][i % REF_TOP];
        }
        add_batch(a, layer, batch, tokens);
    }
}

static struct cache *open_cache(const struct plan *plan, const struct model *model,
                                const char *policy)
{
    const struct model_config *c = &model->config;
    struct policy_shape shape = {.layers = c->layers - c->first_dense, .experts = c->experts,
                                 .per_token = c->experts_per_token, .slots = plan->cache_slots};
    struct cache *cache;
    if (cache_open(&cache, policy_find(policy), &shape, plan->chunk) < 0) {
        fprintf(stderr, "account: %s\n", err_message());
        abort();
    }
    return cache;
}

void account_run(const struct plan *plan, const struct model *model, const char *policy,
                 const struct account_routes *routes, const uint32_t *ids, uint32_t prompt_tokens,
                 uint32_t positions, struct account *out)
{
    *out = (struct account){0};
    struct accountant a = {.plan = plan, .model = model, .out = out,
                           .cache = open_cache(plan, model, policy)};
    bool head_seen = false;
    for (uint32_t at = 0; at < positions; out->passes++) {
        bool prompt = at < prompt_tokens;
        uint32_t tokens = prompt ? (uint32_t)min_u64(plan->chunk, prompt_tokens - at) : 1;
        bool head = at + tokens >= prompt_tokens;
        add_trunk(plan, out->passes == 0, head && !head_seen, head, &out->trunk_head);
        head_seen |= head;
        add_pass(&a, routes, ids, at, tokens);
        at += tokens;
    }
    const struct cache_stats *stats = cache_stats(a.cache);
    out->demands = stats->demands;
    out->hits = stats->hits;
    out->misses = stats->misses;
    out->evictions = stats->evictions;
    cache_close(a.cache);
}

void account_trunk(const struct plan *plan, uint64_t passes, uint64_t head_passes,
                   struct engine_class_stats *out)
{
    struct engine_class_stats first = {0};
    struct engine_class_stats later = {0};
    struct engine_class_stats bare = {0};
    add_trunk(plan, true, true, true, &first);
    add_trunk(plan, false, false, true, &later);
    add_trunk(plan, false, false, false, &bare);
    *out = (struct engine_class_stats){
        .bytes = first.bytes - later.bytes + head_passes * later.bytes +
                 (passes - head_passes) * bare.bytes,
        .requests = first.requests - later.requests + head_passes * later.requests +
                    (passes - head_passes) * bare.requests};
}

static bool same(const char *what, uint64_t expected, uint64_t found, char *why, size_t why_bytes)
{
    if (expected != found) {
        snprintf(why, why_bytes, "%s: %llu, expected %llu", what, (unsigned long long)found,
                 (unsigned long long)expected);
    }
    return expected == found;
}

bool account_agrees(const struct account *expected, const struct engine_stats *found, char *why,
                    size_t why_bytes)
{
    const struct engine_class_stats *class = found->class;
    const struct {
        const char *what;
        uint64_t expected, found;
    } row[] = {
        {"passes", expected->passes, found->passes},
        {"trunk and head bytes", expected->trunk_head.bytes,
         class[READ_TRUNK].bytes + class[READ_HEAD].bytes},
        {"trunk and head requests", expected->trunk_head.requests,
         class[READ_TRUNK].requests + class[READ_HEAD].requests},
        {"discarded bytes", 0, found->discarded_bytes},
        {"embed bytes", expected->embed.bytes, class[READ_EMBED].bytes},
        {"embed payload", expected->embed.payload_bytes, class[READ_EMBED].payload_bytes},
        {"embed requests", expected->embed.requests, class[READ_EMBED].requests},
        {"cache demands", expected->demands, found->cache_demands},
        {"cache hits", expected->hits, found->cache_hits},
        {"cache misses", expected->misses, found->cache_misses},
        {"cache evictions", expected->evictions, found->cache_evictions},
        {"hits and misses", found->cache_demands, found->cache_hits + found->cache_misses},
        {"expert bytes", expected->experts.bytes, class[READ_EXPERTS].bytes},
        {"expert payload", expected->experts.payload_bytes, class[READ_EXPERTS].payload_bytes},
        {"expert requests", expected->experts.requests, class[READ_EXPERTS].requests},
    };
    for (size_t i = 0; i < countof(row); i++) {
        if (!same(row[i].what, row[i].expected, row[i].found, why, why_bytes)) {
            return false;
        }
    }
    struct engine_class_stats all = {0};
    for (int i = 0; i < READ_CLASSES; i++) {
        all.bytes += class[i].bytes;
        all.requests += class[i].requests;
    }
    return same("bytes of the ring", all.bytes, found->io.bytes, why, why_bytes) &&
           same("requests of the ring", all.requests, found->io.requests, why, why_bytes);
}
