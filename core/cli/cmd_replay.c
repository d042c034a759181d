/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring replay: a recorded trace through the cache policies, without a model; or its reads on the
 * drive a model lies on, without compute. */
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/commands.h"
#include "core/cli/engine_options.h"
#include "core/cli/output.h"
#include "core/cli/picture.h"
#include "core/cli/replay.h"
#include "core/cli/replay_device.h"
#include "core/cli/signals.h"
#include "core/cli/synth_layout.h"
#include "core/exec/walk_reads.h"

/* What a plan is made for, as `k3ring plan` has it. */
#define PLAN_PROMPT 3U
#define PLAN_POSITIONS 19U

/* The tables of a replay take some 60 bytes a key; the full model has 82,432. */
#define KEYS_MAX ((uint64_t)1 << 24)

struct replay_cli {
    struct engine_cli engine;
    const char *policy, *slots, *model, *json, *plot, *device;
    uint64_t tokens;
};

static const struct option_row rows[] = {
    {"policy", OPTION_TEXT, offsetof(struct replay_cli, policy), "all", 0, 0, NULL, "all|LIST",
     "cache policies, like arc,lar"},
    {"slots", OPTION_TEXT, offsetof(struct replay_cli, slots), NULL, 0, 0, NULL, "LIST",
     "capacities in experts, like 455,911 [what 8, 16, 24, 32, 64 GB hold of Kimi K3's]"},
    {"ram", OPTION_SIZE, offsetof(struct replay_cli, engine.ram), "auto", 1, UINT64_MAX / 4, "auto",
     "SIZE|auto", "as many slots as the plan of a run with this --ram keeps, instead of --slots; "
     "with --device that plan"},
    {"model", OPTION_TEXT, offsetof(struct replay_cli, model), NULL, 0, 0, NULL, "MODEL",
     "checkpoint folder whose expert size and plan count [Kimi K3's]"},
    {"json", OPTION_TEXT, offsetof(struct replay_cli, json), NULL, 0, 0, NULL, "FILE|-",
     "write the figures; with - they replace the table on standard output"},
    {"plot", OPTION_TEXT, offsetof(struct replay_cli, plot), NULL, 0, 0, NULL, "DIR",
     "pictures of the figures, by gnuplot, with their data and scripts"},
    OPTION_GROUP("Reads on a drive"),
    {"device", OPTION_TEXT, offsetof(struct replay_cli, device), NULL, 0, 0, NULL, "MODEL",
     "make the reads of a run over this checkpoint or pack; the options below say which"},
    {"tokens", OPTION_COUNT, offsetof(struct replay_cli, tokens), "all", 1, UINT32_MAX, "all",
     "N|all", "positions of the trace to make the reads of"},
    ENGINE_MEMORY_ROWS(struct replay_cli),
    ENGINE_POLICY_ROW(struct replay_cli),
    ENGINE_READ_ROWS(struct replay_cli),
    ENGINE_TILE_ROWS(struct replay_cli),
    ENGINE_BACKEND_ROW(struct replay_cli),
    ENGINE_QUIET_ROW(struct replay_cli),
};

const struct command command_replay = {
    "replay", "TRACE [--policy LIST] [--slots LIST | --ram SIZE | --device MODEL] [options]",
    "Replays TRACE, routing recorded by `k3ring run --trace`, through the cache policies of a "
    "run,\nbeside the best that is possible (opt). Each token is a batch of its own. With --device "
    "makes\nthe reads of these tokens on a drive, as a run would, and computes nothing.",
    rows, countof(rows), 1, 1};

/* ---- lists ---- */

static int unknown_policy(const char *name)
{
    const char *known[REPLAY_POLICIES_MAX];
    char all[128] = "";
    uint32_t count = 0;
    for (; policy_table[count] != NULL; count++) {
        known[count] = policy_table[count]->name;
        snprintf(all + strlen(all), sizeof all - strlen(all), " %s", known[count]);
    }
    const char *near = options_nearest(name, known, count, sizeof known[0]);
    return err_set(ERR_USAGE, "--policy: no cache policy is called '%s'%s%s%s; all of them are:%s",
                   name, near != NULL ? " (did you mean " : "", near != NULL ? near : "",
                   near != NULL ? "?)" : "", all);
}

