/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/verify_golden.h"

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/cli/progress.h"
#include "core/cli/running.h"
#include "core/cli/text.h"
#include "core/cli/tuning.h"
#include "core/exec/generate.h"
#include "core/model/tokenizer.h"

#define TOKENIZER_BYTES (1 * MIB) /* its pattern and what regular expressions take */

/* A prompt while it runs. */
struct run {
    struct verify_golden *golden;
    const struct golden_prompt *prompt;
    struct engine *engine;
    const struct tokenizer *tokenizer; /* NULL: the model has none */
    struct token_list ids;
    uint32_t *made;            /* [next_count] */
    uint32_t seen;             /* positions of the prompt */
    double *layer_max;         /* [layers] */
    struct progress progress;
    int rc;                    /* of what happens inside generate() */
};

/* ---- rows ---- */

static struct golden_row *add_row(struct verify_golden *g)
{
    if (g->row_count == g->row_capacity) {
        uint32_t capacity = g->row_capacity == 0 ? 128 : g->row_capacity * 2;
        struct golden_row *larger = realloc(g->row, capacity * sizeof *larger);
        if (larger == NULL) {
            err_set(ERR_MEMORY, "no memory for %u figures", capacity);
            return NULL;
        }
        g->row = larger;
        g->row_capacity = capacity;
    }
    struct golden_row *row = &g->row[g->row_count++];
    memset(row, 0, sizeof *row);
    return row;
}

int golden_compare(struct verify_golden *g, double wanted, double found, double allowed,
                   const char *format, ...)
{
    va_list args;
    struct golden_row *row = add_row(g);
    if (row == NULL) {
        return ERR_MEMORY;
    }
    va_start(args, format);
    vsnprintf(row->what, sizeof row->what, format, args);
    va_end(args);
    row->numeric = true;
    row->wanted = wanted;
    row->found = found;
    row->allowed = allowed;
    row->pass = fabs(found - wanted) <= allowed; /* false for what is no number */
    g->failed += !row->pass;
    return 0;
}

static int compare_text(struct verify_golden *g, const char *what, const char *wanted,
                        const char *found)
{
    struct golden_row *row = add_row(g);
    if (row == NULL) {
        return ERR_MEMORY;
    }
    snprintf(row->what, sizeof row->what, "%s", what);
    row->pass = strcmp(wanted, found) == 0;
    text_clean(row->wanted_text, sizeof row->wanted_text, wanted);
    text_clean(row->found_text, sizeof row->found_text, found);
    g->failed += !row->pass;
    return 0;
}

/* Compared as text, so that the row shows them. */
static int compare_ids(struct verify_golden *g, const char *what, const uint32_t *wanted,
                       uint32_t wanted_count, const uint32_t *found, uint32_t found_count)
{
    char text[2][GOLDEN_TEXT_BYTES] = {"", ""};
    const uint32_t *ids[2] = {wanted, found};
    uint32_t counts[2] = {wanted_count, found_count};
    for (int side = 0; side < 2; side++) {
        size_t at = 0;
        for (uint32_t i = 0; i < counts[side] && at < GOLDEN_TEXT_BYTES; i++) {
            at += (size_t)snprintf(text[side] + at, GOLDEN_TEXT_BYTES - at, i == 0 ? "%u" : " %u",
                                   ids[side][i]);
        }
        assert(at < GOLDEN_TEXT_BYTES || side == 1); /* tables are short enough */
    }
    return compare_text(g, what, text[0], text[1]);
}

/* ---- during a prompt ---- */

static void on_positions(void *ctx, uint32_t count)
{
    struct run *run = ctx;
    struct engine_trace trace;
    if (run->seen >= run->ids.count) {
        return;
    }
    run->seen += count;
    engine_trace(run->engine, &trace);
    for (uint32_t i = 0; i < run->golden->table->layers; i++) {
        bool last = run->prompt->layer_max_last;
        double largest = last ? (double)trace.layer_max[i] : (double)trace.layer_peak[i];
        run->layer_max[i] = last ? largest : fmax(run->layer_max[i], largest);
    }
}

