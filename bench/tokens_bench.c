/* SPDX-License-Identifier: Apache-2.0 */
/* More tokens per pass. Many sequences: tokens per second of 1 to 16 sequences that advance
 * together with nothing pinned, beside what the bytes of their passes promise. Drafts: tokens per
 * pass and time per token when none, half or all of four drafted tokens are right, which is known
 * from a plain run over the same prompt: how often drafts are right is a matter of the text.
 *
 *   tokens_bench MODEL [--quick] [--json FILE]
 *
 * The quick form takes one engine for all, with pins, which make its passes shorter.
 * Times are of passes without prompt tokens; the bytes of the prompts' pass are known from a batch
 * that makes one token each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure.h"
#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/exec/batch.h"
#include "kernels/kernels.h"

#define WIDTHS 5U
#define LANES_MAX 16U
#define PROMPT 32U
#define BATCH_PROMPT 4U
#define DRAFTS 4U

static const uint32_t all_widths[WIDTHS] = {1, 2, 4, 8, 16};
static const uint32_t quick_widths[] = {1, 4};

static const char quick_text[] =
    "3 GiB pinned, not 0; 1 and 4 sequences, 2 rounds of 1 step; drafts: one sample each, none and "
    "half right are left to the long form";

struct settings {
    uint32_t rounds, steps, gen, width_count;
    uint32_t prompt, batch_prompt; /* tokens of a prompt */
    const uint32_t *widths;
    bool quick;
    struct engine *shared; /* of the quick form */
};

static struct engine_options base_options(uint32_t context)
{
    return (struct engine_options){
        .ram_bytes = 2 * GIB, .io_depth = 8, .io_size_bytes = 4 * MIB, .policy = "none",
        .isa = ISA_AUTO, .io = IO_URING, .context = context, .chunk = PLAN_AUTO, .pin_bytes = 0,
        .pin_percent = -1, .expert_slots = 0, .tile_bytes = PLAN_AUTO, .prompt_tokens = PROMPT};
}

/* Its first token loads the pins. */
static int open_shared(const char *dir, struct settings *s)
{
    static const uint32_t prompt[] = {3};
    uint32_t id;
    struct engine_options o = base_options(s->prompt + s->gen + s->steps);
    struct generate_request r = {.ids = prompt, .id_count = 1, .gen = 1};
    struct generate_result out = {.ids = &id};
    o.ram_bytes = 5 * GIB;
    o.pin_bytes = 3 * GIB;
    o.sequences = s->widths[s->width_count - 1];
    o.drafts = DRAFTS;
    o.prompt_tokens = s->prompt;
    TRY(engine_open(&s->shared, dir, &o));
    TRY(generate(s->shared, &r, &out));
    engine_pages_wait(s->shared);
    return 0;
}

/* ---- many sequences ---- */

struct feed {
    uint32_t ids[LANES_MAX][BATCH_PROMPT];
    uint32_t next, count, gen, prompt;
};

static bool next_line(void *ctx, struct batch_request *out)
{
    struct feed *f = ctx;
    if (f->next == f->count) {
        return false;
    }
    *out = (struct batch_request){.ids = f->ids[f->next], .id_count = f->prompt, .gen = f->gen,
                                  .tag = f->next++};
    return true;
}

static int ignore(void *ctx, const struct batch_result *result)
{
    (void)ctx;
    return result->error == NULL ? 0 : err_set(ERR_NUMERIC, "%s", result->error);
}

static uint64_t bytes_so_far(struct engine *e)
{
    struct engine_stats stats;
    uint64_t bytes = 0;
    engine_stats(e, &stats);
    for (int i = 0; i < READ_CLASSES; i++) {
        bytes += stats.class[i].bytes;
    }
    return bytes;
}

struct cost {
    double seconds; /* of passes without prompt tokens */
    uint64_t bytes;
};

