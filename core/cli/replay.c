/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/replay.h"

#include <stdlib.h>

#include "core/base/err.h"
#include "core/cli/signals.h"
#include "core/cli/text.h"

#define GB 1e9

/* Slots beyond all experts hold nothing. */
static uint32_t useful_slots(const struct replay_request *q, uint32_t slots)
{
    return (uint32_t)min_u64(slots, (uint64_t)q->trace->layers * q->experts);
}

uint32_t replay_expert_slots(const struct replay_request *q, const struct policy_ops *ops,
                             uint32_t slots)
{
    bool beside = ops != NULL && ops->token_beside && q->ram_bytes == 0;
    return slots - (beside ? (uint32_t)min_u64(slots, q->trace->top_k) : 0);
}

/* ops NULL: opt. */
static struct replay_row *next_row(const struct replay_request *q, const struct policy_ops *ops,
                                   uint32_t slots, struct replay_result *out)
{
    struct replay_row *row = &out->row[out->row_count++];
    *row = (struct replay_row){.policy = ops != NULL ? ops->name : "opt", .slots = slots,
                               .expert_slots = replay_expert_slots(q, ops, slots)};
    return row;
}

static int stopped(void)
{
    return signals_caught() != 0 ? err_set(ERR_STOPPED, "stopped before the end of the replay") : 0;
}

/* All policies at one size, then what cannot be beaten. */
static int replay_slots(const struct replay_request *q, uint32_t slots, struct replay_result *out)
{
    for (uint32_t i = 0; i < q->policy_count; i++) {
        struct replay_row *row = next_row(q, q->policy[i], slots, out);
        TRY(stopped());
        TRY(replay_policy(q->trace, q->policy[i], q->experts, useful_slots(q, row->expert_slots),
                          1, &row->count));
    }
    TRY(stopped());
    return replay_opt(q->trace, q->experts, useful_slots(q, slots), 1,
                      &next_row(q, NULL, slots, out)->count);
}

int replay_run(const struct replay_request *q, struct replay_result *out)
{
    uint32_t rows = q->slots_count * (q->policy_count + 1);
    *out = (struct replay_result){.requests = q->trace->group_count * q->trace->top_k,
                                  .tokens = (double)q->trace->group_count / q->trace->layers};
    out->row = calloc(rows, sizeof *out->row);
    if (out->row == NULL) {
        return err_set(ERR_MEMORY, "no memory for %u replays", rows);
    }
    TRY(replay_first_touches(q->trace, q->experts, 1, &out->first_touches));
    for (uint32_t i = 0; i < q->slots_count; i++) {
        TRY(replay_slots(q, q->slots[i], out));
    }
    return 0;
}

void replay_fini(struct replay_result *result)
{
    free(result->row);
    *result = (struct replay_result){0};
}

/* ---- figures of a row ---- */

static double share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0.0;
}

double replay_hit_rate(const struct replay_row *row)
{
    return share(row->count.hits, row->count.demands);
}

double replay_bytes_per_token(const struct replay_request *q, const struct replay_result *r,
                              const struct replay_row *row)
{
    uint64_t misses = row->count.demands - row->count.hits;
    return (double)misses * (double)q->expert_bytes / r->tokens;
}

/* The last row of the same size. */
static const struct replay_row *opt_of(const struct replay_request *q,
                                       const struct replay_result *r, uint32_t row)
{
    uint32_t group = q->policy_count + 1;
    return &r->row[row / group * group + q->policy_count];
}

/* ---- for people ---- */

static void print_head(FILE *out, const struct replay_request *q, const struct replay_result *r)
{
    text_put(out, q->path, NULL, 0, false);
    fprintf(out, ": %.6g tokens, %u layers, %u of %u experts each; %llu requests\n", r->tokens,
            q->trace->layers, q->trace->top_k, q->experts, (unsigned long long)r->requests);
    fprintf(out, "%llu requests (%.2f %%) are first touches, which no cache can hit; "
            "%llu (%.2f %%) are repeats\n", (unsigned long long)r->first_touches,
            100.0 * share(r->first_touches, r->requests),
            (unsigned long long)(r->requests - r->first_touches),
            100.0 * share(r->requests - r->first_touches, r->requests));
    fprintf(out, "an expert is %llu bytes (%s%s); with no cache %.3f GB per token\n",
            (unsigned long long)q->expert_bytes, q->geometry,
            q->borrowed ? ", which did not make this trace; --model names what did" : "",
            (double)r->requests * (double)q->expert_bytes / r->tokens / GB);
    if (q->ram_bytes > 0) {
        fprintf(out, "the plan of %s with %.2f GiB of RAM keeps %u expert slots%s\n", q->geometry,
                (double)q->ram_bytes / (double)GIB, q->slots[0],
                q->slots[0] == 0 ? ": a pinned byte of the trunk saves more" : "");
    }
}

