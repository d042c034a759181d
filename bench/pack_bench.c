/* SPDX-License-Identifier: Apache-2.0 */
/* A token on a checkpoint against one on its pack: streaming at two budgets, and with everything
 * resident. Runs of both alternate, so that a busy machine disturbs both alike; times are medians,
 * and the ratio is the median of the ratios of neighbours.
 *
 *   pack_bench MODEL PACK [--quick] [--json FILE]
 *
 * The quick form measures at 4G with both engines open at once, so that each loads its pins once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/exec/generate.h"

#define TOKENS_MAX 4U
#define ROUNDS_MAX 9

static const char quick_text[] = "2 rounds of 1 token at 4G, both engines open at once; 1.5G and "
                                 "all resident are left to the long form";

static bool quick;

enum side { SOURCE, PACK, SIDES };

struct mode {
    const char *name;
    uint64_t ram_bytes;
    bool all;
};

static const struct mode modes[] = {
    {"1.5G", 1536 * MIB, false}, {"4G", 4 * GIB, false}, {"all", 21 * GIB, true}};

struct row {
    bool measured;
    double seconds[SIDES], ratio, ratios[ROUNDS_MAX]; /* of each round */
    uint64_t token_bytes[SIDES], pins_bytes[SIDES];
    unsigned char hash[SIDES][LOGITS_HASH_BYTES];
};

static struct engine_options options_for(const struct mode *m)
{
    return (struct engine_options){
        .ram_bytes = m->ram_bytes, .io_depth = 8, .io_size_bytes = 4 * MIB, .policy = "arc",
        .isa = ISA_AUTO, .io = IO_URING, .context = 64, .chunk = PLAN_AUTO,
        .pin_bytes = m->all ? PLAN_ALL : PLAN_AUTO, .pin_percent = -1,
        .expert_slots = m->all ? PLAN_ALL : PLAN_AUTO, .tile_bytes = PLAN_AUTO,
        .prompt_tokens = 4};
}

static void die(const char *what)
{
    fprintf(stderr, "pack_bench: %s: %s\n", what, err_message());
    exit(1);
}

static uint64_t bytes_read(struct engine *e)
{
    struct engine_stats stats;
    uint64_t bytes = 0;
    engine_stats(e, &stats);
    for (int i = 0; i < READ_CLASSES; i++) {
        bytes += stats.class[i].bytes;
    }
    return bytes;
}

/* Seconds per token after the first one. */
static double run(struct engine *e, uint32_t tokens, struct row *row, enum side side)
{
    static const uint32_t prompt[] = {3, 14, 15, 92};
    uint32_t ids[TOKENS_MAX + 1];
    struct generate_request r = {.ids = prompt, .id_count = quick ? 1 : 4, .gen = tokens + 1};
    struct generate_result out = {.ids = ids};
    uint64_t before = bytes_read(e);
    if (generate(e, &r, &out) < 0) {
        die("generate");
    }
    row->token_bytes[side] = (bytes_read(e) - before) / (tokens + 1);
    memcpy(row->hash[side], out.hash, sizeof out.hash);
    return (double)out.rest_ns / 1e9 / tokens;
}

/* The first run loads what is pinned and is not timed. *kept: the engine of this side; NULL opens
 * one, and the quick form leaves it open. */
static double open_and_run(const char *dir, const struct mode *m, uint32_t tokens,
                           struct row *row, enum side side, struct engine **kept)
{
    struct engine_options o = options_for(m);
    struct engine *e = *kept;
    if (e == NULL) {
        if (engine_open(&e, dir, &o) < 0) {
            die(m->name);
        }
        row->pins_bytes[side] = engine_plan_of(e)->account.pins;
        run(e, 1, row, side);
    }
    double seconds = run(e, tokens, row, side);
    if (quick) {
        *kept = e;
    } else {
        engine_close(e);
    }
    return seconds;
}

static bool fits(const char *dir, const struct mode *m)
{
    struct engine_options o = options_for(m);
    struct model *model;
    struct plan *plan;
    const char *why;
    if (engine_plan(dir, &o, &model, &plan) < 0) {
        die(m->name);
    }
    bool good = (quick ? 2 : 1) * plan->account.total < memory_available(&why);
    plan_free(plan);
    model_close(model);
    return good;
}