static int run_batch(struct engine *e, struct feed *feed, uint32_t gen, struct cost *cost)
{
    const struct engine_forecast forecast = {.prompt_passes = 1, .steps = gen - 1,
                                             .prompt_tokens = 1, .step_tokens = 1};
    struct batch_source source = {next_line, ignore, feed};
    struct batch_totals totals;
    uint64_t before = bytes_so_far(e);
    feed->next = 0;
    feed->gen = gen;
    TRY(batch_run(e, &source, &forecast, &totals));
    cost->seconds = (double)totals.steady_ns / 1e9;
    cost->bytes = bytes_so_far(e) - before;
    return 0;
}

struct width_row {
    struct engine *e;
    struct feed feed;
    struct figure rate;    /* tokens per second */
    struct figure speedup; /* over one sequence, in the same round */
    uint64_t prompt_bytes, bytes; /* of the pass over the prompts; per step */
};

/* A prompt of one token makes a pass like a step's, so its bytes need not be told apart. */
static int open_width(const char *dir, uint32_t lanes, const struct settings *s,
                      struct width_row *row)
{
    struct engine_options o = base_options(s->batch_prompt + 1 + s->steps);
    o.sequences = lanes;
    o.prompt_tokens = lanes * s->batch_prompt;
    row->e = s->shared;
    if (row->e == NULL) {
        TRY(engine_open(&row->e, dir, &o));
    }
    struct rng rng = rng_seed(11);
    row->feed.count = lanes;
    row->feed.prompt = s->batch_prompt;
    for (uint32_t i = 0; i < lanes; i++) {
        for (uint32_t t = 0; t < s->batch_prompt; t++) {
            row->feed.ids[i][t] = (uint32_t)rng_below(&rng, engine_model(row->e)->config.vocab);
        }
    }
    struct cost prompt = {.bytes = 0};
    if (s->batch_prompt > 1) {
        TRY(run_batch(row->e, &row->feed, 1, &prompt));
    }
    row->prompt_bytes = prompt.bytes;
    return 0;
}

static int measure_width(const struct settings *s, struct width_row *row, double *rate)
{
    struct cost whole;
    TRY(run_batch(row->e, &row->feed, 1 + s->steps, &whole));
    *rate = (double)row->feed.count * s->steps / whole.seconds;
    row->bytes = (whole.bytes - row->prompt_bytes) / (s->steps + (s->batch_prompt == 1));
    figure_add(&row->rate, *rate);
    return 0;
}

static void show_widths(const struct settings *s, const struct width_row *rows, cJSON *list)
{
    printf("%9s %12s %14s %10s %12s %12s\n", "sequences", "tokens/s", "GB per step", "speed-up",
           "of the bytes", "their ratio");
    for (uint32_t i = 0; i < s->width_count; i++) {
        const struct width_row *r = &rows[i];
        double speedup = figure_median(&r->speedup);
        double promised = (double)s->widths[i] * (double)rows[0].bytes / (double)r->bytes;
        printf("%9u %12.3f %14.3f %10.2f %12.2f %12.3f\n", s->widths[i], figure_median(&r->rate),
               (double)r->bytes / 1e9, speedup, promised, speedup / promised);
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(list, o);
        cJSON_AddNumberToObject(o, "sequences", s->widths[i]);
        figure_json(o, "tokens_per_second", &r->rate);
        figure_json(o, "speedup", &r->speedup);
        cJSON_AddNumberToObject(o, "bytes_per_step", (double)r->bytes);
        cJSON_AddNumberToObject(o, "speedup_of_bytes", promised);
    }
}

static int bench_widths(const char *dir, const struct settings *s, cJSON *list)
{
    static struct width_row rows[WIDTHS];
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < s->width_count; i++) {
        rc = open_width(dir, s->widths[i], s, &rows[i]);
    }
    for (uint32_t round = 0; rc == 0 && round < s->rounds; round++) {
        double one = 0;
        for (uint32_t i = 0; rc == 0 && i < s->width_count; i++) {
            double rate = 0;
            rc = measure_width(s, &rows[i], &rate);
            one = i == 0 ? rate : one;
            figure_add(&rows[i].speedup, rate / one);
        }
    }
    if (rc == 0) {
        show_widths(s, rows, list);
    }
    for (uint32_t i = 0; i < s->width_count && s->shared == NULL; i++) {
        engine_close(rows[i].e);
    }
    return rc;
}

