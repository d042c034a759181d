/* SPDX-License-Identifier: Apache-2.0 */
/* What a doctor holds, and the list of its lines. */
#include "core/cli/doctor.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/proc.h"
#include "core/cli/synth_layout.h"

static int open_model(struct doctor *d)
{
    const struct model_options options = {.allow_holes = true};
    struct synth_geometry full;
    if (d->dir != NULL) {
        TRY(model_open(d->dir, &options, &d->model));
        d->synthetic = d->model->synthetic;
        return engine_open_files(d->model, &d->files);
    }
    TRY(synth_geometry_init(&(struct synth_options){.preset = SYNTH_K3}, &full));
    return model_imagine(&full.config, &d->model);
}

static int look(struct doctor *d)
{
    const char **paths = calloc(max_u64(d->files.count, 1), sizeof *paths);
    if (paths == NULL) {
        return err_set(ERR_MEMORY, "no memory for file names");
    }
    for (uint32_t i = 0; i < d->files.count; i++) {
        paths[i] = d->files.file[i].path;
    }
    int rc = environment_open(&d->env, "", paths, d->files.count);
    d->gate_count = rc == 0 ? environment_gates(&d->env, d->gate) : 0;
    free(paths);
    return rc;
}

int doctor_open(struct doctor *d, const char *dir, bool (*stop)(void))
{
    *d = (struct doctor){.dir = dir, .stop = stop, .files = {.device_count = 1},
                         .env = {.diskstats_fd = -1}};
    TRY(open_model(d));
    return look(d);
}

void doctor_close(struct doctor *d)
{
    environment_close(&d->env);
    io_files_close(&d->files);
    model_close(d->model);
    d->model = NULL;
}

static struct doctor_line *add_line(struct doctor *d, enum doctor_section section,
                                    const char *remedy, const char *format, va_list args)
{
    if (d->line_count == DOCTOR_LINES_MAX) {
        d->line_count--; /* the last one gives way */
    }
    struct doctor_line *line = &d->line[d->line_count++];
    *line = (struct doctor_line){.section = section};
    vsnprintf(line->text, sizeof line->text, format, args);
    snprintf(line->remedy, sizeof line->remedy, "%s", remedy != NULL ? remedy : "");
    proc_printable(line->text);
    proc_printable(line->remedy);
    return line;
}

void doctor_say(struct doctor *d, enum doctor_section section, enum doctor_mark mark,
                const char *remedy, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_line(d, section, remedy, format, args)->mark = mark;
    va_end(args);
}

void doctor_forbid(struct doctor *d, enum doctor_section section, const char *remedy,
                   const char *format, ...)
{
    va_list args;
    va_start(args, format);
    struct doctor_line *line = add_line(d, section, remedy, format, args);
    va_end(args);
    line->mark = DOCTOR_PROBLEM;
    line->prevents = true;
}

uint32_t doctor_count(const struct doctor *d, enum doctor_mark mark)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < d->line_count; i++) {
        count += d->line[i].mark == mark;
    }
    return count;
}

uint32_t doctor_forbidden(const struct doctor *d)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < d->line_count; i++) {
        count += d->line[i].prevents;
    }
    return count;
}
