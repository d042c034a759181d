/* SPDX-License-Identifier: Apache-2.0 */
/* A streamed token against the co-run: the same reads and the same kernels over as many bytes, by
 * as many threads, at once and without waiting for each other (bench/corun.h). Reads alone and
 * compute alone stand beside it. All of them take turns inside one run; the ratio is taken from
 * neighbours in time. Regimes: the drive is the limit (`drive`); drive and cores are even, the pin
 * that makes them so being searched, once with all experts streamed, which cannot be asked for
 * before their router has run (`even`), and once with the experts cached (`trunk`); the cores are
 * the limit (`cores`).
 *
 *   pipeline_bench MODEL [--quick] [--json FILE] [--only REGIME]
 *
 * The quick form measures `drive`, with more memory, and `cores`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench/corun.h"
#include "bench/measure.h"
#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/base/nondet.h"
#include "core/exec/generate.h"

#define TOKENS_MAX 8U
#define CACHED_SLOTS 320U      /* hold every expert that the timed tokens ask for */
#define RESIDENT_PERCENT 95.0
#define TOLERANCE 1.05

static const char quick_text[] = "2 repeats of 1 token; drive with 4 GiB, not 1.5; even and trunk "
                                 "are left to the long form";

struct regime {
    const char *name;
    uint64_t ram_bytes;
    uint64_t pin_bytes;        /* or PLAN_AUTO */
    uint64_t slots;
};

struct settings {
    const char *dir, *only;
    uint32_t tokens, repeats;
    bool quick;
};

struct row {
    const char *name;
    struct figure token, corun, reads, compute, ratio;
    double stall_s[STALL_CAUSES]; /* per token, last repeat */
    double busy_s;
    double io_cpu_s_per_gb, faults_per_token, ahead_bytes;
    uint64_t token_bytes, corun_bytes, pin_bytes, ram_bytes, slots;
    uint32_t threads;
};

/* What one generated sequence showed; times are of the tokens between the first and the last. */
struct sequence {
    struct engine *e;
    uint64_t tiles_before, pass_bytes;
    double ahead_bytes;        /* of the next token's tiles when a token is done; mean */
    uint64_t at_ns[TOKENS_MAX + 2];
    struct rusage usage[TOKENS_MAX + 2];
    double token_s;
    double stall_s[STALL_CAUSES], busy_s;
    double io_cpu_s, io_bytes, faults;
    uint64_t token_bytes;
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "pipeline_bench: %s: %s\n", what, err_message());
    exit(1);
}

/* Trunk and lm_head. */
static uint64_t tile_bytes(struct engine *e)
{
    struct engine_stats s;
    engine_stats(e, &s);
    return s.class[READ_TRUNK].bytes + s.class[READ_HEAD].bytes;
}

static void on_token(void *ctx, uint32_t step, uint32_t id)
{
    struct sequence *s = ctx;
    (void)id;
    s->at_ns[step] = nondet_now_ns();
    s->ahead_bytes += (double)(tile_bytes(s->e) - s->tiles_before - (step + 1) * s->pass_bytes);
    getrusage(RUSAGE_SELF, &s->usage[step]);
}

static uint64_t read_bytes(const struct engine_stats *s)
{
    uint64_t bytes = 0;
    for (int i = 0; i < READ_CLASSES; i++) {
        bytes += s->class[i].bytes;
    }
    return bytes;
}

/* A prompt of one token, then tokens that are timed, then one more, so that reading ahead crosses
 * the last border as it crossed the first. */
