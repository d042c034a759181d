/* SPDX-License-Identifier: Apache-2.0 */

/* Speed of every kernel, per instruction set, beside what bounds it: a read loop over the same
 * memory, and a loop of fused steps in registers. Weights stream through buffers far larger than
 * the caches, as they do in a run; vectors are small and stay in them. Time is what the thread had
 * of a core, so other programs disturb little, and all cases of a repeat run one after the other,
 * so a slow moment of the machine spoils a repeat and not a ratio.
 *
 *   kernel_bench [--quick] [--json FILE]     5 repeats or 1, medians; 512 MiB of weights */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/kernel_cases.h"
#include "bench/measure.h"
#include "core/base/nondet.h"

#define THREADS 2u

static const char quick_text[] = "one repeat: each figure and each ratio is one sample, no spread";

/* ---- measuring ---- */

struct results {
    const char *name;                /* of the table; NULL when this CPU has none */
    struct figure speed[CASE_COUNT]; /* elements per ns, one core */
    struct figure bytes[CASE_COUNT]; /* bytes per ns */
    struct figure fma;
};

static double read_speed(const struct bench *b, volatile uint64_t *sink)
{
    uint64_t begin_ns = nondet_thread_cpu_ns();
    *sink = read_quarters(b->data + b->begin, b->end - b->begin);
    return (double)(b->end - b->begin) / (double)(nondet_thread_cpu_ns() - begin_ns);
}

/* A case reads less the more it computes per byte. */
static void run_case(struct bench *b, const struct bench_case *c, bool scalar)
{
    uint64_t end = b->end;
    uint64_t share = c->weights ? c->tokens : 1;
    b->end = align_up(DATA_BYTES / share / (scalar ? 32 : 1), TILE_BYTES) + 2 * TILE_BYTES;
    b->end = b->end < end ? b->end : end;
    b->elements = b->bytes = 0;
    c->run(b, c->cols, c->tokens);
    b->end = end;
}

static void repeat_isa(struct bench *b, struct results *r, enum isa isa)
{
    b->k = kernels_select(isa);
    r->name = b->k->name;
    figure_add(&r->fma, fma_peak(isa));
    for (uint32_t i = 0; i < CASE_COUNT; i++) {
        if (isa == ISA_SCALAR && CASES[i].tokens == TOKENS_MAX) {
            continue; /* minutes */
        }
        uint64_t begin_ns = nondet_thread_cpu_ns();
        run_case(b, &CASES[i], isa == ISA_SCALAR);
        double used_ns = (double)(nondet_thread_cpu_ns() - begin_ns);
        figure_add(&r->speed[i], (double)b->elements / used_ns);
        figure_add(&r->bytes[i], (double)b->bytes / used_ns);
    }
}

/* ---- two cores ---- */

struct runner {
    pthread_t thread;
    struct bench bench;            /* its own part of the weights, x and y */
    const struct bench_case *c;    /* NULL: the read loop */
    pthread_barrier_t *start;
    uint64_t used_ns;
    volatile uint64_t sink;
};

static void *run_part(void *arg)
{
    struct runner *r = arg;
    kernels_thread_init();
    pthread_barrier_wait(r->start);
    uint64_t begin_ns = nondet_thread_cpu_ns();
    if (r->c != NULL) {
        r->c->run(&r->bench, r->c->cols, r->c->tokens);
    } else {
        r->sink = read_quarters(r->bench.data + r->bench.begin,
                                r->bench.end - r->bench.begin);
        r->bench.elements = r->bench.end - r->bench.begin;
    }
    r->used_ns = nondet_thread_cpu_ns() - begin_ns;
    return NULL;
}

