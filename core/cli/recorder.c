/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/recorder.h"

#include <string.h>

#include "core/base/err.h"

int recorder_open(struct recorder *recorder, const char *path)
{
    if (strcmp(path, "-") == 0) {
        return err_set(ERR_USAGE, "--trace: give a file; standard output is for ids");
    }
    return output_open(&recorder->out, path);
}

int recorder_begin(struct recorder *recorder, const struct engine *e)
{
    const struct model_config *c = &engine_model(e)->config;
    struct engine_routes routes;
    engine_routes(e, &routes);
    if (routes.width == 0) {
        return err_set(ERR_USAGE, "--trace: this model has no experts, so there is nothing to "
                       "record");
    }
    recorder->format = (struct trace_format){
        .layers = routes.layers, .top_k = c->experts_per_token, .experts = c->experts,
        .candidates = routes.scores != NULL ? routes.width : 0};
    TRY(trace_format_check(&recorder->format));
    trace_write_head(recorder->out.file, &recorder->format);
    return 0;
}

void recorder_add(struct recorder *recorder, const struct engine *e, uint32_t count)
{
    struct engine_routes r;
    engine_routes(e, &r);
    for (size_t row = 0; row < (size_t)count * r.layers; row++) {
        trace_write_group(recorder->out.file, &recorder->format, (uint32_t)(row % r.layers),
                          r.ids + row * r.width,
                          r.scores != NULL ? r.scores + row * r.width : NULL);
    }
}

int recorder_end(struct recorder *recorder, int rc)
{
    if (recorder->out.file == NULL || (rc < 0 && rc != ERR_STOPPED)) {
        return rc;
    }
    int out_rc = output_commit(&recorder->out);
    return rc < 0 ? rc : out_rc;
}
