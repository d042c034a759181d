/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring batch: many prompts, read from JSON lines, advance together. */
#include <limits.h>
#include <nettle/sha2.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/memory.h"
#include "core/cli/batch_input.h"
#include "core/cli/batch_journal.h"
#include "core/cli/commands.h"
#include "core/cli/engine_options.h"
#include "core/cli/output.h"
#include "core/cli/progress.h"
#include "core/cli/report.h"
#include "core/cli/running.h"
#include "core/exec/batch.h"

#include <cjson/cJSON.h>

#define SEQUENCES_AUTO 8U

struct batch_cli {
    struct engine_cli engine;
    const char *out, *json;
    uint64_t sequences, gen;
};

static const struct option_row rows[] = {
    {"out", OPTION_TEXT, offsetof(struct batch_cli, out), NULL, 0, 0, NULL, "FILE",
     "where results go, in the order of the input (required); FILE.part keeps what is finished"},
    {"sequences", OPTION_COUNT, offsetof(struct batch_cli, sequences), "auto", 1, 1024, "auto",
     "N|auto", "how many advance together; auto: 8, or what half of the RAM has states for"},
    {"gen", OPTION_COUNT, offsetof(struct batch_cli, gen), "16", 1, 1U << 30, NULL, "N",
     "tokens to make for a line that does not say"},
    {"json", OPTION_TEXT, offsetof(struct batch_cli, json), NULL, 0, 0, NULL, "FILE|-",
     "write the report"},
    ENGINE_OPTION_ROWS(struct batch_cli),
};

const struct command command_batch = {
    "batch", "MODEL IN.jsonl --out OUT.jsonl [options]",
    "Runs every line {\"id\": any, \"ids\": [..], \"gen\": N, \"stop\": [..]} of IN.jsonl. A line\n"
    "may have \"temperature\", \"top_p\", \"top_k\", \"min_p\", \"repetition_penalty\", \"seed\".\n"
    "An interrupted batch goes on when the same command is given again.",
    rows, countof(rows), 2, 2};

struct batch_job {
    const struct batch_cli *cli;
    const char *in; /* path of the input */
    struct batch_input input;
    struct batch_journal journal;
    struct batch_totals totals;
    struct engine *engine;
    struct progress progress;
    struct tuning tuning;
    struct output json;
    uint32_t next; /* line to hand out */
};

static bool next_request(void *ctx, struct batch_request *out)
{
    struct batch_job *job = ctx;
    while (job->next < job->input.count && job->journal.result[job->next] != NULL) {
        job->next++;
    }
    if (job->next == job->input.count) {
        return false;
    }
    const struct batch_line *line = &job->input.line[job->next];
    *out = (struct batch_request){.ids = line->ids, .id_count = line->id_count, .gen = line->gen,
                                  .stop = line->stop, .stop_count = line->stop_count,
                                  .sample = batch_line_samples(line) ? &line->sample : NULL,
                                  .tag = job->next++};
    return true;
}

/* The output line of a result, on the heap. */
static char *result_text(const struct batch_line *line, const struct batch_result *r)
{
    char hash[65];
    cJSON *object = cJSON_CreateObject();
    cJSON *ids = cJSON_AddArrayToObject(object, "generated_ids");
    for (uint32_t i = 0; i < r->count; i++) {
        cJSON_AddItemToArray(ids, cJSON_CreateNumber(r->ids[i]));
    }
    generate_hash_text(r->hash, hash);
    if (r->error == NULL) {
        cJSON_AddStringToObject(object, "logits_hash", hash);
    }
    cJSON_AddStringToObject(object, "finish_reason", generate_finish_name(r->finish));
    if (r->error != NULL) {
        cJSON_AddStringToObject(object, "error", r->error);
    }
    char *rest = cJSON_PrintUnformatted(object);
    char *text = NULL;
    cJSON_Delete(object);
    /* The id as it was written: a number keeps all its digits. */
    if (rest == NULL || asprintf(&text, "{\"id\":%.*s,%s",
                                 line->id != NULL ? (int)line->id_bytes : 4,
                                 line->id != NULL ? line->id : "null", rest + 1) < 0) {
        text = NULL;
    }
    cJSON_free(rest);
    return text;
}

