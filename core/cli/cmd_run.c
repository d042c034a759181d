/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring run: a prompt in, what follows it out. */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cache/heat.h"
#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/cli/commands.h"
#include "core/cli/engine_options.h"
#include "core/cli/logprobs.h"
#include "core/cli/output.h"
#include "core/cli/progress.h"
#include "core/cli/prompt.h"
#include "core/cli/recorder.h"
#include "core/cli/report.h"
#include "core/cli/run_state.h"
#include "core/cli/run_text.h"
#include "core/cli/sample_options.h"
#include "core/cli/running.h"
#include "core/cli/signals.h"
#include "core/cli/text.h"
#include "core/exec/draft.h"
#include "core/model/endings.h"

struct run_cli {
    struct engine_cli engine;
    struct prompt_cli prompt;
    struct run_state_cli state;
    struct sample_cli sample;
    struct option_list stop_text;
    const char *stop, *json, *dump_logits, *heat, *trace;
    uint64_t gen, draft, draft_tokens, logprobs;
    bool trace_scores;
};

enum { DRAFT_NONE, DRAFT_NGRAM, DRAFT_NGRAM_FIXED };

static const struct option_row rows[] = {
    PROMPT_OPTION_ROWS(struct run_cli, "prompt token ids, like 3,141,59"),
    PROMPT_CHAT_ROWS(struct run_cli),
    {"gen", OPTION_COUNT, offsetof(struct run_cli, gen), "16", 1, 1U << 30, NULL, "N",
     "tokens to make; end ids are ignored unless --stop or --chat is given"},
    {"stop", OPTION_TEXT, offsetof(struct run_cli, stop), NULL, 0, 0, NULL,
     "LIST|eos", "ids that end the run once made; eos: those that the model's files name"},
    {"stop-text", OPTION_LIST, offsetof(struct run_cli, stop_text), NULL, 0, 0, NULL, "TEXT",
     "text that ends the run and is not shown; may be given again"},
    SAMPLE_OPTION_ROWS(struct run_cli, "0", "1"),
    {"logprobs", OPTION_COUNT, offsetof(struct run_cli, logprobs), "none", 0, LOGPROB_TOP_MAX,
     "none", "N|none", "with --json: log probabilities of each token and of the N likeliest"},
    {"draft", OPTION_CHOICE, offsetof(struct run_cli, draft), "none", 0, 0,
     "none|ngram|ngram-fixed", NULL, "try tokens that followed the same ones before: as many as "
     "pay, or --draft-tokens every time; never changes output"},
    {"draft-tokens", OPTION_COUNT, offsetof(struct run_cli, draft_tokens), "4", 1,
     DRAFT_TOKENS_MAX, NULL, "N", "most tokens to draft for a pass"},
    OPTION_GROUP("Output and records"),
    {"json", OPTION_TEXT, offsetof(struct run_cli, json), NULL, 0, 0, NULL, "FILE|-",
     "write the report; with - it replaces the ids on standard output"},
    {"dump-logits", OPTION_TEXT, offsetof(struct run_cli, dump_logits), NULL, 0, 0, NULL, "FILE",
     "f32 logits of the last prompt position"},
    {"heat", OPTION_TEXT, offsetof(struct run_cli, heat), NULL, 0, 0, NULL, "FILE",
     "begin with what the cache policy learned before, keep it at the end (lar, lfu, lhr)"},
    {"trace", OPTION_TEXT, offsetof(struct run_cli, trace), NULL, 0, 0, NULL, "FILE",
     "record which experts each position takes, for `k3ring replay`"},
    {"trace-scores", OPTION_FLAG, offsetof(struct run_cli, trace_scores), NULL, 0, 0, NULL, NULL,
     "with --trace: also the 64 best candidates and their scores"},
    RUN_STATE_OPTION_ROWS(struct run_cli),
    ENGINE_OPTION_ROWS(struct run_cli),
};

const struct command command_run = {
    "run", "MODEL --ids LIST|--prompt TEXT|--prompt-file FILE|--load-state FILE [options]",
    "Runs MODEL, a checkpoint folder, on a prompt and prints what it makes: ids for ids, text for\n"
    "text.",
    rows, countof(rows), 1, 1};

