/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/cli/signals.h"
#include "core/exec/tune.h"
#include "io/probe.h"

#define TILE_MIN MIB          /* smaller ones cost more tasks than they save time */
#define SIZE_TRIED_MIN (512 * KIB)
#define RAM_SHARE 8U          /* the measurement takes at most this part of --ram */
#define FLIGHT_LEAST MIB
/* The ring of the defaults: a drive that needs little in flight is no reason to read less far ahead
 * of a step that computes. */
#define AHEAD_BYTES (3 * ENGINE_IO_DEPTH * ENGINE_IO_SIZE)
#define TILE_DEFAULT (4 * MIB)

static bool depth_auto(const struct engine_cli *cli)
{
    return cli->io_depth == OPTION_AUTO;
}

static bool size_auto(const struct engine_cli *cli)
{
    return cli->io_size == OPTION_AUTO;
}

static bool tile_auto(const struct engine_cli *cli)
{
    return cli->tile == OPTION_AUTO;
}

bool tuning_asked(const struct engine_cli *cli)
{
    return depth_auto(cli) || size_auto(cli) || tile_auto(cli);
}

static bool stop(void)
{
    return signals_caught() != 0;
}

/* A request never spans two tiles: what the tile or the request is given bounds the other. */
static struct tune_request request_of(const struct engine_cli *cli,
                                      const struct engine_options *o)
{
    uint64_t tile = tile_auto(cli) ? TUNE_SIZE_MAX : cli->tile;
    uint64_t size = size_auto(cli) ? TUNE_SIZE_MAX : cli->io_size;
    struct tune_request r = {.io = o->io,
                             .depth = depth_auto(cli) ? 0 : o->io_depth,
                             .size_max_bytes = max_u64(min_u64(tile, size), SIZE_TRIED_MIN),
                             .flight_max_bytes = TUNE_FLIGHT_MAX,
                             .stop = stop};
    if (!tile_auto(cli) && !size_auto(cli)) {
        r.size_bytes = align_down(min_u64(tile, size), PAGE_BYTES);
    }
    if (o->ram_bytes != ENGINE_RAM_AUTO) {
        uint64_t share = max_u64(o->ram_bytes / RAM_SHARE, FLIGHT_LEAST);
        r.flight_max_bytes = min_u64(TUNE_FLIGHT_MAX, align_down(share, PAGE_BYTES));
    }
    return r;
}

/* Each file system below the files once, in file order. */
static void identify(const struct io_files *files, char *text, size_t capacity)
{
    uint64_t known[ENGINE_PLACES_MAX];
    size_t count = 0;
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < files->count && count < countof(known); i++) {
        struct io_place place;
        bool old = io_probe(files->file[i].fd, &place) < 0;
        for (size_t k = 0; k < count; k++) {
            old = old || known[k] == place.device;
        }
        if (!old && at < capacity) {
            char one[TUNING_TEXT_BYTES];
            io_place_identity(&place, one, sizeof one);
            known[count++] = place.device;
            at += (size_t)snprintf(text + at, capacity - at, "%s%s", at > 0 ? " + " : "", one);
        }
    }
}

/* *cut_bytes: what tiles of a pack were cut to, for good; 0 for a checkpoint. */
static int open_files(const char *dir, struct io_files *files, uint64_t *cut_bytes)
{
    struct model *model;
    struct model_options mo = {.allow_holes = true};
    TRY(model_open(dir, &mo, &model));
    int rc = engine_open_files(model, files);
    *cut_bytes = model->pack != NULL ? model->pack->tile_bytes : 0;
    model_close(model);
    return rc;
}

/* The question is part of what is remembered: another one may have another answer. */
static void name_question(const struct tune_request *r, struct tuning_entry *entry)
{
    static const char *const engines[] = {"uring", "pread", "sim"};
    snprintf(entry->asked, sizeof entry->asked, "%s depth %u size %llu to %llu within %llu",
             engines[r->io], r->depth, (unsigned long long)r->size_bytes,
             (unsigned long long)r->size_max_bytes, (unsigned long long)r->flight_max_bytes);
}

static int measure_now(const struct io_files *files, const struct tune_request *r,
                       const char *path, struct tuning_entry *entry, struct tuning *t,
                       void (*note)(const char *line))
{
    struct tune_result result;
    TRY(tune_measure(files, r, &result));
    t->measured = result.measured;
    t->took_s = (double)result.took_ns / 1e9;
    snprintf(t->why_not, sizeof t->why_not, "%s", result.why_not);
    if (!result.measured) {
        return 0;
    }
    entry->io_depth = result.depth;
    entry->io_size_bytes = result.size_bytes;
    entry->bytes_per_s = (uint64_t)(result.gbps * 1e9) + 1;
    entry->best_bytes_per_s = (uint64_t)(result.best_gbps * 1e9) + 1;
    entry->date_s = (uint64_t)nondet_date_s();
    const char *why_forget = result.noisy ? "the drive's speed varies too much now to remember "
                                            "what was measured"
                             : path == NULL ? "neither XDG_CACHE_HOME nor HOME names a folder to "
                                              "remember the measurement in" : NULL;
    if (why_forget != NULL && note != NULL) {
        note(why_forget);
    }
    if (why_forget == NULL && result.io == r->io) { /* a fallback holds for this run only */
        tuning_file_store(path, entry, note);
    }
    return 0;
}

