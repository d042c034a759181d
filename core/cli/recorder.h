/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RECORDER_H
#define CLI_RECORDER_H

/* The routing of a run as a trace file (docs/TRACE.md), written position by position. */

#include "cache/trace.h"
#include "core/cli/output.h"
#include "core/exec/engine.h"

struct recorder {
    struct output out;          /* out.file is NULL when nothing is recorded */
    struct trace_format format;
};

/* Before the run. ERR_OUTPUT, ERR_USAGE. */
int recorder_open(struct recorder *recorder, const char *path);
/* Once the engine is open: the head. ERR_USAGE for a model whose routing is in no trace. */
int recorder_begin(struct recorder *recorder, const struct engine *e);
/* The first count tokens of the engine's last pass. */
void recorder_add(struct recorder *recorder, const struct engine *e, uint32_t count);
/* Keeps the file after a run that ended well or was stopped, by rc; else removes it. Returns rc,
 * or why the file could not be written. */
int recorder_end(struct recorder *recorder, int rc);

#endif