static int judge_logits(struct run *run, const float *logits)
{
    const struct golden_prompt *p = run->prompt;
    const char *name = p->text != NULL ? p->text : "prompt";
    uint32_t vocab = run->golden->table->vocab;
    double sum = 0;
    double least = HUGE_VAL;
    for (uint32_t i = 0; i < vocab; i++) {
        sum += (double)logits[i];
        least = fmin(least, (double)logits[i]);
    }
    for (uint32_t i = 0; i < p->logit_count; i++) {
        uint32_t id = p->logit[i].id;
        TRY(golden_compare(run->golden, p->logit[i].value, (double)logits[id],
                           p->logit_tolerance, "%s: logit of %u", name, id));
    }
    if (p->mean != NULL) {
        TRY(golden_compare(run->golden, *p->mean, sum / vocab, p->logit_tolerance,
                           "%s: mean of logits", name));
    }
    return p->least == NULL ? 0 : golden_compare(run->golden, *p->least, least,
                                                 p->logit_tolerance, "%s: least logit", name);
}

static void on_logits(void *ctx, uint32_t step, const float *logits)
{
    struct run *run = ctx;
    if (step == 0) {
        run->rc = judge_logits(run, logits);
    }
}

static void on_tick(void *ctx, const struct engine_progress *p)
{
    struct run *run = ctx;
    char detail[64];
    snprintf(detail, sizeof detail, "pass %u of %u", p->pass + 1, p->passes);
    progress_show(&run->progress, p->done_bytes, p->planned_bytes, detail);
}

/* ---- a prompt ---- */

static int take_ids(struct run *run)
{
    const struct golden_prompt *p = run->prompt;
    char what[128];
    struct token_list encoded = {.ids = NULL};
    if (p->text != NULL && run->tokenizer != NULL) {
        TRY(tokenizer_encode(run->tokenizer, p->text, strlen(p->text), 0, &encoded));
    }
    snprintf(what, sizeof what, "%.60s: ids", p->text != NULL ? p->text : "prompt");
    int rc = 0;
    if (p->ids != NULL && encoded.ids != NULL) {
        rc = compare_ids(run->golden, what, p->ids, p->id_count, encoded.ids,
                         (uint32_t)encoded.count);
    }
    if (p->ids == NULL) {
        run->ids = encoded;
        if (encoded.count == 0) {
            rc = rc < 0 ? rc : compare_text(run->golden, what, "of the model's tokenizer",
                                            "there is no tiktoken.model");
        }
        return rc;
    }
    free(encoded.ids);
    run->ids = (struct token_list){.ids = malloc(p->id_count * sizeof *run->ids.ids),
                                   .count = p->id_count};
    if (run->ids.ids == NULL) {
        return err_set(ERR_MEMORY, "no memory for a prompt");
    }
    memcpy(run->ids.ids, p->ids, p->id_count * sizeof *p->ids);
    return rc;
}

static int judge_continuation(struct run *run, uint32_t made)
{
    const struct golden_prompt *p = run->prompt;
    char what[128];
    snprintf(what, sizeof what, "%.60s: continuation", p->text != NULL ? p->text : "prompt");
    if (p->next_text == NULL) {
        return compare_ids(run->golden, what, p->next, p->next_count, run->made, made);
    }
    struct byte_list bytes = {.bytes = NULL};
    char text[GOLDEN_TEXT_BYTES] = "";
    int rc = tokenizer_decode(run->tokenizer, run->made, made, 0, &bytes);
    if (rc == 0 && bytes.count > 0) {
        snprintf(text, sizeof text, "%.*s", (int)min_u64(bytes.count, sizeof text),
                 (const char *)bytes.bytes);
    }
    free(bytes.bytes);
    if (rc == ERR_USAGE) { /* an id of no token: no text then */
        err_clear();
        rc = 0;
    }
    return rc < 0 ? rc : compare_text(run->golden, what, p->next_text, text);
}

static int judge_layers(struct run *run)
{
    const struct golden_prompt *p = run->prompt;
    for (uint32_t i = 0; p->layer_max != NULL && i < run->golden->table->layers; i++) {
        TRY(golden_compare(run->golden, p->layer_max[i], run->layer_max[i],
                           p->layer_tolerance * p->layer_max[i], "%s: |h|max after layer %u",
                           p->text != NULL ? p->text : "prompt", i));
    }
    return 0;
}