static void measure(const char *const dirs[SIDES], const struct mode *m, int rounds,
                    uint32_t tokens, struct row *row)
{
    double seconds[SIDES][ROUNDS_MAX];
    struct engine *kept[SIDES] = {NULL, NULL};
    if (!fits(dirs[SOURCE], m)) {
        printf("%-6s skipped: this machine has not the memory free\n", m->name);
        return;
    }
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < SIDES; k++) {
            enum side side = (enum side)((k + i) % SIDES); /* each goes first in turn */
            seconds[side][i] = open_and_run(dirs[side], m, tokens, row, side, &kept[side]);
        }
        row->ratios[i] = seconds[PACK][i] / seconds[SOURCE][i];
    }
    for (int side = 0; side < SIDES; side++) {
        row->seconds[side] = measure_median(seconds[side], (uint32_t)rounds);
        engine_close(kept[side]);
    }
    row->ratio = measure_median(row->ratios, (uint32_t)rounds);
    row->measured = true;
    if (memcmp(row->hash[SOURCE], row->hash[PACK], LOGITS_HASH_BYTES) != 0) {
        fprintf(stderr, "pack_bench: %s: the pack's logits are not those of its source\n", m->name);
        exit(1);
    }
}

static void write_ratios(FILE *out, const struct row *r, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        fprintf(out, "%s%.4f", i > 0 ? ", " : "", r->ratios[i]);
    }
}

static void write_json(const char *path, const struct row *rows, int rounds, uint32_t tokens)
{
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        fprintf(stderr, "pack_bench: %s cannot be written\n", path);
        exit(1);
    }
    fprintf(out, "{");
    if (quick) {
        fprintf(out, "\"quick_form\": \"%s\", ", quick_text);
    }
    fprintf(out, "\"rounds\": %d, \"tokens\": %u, \"rows\": [", rounds, tokens);
    const char *comma = "";
    for (size_t i = 0; i < countof(modes); i++) {
        const struct row *r = &rows[i];
        if (!r->measured) {
            continue;
        }
        fprintf(out, "%s{\"ram\": \"%s\", \"source_s\": %.4f, \"pack_s\": %.4f, \"ratio\": %.4f, "
                "\"source_bytes\": %llu, \"pack_bytes\": %llu, \"source_pins\": %llu, "
                "\"pack_pins\": %llu, \"ratios\": [", comma, modes[i].name, r->seconds[SOURCE],
                r->seconds[PACK], r->ratio, (unsigned long long)r->token_bytes[SOURCE],
                (unsigned long long)r->token_bytes[PACK], (unsigned long long)r->pins_bytes[SOURCE],
                (unsigned long long)r->pins_bytes[PACK]);
        write_ratios(out, r, rounds);
        fprintf(out, "]}");
        comma = ", ";
    }
    fprintf(out, "]}\n");
    fclose(out);
}

static void print_head(void)
{
    printf("%-6s %10s %10s %8s %12s %12s %12s %12s\n", "ram", "s/token", "packed", "ratio",
           "MB/token", "packed", "pinned MB", "packed");
}

static void print_row(const char *name, const struct row *r, int rounds)
{
    if (r->measured) {
        printf("%-6s %10.3f %10.3f %8.3f %12.1f %12.1f %12.1f %12.1f\n", name,
               r->seconds[SOURCE], r->seconds[PACK], r->ratio,
               (double)r->token_bytes[SOURCE] / 1e6, (double)r->token_bytes[PACK] / 1e6,
               (double)r->pins_bytes[SOURCE] / 1e6, (double)r->pins_bytes[PACK] / 1e6);
    }
    if (r->measured && quick) {
        printf("ratio of each round: ");
        write_ratios(stdout, r, rounds);
        printf("\n");
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *dirs[SIDES] = {NULL, NULL};
    const char *json = NULL;
    int found = 0;
    int rounds = 7;
    uint32_t tokens = TOKENS_MAX;
    static struct row rows[countof(modes)];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            rounds = 2;
            tokens = 1;
            quick = true;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json = argv[++i];
        } else if (found < SIDES) {
            dirs[found++] = argv[i];
        }
    }
    if (found != SIDES) {
        fprintf(stderr, "usage: pack_bench MODEL PACK [--quick] [--json FILE]\n");
        return 2;
    }
    if (quick) {
        measure_quick(NULL, quick_text);
    }
    print_head();
    for (size_t i = countof(modes) - quick; i-- > quick;) {
        measure(dirs, &modes[i], rounds, tokens, &rows[i]);
        print_row(modes[i].name, &rows[i], rounds);
    }
    if (json != NULL) {
        write_json(json, rows, rounds, tokens);
    }
    return 0;
}
