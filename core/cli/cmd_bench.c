/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring bench */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/policy.h"
#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/cli/bench_fio.h"
#include "core/cli/bench_html.h"
#include "core/cli/bench_pictures.h"
#include "core/cli/bench_priv.h"
#include "core/cli/commands.h"
#include "core/cli/compare.h"
#include "core/cli/output.h"
#include "core/cli/picture.h"
#include "core/cli/prompt.h"
#include "core/cli/running.h"
#include "core/cli/synth_watch.h"
#include "core/cli/text.h"

#define LISTED_MAX 16U
#define SYNTH_RAM_SHARE 8U        /* a model that was made to measure gets this part of its size, */
#define SYNTH_RAM_LEAST (1536 * MIB) /* but so much */
#define TOKENS_BY_TIME 4000U      /* most when --runtime decides; small models have 4096 */

enum format { FORMAT_NORMAL, FORMAT_JSON, FORMAT_JSON_PLUS, FORMAT_TERSE, FORMAT_CSV };

struct bench_cli {
    struct engine_cli engine;
    struct prompt_cli prompt;
    const char *depths, *sizes, *policies, *rams, *ladder, *synth;
    const char *output, *trace, *export_fio, *plot, *html, *baseline;
    uint64_t tokens, warmup, repeat, seed, format, size, fail_below;
    double runtime, limit_time, status; /* seconds */
};

struct bench {
    struct bench_cli cli;
    struct bench_request request;
    struct bench_result result;
    struct prompt prompt;
    struct output output;
    struct measured baseline;     /* path NULL: none */
};

static const struct option_row rows[] = {
    OPTION_GROUP("What is measured"),
    PROMPT_OPTION_ROWS(struct bench_cli, "prompt token ids [1,2,3]"),
    {"tokens", OPTION_COUNT, offsetof(struct bench_cli, tokens), "auto", 1, 1U << 20, "auto", "N",
     "tokens to measure; auto: 8, or as many as --runtime allows"},
    {"runtime", OPTION_REAL, offsetof(struct bench_cli, runtime), "0", 0, 1000000000, NULL,
     "SECONDS", "end measuring at the first token after so long"},
    {"warmup", OPTION_COUNT, offsetof(struct bench_cli, warmup), "1", 0, 1U << 20, NULL, "N",
     "tokens to make before measuring, the prompt's first included"},
    {"repeat", OPTION_COUNT, offsetof(struct bench_cli, repeat), "auto", 1, 100, "auto", "N",
     "rounds; of a sweep, each measures every point; auto: 1, of a sweep 3"},
    {"limit-time", OPTION_REAL, offsetof(struct bench_cli, limit_time), "3", 0, 3600000, NULL,
     "SECONDS", "how long the drive's limit is measured, before and after; 0: not at all"},
    {"seed", OPTION_COUNT, offsetof(struct bench_cli, seed), "42", 0, UINT64_MAX, NULL, "N",
     "of the places a limit reads"},
    OPTION_GROUP("Swept when a list is given"),
    {"ram", OPTION_TEXT, offsetof(struct bench_cli, rams), "auto", 0, 0, NULL, "SIZE[,..]|auto",
     "hard ceiling of resident memory; auto is an eighth of a model of --synth"},
    {"ladder", OPTION_TEXT, offsetof(struct bench_cli, ladder), NULL, 0, 0, NULL, "SIZE,..",
     "the same as a list of --ram, once each: seconds per token against memory"},
    {"io-depth", OPTION_TEXT, offsetof(struct bench_cli, depths), "8", 0, 0, NULL, "N[,..]|auto",
     "reads in flight on each drive; auto: measured once, then remembered"},
    {"io-size", OPTION_TEXT, offsetof(struct bench_cli, sizes), "4M", 0, 0, NULL,
     "SIZE[,..]|auto", "largest read; lowered when depth x size exceeds the ring"},
    {"cache-policy", OPTION_TEXT, offsetof(struct bench_cli, policies), "arc", 0, 0, NULL,
     "NAME[,..]", "which experts stay: " ENGINE_POLICIES},
    OPTION_GROUP("Report"),
    {"output", OPTION_TEXT, offsetof(struct bench_cli, output), "-", 0, 0, NULL, "FILE|-",
     "where the report goes"},
    {"output-format", OPTION_CHOICE, offsetof(struct bench_cli, format), "normal", 0, 0,
     "normal|json|json+|terse|csv", NULL,
     "its form; json+ has histograms, terse is fio's version 3"},
    {"status-interval", OPTION_REAL, offsetof(struct bench_cli, status), "0", 0, 86400000, NULL,
     "SECONDS", "print a line of JSON on standard error so often"},
    {"plot", OPTION_TEXT, offsetof(struct bench_cli, plot), NULL, 0, 0, NULL, "DIR",
     "draw pictures of what was measured, with their data"},
    {"html", OPTION_TEXT, offsetof(struct bench_cli, html), NULL, 0, 0, NULL, "FILE",
     "report, pictures and environment as one page"},
    {"trace", OPTION_TEXT, offsetof(struct bench_cli, trace), NULL, 0, 0, NULL, "FILE",
     "record which experts each position takes, for `k3ring replay`"},
    {"export-fio", OPTION_TEXT, offsetof(struct bench_cli, export_fio), NULL, 0, 0, NULL, "PREFIX",
     "write the measured reads as a log and jobs for fio"},
    {"baseline", OPTION_TEXT, offsetof(struct bench_cli, baseline), NULL, 0, 0, NULL, "FILE",
     "an earlier --output-format json to compare with"},
    {"fail-below", OPTION_COUNT, offsetof(struct bench_cli, fail_below), "5", 0, 100, NULL, "PCT",
     "exit status 1 when tokens per second fall more than this below the baseline's"},
    OPTION_GROUP("A model to measure with"),
    {"synth", OPTION_TEXT, offsetof(struct bench_cli, synth), NULL, 0, 0, NULL, "DIR",
     "instead of MODEL: make one of full widths in DIR, or use the one it holds"},
    {"size", OPTION_SIZE, offsetof(struct bench_cli, size), "40G", 1, UINT64_MAX / 4, NULL, "SIZE",
     "how large that one may be"},
    ENGINE_UNSWEPT_ROWS(struct bench_cli),
};

