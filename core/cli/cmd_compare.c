/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring compare: what changed between files of measurements. */
#include <stdlib.h>

#include "core/base/err.h"
#include "core/cli/commands.h"
#include "core/cli/compare.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/signals.h"

struct compare_cli {
    const char *json;
};

static const struct option_row rows[] = {
    {"json", OPTION_TEXT, offsetof(struct compare_cli, json), NULL, 0, 0, NULL, "FILE|-",
     "write the comparison; with - it replaces the table on standard output"},
};

const struct command command_compare = {
    "compare", "A.json B.json [C.json ..] [--json FILE|-]",
    "Shows reports of `k3ring bench --output-format json` (or `k3ring run --json`) beside the\n"
    "first: change of each metric, its 95 % interval, and whether the repeats bear it out.",
    rows, countof(rows), 2, COMPARE_FILES_MAX};

static int compare(struct output *json, const struct measured *file, uint32_t count)
{
    if (json->file != NULL) {
        TRY(output_json(json->file, compare_json(file, count)));
    }
    if (json->file != stdout) {
        TRY(compare_print(stdout, file, count));
        TRY(output_flush_stdout());
    }
    return json->file != NULL ? output_commit(json) : 0;
}

int cmd_compare(int argc, char **argv)
{
    struct compare_cli cli = {0};
    static struct measured file[COMPARE_FILES_MAX];
    const char *path[COMPARE_FILES_MAX];
    struct output json = {0};
    bool help;
    int count = options_parse(&command_compare, &cli, argc, argv, path, &help);
    TRY(count);
    if (help) {
        options_help(stdout, &command_compare);
        return output_flush_stdout();
    }
    int rc = 0;
    for (int i = 0; i < count && rc == 0; i++) {
        rc = cli.json != NULL && output_same(cli.json, path[i])
                 ? err_set(ERR_USAGE, "--json: %s is one of the files to compare", cli.json)
                 : measured_read(&file[i], path[i]);
    }
    signals_catch(NULL, output_remove_temporaries); /* before any file is made */
    rc = rc == 0 && cli.json != NULL ? output_open(&json, cli.json) : rc;
    rc = rc == 0 ? compare(&json, file, (uint32_t)count) : rc;
    output_abandon(&json);
    for (int i = 0; i < count; i++) {
        measured_fini(&file[i]);
    }
    return rc;
}
