/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes and requests per prompt token by how many tokens a pass takes together: the trunk is read
 * once per pass, and so is each expert that any of its tokens asks for. Counts of real passes with
 * nothing pinned and no cache, beside what the plan says; the same on every machine.
 *
 *   chunk_bench MODEL [--quick] [--json FILE]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/exec/generate.h"

#define TOKENS_MAX 256U

struct row {
    uint32_t tokens;
    uint64_t plan_trunk_bytes, trunk_bytes, expert_bytes, expert_reads, expert_uses, requests;
    double seconds;
};

static int measure(const char *dir, uint32_t tokens, struct row *row)
{
    uint32_t prompt[TOKENS_MAX];
    uint32_t id;
    uint64_t requests;
    struct engine_options o = {
        .ram_bytes = 3 * GIB, .io_depth = 8, .io_size_bytes = 4 * MIB, .policy = "none",
        .isa = ISA_AUTO, .io = IO_URING, .context = tokens + 1, .chunk = tokens, .pin_bytes = 0,
        .pin_percent = -1, .expert_slots = 0, .tile_bytes = PLAN_AUTO, .prompt_tokens = tokens};
    struct generate_request r = {.ids = prompt, .id_count = tokens, .gen = 1};
    struct generate_result out = {.ids = &id};
    struct engine_stats s;
    struct engine *e;
    TRY(engine_open(&e, dir, &o));
    const struct model_config *c = &engine_model(e)->config;
    struct rng rng = rng_seed(5);
    for (uint32_t i = 0; i < tokens; i++) {
        prompt[i] = (uint32_t)rng_below(&rng, c->vocab);
    }
    *row = (struct row){.tokens = tokens};
    plan_pass_reads(engine_plan_of(e), true, true, true, &row->plan_trunk_bytes, &requests);
    row->expert_uses = (uint64_t)tokens * engine_plan_of(e)->experts_per_pass;
    int rc = generate(e, &r, &out);
    engine_stats(e, &s);
    row->trunk_bytes = s.class[READ_TRUNK].bytes + s.class[READ_HEAD].bytes;
    row->expert_bytes = s.class[READ_EXPERTS].bytes;
    row->expert_reads = s.cache_misses;
    row->requests = s.io.requests;
    row->seconds = (double)out.first_ns / 1e9;
    engine_close(e);
    return rc;
}

static void show(const struct row *r, cJSON *list)
{
    double n = r->tokens;
    double bytes = (double)(r->trunk_bytes + r->expert_bytes);
    printf("%6u %14.1f %14.1f %14.1f %10.1f %8llu of %-8llu %9.2f\n", r->tokens,
           (double)r->trunk_bytes / n / 1e6, (double)r->expert_bytes / n / 1e6, bytes / n / 1e6,
           (double)r->requests / n, (unsigned long long)r->expert_reads,
           (unsigned long long)r->expert_uses, r->seconds / n);
    fflush(stdout);
    cJSON *o = cJSON_CreateObject();
    cJSON_AddItemToArray(list, o);
    cJSON_AddNumberToObject(o, "chunk", n);
    cJSON_AddNumberToObject(o, "plan_trunk_bytes", (double)r->plan_trunk_bytes);
    cJSON_AddNumberToObject(o, "trunk_bytes", (double)r->trunk_bytes);
    cJSON_AddNumberToObject(o, "expert_bytes", (double)r->expert_bytes);
    cJSON_AddNumberToObject(o, "expert_reads", (double)r->expert_reads);
    cJSON_AddNumberToObject(o, "expert_uses", (double)r->expert_uses);
    cJSON_AddNumberToObject(o, "requests", (double)r->requests);
    cJSON_AddNumberToObject(o, "bytes_per_prompt_token", bytes / n);
    cJSON_AddNumberToObject(o, "seconds_per_prompt_token", r->seconds / n);
}

static int run(const char *dir, bool quick, cJSON *list)
{
    static const uint32_t all_chunks[] = {1, 16, 64, 256};
    static const uint32_t quick_chunks[] = {1, 8};
    const uint32_t *chunks = quick ? quick_chunks : all_chunks;
    size_t count = quick ? countof(quick_chunks) : countof(all_chunks);
    printf("%6s %14s %14s %14s %10s %20s %9s\n", "chunk", "trunk MB/tok", "experts MB/tok",
           "MB per token", "requests", "experts read of used", "s/token");
    for (size_t i = 0; i < count; i++) {
        struct row row;
        TRY(measure(dir, chunks[i], &row));
        show(&row, list);
        if (row.trunk_bytes != row.plan_trunk_bytes) {
            return err_set(ERR_RUN, "a pass read %llu bytes of the trunk, planned were %llu",
                           (unsigned long long)row.trunk_bytes,
                           (unsigned long long)row.plan_trunk_bytes);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *dir = NULL;
    const char *json = NULL;
    bool quick = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            quick = true;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json = argv[++i];
        } else {
            dir = argv[i];
        }
    }
    if (dir == NULL) {
        fprintf(stderr, "usage: chunk_bench MODEL [--quick] [--json FILE]\n");
        return 2;
    }
    cJSON *root = cJSON_CreateObject();
    if (quick) {
        measure_quick(root, "chunks of 1 and 8; larger ones are left to the long form. Bytes are "
                      "counts; s/token is one sample");
    }
    int rc = run(dir, quick, cJSON_AddArrayToObject(root, "chunks"));
    if (rc < 0) {
        fprintf(stderr, "chunk_bench: %s\n", err_message());
    }
    bool written = json == NULL || measure_write(json, root);
    return rc < 0 ? err_exit_status(rc) : !written;
}