static struct sequence streamed(struct engine *e, uint32_t tokens)
{
    static const uint32_t prompt[] = {3};
    struct sequence s = {.e = e, .tiles_before = tile_bytes(e)};
    uint32_t ids[TOKENS_MAX + 2];
    uint64_t requests;
    struct generate_request r = {.ids = prompt, .id_count = 1, .gen = tokens + 2,
                                 .on_token = on_token, .ctx = &s};
    struct generate_result out = {.ids = ids};
    struct engine_stats before;
    struct engine_stats after;
    plan_pass_reads(engine_plan_of(e), false, false, true, &s.pass_bytes, &requests);
    engine_pages_wait(e);
    engine_stats(e, &before);
    if (generate(e, &r, &out) < 0) {
        die("generate");
    }
    engine_stats(e, &after);
    s.token_s = (double)(s.at_ns[tokens] - s.at_ns[0]) / 1e9 / tokens;
    s.token_bytes = (read_bytes(&after) - read_bytes(&before)) / (tokens + 2);
    s.ahead_bytes /= tokens + 1; /* behind the last token there is none to read for */
    s.io_bytes = (double)(after.io.bytes - before.io.bytes);
    s.io_cpu_s = (double)(after.io_cpu_ns - before.io_cpu_ns) / 1e9;
    s.faults = (double)(s.usage[tokens + 1].ru_minflt - s.usage[1].ru_minflt +
                        s.usage[tokens + 1].ru_majflt - s.usage[1].ru_majflt) / tokens;
    s.busy_s = (double)(after.busy_ns - before.busy_ns) / 1e9 / (tokens + 2);
    for (int i = 0; i < STALL_CAUSES; i++) {
        s.stall_s[i] = (double)(after.stall_ns[i] - before.stall_ns[i]) / 1e9 / (tokens + 2);
    }
    return s;
}

static struct engine_options options_for(const struct regime *g)
{
    return (struct engine_options){
        .ram_bytes = g->ram_bytes, .io_depth = 8, .io_size_bytes = 4 * MIB, .policy = "lru",
        .isa = ISA_AUTO, .io = IO_URING, .context = 64, .chunk = PLAN_AUTO,
        .pin_bytes = g->pin_bytes, .pin_percent = -1, .expert_slots = g->slots,
        .tile_bytes = PLAN_AUTO, .prompt_tokens = 1, .threads = memory_processors()};
}

static double run_corun(struct corun *c, enum corun_half what, uint32_t tokens, uint64_t *bytes)
{
    double seconds;
    uint64_t read;
    if (corun_run(c, what, tokens, &seconds, &read) < 0) {
        die("co-run");
    }
    if (bytes != NULL) {
        *bytes = read / tokens;
    }
    return seconds / tokens;
}

static void measure(const struct settings *s, const struct regime *g, struct row *row)
{
    struct engine_options o = options_for(g);
    struct engine *e;
    struct corun *c;
    struct engine_facts facts;
    if (engine_open(&e, s->dir, &o) < 0) {
        die(g->name);
    }
    engine_facts(e, &facts);
    const struct plan *p = engine_plan_of(e);
    if (corun_open(&c, engine_model(e), p, facts.threads, p->cache_slots > 0) < 0) {
        die("co-run");
    }
    *row = (struct row){.name = g->name, .pin_bytes = p->account.pins, .ram_bytes = g->ram_bytes,
                        .slots = p->cache_slots, .threads = facts.threads};
    streamed(e, s->tokens); /* loads pins and cache */
    double before = run_corun(c, CORUN_BOTH, s->tokens, &row->corun_bytes);
    for (uint32_t i = 0; i < s->repeats; i++) {
        struct sequence q = streamed(e, s->tokens);
        double after = run_corun(c, CORUN_BOTH, s->tokens, NULL);
        figure_add(&row->token, q.token_s);
        figure_add(&row->corun, after);
        figure_add(&row->ratio, 2 * q.token_s / (before + after));
        figure_add(&row->reads, run_corun(c, CORUN_READS, s->tokens, NULL));
        figure_add(&row->compute, run_corun(c, CORUN_COMPUTE, s->tokens, NULL));
        before = after;
        row->token_bytes = q.token_bytes;
        row->io_cpu_s_per_gb = q.io_cpu_s / (q.io_bytes / 1e9);
        row->faults_per_token = q.faults;
        row->ahead_bytes = q.ahead_bytes;
        row->busy_s = q.busy_s;
        memcpy(row->stall_s, q.stall_s, sizeof row->stall_s);
    }
    corun_close(c);
    engine_close(e);
}

/* The pins at which reads alone take as long as compute alone, by a few steps of the rule of
 * three; only plans are made, no engine is opened. */