/* Elements per ns, summed over threads that share the weights between them. */
static double run_threads(const struct bench *b, const struct bench_case *c, uint32_t threads)
{
    struct runner r[THREADS];
    pthread_barrier_t start;
    uint64_t part = b->end / threads;
    pthread_barrier_init(&start, NULL, threads);
    for (uint32_t i = 0; i < threads; i++) {
        r[i].bench = *b;
        r[i].bench.begin = i * part;
        r[i].bench.end = (i + 1) * part;
        r[i].bench.y = b->y + (size_t)i * VECTOR;
        r[i].bench.elements = 0;
        r[i].c = c;
        r[i].start = &start;
        if (pthread_create(&r[i].thread, NULL, run_part, &r[i]) != 0) {
            fprintf(stderr, "kernel_bench: no thread\n");
            exit(1);
        }
    }
    double speed = 0;
    for (uint32_t i = 0; i < threads; i++) {
        pthread_join(r[i].thread, NULL);
        speed += (double)r[i].bench.elements / (double)r[i].used_ns;
    }
    pthread_barrier_destroy(&start);
    return speed;
}

static const enum case_id SCALED[] = {BF16_1, PACKED_1, MXFP4_1, CASE_COUNT};

/* Two cores over one; SCALED order, the read loop last. */
static void repeat_scaling(struct bench *b, struct figure scaling[countof(SCALED)])
{
    b->k = kernels_select(ISA_AUTO);
    for (size_t i = 0; i < countof(SCALED); i++) {
        const struct bench_case *c = SCALED[i] == CASE_COUNT ? NULL : &CASES[SCALED[i]];
        double one = run_threads(b, c, 1);
        figure_add(&scaling[i], run_threads(b, c, THREADS) / one);
    }
}

/* ---- reports ---- */

static double token_seconds(const struct results *r, const struct item *item)
{
    return item->elements / figure_median(&r->speed[item->id]) / 1e9;
}

static double token_total(const struct results *r)
{
    double all = 0;
    for (size_t i = 0; i < ITEM_COUNT; i++) {
        all += token_seconds(r, &ITEMS[i]);
    }
    return all;
}

static void print_isa(const struct results *r, double read_gbs)
{
    printf("%-16s %-7s %9s %8s %6s   %s\n", "kernel", "table", "G/s", "GB/s", "read",
           "G/s of each repeat");
    for (uint32_t i = 0; i < CASE_COUNT; i++) {
        if (r->speed[i].count == 0) {
            continue;
        }
        double gbs = figure_median(&r->bytes[i]);
        printf("%-16s %-7s %9.2f %8.2f %5.0f%%  ", CASES[i].name, r->name,
               figure_median(&r->speed[i]), gbs, 100 * gbs / read_gbs);
        for (uint32_t j = 0; j < r->speed[i].count; j++) {
            printf(" %.2f", r->speed[i].value[j]);
        }
        printf("\n");
    }
}

/* The median over repeats of a / b. */
static double ratio(const struct figure *a, const struct figure *b)
{
    struct figure f = {.count = 0};
    for (uint32_t i = 0; i < a->count; i++) {
        figure_add(&f, a->value[i] / b->value[i]);
    }
    return figure_median(&f);
}

static void print_ratios(const struct results *r, const struct figure *read)
{
    const struct figure *speed = r->speed;
    double fma = figure_median(&r->fma);
    printf("%s: bf16 x1 reads at %.2f of the read loop; weights per second against it: "
           "mxfp4 %.2f, packed %.2f\n", r->name, ratio(&r->bytes[BF16_1], read),
           ratio(&speed[MXFP4_1], &speed[BF16_1]), ratio(&speed[PACKED_1], &speed[BF16_1]));
    /* MXFP4 takes three steps for two weights. */
    printf("%s: 64 tokens over 1: bf16 %.2f, packed %.2f, mxfp4 %.2f; of the %.1f G fused steps/s "
           "a core can do: %.0f%%, %.0f%%, %.0f%%\n", r->name,
           ratio(&speed[BF16_64], &speed[BF16_1]), ratio(&speed[PACKED_64], &speed[PACKED_1]),
           ratio(&speed[MXFP4_64], &speed[MXFP4_1]), fma,
           100 * figure_median(&r->speed[BF16_64]) / fma,
           100 * figure_median(&r->speed[PACKED_64]) / fma,
           150 * figure_median(&r->speed[MXFP4_64]) / fma);
}

static void print_token(const struct results *r)
{
    double all = token_total(r);
    printf("a resident token at full widths, context %u, one core, %s: %.2f s\n", CONTEXT,
           r->name, all);
    for (size_t i = 0; i < ITEM_COUNT; i++) {
        double seconds = token_seconds(r, &ITEMS[i]);
        printf("  %-22s %12.0f elements %9.4f s %6.2f%%\n", ITEMS[i].name, ITEMS[i].elements,
               seconds, 100 * seconds / all);
    }
}

