/* SPDX-License-Identifier: Apache-2.0 */
/* Expert bytes per token of every cache policy at five capacities, beside Belady's rule: recorded
 * routing replayed through the code a run uses.
 *
 *   policy_bench [--quick] [--json FILE] [--chunk N] [--slots A,B,C,D,E] [--from N] [--to N]
 *                [TRACE...]
 *
 * Without traces: the one of the tests and a made one. The capacities are those asked for, else
 * 0.31, 0.62, 0.91, 1.24 and 2.48 of what one token asks of all layers (455 to 3,647 slots of the
 * full model). --from and --to cut a trace to its tokens N .. M-1, which begin cold. --quick takes
 * the first 16 tokens. Slots are those beyond the working ones, as --expert-slots counts them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "cache/opt.h"
#include "core/base/err.h"
#include "tests/support/trace_model.h"

#define EXPERT_BYTES 17547264.0 /* of the released model; other traces are counted alike */
#define CAPACITIES 5U
#define TRACES_MAX 32U
#define ROWS_MAX 16U
#define QUICK_TOKENS 16U

static const char quick_text[] = "the first 16 tokens of each trace; counts, the same every time";

struct bench {
    const char *json, *path[TRACES_MAX];
    uint32_t path_count, chunk, from, to;
    uint32_t slots[CAPACITIES]; /* 0: by the trace */
    FILE *out; /* the JSON, or NULL */
    bool quick;
};

struct row {
    const char *name;
    struct replay_count count[CAPACITIES];
};

static const char usage[] = "usage: policy_bench [--quick] [--json FILE] [--chunk N] "
                            "[--slots A,B,C,D,E] [--from N] [--to N] [TRACE...]\n";

static bool read_number(const char *text, uint32_t *value)
{
    char *end;
    unsigned long parsed = strtoul(text, &end, 10);
    *value = (uint32_t)parsed;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && parsed <= 1U << 30;
}

static bool read_slots(const char *text, uint32_t *slots)
{
    for (uint32_t i = 0; i < CAPACITIES; i++) {
        char *end;
        unsigned long parsed = strtoul(text, &end, 10);
        slots[i] = (uint32_t)parsed;
        if (end == text || parsed == 0 || parsed > 1U << 30 ||
            *end != (i + 1 < CAPACITIES ? ',' : '\0')) {
            return false;
        }
        text = end + 1;
    }
    return true;
}

static bool read_arguments(struct bench *bench, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        bool taken = true;
        if (strcmp(word, "--quick") == 0) {
            bench->to = QUICK_TOKENS;
            bench->quick = true;
            continue;
        }
        if (strcmp(word, "--json") == 0) {
            bench->json = value;
        } else if (strcmp(word, "--chunk") == 0) {
            taken = read_number(value, &bench->chunk) && bench->chunk > 0;
        } else if (strcmp(word, "--from") == 0) {
            taken = read_number(value, &bench->from);
        } else if (strcmp(word, "--to") == 0) {
            taken = read_number(value, &bench->to);
        } else if (strcmp(word, "--slots") == 0) {
            taken = read_slots(value, bench->slots);
        } else if (word[0] == '-' || bench->path_count == TRACES_MAX) {
            return false;
        } else {
            bench->path[bench->path_count++] = word;
            continue;
        }
        if (!taken || value[0] == '\0') {
            return false;
        }
        i++;
    }
    return true;
}

/* The groups of tokens from .. to-1: a layer's n-th group is that of token n. */
static int cut(const struct trace *whole, uint32_t from, uint32_t to, struct trace *out)
{
    uint32_t *seen = calloc(whole->layers, sizeof *seen);
    if (seen == NULL) {
        return err_set(ERR_MEMORY, "no memory to cut a trace");
    }
    int rc = trace_init(out, whole->layers, whole->top_k, whole->group_count);
    for (uint64_t group = 0; rc == 0 && group < whole->group_count; group++) {
        uint32_t token = seen[whole->layer[group]]++;
        if (token >= from && token < to) {
            trace_add(out, whole->layer[group], trace_ids(whole, group), 1);
        }
    }
    free(seen);
    return rc;
}

static int replay_all(const struct bench *bench, const struct trace *trace, const uint32_t *slots,
                      struct row *rows, uint32_t *row_count)
{
    *row_count = 0;
    for (uint32_t p = 0; policy_table[p] != NULL; p++) {
        struct row *row = &rows[(*row_count)++];
        assert(*row_count < ROWS_MAX);
        row->name = policy_table[p]->name;
        for (uint32_t i = 0; i < CAPACITIES; i++) {
            TRY(replay_policy(trace, policy_table[p], trace->experts, slots[i], bench->chunk,
                              &row->count[i]));
        }
    }
    struct row *row = &rows[(*row_count)++];
    row->name = "opt";
    for (uint32_t i = 0; i < CAPACITIES; i++) {
        TRY(replay_opt(trace, trace->experts, slots[i], bench->chunk, &row->count[i]));
    }
    return 0;
}

static double gb_per_token(const struct replay_count *count, double tokens)
{
    return (double)(count->demands - count->hits) * EXPERT_BYTES / 1e9 / tokens;
}

