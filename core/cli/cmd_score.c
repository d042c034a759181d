/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring score: how likely a model finds a text. */
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/cli/commands.h"
#include "core/cli/engine_options.h"
#include "core/cli/output.h"
#include "core/cli/progress.h"
#include "core/cli/prompt.h"
#include "core/cli/report.h"
#include "core/cli/score_report.h"
#include "core/cli/running.h"
#include "core/cli/signals.h"

#define WINDOW_AUTO 8192U
#define TOKENIZER_BYTES (1 * MIB) /* its pattern and what regular expressions take */

struct score_cli {
    struct engine_cli engine;
    struct prompt_cli prompt;
    const char *json;
    uint64_t stride;
};

static const struct option_row rows[] = {
    {"ids", OPTION_TEXT, offsetof(struct score_cli, prompt.ids), NULL, 0, 0, NULL, "LIST",
     "token ids in place of FILE, like 3,141,59"},
    {"tokenizer", OPTION_TEXT, offsetof(struct score_cli, prompt.tokenizer), NULL, 0, 0, NULL,
     "FILE", "a tiktoken.model elsewhere than with MODEL"},
    {"stride", OPTION_COUNT, offsetof(struct score_cli, stride), "auto", 1, UINT32_MAX, "auto",
     "N|auto", "a text longer than --context (auto: at most 8192, or what the model has) is read "
     "in windows that begin N tokens apart; auto: side by side"},
    {"json", OPTION_TEXT, offsetof(struct score_cli, json), NULL, 0, 0, NULL, "FILE|-",
     "write all figures, those of every token among them; with - in place of the line"},
    ENGINE_OPTION_ROWS(struct score_cli),
};

const struct command command_score = {
    "score", "MODEL FILE|- [options]",
    "Reads the text in FILE (-: standard input) and prints how likely MODEL finds it. Every token\n"
    "but the first is judged by those before it.",
    rows, countof(rows), 1, 2};

struct score_job {
    const struct score_cli *cli;
    struct prompt text;
    struct score_request request;
    struct score_result result;
    struct progress progress;
    struct tuning tuning;
    struct output json;
};

static void on_tick(void *ctx, const struct engine_progress *p)
{
    struct score_job *job = ctx;
    bool stopping = signals_caught() != 0;
    char detail[96];
    snprintf(detail, sizeof detail, "%u of %u tokens scored, pass %u of %u%s", job->result.scored,
             job->request.id_count - 1, p->pass + 1, p->passes,
             stopping ? ", stopping after it" : "");
    progress_show(&job->progress, p->done_bytes, stopping ? 0 : p->planned_bytes, detail);
}

/* The figures are written also when the run failed. */
static int report(struct score_job *job, struct engine *e, int rc, uint64_t read_before)
{
    char failure[ERR_MESSAGE_BYTES];
    struct run_report run = {.engine = e, .tuning = &job->tuning,
                             .storage_read_bytes = memory_storage_read_bytes() - read_before};
    struct score_report r = {.run = &run, .request = &job->request, .result = &job->result,
                             .tokenizer = job->text.tokenizer};
    bool line = job->cli->json == NULL || strcmp(job->cli->json, "-") != 0;
    engine_stats(e, &run.stats);
    engine_facts(e, &run.facts);
    snprintf(failure, sizeof failure, "%s", err_message());
    run.error = rc < 0 ? failure : NULL;
    if (job->json.file != NULL) {
        int json_rc = score_report_json(&r, job->json.file);
        json_rc = json_rc < 0 ? json_rc : output_commit(&job->json);
        rc = rc < 0 ? rc : json_rc;
    }
    if (rc == 0 && line) {
        score_report_line(&r);
        rc = output_flush_stdout();
    }
    if (rc == 0 && !job->cli->engine.quiet) {
        score_report_talk(&r);
    }
    return rc;
}

static int run_engine(struct score_job *job, struct engine *e)
{
    uint64_t read_before = memory_storage_read_bytes();
    TRY(engine_check_ids(e, "text", job->request.ids, job->request.id_count));
    if (!job->cli->engine.quiet) {
        report_settings(e);
    }
    running_begin(e);
    progress_begin(&job->progress, "scoring", job->cli->engine.quiet);
    engine_on_tick(e, on_tick, job);
    int rc = score_run(e, &job->request, &job->result);
    progress_clear(&job->progress);
    running_end();
    return report(job, e, rc, read_before);
}

