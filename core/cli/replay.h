/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_REPLAY_H
#define CLI_REPLAY_H

/* A trace through cache policies at several sizes: the figures, as a table and as JSON. */

#include <cjson/cJSON.h>
#include <stdio.h>

#include "cache/opt.h"

#define REPLAY_POLICIES_MAX 16
#define REPLAY_SLOTS_MAX 64

struct replay_request {
    const struct trace *trace;
    const char *path;           /* of the trace, as typed */
    const struct policy_ops *policy[REPLAY_POLICIES_MAX];
    uint32_t policy_count;
    uint32_t slots[REPLAY_SLOTS_MAX]; /* capacities: see replay_expert_slots */
    uint32_t slots_count;
    uint32_t experts;           /* per layer, more than any of the trace */
    uint64_t expert_bytes;
    uint64_t ram_bytes;         /* the slots are a plan's for it; 0 = they were given */
    const char *geometry;       /* whose expert_bytes and ram: "Kimi K3", or a folder */
    bool borrowed;              /* a model of that geometry did not make this trace */
};

struct replay_row {
    const char *policy;         /* or "opt" */
    uint32_t slots;             /* of the request */
    uint32_t expert_slots;      /* what a run calls --expert-slots */
    struct replay_count count;
};

struct replay_result {
    struct replay_row *row;     /* by slots, then in order of the request; opt last */
    uint32_t row_count;
    uint64_t requests;          /* experts asked for */
    uint64_t first_touches;     /* of them by nobody before: misses whatever the cache */
    double tokens;
};

/* Slots a policy divides at a capacity: all, or without the working slots of a token for those
 * that hold no token (token_beside of cache/policy.h). A plan's slots are beyond working ones. */
uint32_t replay_expert_slots(const struct replay_request *request, const struct policy_ops *ops,
                             uint32_t slots);

/* ERR_STOPPED when a signal came between two rows. Undone by replay_fini, also after a failure. */
int replay_run(const struct replay_request *request, struct replay_result *out);
void replay_fini(struct replay_result *result);

double replay_hit_rate(const struct replay_row *row);
double replay_bytes_per_token(const struct replay_request *request,
                              const struct replay_result *result, const struct replay_row *row);

void replay_print(FILE *out, const struct replay_request *request,
                  const struct replay_result *result);
/* Two pictures (picture.h) in dir: hit rate and bytes per token against slots, for each policy. */
int replay_plot(const char *dir, const struct replay_request *request,
                const struct replay_result *result);
/* NULL when memory is refused. Free with cJSON_Delete. */
cJSON *replay_json(const struct replay_request *request, const struct replay_result *result);

#endif