void replay_print(FILE *out, const struct replay_request *q, const struct replay_result *r)
{
    print_head(out, q, r);
    fprintf(out, "\n%8s  %-10s %9s %9s %9s %9s %9s %9s\n%8s  %-10s %9s %9s %9s %9s %9s\n", "slots",
            "policy", "hits", "of all", "of what", "GB per", "of opt's", "evictions", "", "", "",
            "requests", "repeats", "token", "hits");
    for (uint32_t i = 0; i < r->row_count; i++) {
        const struct replay_row *row = &r->row[i];
        const struct replay_count *c = &row->count;
        if (i > 0 && i % (q->policy_count + 1) == 0) {
            fputc('\n', out);
        }
        fprintf(out, "%8u  %-10s %9llu %8.2f%% %8.2f%% %9.3f %8.1f%% %9llu\n", row->slots,
                row->policy, (unsigned long long)c->hits, 100.0 * replay_hit_rate(row),
                100.0 * share(c->hits, r->requests - r->first_touches),
                replay_bytes_per_token(q, r, row) / GB,
                100.0 * share(c->hits, opt_of(q, r, i)->count.hits),
                (unsigned long long)c->evictions);
    }
    for (uint32_t i = 0; i < q->policy_count; i++) {
        if (q->policy[i]->token_beside && q->ram_bytes == 0) {
            fprintf(out, "\n%s needs %u of its slots for the token in use: a run gets the same "
                    "with as many --expert-slots less\n", q->policy[i]->name, q->trace->top_k);
        }
    }
}

/* ---- for programs ---- */

static void number(cJSON *object, const char *name, uint64_t value)
{
    cJSON_AddNumberToObject(object, name, (double)value);
}

static void add_trace(cJSON *root, const struct replay_request *q, const struct replay_result *r)
{
    cJSON *trace = cJSON_AddObjectToObject(root, "trace");
    cJSON_AddStringToObject(trace, "path", q->path);
    cJSON_AddNumberToObject(trace, "tokens", r->tokens);
    number(trace, "layers", q->trace->layers);
    number(trace, "experts", q->experts);
    number(trace, "experts_per_token", q->trace->top_k);
    number(trace, "requests", r->requests);
    number(trace, "first_touches", r->first_touches);
    cJSON_AddNumberToObject(trace, "first_touch_share", share(r->first_touches, r->requests));
    number(trace, "repeats", r->requests - r->first_touches);
}

static void add_row(cJSON *array, const struct replay_request *q, const struct replay_result *r,
                    uint32_t index)
{
    const struct replay_row *row = &r->row[index];
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(array, item);
    cJSON_AddStringToObject(item, "policy", row->policy);
    number(item, "slots", row->slots);
    number(item, "expert_slots", row->expert_slots);
    number(item, "hits", row->count.hits);
    number(item, "misses", row->count.demands - row->count.hits);
    number(item, "repeat_misses", row->count.demands - row->count.hits - r->first_touches);
    number(item, "evictions", row->count.evictions);
    cJSON_AddNumberToObject(item, "hit_rate", replay_hit_rate(row));
    cJSON_AddNumberToObject(item, "repeat_hit_rate",
                            share(row->count.hits, r->requests - r->first_touches));
    cJSON_AddNumberToObject(item, "share_of_opt",
                            share(row->count.hits, opt_of(q, r, index)->count.hits));
    cJSON_AddNumberToObject(item, "bytes_per_token", replay_bytes_per_token(q, r, row));
}

cJSON *replay_json(const struct replay_request *q, const struct replay_result *r)
{
    cJSON *root = cJSON_CreateObject();
    if (root == NULL) {
        return NULL;
    }
    add_trace(root, q, r);
    cJSON_AddStringToObject(root, "geometry", q->geometry);
    number(root, "expert_bytes", q->expert_bytes);
    if (q->ram_bytes > 0) {
        number(root, "ram_bytes", q->ram_bytes);
    }
    cJSON *rows = cJSON_AddArrayToObject(root, "results");
    for (uint32_t i = 0; i < r->row_count; i++) {
        add_row(rows, q, r, i);
    }
    return root;
}
