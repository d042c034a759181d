/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_TUNING_H
#define CLI_TUNING_H

/* `--io-depth auto`, `--io-size auto`, `--tile auto`: asks the memory of earlier measurements, or
 * measures the drive now, and puts what was found into the engine's options. */

#include <cjson/cJSON.h>

#include "core/cli/engine_options.h"
#include "core/cli/progress.h"
#include "core/cli/tuning_file.h"

struct tuning {
    bool asked;              /* something is `auto`; else the rest says nothing */
    bool measured;           /* a drive was, now or earlier */
    bool remembered;         /* earlier */
    double gbps, best_gbps;  /* of the setting in force, and of the fastest one */
    double took_s;           /* of a measurement now */
    int64_t date_s;          /* since 1970 */
    char device[TUNING_TEXT_BYTES];
    char why_not[160];       /* when none was measured */
    /* in force */
    uint32_t io_depth;
    uint64_t io_size_bytes, tile_bytes;
};

bool tuning_asked(const struct engine_cli *cli);

/* To be called between engine_cli_options() and the opening of an engine or a plan over the
 * folder. Does nothing when nothing is `auto`. ERR_USAGE for --remeasure without any, ERR_STOPPED
 * after a signal, and what model_open() and io_files_open() say. */
int tuning_apply(const struct engine_cli *cli, const char *dir, struct engine_options *options,
                 struct tuning *tuning);

/* The same for a command that talks: a line of progress while it measures, and what came of it. */
int tuning_settle(const struct engine_cli *cli, const char *dir, struct engine_options *options,
                  struct progress *progress, struct tuning *tuning);

/* One line without its end: what is in force and where it comes from. */
void tuning_text(const struct tuning *tuning, char *text, size_t capacity);

/* Adds an object "tuning" to parent, when something was asked. */
void tuning_json(const struct tuning *tuning, cJSON *parent);

#endif