/* ---- drafts ---- */

/* How many of DRAFTS drafted tokens are right. */
enum draft_mode { PLAIN, NONE_RIGHT, HALF_RIGHT, ALL_RIGHT, DRAFT_MODES };

static const char *const mode_names[DRAFT_MODES] = {"no drafts", "none right", "half right",
                                                    "all right"};

struct text {
    uint32_t prompt[PROMPT];
    uint32_t *made; /* [gen], by plain decoding */
    uint32_t vocab;
};

struct draft_row {
    struct figure seconds; /* per token after the first */
    uint32_t passes, drafted, kept;
};

static int prompt_pass(struct engine *e, const struct text *text, const struct settings *s)
{
    const float *logits;
    uint32_t chunk = engine_plan_of(e)->chunk;
    TRY(engine_begin(e, s->prompt, s->gen - 1));
    for (uint32_t at = 0; at < s->prompt; at += chunk) {
        TRY(engine_pass(e, text->prompt + at, (uint32_t)min_u64(chunk, s->prompt - at), &logits));
    }
    return 0;
}

/* One pass with DRAFTS drafted tokens of which `right` are what plain decoding makes. */
static int draft_pass(struct engine *e, const struct text *text, const struct settings *s,
                      uint32_t *made, uint32_t right, uint32_t width)
{
    uint32_t ids[1 + DRAFTS];
    ids[0] = text->made[*made - 1];
    for (uint32_t i = 0; i < width; i++) {
        uint32_t next = text->made[*made + i];
        ids[1 + i] = i < right ? next : (next + 1) % text->vocab;
    }
    TRY(engine_try(e, ids, 1 + width));
    for (uint32_t row = 0; row <= right && *made + row < s->gen; row++) {
        if (argmax(engine_logits(e, row), text->vocab) != text->made[*made + row]) {
            return err_set(ERR_RUN, "a drafted pass made another token than plain decoding");
        }
    }
    engine_accept(e, right);
    *made += 1 + right;
    return 0;
}

static int run_drafts(struct engine *e, const struct text *text, const struct settings *s,
                      enum draft_mode mode, struct draft_row *row)
{
    uint32_t made = 1;
    TRY(prompt_pass(e, text, s));
    row->passes = row->drafted = row->kept = 0;
    uint64_t begun = nondet_now_ns();
    while (made < s->gen) {
        uint32_t width = mode == PLAIN ? 0 : (uint32_t)min_u64(DRAFTS, s->gen - made - 1);
        uint32_t half = (uint32_t)min_u64(DRAFTS / 2, width);
        uint32_t right = mode == ALL_RIGHT ? width : mode == HALF_RIGHT ? half : 0;
        TRY(draft_pass(e, text, s, &made, right, width));
        row->passes++;
        row->drafted += width;
        row->kept += right;
    }
    figure_add(&row->seconds, (double)(nondet_now_ns() - begun) / 1e9 / (s->gen - 1));
    return engine_end(e);
}

static void show_drafts(const struct settings *s, const struct draft_row *rows, cJSON *list)
{
    printf("%-12s %16s %12s %12s %12s\n", "drafts of 4", "kept of drafted", "tokens/pass",
           "s/token", "of plain");
    for (int mode = 0; mode < DRAFT_MODES; mode++) {
        const struct draft_row *r = &rows[mode];
        if (r->passes == 0) {
            continue;
        }
        double per_pass = (double)(s->gen - 1) / r->passes;
        double seconds = figure_median(&r->seconds);
        printf("%-12s %6u of %-6u %12.2f %12.3f %12.3f\n", mode_names[mode], r->kept, r->drafted,
               per_pass, seconds, seconds / figure_median(&rows[PLAIN].seconds));
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(list, o);
        cJSON_AddStringToObject(o, "drafts", mode_names[mode]);
        cJSON_AddNumberToObject(o, "drafted", r->drafted);
        cJSON_AddNumberToObject(o, "kept", r->kept);
        cJSON_AddNumberToObject(o, "tokens_per_pass", per_pass);
        figure_json(o, "seconds_per_token", &r->seconds);
    }
}