static int add_policy(struct replay_request *q, const char *name)
{
    const struct policy_ops *ops = policy_find(name);
    if (ops == NULL) {
        return unknown_policy(name);
    }
    for (uint32_t i = 0; i < q->policy_count; i++) {
        if (q->policy[i] == ops) {
            return err_set(ERR_USAGE, "--policy: %s stands there twice", name);
        }
    }
    assert(q->policy_count < REPLAY_POLICIES_MAX);
    q->policy[q->policy_count++] = ops;
    return 0;
}

static int choose_policies(struct replay_request *q, const char *list)
{
    if (strcmp(list, "all") == 0) {
        for (uint32_t i = 0; policy_table[i] != NULL; i++) {
            TRY(add_policy(q, policy_table[i]->name));
        }
        return 0;
    }
    for (const char *at = list;; at++) {
        char name[32];
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        TRY(add_policy(q, name));
        at += length;
        if (*at == '\0') {
            return 0;
        }
    }
}

static int choose_slots(struct replay_request *q, const char *list)
{
    uint32_t *slots = NULL;
    uint32_t count;
    if (options_ids("slots", list, &slots, &count) < 0) {
        err_clear();
        return err_set(ERR_USAGE, "--slots: '%s' is not a list of numbers of slots like 455,911",
                       list);
    }
    if (count <= REPLAY_SLOTS_MAX) {
        memcpy(q->slots, slots, count * sizeof *slots);
        q->slots_count = count;
    }
    free(slots);
    return count <= REPLAY_SLOTS_MAX
               ? 0 : err_set(ERR_USAGE, "--slots: at most %d numbers", REPLAY_SLOTS_MAX);
}

/* What 8, 16, 24, 32 and 64 GB hold of the full model's experts; for other models the same shares
 * of what a token asks for. */
static void default_slots(struct replay_request *q)
{
    static const uint64_t full[] = {455, 911, 1344, 1823, 3647};
    const uint64_t full_demand = 1472;
    uint64_t demand = (uint64_t)q->trace->layers * q->trace->top_k;
    for (uint32_t i = 0; i < countof(full); i++) {
        q->slots[i] = (uint32_t)((full[i] * demand + full_demand / 2) / full_demand);
    }
    q->slots_count = countof(full);
}

/* ---- geometry ---- */

static bool fits(const struct trace *trace, const struct model_config *c)
{
    return c->layers > c->first_dense && trace->layers == c->layers - c->first_dense &&
           trace->top_k == c->experts_per_token && trace->experts <= c->experts;
}

static int plan_slots(struct replay_request *q, const struct model *model, uint64_t ram)
{
    struct plan *plan;
    struct engine_options options = {
        .ram_bytes = ram, .io_depth = ENGINE_IO_DEPTH, .io_size_bytes = ENGINE_IO_SIZE,
        .context = PLAN_POSITIONS, .prompt_tokens = PLAN_PROMPT, .chunk = PLAN_AUTO,
        .pin_bytes = PLAN_AUTO, .pin_percent = -1.0, .expert_slots = PLAN_AUTO,
        .tile_bytes = 4 * MIB};
    TRY(engine_plan_model(model, &options, &plan));
    q->slots[0] = plan->cache_slots;
    q->slots_count = 1;
    q->ram_bytes = ram;
    plan_free(plan);
    return 0;
}

/* Takes what the trace is replayed with from a model. */
static int use_model(struct replay_request *q, const struct model *model, uint64_t ram)
{
    q->experts = model->config.experts;
    q->expert_bytes = 0;
    for (int part = 0; part < EXPERT_PARTS; part++) {
        q->expert_bytes += model->part_bytes[part];
    }
    return ram != OPTION_AUTO ? plan_slots(q, model, ram) : 0;
}

static int check_fit(const struct trace *t, const struct model *model, const char *option,
                     const char *dir)
{
    return fits(t, &model->config)
               ? 0 : err_set(ERR_USAGE, "--%s: %s did not make this trace of %u layers with %u of "
                             "%u experts or more a token", option, dir, t->layers, t->top_k,
                             t->experts);
}

static int given_geometry(struct replay_request *q, const struct replay_cli *cli)
{
    struct model *model;
    const struct model_options options = {.allow_holes = true};
    TRY(model_open(cli->model, &options, &model));
    q->geometry = cli->model;
    int rc = check_fit(q->trace, model, "model", cli->model);
    if (rc == 0) {
        rc = use_model(q, model, cli->engine.ram);
    }
    model_close(model);
    return rc;
}