static uint64_t even_pins(const struct settings *s, const struct regime *g)
{
    struct regime trial = *g;
    trial.pin_bytes = 0;
    for (int step = 0; step < 4; step++) {
        struct engine_options o = options_for(&trial);
        struct model *model;
        struct plan *plan;
        struct corun *c;
        struct figure reads = {0};
        struct figure compute = {0};
        uint64_t bytes = 0;
        if (engine_plan(s->dir, &o, &model, &plan) < 0 ||
            corun_open(&c, model, plan, memory_processors(), trial.slots > 0) < 0) {
            die("search");
        }
        run_corun(c, CORUN_READS, 1, &bytes);
        for (int i = 0; i < 3; i++) {
            figure_add(&reads, run_corun(c, CORUN_READS, 1, NULL));
            figure_add(&compute, run_corun(c, CORUN_COMPUTE, 1, NULL));
        }
        double over = 1 - figure_median(&compute) / figure_median(&reads);
        double pins = (double)trial.pin_bytes + over * (double)bytes;
        trial.pin_bytes = pins > 0 ? align_down((uint64_t)pins, PAGE_BYTES) : 0;
        corun_close(c);
        plan_free(plan);
        model_close(model);
    }
    return trial.pin_bytes;
}

static uint64_t trunk_bytes(const struct settings *s, struct regime *g)
{
    struct engine_options o = options_for(g);
    struct model *model;
    struct plan *plan;
    if (engine_plan(s->dir, &o, &model, &plan) < 0) {
        die("plan");
    }
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->tile_count; i++) {
        bytes += plan->tiles[i].window_bytes;
    }
    plan_free(plan);
    model_close(model);
    return bytes;
}

static void print_rows(const struct row *rows, uint32_t count)
{
    printf("%-8s %9s %8s %8s %8s %8s %8s %15s %9s %7s %8s\n", "regime", "pins MiB", "MB/token",
           "s/token", "co-run", "reads", "compute", "token : co-run", "cpu s/GB", "faults",
           "ahead MB");
    for (uint32_t i = 0; i < count; i++) {
        const struct row *r = &rows[i];
        printf("%-8s %9.0f %8.0f %8.3f %8.3f %8.3f %8.3f %5.3f %4.2f-%4.2f %9.4f %7.1f %8.1f\n",
               r->name, (double)r->pin_bytes / (double)MIB, (double)r->token_bytes / 1e6,
               figure_median(&r->token), figure_median(&r->corun), figure_median(&r->reads),
               figure_median(&r->compute), figure_median(&r->ratio), figure_least(&r->ratio),
               figure_most(&r->ratio), r->io_cpu_s_per_gb, r->faults_per_token,
               r->ahead_bytes / 1e6);
    }
    printf("ms of a token, mean over workers; waiting for:   trunk experts   embed    head   pages "
           "compute  working\n");
    for (uint32_t i = 0; i < count; i++) {
        printf("%-45s", rows[i].name);
        for (int k = 0; k < STALL_CAUSES; k++) {
            printf(" %7.1f", 1e3 * rows[i].stall_s[k]);
        }
        printf(" %8.1f\n", 1e3 * rows[i].busy_s);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (figure_median(&rows[i].ratio) > TOLERANCE) {
            printf("above %.2f: %s\n", TOLERANCE, rows[i].name);
        }
    }
}