static int take_result(void *ctx, const struct batch_result *result)
{
    struct batch_job *job = ctx;
    char *text = result_text(&job->input.line[result->tag], result);
    if (text == NULL) {
        return err_set(ERR_MEMORY, "no memory for a result");
    }
    return batch_journal_add(&job->journal, result->tag, result->error != NULL, text);
}

static void on_tick(void *ctx, const struct engine_progress *p)
{
    struct batch_job *job = ctx;
    char detail[96];
    snprintf(detail, sizeof detail, "%u of %u sequences done, pass %u", job->journal.finished,
             job->journal.count, p->pass + 1);
    if (p->pass == 0) {
        progress_slow(&job->progress, p->done_bytes, p->planned_bytes, p->passes);
    }
    progress_show(&job->progress, p->done_bytes, p->planned_bytes, detail);
}

/* Names, sizes and times of the files, and the shape: another model is another batch. */
static void identify(const struct batch_job *job, char text[JOURNAL_IDENTITY_BYTES])
{
    const struct model *m = engine_model(job->engine);
    struct sha256_ctx sha;
    unsigned char digest[LOGITS_HASH_BYTES];
    sha256_init(&sha);
    sha256_update(&sha, job->input.file.size_bytes, (const uint8_t *)job->input.file.text);
    for (uint32_t i = 0; i < m->file_count; i++) {
        const char *name = path_name(m->files[i].path);
        sha256_update(&sha, strlen(name) + 1, (const uint8_t *)name);
        sha256_update(&sha, sizeof m->files[i].size_bytes,
                      (const uint8_t *)&m->files[i].size_bytes);
        struct stat status = {0};
        (void)stat(m->files[i].path, &status);
        sha256_update(&sha, sizeof status.st_mtim, (const uint8_t *)&status.st_mtim);
    }
    uint64_t shape[] = {m->tensor_count, m->config.layers, m->config.vocab, m->config.experts,
                        job->cli->gen};
    sha256_update(&sha, sizeof shape, (const uint8_t *)shape);
    sha256_digest(&sha, sizeof digest, digest);
    generate_hash_text(digest, text);
}

/* How long the batch would take if every lane were always busy. */
static struct engine_forecast forecast_of(const struct batch_job *job)
{
    const struct plan *plan = engine_plan_of(job->engine);
    uint64_t prompt = 0;
    uint64_t made = 0;
    for (uint32_t i = 0; i < job->input.count; i++) {
        prompt += job->journal.result[i] == NULL ? job->input.line[i].id_count : 0;
        made += job->journal.result[i] == NULL ? job->input.line[i].gen : 0;
    }
    uint32_t lanes = (uint32_t)min_u64(plan->request.sequences, job->input.count);
    return (struct engine_forecast){
        .prompt_passes = (uint32_t)max_u64(1, div_ceil(prompt, plan->chunk)),
        .steps = (uint32_t)div_ceil(made, lanes),
        .prompt_tokens = (uint32_t)min_u64(prompt, plan->chunk), .step_tokens = lanes};
}

static int check_ids(const struct batch_job *job)
{
    char what[ERR_MESSAGE_BYTES];
    for (uint32_t i = 0; i < job->input.count; i++) {
        const struct batch_line *line = &job->input.line[i];
        snprintf(what, sizeof what, "%s: line %u, ids", job->in, line->number);
        TRY(engine_check_ids(job->engine, what, line->ids, line->id_count));
        snprintf(what, sizeof what, "%s: line %u, stop", job->in, line->number);
        TRY(engine_check_ids(job->engine, what, line->stop, line->stop_count));
    }
    return 0;
}

