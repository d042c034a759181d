/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring plan: EXPLAIN for a forward pass, from headers alone. */
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/commands.h"
#include "core/cli/engine_options.h"
#include "core/cli/output.h"
#include "core/cli/signals.h"
#include "core/cli/text.h"
#include "core/cli/tuning.h"

#include <cjson/cJSON.h>

struct plan_cli {
    struct engine_cli engine;
    uint64_t prompt, gen;
    const char *device_gbps, *compute_gbps;
    bool json;
};

static const struct option_row rows[] = {
    {"json", OPTION_FLAG, offsetof(struct plan_cli, json), NULL, 0, 0, NULL, NULL,
     "the whole plan as one JSON document"},
    {"prompt", OPTION_COUNT, offsetof(struct plan_cli, prompt), "3", 1, 1U << 30, NULL, "N",
     "prompt tokens to plan for"},
    {"gen", OPTION_COUNT, offsetof(struct plan_cli, gen), "16", 1, 1U << 30, NULL, "N",
     "tokens to be made"},
    {"device-gbps", OPTION_TEXT, offsetof(struct plan_cli, device_gbps), NULL, 0, 0, NULL, "X",
     "read rate of the drive in 1e9 bytes per second; predicts time"},
    {"compute-gbps", OPTION_TEXT, offsetof(struct plan_cli, compute_gbps), NULL, 0, 0, NULL, "X",
     "weights the cores compute in 1e9 bytes per second; predicts time"},
    ENGINE_OPTION_ROWS(struct plan_cli),
};

const struct command command_plan = {
    "plan", "MODEL [--ram SIZE] [options]",
    "Explains the compiled pass over MODEL: where the RAM goes, what is pinned and what is read.",
    rows, countof(rows), 1, 1};

/* Digits with an optional fraction: the same in every locale. */
static int parse_rate(const char *name, const char *text, double *rate)
{
    uint64_t scaled;
    *rate = 0;
    if (text == NULL) {
        return 0;
    }
    char unit[64];
    snprintf(unit, sizeof unit, "%sG", text);
    if (options_size(name, unit, &scaled) < 0 || scaled == 0) {
        err_clear();
        return err_set(ERR_USAGE, "--%s: '%s' is not a rate like 6.5", name, text);
    }
    *rate = (double)scaled / (double)GIB;
    return 0;
}

/* Behind the line that has depth and size. */
static void print_explained(const char *text, const struct tuning *tuning)
{
    const char *reads = tuning->asked ? strstr(text, "\nREADS") : NULL;
    if (reads != NULL) {
        char line[1024];
        tuning_text(tuning, line, sizeof line);
        text_show(stdout, text, (size_t)(reads - text));
        printf("\nTUNED    %s", line);
        text = reads;
    }
    text_show(stdout, text, strlen(text)); /* it names the folder */
}

static int print_plan(const struct plan *plan, const struct model *model,
                      const struct plan_rates *rates, const struct tuning *tuning, bool json)
{
    if (json) {
        cJSON *root = plan_json(plan, model, rates);
        tuning_json(tuning, root);
        TRY(output_json(stdout, root));
    } else {
        static char text[16384];
        plan_explain(plan, model, rates, text, sizeof text);
        print_explained(text, tuning);
    }
    return output_flush_stdout();
}

int cmd_plan(int argc, char **argv)
{
    struct plan_cli cli = {0};
    const char *dir;
    bool help;
    TRY(options_parse(&command_plan, &cli, argc, argv, &dir, &help));
    if (help) {
        options_help(stdout, &command_plan);
        return output_flush_stdout();
    }
    struct plan_rates rates;
    struct engine_options options;
    TRY(parse_rate("device-gbps", cli.device_gbps, &rates.device_gbps));
    TRY(parse_rate("compute-gbps", cli.compute_gbps, &rates.compute_gbps));
    TRY(engine_cli_options(&cli.engine, (uint32_t)cli.prompt, cli.prompt + cli.gen, &options));
    struct tuning tuning;
    if (tuning_asked(&cli.engine)) {
        signals_catch(NULL, output_remove_temporaries);
    }
    TRY(tuning_apply(&cli.engine, dir, &options, &tuning));
    if (tuning.measured && rates.device_gbps <= 0) {
        rates.device_gbps = tuning.gbps;
    }
    struct model *model;
    struct plan *plan;
    TRY(engine_plan(dir, &options, &model, &plan));
    int rc = signals_caught() != 0 ? err_set(ERR_STOPPED, "stopped before the plan was shown")
                                   : print_plan(plan, model, &rates, &tuning, cli.json);
    plan_free(plan);
    model_close(model);
    return rc;
}