/* A trace of another model is counted in the full model's bytes, but has no plan. */
static int full_geometry(struct replay_request *q, uint64_t ram)
{
    struct synth_geometry full;
    struct model *model;
    TRY(synth_geometry_init(&(struct synth_options){.preset = SYNTH_K3}, &full));
    bool ours = fits(q->trace, &full.config);
    if (!ours && ram != OPTION_AUTO) {
        return err_set(ERR_USAGE, "--ram: this trace is not of Kimi K3; name its checkpoint by "
                       "--model, or give --slots");
    }
    TRY(model_imagine(&full.config, &model));
    q->geometry = "Kimi K3";
    q->borrowed = !ours;
    int rc = use_model(q, model, ram);
    q->experts = ours ? q->experts : q->trace->experts;
    model_close(model);
    return rc;
}

/* ---- counting ---- */

/* A run records whole positions: anything else is damage, of the layers in the head as well. */
static int check_positions(const struct trace *trace, const char *path, uint32_t *positions)
{
    if (walk_reads_positions(trace, positions) == 0) {
        return 0;
    }
    err_clear(); /* it does not name the file */
    return err_set(ERR_MODEL, "trace %s: does not go through its %u layers position by position: "
                   "its head is damaged, or it was cut short; record it again", path,
                   trace->layers);
}

static int check_trace(const struct trace *trace, const char *path)
{
    uint64_t keys = (uint64_t)trace->layers * trace->experts;
    uint32_t positions;
    if (trace->group_count == 0) {
        return err_set(ERR_MODEL, "trace %s: holds no routing; record one by `k3ring run --trace`",
                       path);
    }
    if (keys > KEYS_MAX) {
        return err_set(ERR_MODEL, "trace %s: %u layers of %u experts are more than a replay takes "
                       "(%llu together)", path, trace->layers, trace->experts,
                       (unsigned long long)KEYS_MAX);
    }
    return check_positions(trace, path, &positions);
}

static int write_result(const struct replay_request *q, const struct replay_result *r,
                        struct output *json)
{
    if (json->file != NULL) {
        TRY(output_json(json->file, replay_json(q, r)));
    }
    if (json->file != stdout) {
        replay_print(stdout, q, r);
        TRY(output_flush_stdout());
    }
    return json->file != NULL ? output_commit(json) : 0;
}

static int replay(const struct replay_cli *cli, struct replay_request *q, struct output *json)
{
    struct replay_result result = {0};
    TRY(check_trace(q->trace, q->path));
    TRY(cli->model != NULL ? given_geometry(q, cli) : full_geometry(q, cli->engine.ram));
    if (q->slots_count == 0) {
        default_slots(q);
    }
    int rc = replay_run(q, &result);
    if (rc == 0) {
        rc = write_result(q, &result, json);
    }
    if (rc == 0 && cli->plot != NULL) {
        rc = replay_plot(cli->plot, q, &result);
    }
    replay_fini(&result);
    return rc;
}

/* ---- on a drive ---- */

static int write_device_result(const struct replay_device_result *r, struct output *json)
{
    if (json->file != NULL) {
        TRY(output_json(json->file, replay_device_json(r)));
    }
    if (json->file != stdout) {
        replay_device_print(stdout, r);
        TRY(output_flush_stdout());
    }
    return json->file != NULL ? output_commit(json) : 0;
}

/* Figures of what was read before a signal are worth a report, too. */
static int measure(const struct replay_device_request *q, struct output *json)
{
    static struct replay_device_result result;
    int rc = replay_device_run(q, &result);
    if (rc == 0 || (rc == ERR_STOPPED && result.tokens > 0)) {
        int written = write_device_result(&result, json);
        const char *refused = replay_device_refusal(&result);
        if (written < 0) {
            rc = written;
        } else if (rc == 0 && refused != NULL) {
            rc = err_set(ERR_VERDICT, "these are no figures of a drive: %s", refused);
        }
    }
    replay_device_fini(&result);
    return rc;
}

/* The plan of a run that makes these positions one by one after a prompt of one token. */
static int device_options(const struct replay_cli *cli, const struct model *model,
                          uint32_t positions, struct engine_options *options)
{
    uint64_t context = min_u64(positions + 1ULL, model->config.context_max);
    TRY(engine_cli_options(&cli->engine, 1, context, options));
    options->chunk = 1;
    return 0;
}