static int run_lines(struct batch_job *job)
{
    char identity[JOURNAL_IDENTITY_BYTES];
    struct batch_source source = {next_request, take_result, job};
    TRY(check_ids(job));
    identify(job, identity);
    TRY(batch_journal_open(&job->journal, job->cli->out, job->input.count, identity));
    uint32_t before = job->journal.finished;
    if (before > 0 && !job->cli->engine.quiet) {
        fprintf(stderr, "k3ring: %u of %u sequences were finished before\n", before,
                job->input.count);
    }
    struct engine_forecast forecast = forecast_of(job);
    progress_begin(&job->progress, "reading", job->cli->engine.quiet);
    engine_on_tick(job->engine, on_tick, job);
    int rc = before < job->input.count ? batch_run(job->engine, &source, &forecast, &job->totals)
                                       : 0;
    progress_clear(&job->progress);
    if (rc == ERR_STOPPED) {
        err_clear();
        return err_set(ERR_STOPPED, "%u of %u sequences are finished and kept in %s; the same "
                       "command goes on", job->journal.finished, job->input.count,
                       job->journal.path);
    }
    TRY(rc);
    TRY(batch_journal_finish(&job->journal));
    if (job->journal.failed > 0) {
        return err_set(ERR_NUMERIC, "%u of %u sequences met a value that is not finite: their "
                       "lines in %s have an \"error\"", job->journal.failed, job->input.count,
                       job->cli->out);
    }
    return 0;
}

static void print_totals(const struct batch_job *job, const struct engine_stats *stats)
{
    const struct batch_totals *t = &job->totals;
    uint64_t bytes = 0;
    for (int i = 0; i < READ_CLASSES; i++) {
        bytes += stats->class[i].bytes;
    }
    double seconds = (double)t->total_ns / 1e9;
    fprintf(stderr, "k3ring: %u sequences, %llu prompt and %llu made tokens in %llu passes, "
            "%.3f s (%.3f tokens/s), read %.3f GB; peak %.1f MiB\n", t->sequences,
            (unsigned long long)t->prompt_tokens, (unsigned long long)t->made_tokens,
            (unsigned long long)t->passes, seconds,
            seconds > 0 ? (double)t->made_tokens / seconds : 0.0, (double)bytes / 1e9,
            (double)memory_status("VmHWM:") / (double)MIB);
}

static int write_report(struct batch_job *job, const struct engine_stats *stats, int rc)
{
    const struct batch_totals *t = &job->totals;
    cJSON *root = cJSON_CreateObject();
    cJSON *batch = cJSON_AddObjectToObject(root, "batch");
    cJSON_AddNumberToObject(batch, "sequences", t->sequences);
    cJSON_AddNumberToObject(batch, "finished", job->journal.finished);
    cJSON_AddNumberToObject(batch, "of", job->input.count);
    cJSON_AddBoolToObject(batch, "interrupted", rc == ERR_STOPPED);
    cJSON_AddNumberToObject(batch, "sequences_at_once",
                            engine_plan_of(job->engine)->request.sequences);
    cJSON_AddNumberToObject(batch, "failed", t->failed);
    cJSON_AddNumberToObject(batch, "passes", (double)t->passes);
    cJSON_AddNumberToObject(batch, "prompt_tokens", (double)t->prompt_tokens);
    cJSON_AddNumberToObject(batch, "made_tokens", (double)t->made_tokens);
    cJSON_AddNumberToObject(batch, "seconds", (double)t->total_ns / 1e9);
    if (rc < 0) {
        cJSON_AddStringToObject(root, "error", err_message());
    }
    struct run_report r = {.engine = job->engine, .stats = *stats, .tuning = &job->tuning};
    engine_facts(job->engine, &r.facts);
    report_engine_json(root, &r);
    TRY(output_json(job->json.file, root));
    return output_commit(&job->json);
}

static int run_engine(struct batch_job *job)
{
    struct engine_stats stats;
    if (!job->cli->engine.quiet) {
        report_settings(job->engine);
    }
    running_begin(job->engine);
    int rc = run_lines(job);
    running_end();
    engine_stats(job->engine, &stats);
    if (!job->cli->engine.quiet && job->totals.passes > 0) {
        print_totals(job, &stats);
    }
    if (job->json.file != NULL) {
        int json_rc = write_report(job, &stats, rc);
        rc = rc < 0 ? rc : json_rc;
    }
    return rc;
}