static int run_prompt(struct run *run)
{
    const struct golden_prompt *p = run->prompt;
    TRY(take_ids(run));
    if (run->ids.count == 0) {
        return 0;
    }
    struct generate_request request = {
        .ids = run->ids.ids, .id_count = (uint32_t)run->ids.count, .gen = p->next_count,
        .on_logits = on_logits, .on_positions = on_positions, .ctx = run};
    struct generate_result result = {.ids = run->made};
    run->seen = 0;
    memset(run->layer_max, 0, run->golden->table->layers * sizeof *run->layer_max);
    TRY(generate(run->engine, &request, &result));
    TRY(run->rc);
    TRY(judge_continuation(run, result.count));
    return judge_layers(run);
}

/* ---- the decay's constants ---- */

static int judge_decay(struct verify *v, struct verify_golden *g, const struct golden_decay *d)
{
    const struct tensor_ref *ref = model_tensor(v->model, d->layer, T_A_LOG);
    const char *path = v->model->files[ref->file].path;
    double least = HUGE_VAL;
    double most = -HUGE_VAL;
    double beyond = 0;
    float *a = malloc(ref->size_bytes);
    if (a == NULL) {
        return err_set(ERR_MEMORY, "no memory for A_log");
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? err_set(ERR_IO, "%s: cannot be opened", path)
                    : file_read_at(fd, path, ref->offset_bytes, a, ref->size_bytes);
    if (fd >= 0) {
        close(fd);
    }
    for (uint32_t i = 0; rc == 0 && i < ref->rows * ref->cols; i++) {
        bool head = i < v->model->config.kda_heads;
        least = head ? fmin(least, exp((double)a[i])) : least;
        most = head ? fmax(most, exp((double)a[i])) : most;
        beyond = head ? beyond : fmax(beyond, fabs((double)a[i]));
    }
    free(a);
    TRY(rc);
    TRY(golden_compare(g, d->least, least, d->tolerance, "least exp(A_log) of layer %u",
                       d->layer));
    TRY(golden_compare(g, d->most, most, d->tolerance, "largest exp(A_log) of layer %u",
                       d->layer));
    return golden_compare(g, 0, beyond, 0, "A_log of layer %u past its heads", d->layer);
}

/* ---- all ---- */

static uint32_t longest(const struct golden_table *table, bool made)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < table->prompt_count; i++) {
        const struct golden_prompt *p = &table->prompt[i];
        /* A token has at least a byte. */
        uint32_t ids = p->ids != NULL ? p->id_count : (uint32_t)strlen(p->text);
        most = (uint32_t)max_u64(most, made ? p->next_count : ids);
    }
    return most;
}

static int open_engine(struct verify *v, const struct engine_cli *cli,
                       const struct golden_table *table, struct run *run)
{
    struct engine_options options;
    struct tuning tuning;
    uint32_t prompt = longest(table, false);
    uint32_t made = longest(table, true);
    TRY(engine_cli_options(cli, prompt, (uint64_t)prompt + made, &options));
    options.caller_bytes += model_resident_bytes(v->model); /* beside the engine's own */
    if (run->tokenizer != NULL) {
        options.caller_bytes += tokenizer_resident_bytes(run->tokenizer) + TOKENIZER_BYTES;
    }
    TRY(tuning_settle(cli, v->dir, &options, &run->progress, &tuning));
    run->made = calloc(made, sizeof *run->made);
    run->layer_max = calloc(table->layers, sizeof *run->layer_max);
    if (run->made == NULL || run->layer_max == NULL) {
        return err_set(ERR_MEMORY, "no memory for what is compared");
    }
    return engine_open(&run->engine, v->dir, &options);
}

static int open_tokenizer(struct verify *v, struct tokenizer **out)
{
    char *path = path_join(v->dir, "tiktoken.model");
    *out = NULL;
    if (path == NULL) {
        return ERR_MEMORY;
    }
    int rc = file_exists(path) ? tokenizer_open(v->dir, out) : 0;
    free(path);
    return rc;
}