const struct command command_bench = {
    "bench", "MODEL|--synth DIR [options]",
    "Benchmarks the drive MODEL lies on with real inference: reads gate kernels. Measures the\n"
    "drive's limit before and after, the run, the run's reads without compute, and the kernels\n"
    "without reads where all fits. Lists make a sweep. Nothing but the report is written.",
    rows, countof(rows), 0, 1};

/* ---- lists ---- */

/* The entry of a list at *at, which moves behind it, into text. ERR_USAGE: empty or too long. */
static int list_entry(const char *option, const char **at, char text[64], bool *more)
{
    size_t length = strcspn(*at, ",");
    if (length == 0 || length >= 64) {
        return err_set(ERR_USAGE, "--%s: an entry of the list is %s", option,
                       length == 0 ? "empty" : "too long");
    }
    memcpy(text, *at, length);
    text[length] = '\0';
    *more = (*at)[length] == ',';
    *at += length + *more;
    return 0;
}

static int add_value(const char *option, uint64_t *values, uint32_t *count, uint64_t value)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (values[i] == value) {
            return err_set(ERR_USAGE, "--%s: the same value stands there twice", option);
        }
    }
    if (*count == LISTED_MAX) {
        return err_set(ERR_USAGE, "--%s: more than %u values", option, LISTED_MAX);
    }
    values[(*count)++] = value;
    return 0;
}

static int read_depth(const char *option, const char *text, uint64_t *value)
{
    char *end;
    unsigned long parsed = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || parsed < 1 || parsed > 1024) {
        return err_set(ERR_USAGE, "--%s: '%s' is no number from 1 to 1024", option, text);
    }
    *value = parsed;
    return 0;
}