struct run {
    const struct run_cli *cli;
    struct engine *engine;
    struct generate_request request;
    struct generate_result result;
    struct prompt prompt; /* all ids of the sequence: of the state, then of the prompt */
    struct run_state state;
    uint64_t positions;   /* what they and the tokens to make come to */
    uint32_t *stop;
    struct run_text text;
    struct sampling sampling;
    struct logprobs logprobs;
    struct progress progress;
    struct tuning tuning;
    bool ids_on_stdout; /* or text, when the prompt was */
    bool terminal; /* standard output is one: ids on lines, or progress would overwrite them */
    struct recorder recorder;
    struct output json, dump, heat; /* open from the start: a bad path is told before the run */
    int dump_rc;
    struct rusage settled, last; /* when the token settled_step and the latest one were made */
    uint32_t settled_step;
    bool steady; /* from there on */
};

static void on_tick(void *ctx, const struct engine_progress *p)
{
    struct run *run = ctx;
    bool stopping = signals_caught() != 0;
    char detail[64];
    snprintf(detail, sizeof detail, "pass %u of %u%s", p->pass + 1, p->passes,
             stopping ? ", stopping after it" : "");
    if (p->pass == 0) {
        progress_slow(&run->progress, p->done_bytes, p->planned_bytes, p->passes);
    }
    progress_show(&run->progress, p->done_bytes, stopping ? 0 : p->planned_bytes, detail);
}

/* Prints what a token adds; NULL: what was held back for want of its other bytes. --json has the
 * ids of tokens that show as nothing. */
static void take_text(struct run *run, const uint32_t *id)
{
    run_text_take(&run->text, id);
    if (run->ids_on_stdout && run->prompt.tokenizer != NULL && run->text.shown.count > 0) {
        if (run->terminal) {
            text_show(stdout, run->text.shown.bytes, run->text.shown.count);
        } else {
            fwrite(run->text.shown.bytes, 1, run->text.shown.count, stdout);
        }
        fflush(stdout);
    }
}

/* A run is steady from its second token on, once all memory is present. */
static void count_faults(struct run *run, uint32_t step)
{
    bool present = engine_pages_present(run->engine);
    getrusage(RUSAGE_SELF, run->steady ? &run->last : &run->settled);
    if (!run->steady) {
        run->settled_step = step;
        run->steady = step > 0 && present;
    }
}

static void on_token(void *ctx, uint32_t step, uint32_t id)
{
    struct run *run = ctx;
    count_faults(run, step);
    progress_clear(&run->progress);
    take_text(run, &id);
    if (run->ids_on_stdout && run->prompt.tokenizer == NULL) {
        const char *format = run->terminal ? "%u\n" : step == 0 ? "%u" : " %u";
        printf(format, id);
        fflush(stdout);
    }
}

static bool stops(void *ctx, uint32_t step, uint32_t id)
{
    const struct run *run = ctx;
    (void)step;
    (void)id;
    return run_text_over(&run->text);
}

static void on_choice(void *ctx, uint32_t step, const float *logits, uint32_t id)
{
    struct run *run = ctx;
    (void)step;
    logprobs_note(&run->logprobs, logits, id);
}

static void on_logits(void *ctx, uint32_t step, const float *logits)
{
    struct run *run = ctx;
    if (step == 0 && run->dump.file != NULL) {
        fwrite(logits, sizeof *logits, engine_model(run->engine)->config.vocab, run->dump.file);
        run->dump_rc = output_commit(&run->dump);
        if (run->dump_rc < 0) {
            engine_interrupt(run->engine);
        }
    }
}

static void on_positions(void *ctx, uint32_t count)
{
    struct run *run = ctx;
    recorder_add(&run->recorder, run->engine, count);
}