/* One table against a wider one of the same run, case by case. */
static void print_narrower(const struct results *narrow, const struct results *wide)
{
    printf("%s over %s: bf16 %.2f, mxfp4 %.2f, packed %.2f\n", narrow->name, wide->name,
           ratio(&narrow->speed[BF16_1], &wide->speed[BF16_1]),
           ratio(&narrow->speed[MXFP4_1], &wide->speed[MXFP4_1]),
           ratio(&narrow->speed[PACKED_1], &wide->speed[PACKED_1]));
}

static cJSON *isa_json(const struct results *r)
{
    cJSON *table = cJSON_CreateObject();
    cJSON *kernels = cJSON_AddObjectToObject(table, "gelements_per_s");
    cJSON *bytes = cJSON_AddObjectToObject(table, "gb_per_s");
    cJSON *token = cJSON_AddObjectToObject(table, "token_s");
    cJSON_AddStringToObject(table, "table", r->name);
    figure_json(table, "fma_gsteps_per_s", &r->fma);
    for (uint32_t i = 0; i < CASE_COUNT; i++) {
        if (r->speed[i].count > 0) {
            figure_json(kernels, CASES[i].name, &r->speed[i]);
            figure_json(bytes, CASES[i].name, &r->bytes[i]);
        }
    }
    for (size_t i = 0; i < ITEM_COUNT; i++) {
        cJSON_AddNumberToObject(token, ITEMS[i].name, token_seconds(r, &ITEMS[i]));
    }
    return table;
}

/* ---- the program ---- */

/* bf16 of about normal numbers around 0.02, as weights are: few high bytes, rare escapes. */
static void code_weights(struct bench *b, struct rng *rng)
{
    uint32_t rows = tile_rows(HIDDEN);
    size_t count = (size_t)rows * HIDDEN;
    unsigned char *w = malloc(2 * count);
    unsigned char *tile = malloc(TILE_BYTES);
    if (w == NULL || tile == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t word = rng_next(rng);
        float sum = -4.0f * 32768.0f;
        for (uint32_t j = 0; j < 4; j++) {
            sum += (float)(word >> (16 * j) & 0xffff);
        }
        sum *= 0.02f / 37837.0f;
        uint32_t bits;
        memcpy(&bits, &sum, sizeof bits);
        memcpy(w + 2 * i, (unsigned char *)&bits + 2, 2);
    }
    b->coded_bytes = packed_encode_rows(tile, TILE_BYTES, w, rows, HIDDEN);
    b->coded = malloc(DATA_BYTES / TILE_BYTES * b->coded_bytes);
    if (b->coded_bytes == 0 || b->coded == NULL) {
        exit(1);
    }
    for (uint64_t i = 0; i < DATA_BYTES / TILE_BYTES; i++) {
        memcpy(b->coded + i * b->coded_bytes, tile, b->coded_bytes);
    }
    free(w);
    free(tile);
}

static void fill(struct bench *b)
{
    struct rng rng = rng_seed(1);
    for (size_t i = 0; i + 8 <= DATA_BYTES; i += 8) {
        /* Every byte in 0x38..0x3f: small numbers as bf16, f32 and E8M0, none subnormal. */
        uint64_t word = (rng_next(&rng) & 0x0707070707070707ULL) | 0x3838383838383838ULL;
        memcpy(b->data + i, &word, sizeof(word));
    }
    for (size_t i = 0; i < (size_t)VECTOR * TOKENS_MAX; i++) {
        b->x[i] = (float)rng_below(&rng, 65536) / 16384.0f - 2.0f;
    }
    code_weights(b, &rng);
}