static int replay_on_model(const struct replay_cli *cli, const struct trace *trace,
                           const char *path, const struct model *model, struct output *json)
{
    struct engine_options options;
    struct progress progress;
    struct tuning tuning;
    struct replay_device_request q = {.trace = trace, .path = path, .dir = cli->device,
                                      .model = model, .options = &options,
                                      .quiet = cli->engine.quiet, .tuning = &tuning};
    TRY(check_fit(trace, model, "device", cli->device));
    TRY(check_positions(trace, path, &q.positions));
    q.positions = (uint32_t)min_u64(q.positions, cli->tokens);
    TRY(device_options(cli, model, q.positions, &options));
    TRY(tuning_settle(&cli->engine, cli->device, &options, &progress, &tuning));
    return measure(&q, json);
}

static int replay_on_device(const struct replay_cli *cli, const struct trace *trace,
                            const char *path, struct output *json)
{
    struct model *model;
    const struct model_options options = {.allow_holes = true};
    TRY(check_trace(trace, path));
    TRY(model_open(cli->device, &options, &model));
    int rc = replay_on_model(cli, trace, path, model, json);
    model_close(model);
    return rc;
}

/* ---- the command ---- */

/* Whether an option was given that only a replay with --device has. */
static bool reads_are_told(const struct replay_cli *cli)
{
    const struct engine_cli *e = &cli->engine;
    return e->io_depth != ENGINE_IO_DEPTH || e->io_size != ENGINE_IO_SIZE || e->policy != 0 ||
           e->io != 0 || e->pin.bytes != OPTION_AUTO || e->pin.percent >= 0 ||
           e->pin_order != 0 || e->slots != OPTION_AUTO || e->tile != 4 * MIB ||
           e->remeasure || cli->tokens != OPTION_ALL;
}

/* Each of the two replays has options that say nothing to the other. */
static int check_options(const struct replay_cli *cli)
{
    bool counts = strcmp(cli->policy, "all") != 0 || cli->slots != NULL || cli->model != NULL ||
                  cli->plot != NULL;
    if (cli->device != NULL && counts) {
        return err_set(ERR_USAGE, "--policy, --slots, --model and --plot are not for a replay with "
                       "--device, which takes --cache-policy, --expert-slots and --ram like a run");
    }
    if (cli->device == NULL && reads_are_told(cli)) {
        return err_set(ERR_USAGE, "--tokens, --cache-policy, --expert-slots, --pin, --tile and "
                       "--io-... are for a replay that reads; name a model by --device");
    }
    if (cli->slots != NULL && cli->engine.ram != OPTION_AUTO) {
        return err_set(ERR_USAGE, "--slots and --ram both say how many slots; give one");
    }
    return 0;
}

int cmd_replay(int argc, char **argv)
{
    struct replay_cli cli = {.engine = {.threads = OPTION_AUTO, .context = OPTION_AUTO}};
    static struct replay_request q;
    struct output json = {0};
    static struct trace trace;
    bool help;
    TRY(options_parse(&command_replay, &cli, argc, argv, &q.path, &help));
    if (help) {
        options_help(stdout, &command_replay);
        return output_flush_stdout();
    }
    TRY(choose_policies(&q, cli.policy));
    TRY(check_options(&cli));
    if (cli.slots != NULL) {
        TRY(choose_slots(&q, cli.slots));
    }
    if (cli.json != NULL && output_same(cli.json, q.path)) {
        return err_set(ERR_USAGE, "--json: %s is the trace; give another file", q.path);
    }
    const char *dir = cli.device != NULL ? cli.device : cli.model;
    TRY(dir != NULL ? output_spare_model(dir) : 0);
    TRY(trace_load(&trace, q.path));
    q.trace = &trace;
    signals_catch(NULL, output_remove_temporaries); /* before any file is made */
    int rc = cli.json != NULL ? output_open(&json, cli.json) : 0;
    rc = rc == 0 && cli.plot != NULL ? picture_folder(cli.plot) : rc;
    if (rc == 0) {
        rc = cli.device != NULL ? replay_on_device(&cli, &trace, q.path, &json)
                                : replay(&cli, &q, &json);
    }
    output_abandon(&json);
    trace_fini(&trace);
    return rc;
}