/* Not by a text, nor by the end of an answer's message. */
static bool ended_by_id(const struct run *run)
{
    const struct generate_result *r = &run->result;
    if (r->finish != FINISH_STOP || r->count == 0 || run->text.stop.found != NULL) {
        return false;
    }
    uint32_t last = r->ids[r->count - 1];
    return generate_stops(run->request.stop, run->request.stop_count, last) ||
           run_text_ends_with(&run->text, last);
}

static int write_json(struct run *run, const struct run_report *report)
{
    cJSON *root = report_json(report);
    if (root != NULL) {
        run_state_json(&run->state, root);
        sampling_json(&run->sampling, root);
        run_text_json(&run->text, root);
        if (ended_by_id(run)) {
            cJSON_AddNumberToObject(root, "stop_id", run->result.ids[run->result.count - 1]);
        }
        if (run->request.on_choice != NULL) {
            logprobs_json(&run->logprobs, run->result.ids, root);
        }
    }
    TRY(output_json(run->json.file, root));
    return output_commit(&run->json);
}

static void print_sampling(const struct run *run)
{
    char text[256];
    if (run->request.sample != NULL) {
        sampling_text(&run->sampling, text, sizeof text);
        fprintf(stderr, "k3ring: sampling: %s\n", text);
    }
    if (sampling_idle(&run->sampling)) {
        fputs("k3ring: --temperature is 0, so the likeliest token is taken: --top-p, --top-k, "
              "--min-p and --seed have no effect\n", stderr);
    }
}

/* A limit ended what was to be an answer. */
static bool was_cut(const struct run *run)
{
    enum finish_reason why = run->result.finish;
    return run->text.chat != NULL && (why == FINISH_LENGTH || why == FINISH_CONTEXT);
}

/* Who reads a pipe or a file has to know that an answer is none. */
static int tell_unanswered(const struct run *run)
{
    bool thinking = run->cli->prompt.effort != PROMPT_EFFORT_OFF;
    if (!was_cut(run) || !run_text_unanswered(&run->text)) {
        return 0;
    }
    return err_set(ERR_RUN, "the answer was cut before it said anything%s; give a larger --gen or "
                   "--context%s", thinking ? ", still thinking" : "",
                   thinking ? ", or less --effort" : "");
}

static void print_report(const struct run *run, const struct run_report *r, bool answered)
{
    report_print(r);
    if (was_cut(run) && answered) {
        fprintf(stderr, "k3ring: the answer was not over; give a larger --gen%s\n",
                run->cli->prompt.effort != PROMPT_EFFORT_OFF ? ", or less --effort" : "");
    }
}

/* The report is written also when the run failed. */
static int report(struct run *run, struct engine *e, int rc, uint64_t read_before)
{
    char failure[ERR_MESSAGE_BYTES];
    bool whole = rc == 0;
    rc = whole ? tell_unanswered(run) : rc;
    struct run_report r = {.engine = e, .request = &run->request, .result = &run->result,
                           .tuning = &run->tuning,
                           .storage_read_bytes = memory_storage_read_bytes() - read_before};
    if (run->steady && run->result.count > run->settled_step + 1) {
        r.steady_tokens = run->result.count - run->settled_step - 1;
        r.steady_minor_faults = (uint64_t)(run->last.ru_minflt - run->settled.ru_minflt);
        r.steady_major_faults = (uint64_t)(run->last.ru_majflt - run->settled.ru_majflt);
    }
    engine_stats(e, &r.stats);
    engine_facts(e, &r.facts);
    snprintf(failure, sizeof failure, "%s", err_message());
    r.error = rc < 0 ? failure : NULL;
    if (run->json.file != NULL) {
        int json_rc = write_json(run, &r);
        whole = whole && json_rc == 0;
        rc = rc < 0 ? rc : json_rc;
    }
    if (!run->cli->engine.quiet && whole) {
        print_report(run, &r, rc == 0);
    }
    return rc;
}

/* Also after a run that was stopped: what it learned is as good. */
static int save_heat(struct run *run, struct engine *e, int rc)
{
    if (run->heat.file == NULL || (rc < 0 && rc != ERR_STOPPED)) {
        return rc;
    }
    int heat_rc = engine_heat_write(e, run->heat.file);
    heat_rc = heat_rc < 0 ? heat_rc : output_commit(&run->heat);
    return rc < 0 ? rc : heat_rc;
}

