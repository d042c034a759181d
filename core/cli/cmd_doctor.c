/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring doctor: what this machine and its drives make of a model, and what to change. */
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/commands.h"
#include "core/cli/doctor.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/progress.h"
#include "core/cli/signals.h"

#define MEMORY_NEEDED GIB /* with less than that available its rate is not measured */

struct doctor_cli {
    const char *json;
    bool quiet;
};

static const struct option_row rows[] = {
    {"json", OPTION_TEXT, offsetof(struct doctor_cli, json), NULL, 0, 0, NULL, "FILE|-",
     "write what was found; with - or nothing it replaces the page on standard output"},
    {"quiet", OPTION_FLAG, offsetof(struct doctor_cli, quiet), NULL, 0, 0, NULL, NULL,
     "no talk on stderr but errors"},
};

const struct command command_doctor = {
    "doctor", "[MODEL] [--json [FILE]] [--quiet]",
    "Looks at kernel, memory, rings, and the drives MODEL lies on; reads from these for two "
    "seconds;\nsays what to change, and what each --ram makes of a token. Writes nothing.",
    rows, countof(rows), 0, 1};

static bool stop(void)
{
    return signals_caught() != 0;
}

static int examine(struct doctor *d, const char *dir, struct progress *progress)
{
    TRY(doctor_open(d, dir, stop));
    TRY(doctor_check_system(d));
    doctor_check_files(d);
    doctor_check_drives(d);
    progress_wait(progress, dir != NULL ? dir : "the system");
    TRY(doctor_probe(d));
    if (d->env.system.available_bytes >= MEMORY_NEEDED) {
        d->memory_gbps = doctor_memory_gbps(d->env.system.processors);
    }
    TRY(doctor_dial(d));
    return stop() ? err_set(ERR_STOPPED, "stopped before all was looked at") : 0;
}

static int write_found(const struct doctor *d, struct output *json)
{
    if (json->file != NULL) {
        TRY(output_json(json->file, doctor_json(d)));
    }
    if (json->file != stdout) {
        doctor_print(stdout, d);
        TRY(output_flush_stdout());
    }
    return json->file != NULL ? output_commit(json) : 0;
}

static int verdict(const struct doctor *d)
{
    for (uint32_t i = 0; i < d->line_count; i++) {
        const struct doctor_line *line = &d->line[i];
        if (line->prevents) {
            return err_set(ERR_RUN, "a run would not begin: %s; %s", line->text, line->remedy);
        }
    }
    return 0;
}

int cmd_doctor(int argc, char **argv)
{
    struct doctor_cli cli = {0};
    static struct doctor d = {.env = {.diskstats_fd = -1}};
    struct output json = {0};
    struct progress progress;
    const char *dir = NULL;
    bool help;
    options_complete_json(argc, argv);
    TRY(options_parse(&command_doctor, &cli, argc, argv, &dir, &help));
    if (help) {
        options_help(stdout, &command_doctor);
        return output_flush_stdout();
    }
    signals_catch(NULL, output_remove_temporaries);
    progress_begin(&progress, "measuring", cli.quiet);
    TRY(dir != NULL ? output_spare_model(dir) : 0);
    int rc = cli.json != NULL ? output_open(&json, cli.json) : 0;
    rc = rc == 0 ? examine(&d, dir, &progress) : rc;
    progress_clear(&progress);
    rc = rc == 0 ? write_found(&d, &json) : rc;
    rc = rc == 0 ? verdict(&d) : rc;
    output_abandon(&json);
    doctor_close(&d);
    return rc;
}
