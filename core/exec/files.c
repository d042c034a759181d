/* SPDX-License-Identifier: Apache-2.0 */
/* The files an engine reads: the model's, and behind them the sums of pages when there are some. */
#include <stdlib.h>
#include <string.h>

#include "core/exec/exec_priv.h"

static bool has_sums(const struct engine_options *o)
{
    return o->paranoid != NULL && strcmp(o->paranoid, ENGINE_PARANOID_PACK) != 0;
}

/* Of the model's files, and behind them that of sums, if any. Free it. */
static const char **list_paths(const struct model *model, const char *sums, uint32_t *count)
{
    const char **paths = calloc(model->file_count + 1ULL, sizeof *paths);
    *count = model->file_count + (sums != NULL);
    if (paths != NULL) {
        for (uint32_t i = 0; i < model->file_count; i++) {
            paths[i] = model->files[i].path;
        }
        paths[model->file_count] = sums;
    }
    return paths;
}

uint32_t files_devices(const struct model *model, const struct engine_options *o)
{
    uint32_t count;
    const char **paths = list_paths(model, has_sums(o) ? o->paranoid : NULL, &count);
    count = paths != NULL ? io_devices_of(paths, count) : 1;
    free(paths);
    return count;
}

void files_ask_checks(const struct engine_options *o, bool experts, struct plan_request *r)
{
    if (o->paranoid != NULL) {
        r->sums = has_sums(o);
        r->check_tiles = io_capacity(o->io_depth, r->devices) + 2 * r->workers + 2;
        r->check_experts = experts ? PLAN_WORKING_SLOTS : 0;
    }
}

int files_open(const struct model *model, const struct page_sums *sums, struct io_files *files)
{
    uint32_t count;
    const char **paths = list_paths(model, sums != NULL ? sums->path : NULL, &count);
    uint64_t *sizes = calloc(count, sizeof *sizes);
    int rc = ERR_MEMORY;
    if (paths != NULL && sizes != NULL) {
        for (uint32_t i = 0; i < model->file_count; i++) {
            sizes[i] = model->files[i].size_bytes;
        }
        if (sums != NULL) {
            sizes[model->file_count] = sums->size_bytes;
        }
        rc = io_files_open(files, paths, sizes, count);
    } else {
        err_set(ERR_MEMORY, "no memory for a list of %u files", model->file_count);
    }
    free(paths);
    free(sizes);
    return rc;
}

int engine_open_files(const struct model *model, struct io_files *files)
{
    return files_open(model, NULL, files);
}