static void bench_open(struct bench *b)
{
    *b = (struct bench){.end = DATA_BYTES};
    b->data = aligned_alloc(HUGE_PAGE_BYTES, DATA_BYTES);
    b->state = calloc(1, STATE_BYTES);
    b->x = calloc((size_t)VECTOR * TOKENS_MAX, sizeof(float));
    b->y = calloc((size_t)VECTOR * TOKENS_MAX, sizeof(float));
    if (b->data == NULL || b->state == NULL || b->x == NULL || b->y == NULL) {
        fprintf(stderr, "kernel_bench: no memory for a buffer of %llu bytes\n",
                (unsigned long long)DATA_BYTES);
        exit(1);
    }
    fill(b);
}

static const enum isa ISAS[] = {ISA_SCALAR, ISA_AVX2, ISA_AVX512};

struct report {
    struct results of[countof(ISAS)];
    struct figure read, scaling[countof(SCALED)];
    uint32_t repeats;
    bool two_cores, quick;
};

static void measure(struct bench *b, struct report *r)
{
    volatile uint64_t sink;
    r->two_cores = sysconf(_SC_NPROCESSORS_ONLN) >= (long)THREADS;
    for (uint32_t i = 0; i < r->repeats; i++) {
        figure_add(&r->read, read_speed(b, &sink));
        for (size_t j = 0; j < countof(ISAS); j++) {
            if (kernels_select(ISAS[j]) != NULL) {
                repeat_isa(b, &r->of[j], ISAS[j]);
            }
        }
        if (r->two_cores) {
            repeat_scaling(b, r->scaling);
        }
    }
}

static void report_print(const struct report *r)
{
    double read_gbs = figure_median(&r->read);
    const struct results *best = NULL;
    printf("read loop over %llu MiB: %.2f GB/s; one core, %u repeats, medians\n",
           (unsigned long long)(DATA_BYTES / MIB), read_gbs, r->repeats);
    for (size_t i = 0; i < countof(ISAS); i++) {
        if (r->of[i].name != NULL) {
            print_isa(&r->of[i], read_gbs);
            best = &r->of[i];
        }
    }
    for (size_t i = 0; i < countof(ISAS); i++) {
        if (r->of[i].name != NULL && ISAS[i] != ISA_SCALAR) {
            print_ratios(&r->of[i], &r->read);
        }
    }
    if (r->two_cores) {
        printf("two cores over one: bf16 %.2f, packed %.2f, mxfp4 %.2f, read loop %.2f\n",
               figure_median(&r->scaling[0]), figure_median(&r->scaling[1]),
               figure_median(&r->scaling[2]), figure_median(&r->scaling[3]));
    }
    if (r->of[1].name != NULL && r->of[2].name != NULL) {
        print_narrower(&r->of[1], &r->of[2]);
    }
    print_token(best);
}

static int report_write(const struct report *r, const char *path)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *tables = cJSON_AddArrayToObject(root, "tables");
    figure_json(root, "read_gb_per_s", &r->read);
    if (r->quick) {
        cJSON_AddStringToObject(root, "quick_form", quick_text);
    }
    for (size_t i = 0; r->two_cores && i < countof(SCALED); i++) {
        const char *name = SCALED[i] == CASE_COUNT ? "read loop" : CASES[SCALED[i]].name;
        cJSON *scaling = i == 0 ? cJSON_AddObjectToObject(root, "two_cores_over_one")
                                : cJSON_GetObjectItem(root, "two_cores_over_one");
        figure_json(scaling, name, &r->scaling[i]);
    }
    for (size_t i = 0; i < countof(ISAS); i++) {
        if (r->of[i].name != NULL) {
            cJSON_AddItemToArray(tables, isa_json(&r->of[i]));
        }
    }
    return measure_write(path, root) ? 0 : 1;
}

int main(int argc, char **argv)
{
    static struct report report = {.repeats = 5};
    const char *json = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            report.repeats = 1;
            report.quick = true;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json = argv[++i];
        } else {
            fprintf(stderr, "usage: kernel_bench [--quick] [--json FILE]\n");
            return 2;
        }
    }
    struct bench b;
    if (report.quick) {
        measure_quick(NULL, quick_text);
    }
    kernels_thread_init();
    bench_open(&b);
    measure(&b, &report);
    report_print(&report);
    int failed = json != NULL ? report_write(&report, json) : 0;
    free(b.data);
    free(b.coded);
    free(b.state);
    free(b.x);
    free(b.y);
    return failed;
}
