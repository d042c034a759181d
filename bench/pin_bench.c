/* SPDX-License-Identifier: Apache-2.0 */
/* Pins spread over the walk against pins at its front, at equal RAM: both read the same bytes per
 * token, so what differs is how well the drive and the cores share the time. Runs alternate, and
 * each pair gives one ratio. Before that, what the two plans come to on paper: a drive and cores of
 * given rates, each taking the walk's tiles in order, and the plan's ring between them; the trunk
 * alone, without experts.
 *
 *   pin_bench MODEL [--quick] [--paper] [--json FILE]     --paper: headers are read, nothing else
 *
 * The quick form measures one budget, the middle one, with both engines open at once, so that each
 * loads its pins once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "core/base/err.h"
#include "core/exec/generate.h"

#define PAIRS_MAX 7
#define ORDERS 2

struct budget {
    const char *name;
    uint64_t ram_bytes;
};

static const struct budget budgets[] = {{"1.5G", 1536 * MIB}, {"4G", 4 * GIB}, {"7G", 7 * GIB}};

struct row {
    double second[ORDERS][PAIRS_MAX]; /* per token, by enum plan_pin_order */
    double ratio[PAIRS_MAX];          /* prefix : spread of each pair */
    uint64_t bytes[ORDERS];           /* asked for per token */
    uint64_t pinned[ORDERS];
    unsigned char hash[ORDERS][LOGITS_HASH_BYTES];
};

static const char quick_text[] = "2 pairs of 1 token at 4G, both engines open at once; other "
                                 "budgets are left to the long form";

static uint32_t tokens = 6;
static int pairs = 7;
static bool quick;

static void die(const char *what)
{
    fprintf(stderr, "pin_bench: %s: %s\n", what, err_message());
    exit(1);
}

static double median(const double *values)
{
    return measure_median(values, (uint32_t)pairs);
}

static uint64_t read_bytes(struct engine *e)
{
    struct engine_stats stats;
    uint64_t bytes = 0;
    engine_stats(e, &stats);
    for (int i = 0; i < READ_CLASSES; i++) {
        bytes += stats.class[i].bytes;
    }
    return bytes;
}

static void sequence(struct engine *e, uint32_t gen, struct generate_result *out)
{
    static const uint32_t prompt[] = {3, 14, 15, 92};
    uint32_t count = quick ? 1 : countof(prompt);
    struct generate_request r = {.ids = prompt, .id_count = count, .gen = gen};
    if (generate(e, &r, out) < 0) {
        die("generate");
    }
}

static struct engine_options options_for(uint64_t ram_bytes, enum plan_pin_order order)
{
    return (struct engine_options){
        .ram_bytes = ram_bytes, .io_depth = 8, .io_size_bytes = 4 * MIB, .policy = "arc",
        .isa = ISA_AUTO, .io = IO_URING, .context = 64, .chunk = PLAN_AUTO,
        .pin_bytes = PLAN_AUTO, .pin_percent = -1, .pin_order = order, .expert_slots = 0,
        .tile_bytes = PLAN_AUTO, .prompt_tokens = 4};
}

static struct engine *open_loaded(const char *dir, const struct budget *b,
                                  enum plan_pin_order order)
{
    struct engine_options o = options_for(b->ram_bytes, order);
    struct engine *e;
    uint32_t id;
    struct generate_result out = {.ids = &id};
    if (engine_open(&e, dir, &o) < 0) {
        die(b->name);
    }
    sequence(e, 1, &out); /* loads the pins */
    return e;
}