static int read_io_size(const char *option, const char *text, uint64_t *value)
{
    TRY(options_size(option, text, value));
    if (*value < PAGE_BYTES || *value > GIB || *value % PAGE_BYTES != 0) {
        return err_set(ERR_USAGE, "--%s: %s is no multiple of 4096 from 4K to 1G", option,
                       text);
    }
    return 0;
}

static int read_ram(const char *option, const char *text, uint64_t *value)
{
    return options_size(option, text, value);
}

static int read_policy(const char *option, const char *text, uint64_t *value)
{
    for (uint64_t i = 0; policy_table[i] != NULL; i++) {
        if (strcmp(policy_table[i]->name, text) == 0) {
            *value = i;
            return 0;
        }
    }
    return err_set(ERR_USAGE, "--%s: no cache policy is called '%s'; they are: "
                   ENGINE_POLICIES, option, text);
}

/* "auto" stands alone. */
static int read_list(const char *option, const char *list,
                     int (*read)(const char *option, const char *text, uint64_t *value),
                     uint64_t values[LISTED_MAX], uint32_t *count)
{
    *count = 0;
    if (strcmp(list, "auto") == 0 && read != read_policy) {
        values[(*count)++] = OPTION_AUTO;
        return 0;
    }
    for (bool more = true; more;) {
        char text[64];
        uint64_t value;
        TRY(list_entry(option, &list, text, &more));
        TRY(read(option, text, &value));
        TRY(add_value(option, values, count, value));
    }
    return 0;
}

struct swept {
    uint64_t ram[LISTED_MAX], depth[LISTED_MAX], size[LISTED_MAX], policy[LISTED_MAX];
    uint32_t rams, depths, sizes, policies;
};

/* Every combination, the last list running fastest. */
static int make_points(struct bench_request *q, const struct swept *s)
{
    uint64_t total = (uint64_t)s->rams * s->depths * s->sizes * s->policies;
    if (total > BENCH_POINTS_MAX) {
        return err_set(ERR_USAGE, "the lists make %llu combinations, at most %u are measured",
                       (unsigned long long)total, BENCH_POINTS_MAX);
    }
    for (uint32_t i = 0; i < total; i++) {
        uint32_t at = i;
        struct bench_point *p = &q->point[q->point_count++];
        p->policy = policy_table[s->policy[at % s->policies]]->name;
        at /= s->policies;
        p->io_size_bytes = s->size[at % s->sizes];
        at /= s->sizes;
        p->io_depth = (uint32_t)s->depth[at % s->depths];
        at /= s->depths;
        p->ram_bytes = s->ram[at % s->rams] == OPTION_AUTO ? ENGINE_RAM_AUTO
                                                           : s->ram[at % s->rams];
    }
    return 0;
}

static int read_lists(struct bench *b, struct swept *s)
{
    const struct bench_cli *cli = &b->cli;
    if (cli->ladder != NULL && strcmp(cli->rams, "auto") != 0) {
        return err_set(ERR_USAGE, "--ladder and --ram say the same thing; give one");
    }
    TRY(cli->ladder != NULL ? read_list("ladder", cli->ladder, read_ram, s->ram, &s->rams)
                            : read_list("ram", cli->rams, read_ram, s->ram, &s->rams));
    TRY(read_list("io-depth", cli->depths, read_depth, s->depth, &s->depths));
    TRY(read_list("io-size", cli->sizes, read_io_size, s->size, &s->sizes));
    TRY(read_list("cache-policy", cli->policies, read_policy, s->policy, &s->policies));
    /* What they have in common with other commands; `auto` is settled with the first ram. */
    b->cli.engine.ram = s->ram[0];
    b->cli.engine.io_depth = s->depth[0];
    b->cli.engine.io_size = s->size[0];
    b->cli.engine.policy = s->policy[0];
    return 0;
}

/* ---- the request ---- */