static int run_engine(struct run *run, struct engine *e)
{
    uint64_t read_before = memory_storage_read_bytes();
    run->engine = e;
    engine_on_tick(e, on_tick, run);
    int rc = generate(e, &run->request, &run->result);
    progress_clear(&run->progress);
    bool text = run->prompt.tokenizer != NULL;
    take_text(run, NULL);
    if (run->ids_on_stdout && (text || !run->terminal) && run->result.count > 0) {
        putchar('\n');
    }
    int out_rc = output_flush_stdout();
    rc = run->dump_rc < 0 ? run->dump_rc : rc < 0 ? rc : run->text.rc < 0 ? run->text.rc : out_rc;
    rc = save_heat(run, e, rc);
    rc = run_state_save(&run->state, e, &run->prompt, &run->result, rc);
    rc = recorder_end(&run->recorder, rc);
    return report(run, e, rc, read_before);
}

static bool same_file(const char *path, const char *other)
{
    return path != NULL && other != NULL && output_same(path, other);
}

static int prepare_heat(struct run *run, const struct run_cli *cli)
{
    TRY(heat_check_policy(policy_table[cli->engine.policy]));
    if (strcmp(cli->heat, "-") == 0) {
        return err_set(ERR_USAGE, "--heat: give a file; it is read and written");
    }
    if (same_file(cli->heat, cli->json) || same_file(cli->heat, cli->dump_logits)) {
        return err_set(ERR_USAGE, "--heat: %s is also another output; give two files", cli->heat);
    }
    TRY(output_check_regular("heat", cli->heat));
    return output_open(&run->heat, cli->heat);
}

static int prepare_trace(struct run *run, const struct run_cli *cli)
{
    if (cli->trace == NULL) {
        return cli->trace_scores ? err_set(ERR_USAGE, "--trace-scores: give --trace FILE too") : 0;
    }
    if (same_file(cli->trace, cli->json) || same_file(cli->trace, cli->dump_logits) ||
        same_file(cli->trace, cli->heat)) {
        return err_set(ERR_USAGE, "--trace: %s is also another output; give two files",
                       cli->trace);
    }
    run->request.on_positions = on_positions;
    return recorder_open(&run->recorder, cli->trace);
}

static int prepare_state(struct run *run, const struct run_cli *cli, const char *model)
{
    const char *others[] = {cli->json, cli->dump_logits, cli->heat, cli->trace};
    for (size_t i = 0; i < countof(others); i++) {
        if (same_file(cli->state.save, others[i]) || same_file(cli->state.load, others[i])) {
            return err_set(ERR_USAGE, "%s is a state and also another output; give two files",
                           others[i]);
        }
    }
    TRY(run_state_open(&run->state, &cli->state, &cli->prompt, model, &run->prompt));
    run->state.quiet = cli->engine.quiet;
    run_state_request(&run->state, &run->prompt, &run->request);
    return 0;
}

/* A context that was asked for may end the run before --gen does, but not before a token. */
static int settle_positions(struct run *run, const struct run_cli *cli)
{
    run->positions = (uint64_t)run->prompt.count + cli->gen;
    if (cli->engine.context == OPTION_AUTO) {
        return 0;
    }
    if (cli->engine.context <= run->prompt.count) {
        return err_set(ERR_FIT, "--context %llu has no room for a token behind the %u of the "
                       "prompt; give --context %llu or more, or a shorter prompt",
                       (unsigned long long)cli->engine.context, run->prompt.count,
                       run->prompt.count + 1ULL);
    }
    run->positions = min_u64(run->positions, cli->engine.context);
    return 0;
}

/* How tokens are chosen, and what is told of it. */
static int prepare_choice(struct run *run, const struct run_cli *cli)
{
    TRY(sampling_open(&run->sampling, &cli->sample));
    run->request.sample = sampling_wanted(&run->sampling);
    if (cli->logprobs == OPTION_AUTO) {
        return 0;
    }
    run->request.on_choice = on_choice;
    return cli->json != NULL ? 0 : err_set(ERR_USAGE, "--logprobs: give --json FILE too, which "
                                           "they are written to");
}

