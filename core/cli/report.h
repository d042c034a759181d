/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

/* What a run did: the JSON document and the few lines for people. */

#include <cjson/cJSON.h>

#include "core/cli/tuning.h"
#include "core/exec/generate.h"

/* "trunk", ..; "trunk", .., "slab_pages", "compute". */
extern const char *const report_class_names[READ_CLASSES];
extern const char *const report_cause_names[STALL_CAUSES];

struct run_report {
    struct engine *engine;
    const struct generate_request *request;
    const struct generate_result *result;
    struct engine_stats stats;
    struct engine_facts facts;
    uint64_t storage_read_bytes; /* growth of read_bytes of /proc/self/io over the run */
    /* Page faults of the process from the second token on or, if later, from when all memory was
     * present, and over how many tokens. */
    uint64_t steady_minor_faults, steady_major_faults, steady_tokens;
    const struct tuning *tuning; /* what `auto` came to, or NULL */
    const char *error;           /* message of a failed run, or NULL */
};

/* A list of ids. False when memory is refused. */
bool report_ids_json(cJSON *root, const char *key, const uint32_t *ids, uint32_t count);

/* NULL when memory is refused. Free with cJSON_Delete. */
cJSON *report_json(const struct run_report *r);
/* Adds what every report has: passes, reads, cache, stalls, memory, settings and plan. Of r only
 * engine, stats, facts and storage_read_bytes are used. */
void report_engine_json(cJSON *root, const struct run_report *r);
/* Adds an object of a histogram, as fio names and counts it; NULL when memory is refused. */
cJSON *report_latency_json(cJSON *parent, const char *name, const struct histogram *h);
/* What is in force, before the first token. */
void report_settings(const struct engine *e);
/* What was done, after the last. */
void report_print(const struct run_report *r);

#endif