/* *kept: the engine of this order; NULL opens one, and the quick form leaves it open. */
static void run(const char *dir, const struct budget *b, enum plan_pin_order order, int pair,
                struct row *row, struct engine **kept)
{
    struct engine *e = *kept != NULL ? *kept : open_loaded(dir, b, order);
    uint32_t ids[32];
    struct generate_result out = {.ids = ids};
    uint64_t before = read_bytes(e);
    sequence(e, tokens + 1, &out);
    row->bytes[order] = (read_bytes(e) - before) / (tokens + 1);
    row->second[order][pair] = (double)out.rest_ns / 1e9 / tokens;
    row->pinned[order] = engine_plan_of(e)->pin_area_bytes;
    memcpy(row->hash[order], out.hash, sizeof out.hash);
    if (quick) {
        *kept = e;
    } else {
        engine_close(e);
    }
}

static void measure(const char *dir, const struct budget *b, struct row *row)
{
    struct engine *kept[ORDERS] = {NULL, NULL};
    for (int pair = 0; pair < pairs; pair++) {
        enum plan_pin_order first = pair % 2 == 0 ? PIN_SPREAD : PIN_PREFIX;
        enum plan_pin_order second = first == PIN_SPREAD ? PIN_PREFIX : PIN_SPREAD;
        run(dir, b, first, pair, row, &kept[first]);
        run(dir, b, second, pair, row, &kept[second]);
        row->ratio[pair] = row->second[PIN_PREFIX][pair] / row->second[PIN_SPREAD][pair];
        if (memcmp(row->hash[PIN_SPREAD], row->hash[PIN_PREFIX], LOGITS_HASH_BYTES) != 0) {
            fprintf(stderr, "pin_bench: the two orders gave different logits\n");
            exit(1);
        }
    }
    engine_close(kept[PIN_SPREAD]);
    engine_close(kept[PIN_PREFIX]);
}

/* Streamed tiles whose memory is still taken: what they hold, and when it comes back. */
struct held {
    uint64_t bytes;
    double until;
};

/* Seconds per token when drive and cores move the given GB/s and rest only for each other. */
static double on_paper(const struct plan *plan, double drive_gbps, double compute_gbps)
{
    struct held *ring = calloc(3ULL * plan->tile_count, sizeof *ring);
    uint32_t first = 0;
    uint32_t end = 0;
    uint64_t used = 0;
    double drive = 0;   /* when it is free */
    double cores = 0;
    double begun = 0;   /* of the last pass */
    for (uint32_t at = 0; ring != NULL && at < 3 * plan->tile_count; at++) {
        const struct plan_tile *tile = &plan->tiles[at % plan->tile_count];
        begun = at == 2 * plan->tile_count ? cores : begun;
        if (!tile->pinned) {
            while (used + tile->window_bytes > plan->ring_bytes) {
                drive = ring[first].until > drive ? ring[first].until : drive;
                used -= ring[first++].bytes;
            }
            drive += (double)tile->window_bytes / 1e9 / drive_gbps;
            cores = drive > cores ? drive : cores;
        }
        cores += (double)tile->payload_bytes / 1e9 / compute_gbps;
        if (!tile->pinned) {
            ring[end++] = (struct held){tile->window_bytes, cores};
            used += tile->window_bytes;
        }
    }
    free(ring);
    return cores - begun;
}

static void print_paper(const char *dir)
{
    static const uint64_t percent[] = {10, 25, 50, 75, 90};
    static const double rates[][2] = {{3, 12}, {7, 14}, {12, 12}, {14, 7}};
    printf("on paper: prefix : spread, trunk alone\n%-18s", "pinned");
    for (size_t k = 0; k < countof(rates); k++) {
        printf("  drive %2.0f cores %2.0f", rates[k][0], rates[k][1]);
    }
    for (size_t i = 0; i < countof(percent); i++) {
        struct plan *plan[ORDERS];
        struct model *model[ORDERS];
        for (int order = 0; order < ORDERS; order++) {
            struct engine_options o = options_for(4096 * GIB, (enum plan_pin_order)order);
            o.pin_percent = (double)percent[i];
            if (engine_plan(dir, &o, &model[order], &plan[order]) < 0) {
                die("plan");
            }
        }
        printf("\n%17llu%%", (unsigned long long)percent[i]);
        for (size_t k = 0; k < countof(rates); k++) {
            printf("  %17.3f", on_paper(plan[PIN_PREFIX], rates[k][0], rates[k][1]) /
                                   on_paper(plan[PIN_SPREAD], rates[k][0], rates[k][1]));
        }
        for (int order = 0; order < ORDERS; order++) {
            plan_free(plan[order]);
            model_close(model[order]);
        }
    }
    printf("\n\n");
    fflush(stdout);
}

