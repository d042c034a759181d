/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/synth_watch.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/cli/progress.h"
#include "core/cli/signals.h"
#include "core/cli/synth_layout.h"

#define EXPERTS_LEAST 16U         /* as many as a token takes */
#define EXPERTS_MOST 896U
#define VOCAB_SMALL 32768U

/* Between calls of show_progress. */
struct watch {
    struct progress line;
    uint64_t done_bytes;
};

static bool show_progress(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    struct watch *watch = user;
    watch->done_bytes = done_bytes;
    progress_show(&watch->line, done_bytes, total_bytes, NULL);
    return signals_caught() == 0;
}

static void print_end(const struct watch *watch, const char *dir)
{
    const double seconds = (double)(nondet_now_ns() - watch->line.begun_ns + 1) / 1e9;
    const double mb = (double)watch->done_bytes / 1e6;
    const bool large = mb >= 1000.0;
    fprintf(stderr, "synth: %s: wrote %.2f %s in %.1f s, %.0f MB/s\n", dir,
            large ? mb / 1000.0 : mb, large ? "GB" : "MB", seconds, mb / seconds);
}

int synth_watched(const char *dir, const struct synth_options *options, bool quiet)
{
    struct watch watch = {.done_bytes = 0};
    struct synth_options o = *options;
    o.progress = show_progress;
    o.user = &watch;
    progress_begin(&watch.line, "writing", quiet);
    const int rc = synth_write(dir, &o);
    progress_clear(&watch.line);
    if (rc == 0 && !quiet) {
        print_end(&watch, dir);
    }
    return rc;
}

/* ---- a size that fits ---- */

static int size_of(const struct synth_options *options, uint64_t *bytes)
{
    struct synth_geometry geometry;
    struct synth_survey survey;
    TRY(synth_geometry_init(options, &geometry));
    TRY(synth_survey_run(&geometry, false, &survey));
    *bytes = survey.disk_bytes;
    return 0;
}

/* The most experts of these layers and ids that fit; 0 = not even the least. */
static int most_experts(uint64_t size_bytes, struct synth_options *o, uint64_t *bytes,
                        uint32_t *experts)
{
    uint64_t least;
    uint64_t next;
    o->experts = EXPERTS_LEAST;
    TRY(size_of(o, &least));
    o->experts = EXPERTS_LEAST + 1;
    TRY(size_of(o, &next));
    *bytes = least;
    *experts = 0;
    if (least > size_bytes) {
        return 0;
    }
    uint64_t more = (size_bytes - least) / max_u64(1, next - least);
    *experts = (uint32_t)min_u64(EXPERTS_MOST, EXPERTS_LEAST + more);
    for (*bytes = UINT64_MAX; *bytes > size_bytes; --*experts) { /* sizes grow not quite evenly */
        o->experts = *experts;
        TRY(size_of(o, bytes));
    }
    *experts = o->experts;
    return 0;
}

int synth_fit(uint64_t size_bytes, struct synth_options *options, uint64_t *bytes)
{
    /* From the most layers down: enough experts that some are new in every token come first. */
    static const uint32_t layers[] = {93, 61, 45, 33, 25, 17, 13, 9, 5};
    static const uint32_t wanted[] = {EXPERTS_LEAST * 8, EXPERTS_LEAST};
    uint64_t least = 0;
    for (size_t w = 0; w < countof(wanted); w++) {
        for (size_t i = 0; i < 2 * countof(layers); i++) {
            uint32_t experts;
            *options = (struct synth_options){.preset = SYNTH_K3, .layers = layers[i / 2],
                                              .seed = 1, .vocab = i % 2 == 0 ? 0 : VOCAB_SMALL};
            TRY(most_experts(size_bytes, options, bytes, &experts));
            if (experts >= wanted[w]) {
                options->experts = experts;
                return 0;
            }
            least = *bytes;
        }
    }
    return err_set(ERR_USAGE, "--size: a model of full widths takes %.1f GiB at least; give --size "
                   "%lluG or more", (double)least / (double)GIB,
                   (unsigned long long)div_ceil(least, GIB));
}
