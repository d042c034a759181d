/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring verify: is a model what it should be? */
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/cli/commands.h"
#include "core/cli/signals.h"
#include "core/cli/verify_golden.h"

struct verify_cli {
    struct engine_cli engine;
    const char *checksums, *write_checksums, *pages, *json;
    bool hash, golden;
};

static const struct option_row rows[] = {
    {"checksums", OPTION_TEXT, offsetof(struct verify_cli, checksums), NULL, 0, 0, NULL, "FILE",
     "compare files with a list as sha256sum writes it; names are relative to MODEL or to FILE"},
    {"hash", OPTION_FLAG, offsetof(struct verify_cli, hash), NULL, 0, 0, NULL, NULL,
     "print such a list of MODEL's own files, instead of the page"},
    {"write-checksums", OPTION_TEXT, offsetof(struct verify_cli, write_checksums), NULL, 0, 0,
     NULL, "FILE", "write a sum of every page of MODEL's files, for --paranoid of a run"},
    {"pages", OPTION_TEXT, offsetof(struct verify_cli, pages), NULL, 0, 0, NULL, "FILE",
     "compare every page with the sums of such a file"},
    {"golden", OPTION_FLAG, offsetof(struct verify_cli, golden), NULL, 0, 0, NULL, NULL,
     "run MODEL and compare with what is known of it: ids, logits, residuals"},
    {"json", OPTION_TEXT, offsetof(struct verify_cli, json), NULL, 0, 0, NULL, "FILE|-",
     "write what was found as JSON; with - or nothing behind it, it replaces the page"},
    ENGINE_OPTION_ROWS(struct verify_cli),
};

const struct command command_verify = {
    "verify", "MODEL [--checksums FILE] [--hash] [--write-checksums FILE] [--golden] [options]",
    "Checks whether MODEL is complete and undamaged: sizes, headers, tensors and index at once;\n"
    "every byte with --checksums or --pages; what it computes with --golden.",
    rows, countof(rows), 1, 1};

static int look(struct verify *v, const struct verify_cli *cli, struct verify_golden *golden)
{
    const struct verify_wish wish = {
        .checksums = cli->checksums, .hash = cli->hash, .write_pages = cli->write_checksums,
        .check_pages = cli->pages, .quiet = cli->engine.quiet,
        .threads = cli->engine.threads == OPTION_AUTO ? memory_processors()
                                                      : (uint32_t)cli->engine.threads};
    TRY(verify_structure(v));
    if (wish.checksums != NULL || wish.hash || wish.write_pages != NULL ||
        wish.check_pages != NULL) {
        TRY(verify_files(v, &wish));
    }
    return cli->golden ? verify_golden(v, &cli->engine, golden) : 0;
}

/* Hashes on standard output are for a file: the page goes with the talk then. */
static int show(const struct verify *v, const struct verify_cli *cli, struct output *json)
{
    if (json->file != NULL) {
        TRY(output_json(json->file, verify_json(v, false)));
    }
    if (cli->hash && !cli->engine.quiet) {
        verify_print(stderr, v);
    } else if (!cli->hash && json->file != stdout) {
        verify_print(stdout, v);
    }
    TRY(output_flush_stdout());
    return json->file != NULL ? output_commit(json) : 0;
}

/* What was found before a signal, in the file alone: a page of it would look like all. */
static int show_part(const struct verify *v, struct output *json)
{
    char why[ERR_MESSAGE_BYTES];
    snprintf(why, sizeof why, "%s", err_message());
    err_clear();
    if (output_json(json->file, verify_json(v, true)) == 0) {
        output_commit(json);
    }
    return err_after(ERR_STOPPED, why);
}

static int check_options(const struct verify_cli *cli)
{
    if (cli->hash && cli->json != NULL && strcmp(cli->json, "-") == 0) {
        return err_set(ERR_USAGE, "--hash prints a list: give --json a file");
    }
    if (cli->write_checksums != NULL && cli->pages != NULL) {
        return err_set(ERR_USAGE, "--write-checksums and --pages: first write, then compare");
    }
    if (cli->json != NULL && cli->write_checksums != NULL &&
        output_same(cli->json, cli->write_checksums)) {
        return err_set(ERR_USAGE, "--json and --write-checksums name the same file; give two");
    }
    return 0;
}

int cmd_verify(int argc, char **argv)
{
    struct verify_cli cli = {.hash = false};
    struct verify v = {.dir = NULL};
    struct verify_golden golden = {.table = NULL};
    struct output json = {.file = NULL};
    const char *dir;
    bool help;
    options_complete_json(argc, argv);
    TRY(options_parse(&command_verify, &cli, argc, argv, &dir, &help));
    if (help) {
        options_help(stdout, &command_verify);
        return output_flush_stdout();
    }
    TRY(check_options(&cli));
    signals_catch(NULL, output_remove_temporaries);
    const char *const inputs[] = {cli.checksums, cli.pages};
    TRY(output_spare_model(dir));
    TRY(output_spare_inputs(inputs, countof(inputs)));
    int rc = cli.json != NULL ? output_open(&json, cli.json) : 0;
    rc = rc < 0 ? rc : verify_open(&v, dir);
    rc = rc < 0 ? rc : look(&v, &cli, &golden);
    if (rc == ERR_STOPPED && json.file != NULL) {
        rc = show_part(&v, &json);
    }
    rc = rc < 0 ? rc : show(&v, &cli, &json);
    rc = rc < 0 ? rc : verify_verdict(&v);
    output_abandon(&json);
    verify_golden_free(&golden);
    verify_close(&v);
    return rc;
}
