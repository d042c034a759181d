/* SPDX-License-Identifier: Apache-2.0 */
/* Every read of the last round. */
#include <inttypes.h>
#include <stdio.h>

#include "core/cli/bench_json_priv.h"
#include "core/cli/report.h"

/* Times count from the begin of the measured stretch: below zero are those of the warm-up. */
static int64_t since(uint64_t at_ns, uint64_t from_ns)
{
    return (int64_t)(at_ns - from_ns);
}

static void add_read(cJSON *reads, const struct bench_result *result, const struct io_record *r)
{
    char line[200];
    snprintf(line, sizeof line,
             "%" PRId64 ",%" PRId64 ",%" PRId64 ",%u,%" PRIu64 ",%u,%d,%s,%u,%u",
             since(r->begun_ns, result->from_ns), since(r->sent_ns, result->from_ns),
             since(r->ended_ns, result->from_ns), r->file, r->offset_bytes, r->size_bytes, r->res,
             r->label < READ_CLASSES ? report_class_names[r->label] : "", r->device, r->repeats);
    cJSON_AddItemToArray(reads, cJSON_CreateString(line));
}

void bench_json_log(cJSON *root, const struct bench_result *result)
{
    if (result->log.count == 0) {
        return;
    }
    cJSON *log = cJSON_AddObjectToObject(root, "x_log");
    cJSON_AddStringToObject(log, "columns", "begun_ns,sent_ns,ended_ns,file,offset_bytes,"
                            "size_bytes,result,class,device,retries");
    cJSON *files = cJSON_AddArrayToObject(log, "files");
    for (uint32_t i = 0; i < result->file_count; i++) {
        cJSON_AddItemToArray(files, cJSON_CreateString(result->paths[i]));
    }
    cJSON *reads = cJSON_AddArrayToObject(log, "reads");
    for (uint32_t i = 0; i < result->log.count; i++) {
        add_read(reads, result, &result->log.record[i]);
    }
}