static uint32_t vocab_of(const char *model)
{
    struct model_config config;
    if (config_load(model, &config) == 0) {
        return config.vocab;
    }
    err_clear(); /* whoever opens the model says so */
    return ENDINGS_ANY;
}

static int prepare_stop(struct run *run, const char *stop, const char *model)
{
    if (stop != NULL && strcmp(stop, "eos") == 0) {
        struct token_list ids = {.ids = NULL};
        int rc = model_endings(model, vocab_of(model), &ids);
        run->stop = ids.ids;
        run->request.stop_count = (uint32_t)ids.count;
        TRY(rc);
        TRY(ids.count > 0 ? 0 : err_set(ERR_USAGE, "--stop: no file of %s names an eos_token_id; "
                                        "give a list of ids", model));
    } else if (stop != NULL) {
        TRY(options_ids("stop", stop, &run->stop, &run->request.stop_count));
    }
    run->request.stop = run->stop;
    return 0;
}

static int prepare(struct run *run, const struct run_cli *cli, const char *model)
{
    const char *tokenizer = cli->prompt.tokenizer != NULL ? cli->prompt.tokenizer : model;
    if (cli->prompt.chat && cli->state.load != NULL) {
        return err_set(ERR_USAGE, "--chat: makes a first turn; leave --load-state out; `k3ring "
                       "chat --session FILE` keeps conversations");
    }
    TRY(prepare_choice(run, cli));
    TRY(prepare_state(run, cli, model));
    TRY(settle_positions(run, cli));
    TRY(run_text_open(&run->text, run->prompt.tokenizer, tokenizer, &cli->stop_text,
                      cli->json != NULL));
    if (cli->prompt.chat) {
        TRY(run_text_chat(&run->text, model, cli->prompt.effort != PROMPT_EFFORT_OFF));
    }
    if (cli->dump_logits != NULL && strcmp(cli->dump_logits, "-") == 0) {
        return err_set(ERR_USAGE, "--dump-logits: give a file; standard output is for ids");
    }
    if (same_file(cli->dump_logits, cli->json)) {
        return err_set(ERR_USAGE, "--json and --dump-logits name the same file; give two");
    }
    TRY(prepare_stop(run, cli->stop, model));
    run->request.gen = (uint32_t)cli->gen;
    run->request.drafts = cli->draft != DRAFT_NONE ? (uint32_t)cli->draft_tokens : 0;
    run->request.drafts_fixed = cli->draft == DRAFT_NGRAM_FIXED;
    run->request.on_logits = on_logits;
    run->request.on_token = on_token;
    run->request.stops = stops;
    run->request.ctx = run;
    run->result.ids = malloc((run->positions - run->prompt.count) * sizeof *run->result.ids);
    if (cli->json != NULL) {
        TRY(output_open(&run->json, cli->json));
    }
    if (cli->dump_logits != NULL) {
        TRY(output_open(&run->dump, cli->dump_logits));
    }
    if (cli->heat != NULL) {
        TRY(prepare_heat(run, cli));
    }
    TRY(prepare_trace(run, cli));
    run->terminal = isatty(STDOUT_FILENO) == 1;
    run->ids_on_stdout = cli->json == NULL || !(cli->json[0] == '-' && cli->json[1] == '\0');
    return run->result.ids != NULL ? 0 : err_set(ERR_MEMORY, "no memory for %llu ids",
                                                 (unsigned long long)cli->gen);
}

#define JSON_ID_BYTES 128U /* of an id in the report while it is written */