static void row_json(cJSON *list, const struct row *r)
{
    static const char *const causes[STALL_CAUSES] = {"trunk", "experts", "embed",
                                                     "head", "slab_pages", "compute"};
    cJSON *o = cJSON_CreateObject();
    cJSON_AddItemToArray(list, o);
    cJSON_AddStringToObject(o, "regime", r->name);
    cJSON_AddNumberToObject(o, "ram_bytes", (double)r->ram_bytes);
    cJSON_AddNumberToObject(o, "pin_bytes", (double)r->pin_bytes);
    cJSON_AddNumberToObject(o, "cache_slots", (double)r->slots);
    cJSON_AddNumberToObject(o, "threads", r->threads);
    cJSON_AddNumberToObject(o, "bytes_per_token", (double)r->token_bytes);
    cJSON_AddNumberToObject(o, "corun_bytes_per_token", (double)r->corun_bytes);
    figure_json(o, "token_s", &r->token);
    figure_json(o, "corun_s", &r->corun);
    figure_json(o, "reads_alone_s", &r->reads);
    figure_json(o, "compute_alone_s", &r->compute);
    figure_json(o, "token_over_corun", &r->ratio);
    cJSON_AddNumberToObject(o, "io_cpu_s_per_gb", r->io_cpu_s_per_gb);
    cJSON_AddNumberToObject(o, "page_faults_per_token", r->faults_per_token);
    cJSON_AddNumberToObject(o, "bytes_ahead_at_token_border", r->ahead_bytes);
    cJSON_AddNumberToObject(o, "busy_s_per_token", r->busy_s);
    cJSON *stalls = cJSON_AddObjectToObject(o, "stall_s_per_token");
    for (int i = 0; i < STALL_CAUSES; i++) {
        cJSON_AddNumberToObject(stalls, causes[i], r->stall_s[i]);
    }
}

static void write_json(const char *path, const struct settings *s, const struct row *rows,
                       uint32_t count)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, "repeats", s->repeats);
    cJSON_AddNumberToObject(root, "tokens_per_run", s->tokens);
    if (s->quick) {
        cJSON_AddStringToObject(root, "quick_form", quick_text);
    }
    cJSON *list = cJSON_AddArrayToObject(root, "regimes");
    for (uint32_t i = 0; i < count; i++) {
        row_json(list, &rows[i]);
    }
    measure_write(path, root);
}

/* The one asked for, or all; of the quick form the first and the last. */
static bool is_wanted(const struct settings *s, const struct regime *g, bool searched)
{
    return s->only != NULL ? strcmp(s->only, g->name) == 0 : !(s->quick && searched);
}

static uint32_t run_regimes(const struct settings *s, struct row *rows)
{
    struct regime drive = {"drive", s->quick ? 4 * GIB : 1536 * MIB, PLAN_AUTO, PLAN_AUTO};
    struct regime even = {"even", 64 * GIB, 0, 0};
    struct regime cached = {"trunk", 64 * GIB, 0, CACHED_SLOTS};
    struct regime cores = {"cores", 64 * GIB, 0, CACHED_SLOTS};
    uint64_t trunk = trunk_bytes(s, &drive);
    uint32_t count = 0;
    if (is_wanted(s, &drive, false)) {
        measure(s, &drive, &rows[count++]);
    }
    if (is_wanted(s, &even, true)) {
        even.pin_bytes = even_pins(s, &even);
        even.ram_bytes = even.pin_bytes + 512 * MIB;
        measure(s, &even, &rows[count++]);
    }
    if (is_wanted(s, &cached, true)) {
        cached.pin_bytes = even_pins(s, &cached);
        cached.ram_bytes = cached.pin_bytes + CACHED_SLOTS * 17 * MIB + 512 * MIB;
        measure(s, &cached, &rows[count++]);
    }
    if (is_wanted(s, &cores, false)) {
        cores.pin_bytes = (uint64_t)((double)trunk * RESIDENT_PERCENT / 100);
        cores.ram_bytes = cores.pin_bytes + CACHED_SLOTS * 17 * MIB + 512 * MIB;
        measure(s, &cores, &rows[count++]);
    }
    return count;
}

int main(int argc, char **argv)
{
    const char *json = NULL;
    struct settings s = {.tokens = 4, .repeats = 5};
    struct row rows[4];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            s.tokens = 1;
            s.repeats = 2;
            s.quick = true;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json = argv[++i];
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            s.only = argv[++i];
        } else {
            s.dir = argv[i];
        }
    }
    if (s.dir == NULL) {
        fprintf(stderr, "usage: pipeline_bench MODEL [--quick] [--json FILE] [--only REGIME]\n");
        return 2;
    }
    if (s.quick) {
        measure_quick(NULL, quick_text);
    }
    uint32_t count = run_regimes(&s, rows);
    print_rows(rows, count);
    if (json != NULL) {
        write_json(json, &s, rows, count);
    }
    return 0;
}