/* The command line as it can be typed again. */
static char *command_line(int argc, char **argv)
{
    size_t size = 8;
    for (int i = 0; i < argc; i++) {
        size += 1 + TEXT_SHELL_BYTES(strlen(argv[i]));
    }
    char *line = malloc(size);
    size_t at = line != NULL ? (size_t)snprintf(line, size, "k3ring") : 0;
    for (int i = 0; i < argc && line != NULL; i++) {
        line[at++] = ' ';
        at += text_shell(line + at, size - at, argv[i]);
    }
    return line;
}

static uint64_t nanoseconds(double seconds)
{
    return (uint64_t)(seconds * 1e9 + 0.5);
}

/* A model that was made to fit this machine would lie in its memory, and measure no drive: it gets
 * the memory that a machine has for the whole one. */
static int choose_ram(struct bench *b, const char *dir, struct swept *swept)
{
    struct model_options mo = {.allow_holes = true};
    struct model *model;
    const char *why;
    if (b->cli.synth == NULL || swept->ram[0] != OPTION_AUTO) {
        return 0;
    }
    TRY(model_open(dir, &mo, &model));
    uint64_t ram = max_u64(SYNTH_RAM_LEAST, model->total_bytes / SYNTH_RAM_SHARE / MIB * MIB);
    model_close(model);
    if (ram < memory_available(&why)) {
        swept->ram[0] = b->cli.engine.ram = ram;
    }
    return 0;
}

/* The prompt has to fit at every point. */
static uint64_t least_ram(const struct swept *s)
{
    uint64_t least = s->ram[0];
    for (uint32_t i = 1; i < s->rams; i++) {
        least = min_u64(least, s->ram[i]);
    }
    return least;
}

static int make_request(struct bench *b, const char *dir)
{
    struct bench_cli *cli = &b->cli;
    struct bench_request *q = &b->request;
    struct swept swept = {.rams = 0};
    struct progress progress;
    TRY(read_lists(b, &swept));
    TRY(choose_ram(b, dir, &swept));
    cli->prompt.ram_bytes = least_ram(&swept);
    TRY(prompt_read(&b->prompt, &cli->prompt, dir, "1,2,3"));
    q->dir = dir;
    q->ids = b->prompt.ids;
    q->id_count = b->prompt.count;
    q->warmup = (uint32_t)cli->warmup;
    q->runtime_ns = nanoseconds(cli->runtime);
    q->tokens = (uint32_t)(cli->tokens != OPTION_AUTO ? cli->tokens
                           : cli->runtime > 0         ? TOKENS_BY_TIME
                                                      : 8);
    q->limit_ns = nanoseconds(cli->limit_time);
    q->seed = cli->seed;
    q->status_ns = nanoseconds(cli->status);
    q->trace = cli->trace;
    q->quiet = cli->engine.quiet;
    uint64_t steps = max_u64((uint64_t)q->warmup + q->tokens, BENCH_COMPUTE_TOKENS);
    TRY(engine_cli_options(&cli->engine, q->id_count, q->id_count + steps, &q->engine));
    TRY(tuning_settle(&cli->engine, dir, &q->engine, &progress, &b->result.tuning));
    swept.depth[0] = q->engine.io_depth;
    swept.size[0] = q->engine.io_size_bytes;
    TRY(make_points(q, &swept));
    bool sweep = q->point_count > 1 && cli->ladder == NULL;
    q->rounds = (uint32_t)(cli->repeat != OPTION_AUTO ? cli->repeat : sweep ? 3 : 1);
    return 0;
}

/* The model of --synth: what lies there already is used when it is one. */
static int make_model(const struct bench_cli *cli)
{
    struct model_options mo = {.allow_holes = true};
    struct synth_options options;
    struct model *model;
    uint64_t bytes;
    if (model_open(cli->synth, &mo, &model) == 0) {
        bool synthetic = model->synthetic;
        model_close(model);
        return synthetic ? 0 : err_set(ERR_USAGE, "--synth: %s holds a model that is not of this "
                                       "making; give it as MODEL", cli->synth);
    }
    err_clear();
    TRY(synth_fit(cli->size, &options, &bytes));
    if (!cli->engine.quiet) {
        fprintf(stderr, "k3ring: making a model of %u layers and %u experts, %.2f GB, in %s\n",
                options.layers, options.experts, (double)bytes / 1e9, cli->synth);
    }
    return synth_watched(cli->synth, &options, cli->engine.quiet);
}