/* The text, and the windows it is read in. */
static int prepare(struct score_job *job, const char *model, const char *file)
{
    const struct score_cli *cli = job->cli;
    struct prompt_cli prompt = cli->prompt;
    if ((file != NULL) == (prompt.ids != NULL)) {
        return err_set(ERR_USAGE, "score: give a text, FILE or - for standard input, or --ids, and "
                       "not both");
    }
    prompt.file = file;
    prompt.file_called = "score";
    prompt.ram_bytes = cli->engine.ram;
    TRY(prompt_read(&job->text, &prompt, model, NULL));
    struct score_request *r = &job->request;
    *r = (struct score_request){.ids = job->text.ids, .id_count = job->text.count};
    if (r->id_count < 2) {
        return err_set(ERR_USAGE, "score: the text is a single token, and the first one is judged "
                       "by none; give more");
    }
    uint64_t most = engine_cli_context(&cli->engine, model, WINDOW_AUTO);
    r->window = (uint32_t)min_u64(most, r->id_count - 1);
    r->stride = r->window;
    if (cli->stride != OPTION_AUTO) {
        if (cli->stride > most) {
            return err_set(ERR_USAGE, "--stride: %llu is more than the %llu tokens of a window; "
                           "some would not be read: give --context %llu or a smaller --stride",
                           (unsigned long long)cli->stride, (unsigned long long)most,
                           (unsigned long long)cli->stride);
        }
        r->stride = (uint32_t)min_u64(cli->stride, r->window);
    }
    job->result.logprob = malloc(r->id_count * sizeof *job->result.logprob);
    if (job->result.logprob == NULL) {
        return err_set(ERR_MEMORY, "no memory for the scores of %u tokens", r->id_count);
    }
    return cli->json != NULL ? output_open(&job->json, cli->json) : 0;
}

static int open_and_run(struct score_job *job, const char *model)
{
    const struct score_cli *cli = job->cli;
    const struct score_request *r = &job->request;
    struct engine_options options;
    TRY(engine_cli_options(&cli->engine, r->window, r->window, &options));
    options.context = r->window;
    options.logits_all = true;
    options.caller_bytes = r->id_count * (sizeof *r->ids + sizeof *job->result.logprob);
    options.caller_token_bytes = LOGPROB_TOKEN_BYTES;
    if (job->text.tokenizer != NULL) {
        options.caller_bytes += tokenizer_resident_bytes(job->text.tokenizer) + TOKENIZER_BYTES;
    }
    TRY(tuning_settle(&cli->engine, model, &options, &job->progress, &job->tuning));
    progress_begin(&job->progress, "opening", cli->engine.quiet);
    progress_wait(&job->progress, model);
    struct engine *e = NULL;
    int rc = engine_open(&e, model, &options);
    progress_clear(&job->progress);
    rc = rc < 0 ? rc : run_engine(job, e);
    engine_close(e);
    return rc;
}

int cmd_score(int argc, char **argv)
{
    struct score_cli cli = {.stride = 0};
    const char *operand[2] = {NULL, NULL};
    bool help;
    TRY(options_parse(&command_score, &cli, argc, argv, operand, &help));
    if (help) {
        options_help(stdout, &command_score);
        return output_flush_stdout();
    }
    struct score_job job = {.cli = &cli};
    /* Before any file is made. */
    running_catch("k3ring: stopping after this pass; once more to stop at once\n");
    const char *const inputs[] = {operand[1], cli.prompt.tokenizer, cli.engine.paranoid};
    int rc = output_spare_model(operand[0]);
    rc = rc == 0 ? output_spare_inputs(inputs, countof(inputs)) : rc;
    rc = rc == 0 ? prepare(&job, operand[0], operand[1]) : rc;
    rc = rc >= 0 ? open_and_run(&job, operand[0]) : rc;
    output_abandon(&job.json);
    prompt_fini(&job.text);
    free(job.result.logprob);
    return rc;
}
