/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/opt.h"

#include <stdlib.h>

#include "cache/cache.h"
#include "core/base/err.h"

#define NEVER UINT32_MAX

int replay_policy(const struct trace *trace, const struct policy_ops *ops, uint32_t experts,
                  uint32_t slots, uint32_t chunk, struct replay_count *out)
{
    struct policy_shape shape = {trace->layers, experts, trace->top_k, slots};
    struct cache *cache;
    *out = (struct replay_count){0};
    TRY(cache_open(&cache, ops, &shape, chunk));
    for (uint64_t group = 0; group < trace->group_count;) {
        uint32_t tokens = trace_run(trace, group, chunk);
        cache_demand(cache, trace->layer[group], trace_ids(trace, group), tokens);
        group += tokens;
    }
    out->demands = cache_stats(cache)->demands;
    out->hits = cache_stats(cache)->hits;
    out->evictions = cache_stats(cache)->evictions;
    cache_close(cache);
    return 0;
}

/* When a key is used next, as a batch number. A heap of these is not kept tidy: what was said
 * of a key before its latest use, or of one that left, is skipped when it comes to the top. */
struct use {
    uint32_t batch, key;
};

struct opt {
    const struct trace *trace;
    uint32_t experts, slots, chunk;
    uint32_t *next;     /* per request: the next batch that asks for its expert, or NEVER */
    uint32_t *upcoming; /* per key, of its latest use */
    bool *resident;     /* per key */
    uint32_t *asked;    /* per key: see mark(), of the latest batch that asked; 0 = none yet */
    struct use *heap;   /* farthest first */
    uint64_t heap_count;
    uint32_t resident_count;
};

static uint64_t request_count(const struct opt *opt)
{
    return opt->trace->group_count * opt->trace->top_k;
}

static int opt_open(struct opt *opt)
{
    size_t keys = (size_t)opt->trace->layers * opt->experts, requests = request_count(opt);
    size_t room = requests > 0 ? requests : 1;
    opt->next = calloc(room, sizeof *opt->next);
    opt->upcoming = malloc(keys * sizeof *opt->upcoming);
    opt->resident = calloc(keys, sizeof *opt->resident);
    opt->asked = calloc(keys, sizeof *opt->asked);
    opt->heap = malloc(room * sizeof *opt->heap);
    if (opt->next == NULL || opt->upcoming == NULL || opt->resident == NULL ||
        opt->asked == NULL || opt->heap == NULL) {
        return err_set(ERR_MEMORY, "no memory to replay a trace of %zu requests; cut it",
                       requests);
    }
    for (size_t key = 0; key < keys; key++) {
        opt->upcoming[key] = NEVER;
    }
    return 0;
}

static void opt_close(struct opt *opt)
{
    free(opt->next);
    free(opt->upcoming);
    free(opt->resident);
    free(opt->asked);
    free(opt->heap);
}

static uint32_t key_at(const struct opt *opt, uint64_t request)
{
    return opt->trace->layer[request / opt->trace->top_k] * opt->experts +
           opt->trace->ids[request];
}

/* First request of each batch in turn; returns how many requests it has, 0 at the end. */
static uint64_t batch_length(const struct opt *opt, uint64_t first)
{
    uint64_t group = first / opt->trace->top_k;
    return group < opt->trace->group_count
               ? (uint64_t)trace_run(opt->trace, group, opt->chunk) * opt->trace->top_k : 0;
}

/* From the end to the start: first the answers of a batch, then its uses. Batches are found from
 * the start, so their numbers are written down on the way there. */
static void look_ahead(struct opt *opt)
{
    uint32_t batch = 0;
    uint64_t requests = request_count(opt);
    for (uint64_t first = 0, length; (length = batch_length(opt, first)) > 0; first += length) {
        for (uint64_t i = first; i < first + length; i++) {
            opt->next[i] = batch;
        }
        batch++;
    }
    for (uint64_t end = requests; end > 0;) {
        uint64_t first = end;
        uint32_t own = opt->next[end - 1];
        while (first > 0 && opt->next[first - 1] == own) {
            opt->next[first - 1] = opt->upcoming[key_at(opt, first - 1)];
            first--;
        }
        for (uint64_t i = first; i < end; i++) {
            opt->upcoming[key_at(opt, i)] = own;
        }
        end = first;
    }
}