static int choose_model(struct bench *b, const char **dir)
{
    if (b->cli.synth != NULL) {
        TRY(*dir == NULL ? make_model(&b->cli)
                         : err_set(ERR_USAGE, "bench: give MODEL or --synth, not both"));
        *dir = b->cli.synth;
    }
    return *dir != NULL ? 0 : err_set(ERR_USAGE, "bench: give a MODEL, or --synth DIR to make one");
}

/* ---- the report ---- */

static int report(struct bench *b)
{
    FILE *out = b->output.file;
    switch ((enum format)b->cli.format) {
    case FORMAT_NORMAL:
        bench_print(out, &b->result);
        break;
    case FORMAT_JSON:
        TRY(output_json(out, bench_json(&b->result, false)));
        break;
    case FORMAT_JSON_PLUS:
        TRY(output_json(out, bench_json(&b->result, true)));
        break;
    case FORMAT_TERSE:
        bench_terse(out, &b->result);
        break;
    case FORMAT_CSV:
        bench_csv(out, &b->result);
        break;
    }
    return output_commit(&b->output);
}

/* What goes into files of its own. */
static int report_beside(struct bench *b, bool whole)
{
    const struct bench_cli *cli = &b->cli;
    if (whole && cli->export_fio != NULL) {
        TRY(bench_fio_export(&b->result, cli->export_fio));
    }
    if (cli->plot != NULL) {
        TRY(bench_pictures(&b->result, cli->plot));
    }
    if (cli->html != NULL && cli->plot != NULL) {
        return bench_html(&b->result, cli->plot, cli->html);
    }
    return cli->html != NULL ? bench_html_alone(&b->result, cli->html) : 0;
}

/* Tokens per second against those of an earlier benchmark. */
static int compare_with(const struct bench *b, const struct measured *baseline)
{
    cJSON *json = bench_json(&b->result, false);
    struct measured now = {.path = NULL};
    struct compare_worst worst;
    int rc = json != NULL ? measured_take(&now, "this benchmark", json)
                          : err_set(ERR_MEMORY, "no memory for a comparison");
    rc = rc == 0 ? compare_worst(baseline, &now, "tokens_per_second", &worst) : rc;
    if (rc == 0) {
        fprintf(stderr, "k3ring: tokens per second: %+.1f %% against %s\n", -worst.worse_percent,
                baseline->path);
        if (worst.worse_percent > (double)b->cli.fail_below) {
            rc = err_set(ERR_RUN, "tokens per second fell by %.1f %% against %s, more than "
                         "--fail-below %llu allows", worst.worse_percent, baseline->path,
                         (unsigned long long)b->cli.fail_below);
        }
    }
    measured_fini(&now);
    cJSON_Delete(json);
    return rc;
}

static int verdict_of(const struct bench *b)
{
    const struct bench_verdict *v = &b->result.verdict;
    if (!v->valid) {
        return err_set(ERR_VERDICT, "these are no figures of a drive: %s", v->reason[0]);
    }
    return b->baseline.path != NULL ? compare_with(b, &b->baseline) : 0;
}

/* Pictures, and the timeline beside them, come last and would replace it. */
static int check_picture_names(const struct bench_cli *cli, const char *path)
{
    char timeline[PATH_MAX];
    if (path == NULL || cli->plot == NULL) {
        return 0;
    }
    snprintf(timeline, sizeof timeline, "%s/timeline.json", cli->plot);
    if (!picture_owns(cli->plot, path) && !output_same(timeline, path)) {
        return 0;
    }
    return err_set(ERR_USAGE, "bench: %s has a name that --plot %s gives to its own files; choose "
                   "another", path, cli->plot);
}

