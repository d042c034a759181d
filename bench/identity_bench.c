/* SPDX-License-Identifier: Apache-2.0 */
/* The identity grid on a wide model: one prompt through budgets, depths, policies, threads,
 * instruction sets, chunks and backends. Prints seconds and bytes of each point; fails when any
 * hash differs.
 *
 *   identity_bench [--quick] MODEL
 */
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/exec/generate.h"
#include "kernels/kernels.h"

#define GEN 3U
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

static int run_point(const char *dir, const struct point *p, char hash[65])
{
    static const uint32_t prompt[PROMPT] = {3, 14, 15, 92, 65};
    uint32_t ids[GEN];
    struct engine_options o = {
        .ram_bytes = p->ram_mib * MIB, .io_depth = p->depth, .io_size_bytes = p->io_size_bytes,
        .policy = p->policy, .threads = p->threads, .isa = p->isa, .io = p->io,
        .sim = {.seed = 7, .threads = true}, .context = 64, .chunk = p->chunk,
        .pin_bytes = PLAN_AUTO, .pin_percent = p->pin_percent, .expert_slots = p->slots,
        .tile_bytes = p->tile_bytes, .prompt_tokens = PROMPT};
    struct generate_request r = {.ids = prompt, .id_count = PROMPT, .gen = GEN};
    struct generate_result out = {.ids = ids};
    struct engine *e;
    struct engine_stats stats;
    struct engine_facts facts;
    TRY(engine_open(&e, dir, &o));
    int rc = generate(e, &r, &out);
    engine_stats(e, &stats);
    engine_facts(e, &facts);
    generate_hash_text(out.hash, hash);
    printf("%6llu MiB depth %2u threads %u %-10s %-6s %-8s %8.3f s/token %9.3f GB  %.16s\n",
           (unsigned long long)p->ram_mib, p->depth, p->threads, p->policy, facts.isa,
           facts.io_engine, (double)out.rest_ns / 1e9 / (GEN - 1), (double)stats.io.bytes / 1e9,
           rc < 0 ? "failed" : hash);
    fflush(stdout);
    engine_close(e);
    return rc;
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    if (argc < 2 + quick) {
        fprintf(stderr, "usage: identity_bench [--quick] MODEL\n");
        return 2;
    }
    char first[65] = "";
    int bad = 0;
    size_t count = quick ? 3 : countof(points);
    for (size_t i = 0; i < count; i++) {
        char hash[65];
        if (kernels_select(points[i].isa) == NULL) {
            printf("skip: this processor lacks the instruction set of point %zu\n", i);
            continue;
        }
        if (run_point(argv[1 + quick], &points[i], hash) < 0) {
            fprintf(stderr, "identity_bench: point %zu: %s\n", i, err_message());
            return 1;
        }
        if (first[0] == '\0') {
            memcpy(first, hash, sizeof first);
        }
        bad += strcmp(first, hash) != 0;
    }
    printf("%s\n", bad == 0 ? "one hash" : "HASHES DIFFER");
    return bad != 0;
}