/* What the choice of tokens and the report keep in memory. */
static void count_memory(const struct run *run, struct engine_options *options)
{
    const struct run_cli *cli = run->cli;
    uint64_t most = run->positions - run->prompt.count;
    options->caller_bytes += cli->json != NULL ? JSON_ID_BYTES * run->positions : 0;
    options->caller_bytes += run_text_bytes(&run->text, most);
    options->caller_bytes += run->sampling.options.bias_count * sizeof *run->sampling.biases;
    if (run->request.sample != NULL) {
        options->caller_token_bytes += SAMPLE_TOKEN_BYTES;
    }
    if (run->request.on_choice != NULL) {
        options->caller_bytes += logprobs_bytes((uint32_t)cli->logprobs, most);
        options->caller_token_bytes += LOGPROB_TOKEN_BYTES;
    }
}

/* What can only be judged when the model is open. */
static int check_request(struct run *run, const struct engine *e)
{
    const struct generate_request *r = &run->request;
    TRY(engine_check_ids(e, "prompt", r->ids, r->id_count));
    TRY(engine_check_ids(e, "--stop", r->stop, r->stop_count));
    TRY(sample_check(&run->sampling.options, engine_model(e)->config.vocab));
    if (r->on_choice != NULL) {
        uint64_t most = run->positions - run->prompt.count;
        TRY(logprobs_open(&run->logprobs, e, (uint32_t)run->cli->logprobs, (uint32_t)most));
    }
    return run->cli->trace != NULL ? recorder_begin(&run->recorder, e) : 0;
}

static int open_and_run(struct run *run, const char *model)
{
    const struct run_cli *cli = run->cli;
    struct engine_options options;
    TRY(engine_cli_options(&cli->engine, run->request.id_count, run->positions, &options));
    options.drafts = run->request.drafts;
    options.caller_bytes += saved_state_resident_bytes(&run->state.loaded);
    count_memory(run, &options);
    TRY(tuning_settle(&cli->engine, model, &options, &run->progress, &run->tuning));
    options.heat_path = cli->heat;
    options.routing = cli->trace == NULL   ? ROUTING_NONE
                      : cli->trace_scores ? ROUTING_SCORES
                                          : ROUTING_EXPERTS;
    progress_begin(&run->progress, "opening", cli->engine.quiet);
    progress_wait(&run->progress, model);
    struct engine *e = NULL;
    int rc = engine_open(&e, model, &options);
    progress_clear(&run->progress);
    if (rc < 0) {
        return rc;
    }
    rc = run_state_load(&run->state, e);
    rc = rc == 0 ? check_request(run, e) : rc;
    if (rc < 0) {
        engine_close(e);
        return rc;
    }
    if (!cli->engine.quiet) {
        report_settings(e);
        print_sampling(run);
    }
    running_begin(e);
    progress_begin(&run->progress, "reading", cli->engine.quiet);
    rc = run_engine(run, e);
    running_end();
    engine_close(e);
    return rc;
}

int cmd_run(int argc, char **argv)
{
    struct run_cli cli = {.prompt.effort = PROMPT_EFFORT_UNSET};
    const char *model;
    bool help;
    TRY(options_parse(&command_run, &cli, argc, argv, &model, &help));
    if (help) {
        options_help(stdout, &command_run);
        return output_flush_stdout();
    }
    cli.prompt.ram_bytes = cli.engine.ram;
    TRY(prompt_settle_effort(&cli.prompt));
    struct run run = {.cli = &cli};
    /* Before any file is made. */
    running_catch("k3ring: stopping after this pass; once more to stop at once\n");
    const char *const inputs[] = {cli.prompt.file, cli.prompt.tokenizer, cli.sample.logit_bias,
                                  cli.engine.paranoid};
    int rc = output_spare_model(model);
    rc = rc == 0 ? output_spare_inputs(inputs, countof(inputs)) : rc;
    rc = rc == 0 ? prepare(&run, &cli, model) : rc;
    if (rc >= 0) {
        rc = open_and_run(&run, model);
    }
    output_abandon(&run.json);
    output_abandon(&run.dump);
    output_abandon(&run.heat);
    output_abandon(&run.recorder.out);
    run_state_close(&run.state);
    run_text_fini(&run.text);
    prompt_fini(&run.prompt);
    sampling_close(&run.sampling);
    logprobs_close(&run.logprobs);
    free(run.stop);
    free(run.result.ids);
    return rc;
}