static int ask(const struct engine_cli *cli, const struct tune_request *r,
               const struct io_files *files, struct tuning *t, struct tuning_entry *entry,
               void (*note)(const char *line))
{
    char *path = tuning_file_path();
    name_question(r, entry);
    identify(files, entry->device, sizeof entry->device);
    if (!cli->remeasure && path != NULL && r->io != IO_SIM) {
        t->remembered = t->measured = tuning_file_find(path, entry, note);
    }
    int rc = t->remembered ? 0 : measure_now(files, r, path, entry, t, note);
    free(path);
    return rc;
}

static void put_in_force(const struct engine_cli *cli, const struct tuning_entry *entry,
                         uint64_t cut_bytes, struct engine_options *o, struct tuning *t)
{
    snprintf(t->device, sizeof t->device, "%s", entry->device);
    if (t->measured) {
        t->gbps = (double)entry->bytes_per_s / 1e9;
        t->best_gbps = (double)entry->best_bytes_per_s / 1e9;
        t->date_s = (int64_t)entry->date_s;
        o->ahead_bytes = AHEAD_BYTES;
        o->io_depth = depth_auto(cli) ? (uint32_t)entry->io_depth : o->io_depth;
        o->io_size_bytes = size_auto(cli) ? entry->io_size_bytes : o->io_size_bytes;
        o->tile_bytes = tile_auto(cli) ? max_u64(entry->io_size_bytes, TILE_MIN) : o->tile_bytes;
    }
    t->io_depth = o->io_depth;
    t->io_size_bytes = o->io_size_bytes;
    if (cut_bytes > 0 && tile_auto(cli)) {
        o->tile_bytes = PLAN_AUTO;
    }
    t->tile_bytes = cut_bytes > 0                ? cut_bytes
                    : o->tile_bytes == PLAN_AUTO ? TILE_DEFAULT
                                                 : o->tile_bytes;
}

int tuning_apply(const struct engine_cli *cli, const char *dir, struct engine_options *options,
                 struct tuning *tuning)
{
    *tuning = (struct tuning){.asked = tuning_asked(cli)};
    if (!tuning->asked) {
        return cli->remeasure ? err_set(ERR_USAGE, "--remeasure: nothing is to be measured; give "
                                        "--io-depth, --io-size or --tile the value auto") : 0;
    }
    struct io_files files = {0};
    struct tuning_entry entry = {0};
    struct tune_request request = request_of(cli, options);
    uint64_t cut_bytes = 0;
    TRY(open_files(dir, &files, &cut_bytes));
    int rc = ask(cli, &request, &files, tuning, &entry, options->note);
    io_files_close(&files);
    TRY(rc);
    if (stop()) {
        return err_set(ERR_STOPPED, "stopped while the drive was measured");
    }
    put_in_force(cli, &entry, cut_bytes, options, tuning);
    return 0;
}

static void date_text(int64_t date_s, char text[16])
{
    time_t seconds = (time_t)date_s;
    struct tm tm;
    if (gmtime_r(&seconds, &tm) == NULL || strftime(text, 16, "%Y-%m-%d", &tm) == 0) {
        text[0] = '\0';
    }
}

void tuning_text(const struct tuning *t, char *text, size_t capacity)
{
    char date[16];
    char source[64];
    int at = snprintf(text, capacity, "io %u x %llu KiB, tile %.2f MiB: ", t->io_depth,
                      (unsigned long long)(t->io_size_bytes / KIB),
                      (double)t->tile_bytes / (double)MIB);
    if (at < 0 || (size_t)at >= capacity) {
        return;
    }
    if (!t->measured) {
        snprintf(text + at, capacity - (size_t)at, "no drive was measured, since %s; `auto` takes "
                 "the defaults", t->why_not);
        return;
    }
    date_text(t->date_s, date);
    if (t->remembered) {
        snprintf(source, sizeof source, "remembered from %s", date);
    } else {
        snprintf(source, sizeof source, "measured in %.1f s", t->took_s);
    }
    snprintf(text + at, capacity - (size_t)at, "%.2f GB/s of %.2f at best on %s, %s", t->gbps,
             t->best_gbps, t->device, source);
}

int tuning_settle(const struct engine_cli *cli, const char *dir, struct engine_options *options,
                  struct progress *progress, struct tuning *tuning)
{
    if (tuning_asked(cli)) {
        progress_begin(progress, "measuring the drive", cli->quiet);
        progress_show(progress, 0, 0, dir);
    }
    int rc = tuning_apply(cli, dir, options, tuning);
    if (tuning->asked) {
        progress_clear(progress);
    }
    if (rc == 0 && tuning->asked && options->note != NULL) {
        char text[1024];
        tuning_text(tuning, text, sizeof text);
        options->note(text);
    }
    return rc;
}

void tuning_json(const struct tuning *t, cJSON *parent)
{
    char date[16];
    if (t == NULL || !t->asked) {
        return;
    }
    cJSON *o = cJSON_AddObjectToObject(parent, "tuning");
    cJSON_AddBoolToObject(o, "measured", t->measured);
    cJSON_AddNumberToObject(o, "io_depth", t->io_depth);
    cJSON_AddNumberToObject(o, "io_size", (double)t->io_size_bytes);
    cJSON_AddNumberToObject(o, "tile", (double)t->tile_bytes);
    cJSON_AddStringToObject(o, "device", t->device);
    if (!t->measured) {
        cJSON_AddStringToObject(o, "why_not", t->why_not);
        return;
    }
    date_text(t->date_s, date);
    cJSON_AddBoolToObject(o, "remembered", t->remembered);
    cJSON_AddStringToObject(o, "date", date);
    cJSON_AddNumberToObject(o, "gb_per_s", t->gbps);
    cJSON_AddNumberToObject(o, "best_gb_per_s", t->best_gbps);
}