static void print_rows(const struct row *rows, uint32_t row_count, const uint32_t *slots,
                       double tokens)
{
    printf("%-22s", "GB per token, slots:");
    for (uint32_t i = 0; i < CAPACITIES; i++) {
        printf(" %8u        ", slots[i]);
    }
    putchar('\n');
    for (uint32_t r = 0; r < row_count; r++) {
        printf("  %-20s", rows[r].name);
        for (uint32_t i = 0; i < CAPACITIES; i++) {
            const struct replay_count *count = &rows[r].count[i];
            printf(" %8.3f %6.2f %%", gb_per_token(count, tokens),
                   100.0 * (double)count->hits / (double)count->demands);
        }
        putchar('\n');
    }
}

static void json_rows(FILE *out, const char *name, const struct row *rows, uint32_t row_count,
                      const uint32_t *slots, double tokens)
{
    fprintf(out, "{\"trace\": \"");
    for (const char *c = name; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            fputc('\\', out);
        }
        fputc((unsigned char)*c < ' ' ? '?' : *c, out);
    }
    fprintf(out, "\", \"tokens\": %.0f, \"rows\": [", tokens);
    for (uint32_t r = 0; r < row_count; r++) {
        for (uint32_t i = 0; i < CAPACITIES; i++) {
            const struct replay_count *count = &rows[r].count[i];
            fprintf(out, "%s\n  {\"policy\": \"%s\", \"slots\": %u, \"demands\": %llu, "
                    "\"hits\": %llu, \"bytes_per_token\": %.0f}", r + i > 0 ? "," : "",
                    rows[r].name, slots[i], (unsigned long long)count->demands,
                    (unsigned long long)count->hits, gb_per_token(count, tokens) * 1e9);
        }
    }
    fprintf(out, "]}");
}

static int measure(const struct bench *bench, const char *name, const struct trace *whole)
{
    struct row rows[ROWS_MAX] = {0};
    uint32_t slots[CAPACITIES], row_count = 0;
    static const uint64_t share[CAPACITIES] = {455, 911, 1344, 1823, 3647}; /* of 1,472 */
    struct trace trace;
    TRY(cut(whole, bench->from, bench->to, &trace));
    uint64_t token_demand = (uint64_t)trace.layers * trace.top_k;
    double tokens = (double)trace.group_count / trace.layers;
    for (uint32_t i = 0; i < CAPACITIES; i++) {
        slots[i] = bench->slots[i] > 0 ? bench->slots[i]
                                       : (uint32_t)((share[i] * token_demand + 736) / 1472);
    }
    int rc = trace.group_count == 0
                 ? err_set(ERR_USAGE, "%s: no token from %u on", name, bench->from)
                 : replay_all(bench, &trace, slots, rows, &row_count);
    if (rc == 0) {
        printf("%s: %.4g tokens, %u layers, %u experts a layer, chunk %u\n", name, tokens,
               trace.layers, trace.top_k, bench->chunk);
        print_rows(rows, row_count, slots, tokens);
    }
    if (rc == 0 && bench->out != NULL) {
        json_rows(bench->out, name, rows, row_count, slots, tokens);
    }
    trace_fini(&trace);
    return rc;
}

static int measure_all(struct bench *bench)
{
    static const struct trace_model made = {
        .seed = 7, .layers = 24, .experts = 224, .top_k = 8, .tokens = 64};
    uint32_t count = bench->path_count > 0 ? bench->path_count : 2;
    for (uint32_t i = 0; i < count; i++) {
        struct trace trace;
        const char *path = bench->path_count > 0 ? bench->path[i] : TRACE_MODEL_SMALL_PATH;
        bool make = bench->path_count == 0 && i == 1;
        TRY(make ? trace_model_make(&trace, &made) : trace_load(&trace, path));
        if (bench->out != NULL && i > 0) {
            fprintf(bench->out, ",\n");
        }
        int rc = measure(bench, make ? "made" : path, &trace);
        trace_fini(&trace);
        TRY(rc);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct bench bench = {.chunk = 1, .to = UINT32_MAX};
    if (!read_arguments(&bench, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    if (bench.json != NULL && (bench.out = fopen(bench.json, "we")) == NULL) {
        fprintf(stderr, "policy_bench: %s: cannot be written\n", bench.json);
        return 1;
    }
    if (bench.quick) {
        measure_quick(NULL, quick_text);
    }
    if (bench.out != NULL) {
        fprintf(bench.out, "{%s%s%s\"expert_bytes\": %.0f, \"chunk\": %u, \"traces\": [",
                bench.quick ? "\"quick_form\": \"" : "", bench.quick ? quick_text : "",
                bench.quick ? "\", " : "", EXPERT_BYTES, bench.chunk);
    }
    int rc = measure_all(&bench);
    if (bench.out != NULL) {
        fprintf(bench.out, "]}\n");
        fclose(bench.out);
    }
    if (rc < 0) {
        fprintf(stderr, "policy_bench: %s\n", err_message());
    }
    return err_exit_status(rc);
}