/* Before the model is opened, so that the line is named. */
static int check_positions(const struct batch_job *job, const char *model)
{
    bool chosen = job->cli->engine.context != OPTION_AUTO;
    uint64_t most = engine_cli_context(&job->cli->engine, model, UINT32_MAX);
    for (uint32_t i = 0; i < job->input.count; i++) {
        const struct batch_line *line = &job->input.line[i];
        if ((uint64_t)line->id_count + line->gen > most) {
            return err_set(ERR_FIT, "%s: line %u: %u ids and %u tokens to make exceed the %llu "
                           "positions of context %s; shorten \"ids\" or \"gen\"", job->in,
                           line->number, line->id_count, line->gen, (unsigned long long)most,
                           chosen ? "of --context" : "the model has");
        }
    }
    return 0;
}

static int open_and_run(struct batch_job *job, const char *model)
{
    const struct batch_cli *cli = job->cli;
    struct engine_options options;
    TRY(batch_input_read(job->in, (uint32_t)cli->gen, cli->engine.ram, &job->input));
    if (cli->json != NULL) {
        TRY(output_open(&job->json, cli->json));
    }
    TRY(check_positions(job, model));
    uint32_t lanes = (uint32_t)min_u64(cli->sequences == OPTION_AUTO ? SEQUENCES_AUTO
                                                                     : cli->sequences,
                                       job->input.count);
    uint32_t prompt = batch_input_prompt_max(&job->input);
    TRY(engine_cli_options(&cli->engine, prompt, batch_input_positions_max(&job->input),
                           &options));
    options.sequences = lanes;
    options.sequences_most = cli->sequences == OPTION_AUTO;
    options.caller_bytes = batch_input_bytes(&job->input) +
                           lanes * batch_input_positions_max(&job->input) * sizeof(uint32_t);
    options.caller_token_bytes = batch_input_samples(&job->input) ? SAMPLE_TOKEN_BYTES : 0;
    options.prompt_tokens = (uint32_t)min_u64((uint64_t)prompt * lanes, UINT32_MAX);
    TRY(tuning_settle(&cli->engine, model, &options, &job->progress, &job->tuning));
    progress_begin(&job->progress, "opening", cli->engine.quiet);
    progress_wait(&job->progress, model);
    int rc = engine_open(&job->engine, model, &options);
    progress_clear(&job->progress);
    return rc < 0 ? rc : run_engine(job);
}

/* What would fail, or eat another file, only at the end. */
static int check_outputs(const struct batch_cli *cli, const char *in)
{
    char part[PATH_MAX];
    struct output probe;
    snprintf(part, sizeof part, "%s.part", cli->out);
    if (output_same(cli->out, in) || output_same(part, in) ||
        (cli->json != NULL && (output_same(cli->json, in) || output_same(cli->json, cli->out) ||
                               output_same(cli->json, part)))) {
        return err_set(ERR_USAGE, "batch: the input, --out, its .part and --json must be different "
                       "files");
    }
    TRY(output_open(&probe, cli->out));
    output_abandon(&probe);
    return 0;
}

int cmd_batch(int argc, char **argv)
{
    struct batch_cli cli = {0};
    const char *operand[2];
    bool help;
    TRY(options_parse(&command_batch, &cli, argc, argv, operand, &help));
    if (help) {
        options_help(stdout, &command_batch);
        return output_flush_stdout();
    }
    if (cli.out == NULL || strcmp(cli.out, "-") == 0) {
        return err_set(ERR_USAGE, "batch: --out FILE is required: results are kept beside it while "
                       "the batch runs");
    }
    const char *const inputs[] = {cli.engine.paranoid};
    TRY(output_spare_model(operand[0]));
    TRY(output_spare_inputs(inputs, countof(inputs)));
    if (file_exists(cli.out)) {
        return batch_journal_taken(cli.out);
    }
    TRY(check_outputs(&cli, operand[1]));
    struct batch_job job = {.cli = &cli, .in = operand[1]};
    running_catch("k3ring: stopping after this pass; the same command goes on later\n");
    int rc = open_and_run(&job, operand[0]);
    engine_close(job.engine);
    batch_journal_close(&job.journal);
    output_abandon(&job.json);
    batch_input_free(&job.input);
    return rc;
}