static int run_prompts(struct run *run, const struct golden_table *table, bool quiet)
{
    running_begin(run->engine);
    engine_on_tick(run->engine, on_tick, run);
    progress_begin(&run->progress, "computing", quiet);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < table->prompt_count; i++) {
        run->prompt = &table->prompt[i];
        rc = run_prompt(run);
        free(run->ids.ids);
        run->ids = (struct token_list){.ids = NULL};
    }
    progress_clear(&run->progress);
    running_end();
    return rc;
}

int verify_golden(struct verify *v, const struct engine_cli *cli, struct verify_golden *out)
{
    struct tokenizer *tokenizer = NULL;
    *out = (struct verify_golden){.table = NULL};
    if (v->model == NULL) {
        return 0; /* that it was refused is said */
    }
    const struct golden_table *table = golden_find(&v->model->config);
    if (table == NULL) {
        return err_set(ERR_MODEL, "--golden: %s has %u layers of width %u: known are the figures "
                       "of %s", v->dir, v->model->config.layers, v->model->config.hidden,
                       golden_names());
    }
    out->table = table;
    v->golden = out;
    struct run run = {.golden = out};
    running_catch(NULL);
    int rc = open_tokenizer(v, &tokenizer);
    run.tokenizer = tokenizer;
    for (uint32_t i = 0; rc == 0 && i < table->decay_count; i++) {
        rc = judge_decay(v, out, &table->decay[i]);
    }
    rc = rc < 0 ? rc : open_engine(v, cli, table, &run);
    rc = rc < 0 ? rc : run_prompts(&run, table, cli->quiet);
    engine_close(run.engine);
    tokenizer_close(tokenizer);
    free(run.made);
    free(run.layer_max);
    TRY(rc);
    verify_say(v, out->failed == 0 ? VERIFY_OK : VERIFY_BAD, "golden", "%u of %u figures are those "
               "of %s%s", out->row_count - out->failed, out->row_count, table->name,
               out->failed == 0 ? "" : ": the weights or the program are not what they should be");
    return 0;
}

void verify_golden_free(struct verify_golden *golden)
{
    free(golden->row);
    *golden = (struct verify_golden){.table = NULL};
}

/* ---- what is shown ---- */

void verify_golden_print(FILE *out, const struct verify_golden *g)
{
    fprintf(out, "\nfigures of %s\n      %-44s %14s %14s %10s %10s\n", g->table->name, "", "known",
            "found", "differ by", "allowed");
    for (uint32_t i = 0; i < g->row_count; i++) {
        const struct golden_row *row = &g->row[i];
        fprintf(out, "%-5s %-44.44s ", row->pass ? "ok" : "BAD", row->what);
        if (row->numeric) {
            fprintf(out, "%14.8g %14.8g %10.2g %10.2g\n", row->wanted, row->found,
                    fabs(row->found - row->wanted), row->allowed);
        } else if (row->pass) {
            fprintf(out, "%s\n", row->found_text);
        } else {
            fprintf(out, "\n      known %s\n      found %s\n", row->wanted_text, row->found_text);
        }
    }
    fputc('\n', out);
}

cJSON *verify_golden_json(const struct verify_golden *g)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "of", g->table->name);
    cJSON_AddBoolToObject(root, "passed", g->failed == 0);
    cJSON *figures = cJSON_AddArrayToObject(root, "figures");
    for (uint32_t i = 0; i < g->row_count; i++) {
        const struct golden_row *row = &g->row[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "figure", row->what);
        cJSON_AddBoolToObject(one, "pass", row->pass);
        if (row->numeric) {
            cJSON_AddNumberToObject(one, "known", row->wanted);
            cJSON_AddNumberToObject(one, "found", row->found);
            cJSON_AddNumberToObject(one, "difference", fabs(row->found - row->wanted));
            cJSON_AddNumberToObject(one, "allowed", row->allowed);
        } else {
            cJSON_AddStringToObject(one, "known", row->wanted_text);
            cJSON_AddStringToObject(one, "found", row->found_text);
        }
        cJSON_AddItemToArray(figures, one);
    }
    return root;
}