static int prefix_wins(const struct row *row)
{
    int wins = 0;
    for (int i = 0; i < pairs; i++) {
        wins += row->ratio[i] < 1;
    }
    return wins;
}

static void write_ratios(FILE *out, const struct row *r)
{
    for (int i = 0; i < pairs; i++) {
        fprintf(out, "%s%.4f", i > 0 ? ", " : "", r->ratio[i]);
    }
}

static void write_json(const char *path, const struct row *rows)
{
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        fprintf(stderr, "pin_bench: %s cannot be written\n", path);
        exit(1);
    }
    fprintf(out, "{");
    if (quick) {
        fprintf(out, "\"quick_form\": \"%s\", ", quick_text);
    }
    fprintf(out, "\"pairs\": %d, \"tokens_per_run\": %u, \"rows\": [", pairs, tokens);
    for (size_t i = quick; i < countof(budgets) - quick; i++) {
        const struct row *r = &rows[i];
        fprintf(out, "%s{\"ram\": \"%s\", \"pinned_bytes\": %llu, \"bytes_per_token\": %llu, "
                "\"spread_s\": %.4f, \"prefix_s\": %.4f, \"prefix_to_spread\": %.4f, "
                "\"prefix_wins\": %d, \"ratios\": [", i > quick ? ", " : "", budgets[i].name,
                (unsigned long long)r->pinned[PIN_SPREAD],
                (unsigned long long)r->bytes[PIN_SPREAD], median(r->second[PIN_SPREAD]),
                median(r->second[PIN_PREFIX]), median(r->ratio), prefix_wins(r));
        write_ratios(out, r);
        fprintf(out, "]}");
    }
    fprintf(out, "]}\n");
    fclose(out);
}

static void print(const struct budget *b, const struct row *r)
{
    printf("%-6s %11.1f %14.1f %10.3f %10.3f %16.3f %9d/%d\n", b->name,
           (double)r->pinned[PIN_SPREAD] / 1e6, (double)r->bytes[PIN_SPREAD] / 1e6,
           median(r->second[PIN_SPREAD]), median(r->second[PIN_PREFIX]), median(r->ratio),
           prefix_wins(r), pairs);
    if (quick) {
        printf("prefix : spread of each pair: ");
        write_ratios(stdout, r);
        printf("\n");
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *dir = NULL;
    const char *json = NULL;
    bool paper = false;
    static struct row rows[countof(budgets)];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            pairs = 2;
            tokens = 1;
            quick = true;
        } else if (strcmp(argv[i], "--paper") == 0) {
            paper = true;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json = argv[++i];
        } else {
            dir = argv[i];
        }
    }
    if (dir == NULL) {
        fprintf(stderr, "usage: pin_bench MODEL [--quick] [--paper] [--json FILE]\n");
        return 2;
    }
    if (quick) {
        measure_quick(NULL, quick_text);
    }
    print_paper(dir);
    if (paper) {
        return 0;
    }
    printf("%-6s %11s %14s %10s %10s %16s %12s\n", "ram", "pinned MB", "MB per token", "spread s",
           "prefix s", "prefix : spread", "prefix wins");
    for (size_t i = quick; i < countof(budgets) - quick; i++) {
        measure(dir, &budgets[i], &rows[i]);
        print(&budgets[i], &rows[i]);
    }
    if (json != NULL) {
        write_json(json, rows);
    }
    return 0;
}
