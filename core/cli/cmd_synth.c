/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/commands.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/signals.h"
#include "core/cli/synth_watch.h"

struct synth_request {
    uint64_t preset;
    uint64_t layers, experts, vocab; /* 0 = as the preset has it */
    uint64_t seed;
    bool sparse, quiet;
};

static const struct option_row rows[] = {
    {.name = "preset", .type = OPTION_CHOICE, .offset = offsetof(struct synth_request, preset),
     .fallback = "tiny", .words = "tiny|k3", .value = "tiny|k3",
     .help = "the fixed 13-layer test model, or the released geometry"},
    {.name = "layers", .type = OPTION_COUNT, .offset = offsetof(struct synth_request, layers),
     .min = 4, .max = 93, .value = "N", .help = "k3: decoder layers, from the first [93]"},
    {.name = "experts", .type = OPTION_COUNT, .offset = offsetof(struct synth_request, experts),
     .min = 1, .max = 896, .value = "N", .help = "k3: routed experts of a layer [896]"},
    {.name = "vocab", .type = OPTION_COUNT, .offset = offsetof(struct synth_request, vocab),
     .min = 256, .max = 163840, .value = "N", .help = "k3: token ids [163840]"},
    {.name = "seed", .type = OPTION_COUNT, .offset = offsetof(struct synth_request, seed),
     .fallback = "1", .min = 0, .max = UINT64_MAX, .value = "N",
     .help = "k3: which random weights"},
    {.name = "sparse", .type = OPTION_FLAG, .offset = offsetof(struct synth_request, sparse),
     .help = "k3: full sizes, but leave most rows of large matrices as holes"},
    {.name = "quiet", .type = OPTION_FLAG, .offset = offsetof(struct synth_request, quiet),
     .help = "print nothing on standard error but errors"},
};

const struct command command_synth = {
    .name = "synth",
    .usage = "OUT [--preset tiny|k3] [--layers N] [--experts N] [--vocab N] [--seed N] [--sparse] "
             "[--quiet]",
    .summary = "Writes a synthetic checkpoint in the released layout into the new folder OUT.",
    .rows = rows,
    .row_count = countof(rows),
    .positional_min = 1,
    .positional_max = 1,
};

int cmd_synth(int argc, char **argv)
{
    struct synth_request request = {0};
    const char *dir = NULL;
    bool help;
    TRY(options_parse(&command_synth, &request, argc, argv, &dir, &help));
    if (help) {
        options_help(stdout, &command_synth);
        return output_flush_stdout();
    }
    const struct synth_options options = {
        .preset = request.preset == 0 ? SYNTH_TINY : SYNTH_K3,
        .layers = (uint32_t)request.layers, .experts = (uint32_t)request.experts,
        .vocab = (uint32_t)request.vocab, .seed = request.seed, .sparse = request.sparse};
    signals_catch(NULL, NULL);
    return synth_watched(dir, &options, request.quiet);
}
