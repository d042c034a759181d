/* SPDX-License-Identifier: Apache-2.0 */
/* The identity grid on a wide model: one prompt through budgets, depths, policies, threads,
 * instruction sets, chunks and backends. Prints seconds and bytes of each point; fails when any
 * hash differs.
 *
 *   identity_bench [--quick] [--json FILE] MODEL
 */
#include <stdio.h>
#include <string.h>

#include "bench/measure.h"
#include "core/base/err.h"
#include "core/exec/generate.h"
#include "kernels/kernels.h"

#define GEN_MAX 3U
#define PROMPT 5U

struct point {
    uint64_t ram_mib, tile_bytes, io_size_bytes, chunk, slots;
    double pin_percent;
    uint32_t depth, threads;
    const char *policy;
    enum isa isa;
    enum io_engine io;
};

static const struct point points[] = {
    {4096, PLAN_AUTO, 4 * MIB, PLAN_AUTO, PLAN_AUTO, -1, 8, 2, "arc", ISA_AUTO, IO_URING},
    {1024, PLAN_AUTO, 4 * MIB, 1, PLAN_AUTO, 0, 8, 2, "none", ISA_AUTO, IO_URING},
    {1536, MIB, 512 * KIB, 2, 16, -1, 64, 3, "lar", ISA_AUTO, IO_URING},
    {8192, 8 * MIB, MIB, 3, 200, 50, 2, 1, "lru", ISA_AUTO, IO_PREAD},
    {3072, 512 * KIB, 128 * KIB, PLAN_AUTO, 64, 10, 16, 4, "lfu", ISA_AUTO, IO_URING},
    {2048, PLAN_AUTO, 4 * MIB, PLAN_AUTO, 40, -1, 1, 2, "arc-global", ISA_AUTO, IO_SIM},
    {12288, PLAN_AUTO, 4 * MIB, PLAN_AUTO, PLAN_AUTO, 100, 8, 2, "arc", ISA_AUTO, IO_URING},
    {4096, PLAN_AUTO, 4 * MIB, PLAN_AUTO, PLAN_AUTO, -1, 8, 2, "arc", ISA_AVX2, IO_URING},
    {4096, PLAN_AUTO, 4 * MIB, PLAN_AUTO, PLAN_AUTO, -1, 8, 2, "arc", ISA_AVX512, IO_URING},
    {4096, PLAN_AUTO, 4 * MIB, PLAN_AUTO, PLAN_AUTO, -1, 8, 2, "arc", ISA_SCALAR, IO_URING},
};

/* The quick form: other backends, threads, chunks and pins, and few bytes. */
static const size_t quick_points[] = {0, 3};

struct settings {
    const char *dir, *json;
    size_t count;
    uint32_t gen;
    bool quick;
};

static void point_json(cJSON *list, const struct point *p, const char *isa, const char *io,
                       double seconds, double bytes, const char *hash)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddItemToArray(list, o);
    cJSON_AddNumberToObject(o, "ram_bytes", (double)(p->ram_mib * MIB));
    cJSON_AddNumberToObject(o, "depth", p->depth);
    cJSON_AddNumberToObject(o, "threads", p->threads);
    cJSON_AddStringToObject(o, "policy", p->policy);
    cJSON_AddStringToObject(o, "isa", isa);
    cJSON_AddStringToObject(o, "io", io);
    cJSON_AddNumberToObject(o, "seconds_per_token", seconds);
    cJSON_AddNumberToObject(o, "bytes", bytes);
    cJSON_AddStringToObject(o, "logits_sha256", hash);
}

static int run_point(const struct settings *s, const struct point *p, char hash[65], cJSON *list)
{
    static const uint32_t prompt[PROMPT] = {3, 14, 15, 92, 65};
    uint32_t ids[GEN_MAX];
    struct engine_options o = {
        .ram_bytes = p->ram_mib * MIB, .io_depth = p->depth, .io_size_bytes = p->io_size_bytes,
        .policy = p->policy, .threads = p->threads, .isa = p->isa, .io = p->io,
        .sim = {.seed = 7, .threads = true}, .context = 64, .chunk = p->chunk,
        .pin_bytes = PLAN_AUTO, .pin_percent = p->pin_percent, .expert_slots = p->slots,
        .tile_bytes = p->tile_bytes, .prompt_tokens = PROMPT};
    struct generate_request r = {.ids = prompt, .id_count = PROMPT, .gen = s->gen};
    struct generate_result out = {.ids = ids};
    struct engine *e;
    struct engine_stats stats;
    struct engine_facts facts;
    TRY(engine_open(&e, s->dir, &o));
    int rc = generate(e, &r, &out);
    engine_stats(e, &stats);
    engine_facts(e, &facts);
    generate_hash_text(out.hash, hash);
    double seconds = (double)out.rest_ns / 1e9 / (s->gen - 1);
    printf("%6llu MiB depth %2u threads %u %-10s %-6s %-8s %8.3f s/token %9.3f GB  %.16s\n",
           (unsigned long long)p->ram_mib, p->depth, p->threads, p->policy, facts.isa,
           facts.io_engine, seconds, (double)stats.io.bytes / 1e9, rc < 0 ? "failed" : hash);
    fflush(stdout);
    point_json(list, p, facts.isa, facts.io_engine, seconds, (double)stats.io.bytes, hash);
    engine_close(e);
    return rc;
}

/* Returns how many hashes differ from the first; negative when a point failed. */
static int run_points(const struct settings *s, cJSON *list)
{
    char first[65] = "";
    int bad = 0;
    for (size_t k = 0; k < s->count; k++) {
        char hash[65];
        size_t i = s->quick ? quick_points[k] : k;
        if (kernels_select(points[i].isa) == NULL) {
            printf("skip: this processor lacks the instruction set of point %zu\n", i);
            continue;
        }
        if (run_point(s, &points[i], hash, list) < 0) {
            fprintf(stderr, "identity_bench: point %zu: %s\n", i, err_message());
            return -1;
        }
        if (first[0] == '\0') {
            memcpy(first, hash, sizeof first);
        }
        bad += strcmp(first, hash) != 0;
    }
    return bad;
}

int main(int argc, char **argv)
{
    struct settings s = {.count = countof(points), .gen = GEN_MAX};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            s.quick = true;
            s.count = countof(quick_points);
            s.gen = 2;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            s.json = argv[++i];
        } else {
            s.dir = argv[i];
        }
    }
    if (s.dir == NULL) {
        fprintf(stderr, "usage: identity_bench [--quick] [--json FILE] MODEL\n");
        return 2;
    }
    cJSON *root = cJSON_CreateObject();
    if (s.quick) {
        measure_quick(root, "2 points of 10, 2 tokens; s/token is one sample. Small budgets, depth "
                      "64, the simulated drive and scalar kernels are left to the long form");
    }
    int bad = run_points(&s, cJSON_AddArrayToObject(root, "points"));
    if (bad >= 0) {
        printf("%s\n", bad == 0 ? "one hash" : "HASHES DIFFER");
    }
    cJSON_AddBoolToObject(root, "one_hash", bad == 0);
    if (s.json == NULL) {
        cJSON_Delete(root);
        return bad != 0;
    }
    return !measure_write(s.json, root) || bad != 0;
}
