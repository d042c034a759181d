/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_REPLAY_DEVICE_H
#define CLI_REPLAY_DEVICE_H

/* The I/O of a recorded run on the drive a model lies on, without compute: what is read, at what
 * rate, and whether that is the drive's. Nothing but the report is written. */

#include <cjson/cJSON.h>
#include <stdio.h>

#include "core/cli/environment.h"
#include "core/cli/tuning.h"
#include "core/exec/walk_reads.h"
#include "io/figures.h"

#define REPLAY_DEVICE_GATES_MAX (ENVIRONMENT_GATES_MAX + 2)

struct replay_device_request {
    const struct trace *trace;
    const char *path, *dir;       /* of the trace and of the model, as typed */
    const struct model *model;
    const struct engine_options *options;
    uint32_t positions;           /* of the trace, from the first on */
    bool quiet;
    const struct tuning *tuning;
};

struct replay_device_result {
    const struct replay_device_request *request;
    struct plan *plan;            /* in force */
    uint32_t tokens;              /* positions replayed; the figures are of these */
    bool stopped;                 /* by a signal, before the last */
    uint64_t first_ns;            /* until the second was begun: the first loads the pins */
    struct io_figures all, class[READ_CLASSES];
    struct cache_stats cache;
    uint64_t requested_bytes;     /* of everything asked for, what was stopped included */
    struct environment_diskstats disk; /* meanwhile */
    char io_engine[16], io_features[128];
    bool fixed_buffers;
    uint32_t devices, files, direct_files;
    struct environment environment;
    struct environment_gate gate[REPLAY_DEVICE_GATES_MAX];
    uint32_t gate_count;
};

/* Reads everything there is to read. ERR_STOPPED after a signal, with figures when tokens > 0.
 * ERR_FIT when the plan, or memory for a full queue, does not fit; ERR_IO; ERR_MEMORY. Undone by
 * replay_device_fini(), also after a failure. */
int replay_device_run(const struct replay_device_request *request,
                      struct replay_device_result *out);
void replay_device_fini(struct replay_device_result *result);

/* Why no rate is one of a drive; NULL when they are. */
const char *replay_device_refusal(const struct replay_device_result *result);

void replay_device_print(FILE *out, const struct replay_device_result *result);
/* NULL when memory is refused. Free with cJSON_Delete. */
cJSON *replay_device_json(const struct replay_device_result *result);

#endif