/* The quick form takes the time of plain decoding from here. */
static int make_text(struct engine *e, const struct settings *s, struct text *text,
                     struct draft_row *plain)
{
    struct rng rng = rng_seed(12);
    struct generate_request r = {.ids = text->prompt, .id_count = s->prompt, .gen = s->gen};
    struct generate_result out = {.ids = text->made};
    text->vocab = engine_model(e)->config.vocab;
    for (uint32_t i = 0; i < s->prompt; i++) {
        text->prompt[i] = (uint32_t)rng_below(&rng, text->vocab);
    }
    TRY(generate(e, &r, &out));
    if (s->quick) {
        figure_add(&plain->seconds, (double)out.rest_ns / 1e9 / (s->gen - 1));
        plain->passes = s->gen - 1;
    }
    return 0;
}

static int run_rounds(struct engine *e, const struct text *text, const struct settings *s,
                      struct draft_row *rows)
{
    if (s->quick) {
        return run_drafts(e, text, s, ALL_RIGHT, &rows[ALL_RIGHT]);
    }
    for (uint32_t round = 0; round < s->rounds; round++) {
        for (int mode = 0; mode < DRAFT_MODES; mode++) {
            TRY(run_drafts(e, text, s, (enum draft_mode)mode, &rows[mode]));
        }
    }
    return 0;
}

static int bench_drafts(const char *dir, const struct settings *s, cJSON *list)
{
    static struct draft_row rows[DRAFT_MODES];
    struct engine_options o = base_options(s->prompt + s->gen);
    struct engine *e = s->shared;
    struct text text = {.made = calloc(s->gen, sizeof *text.made)};
    o.drafts = DRAFTS;
    int rc = text.made == NULL ? err_set(ERR_MEMORY, "no memory")
             : e == NULL       ? engine_open(&e, dir, &o)
                               : 0;
    rc = rc < 0 ? rc : make_text(e, s, &text, &rows[PLAIN]);
    rc = rc < 0 ? rc : run_rounds(e, &text, s, rows);
    if (rc == 0) {
        show_drafts(s, rows, list);
    }
    engine_close(e != s->shared ? e : NULL);
    free(text.made);
    return rc;
}

int main(int argc, char **argv)
{
    const char *dir = NULL;
    const char *json = NULL;
    struct settings s = {.rounds = 3, .steps = 4, .gen = 9, .width_count = WIDTHS,
                         .widths = all_widths, .prompt = PROMPT, .batch_prompt = BATCH_PROMPT};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            s = (struct settings){.rounds = 2, .steps = 1, .gen = 4, .widths = quick_widths,
                                  .width_count = countof(quick_widths), .prompt = 4,
                                  .batch_prompt = 1, .quick = true};
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json = argv[++i];
        } else {
            dir = argv[i];
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was measured is seen also when the rest is ended */
    if (dir == NULL) {
        fprintf(stderr, "usage: tokens_bench MODEL [--quick] [--json FILE]\n");
        return 2;
    }
    cJSON *root = cJSON_CreateObject();
    if (s.quick) {
        measure_quick(root, quick_text);
    }
    int rc = s.quick ? open_shared(dir, &s) : 0;
    rc = rc < 0 ? rc : bench_widths(dir, &s, cJSON_AddArrayToObject(root, "sequences"));
    rc = rc < 0 ? rc : bench_drafts(dir, &s, cJSON_AddArrayToObject(root, "drafts"));
    engine_close(s.shared);
    if (rc < 0) {
        fprintf(stderr, "tokens_bench: %s\n", err_message());
    }
    bool written = json == NULL || measure_write(json, root);
    return rc < 0 ? err_exit_status(rc) : !written;
}