static void heap_push(struct opt *opt, struct use use)
{
    uint64_t index = opt->heap_count++;
    assert(opt->heap_count <= request_count(opt));
    while (index > 0 && opt->heap[(index - 1) / 2].batch < use.batch) {
        opt->heap[index] = opt->heap[(index - 1) / 2];
        index = (index - 1) / 2;
    }
    opt->heap[index] = use;
}

static struct use heap_pop(struct opt *opt)
{
    assert(opt->heap_count > 0);
    struct use top = opt->heap[0], last = opt->heap[--opt->heap_count];
    uint64_t index = 0;
    for (uint64_t child = 1; child < opt->heap_count; child = 2 * index + 1) {
        if (child + 1 < opt->heap_count && opt->heap[child + 1].batch > opt->heap[child].batch) {
            child++;
        }
        if (opt->heap[child].batch <= last.batch) {
            break;
        }
        opt->heap[index] = opt->heap[child];
        index = child;
    }
    opt->heap[index] = last;
    return top;
}

/* What a batch leaves at the keys it asks for. */
static uint32_t mark(uint32_t batch, bool hit)
{
    return 2 * batch + 2 + hit;
}

/* Lets the farthest go until at most `most` are left. Returns how many had been resident before
 * this batch. */
static uint64_t shrink(struct opt *opt, uint64_t most, uint32_t batch)
{
    uint64_t left = 0;
    while (opt->resident_count > most) {
        struct use use = heap_pop(opt);
        if (opt->resident[use.key] && opt->upcoming[use.key] == use.batch) {
            opt->resident[use.key] = false;
            opt->resident_count--;
            left += opt->asked[use.key] != mark(batch, false);
        }
    }
    return left;
}

static void serve(struct opt *opt, uint64_t first, uint64_t length, uint32_t batch,
                  struct replay_count *out)
{
    uint64_t demands = 0;
    for (uint64_t i = first; i < first + length; i++) {
        uint32_t key = key_at(opt, i);
        if (opt->asked[key] >= mark(batch, false)) {
            continue;
        }
        demands++;
        out->hits += opt->resident[key];
        opt->resident_count -= opt->resident[key]; /* its old use in the heap is void */
        opt->asked[key] = mark(batch, opt->resident[key]);
        opt->resident[key] = false;
        opt->upcoming[key] = opt->next[i];
    }
    out->demands += demands;
    out->evictions += shrink(opt, opt->slots - min_u64(demands, opt->slots), batch);
    for (uint64_t i = first; i < first + length; i++) {
        uint32_t key = key_at(opt, i);
        if (!opt->resident[key]) {
            opt->resident[key] = true;
            opt->resident_count++;
            heap_push(opt, (struct use){.batch = opt->next[i], .key = key});
        }
    }
    out->evictions += shrink(opt, opt->slots, batch);
}

int replay_opt(const struct trace *trace, uint32_t experts, uint32_t slots, uint32_t chunk,
               struct replay_count *out)
{
    struct opt opt = {.trace = trace, .experts = experts, .slots = slots, .chunk = chunk};
    uint32_t batch = 0;
    *out = (struct replay_count){0};
    int rc = opt_open(&opt);
    if (rc == 0) {
        look_ahead(&opt);
        for (uint64_t first = 0, length; (length = batch_length(&opt, first)) > 0;
             first += length) {
            serve(&opt, first, length, batch++, out);
        }
    }
    opt_close(&opt);
    return rc;
}

int replay_first_touches(const struct trace *trace, uint32_t experts, uint32_t chunk,
                         uint64_t *out)
{
    /* With a slot for every key nothing leaves, and all but first touches are hits. */
    struct replay_count count;
    TRY(replay_opt(trace, experts, trace->layers * experts, chunk, &count));
    *out = count.demands - count.hits;
    return 0;
}