/* What would eat another file, or fail, only after all was measured. */
static int check_outputs(const struct bench_cli *cli)
{
    const char *const written[] = {cli->output, cli->html, cli->trace, cli->baseline};
    const char *const suffixes[] = {".iolog", ".replay.fio", ".replay-timed.fio", ".limit.fio"};
    char job[PATH_MAX];
    TRY(cli->plot != NULL ? picture_folder(cli->plot) : 0);
    for (size_t i = 0; i < countof(written); i++) {
        TRY(check_picture_names(cli, written[i]));
        for (size_t k = 0; k < i && written[i] != NULL; k++) {
            if (written[k] != NULL && output_same(written[i], written[k])) {
                return err_set(ERR_USAGE, "bench: %s has two uses; --output, --html, --trace and "
                               "--baseline must be different files", written[i]);
            }
        }
        for (size_t k = 0; k < countof(suffixes) && written[i] != NULL && cli->export_fio != NULL;
             k++) {
            snprintf(job, sizeof job, "%s%s", cli->export_fio, suffixes[k]);
            if (output_same(written[i], job)) {
                return err_set(ERR_USAGE, "bench: %s is also what --export-fio writes; give "
                               "another PREFIX", written[i]);
            }
        }
    }
    return cli->html != NULL ? output_check(cli->html) : 0;
}

/* The report says what it was, and so does the end. */
static int report_failure(struct bench *b, int rc)
{
    err_clear();
    report(b);
    return err_after(rc, b->result.failure);
}

/* What was measured is reported also when the rest was stopped; a drive that failed is reported in
 * any case. */
static int measure_and_report(struct bench *b)
{
    struct tuning tuning = b->result.tuning;
    int rc = bench_run(&b->request, &b->result);
    b->result.tuning = tuning;
    bool some = b->result.point != NULL && b->result.point[0].rounds > 0;
    if (rc < 0 && !(rc == ERR_STOPPED && some)) {
        return b->result.failure[0] != '\0' ? report_failure(b, rc) : rc;
    }
    char why[ERR_MESSAGE_BYTES];
    snprintf(why, sizeof why, "%s", err_message());
    err_clear(); /* what the reports meet is told by itself */
    int told = report(b);
    told = told < 0 ? told : report_beside(b, rc == 0);
    if (rc < 0) {
        return err_after(rc, why);
    }
    return told < 0 ? told : verdict_of(b);
}

int cmd_bench(int argc, char **argv)
{
    struct bench *b = calloc(1, sizeof *b);
    const char *dir = NULL;
    bool help;
    if (b == NULL) {
        return err_set(ERR_MEMORY, "no memory for a benchmark");
    }
    int rc = options_parse(&command_bench, &b->cli, argc, argv, &dir, &help);
    if (rc >= 0 && help) {
        options_help(stdout, &command_bench);
        free(b);
        return output_flush_stdout();
    }
    running_catch("k3ring: stopping after this pass; once more to stop at once\n");
    char *line = command_line(argc, argv);
    b->request.command = line != NULL ? line : "";
    rc = rc < 0 ? rc : choose_model(b, &dir);
    const char *const inputs[] = {b->cli.prompt.file, b->cli.prompt.tokenizer, b->cli.baseline,
                                  b->cli.engine.paranoid};
    rc = rc < 0 ? rc : output_spare_model(dir);
    rc = rc < 0 ? rc : output_spare_inputs(inputs, countof(inputs));
    rc = rc < 0 ? rc : check_outputs(&b->cli);
    rc = rc < 0 ? rc : make_request(b, dir);
    rc = rc < 0 ? rc : output_open(&b->output, b->cli.output);
    rc = rc < 0 || b->cli.baseline == NULL ? rc : measured_read(&b->baseline, b->cli.baseline);
    rc = rc < 0 ? rc : measure_and_report(b);
    measured_fini(&b->baseline);
    output_abandon(&b->output);
    bench_fini(&b->result);
    prompt_fini(&b->prompt);
    free(line);
    free(b);
    return rc;
}
