/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/synth.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "core/cli/options.h"

#define LINE_INTERVAL_NS 200000000U

struct synth_request {
    uint64_t preset;
    uint64_t layers, experts, vocab; /* 0 = as the preset has it */
    uint64_t seed;
    bool sparse;
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
};

static const struct command command = {
    .name = "synth",
    .usage = "OUT [--preset tiny|k3] [--layers N] [--experts N] [--vocab N] [--seed N] [--sparse]",
    .summary = "Writes a synthetic checkpoint in the released layout into the new folder OUT.",
    .rows = rows,
    .row_count = countof(rows),
    .positional_min = 1,
    .positional_max = 1,
};

/* What the progress line needs to know between calls. */
struct watch {
    const char *dir;
    bool terminal;
    uint64_t start_ns, line_ns;
    uint64_t done_bytes;
};

static volatile sig_atomic_t caught_signal;

static void catch_signal(int number)
{
    caught_signal = number;
}

/* The first signal ends the run tidily; with SA_RESETHAND a second one ends it at once. */
static void catch_signals(struct sigaction old[2])
{
    struct sigaction action = {.sa_handler = catch_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    caught_signal = 0;
    sigaction(SIGINT, &action, &old[0]);
    sigaction(SIGTERM, &action, &old[1]);
}

static void restore_signals(const struct sigaction old[2])
{
    sigaction(SIGINT, &old[0], NULL);
    sigaction(SIGTERM, &old[1], NULL);
}

static double seconds_since(uint64_t start_ns, uint64_t now_ns)
{
    return (double)(now_ns - start_ns) * 1e-9 + 1e-9;
}

static void print_line(const struct watch *watch, uint64_t total_bytes, uint64_t now_ns)
{
    const double seconds = seconds_since(watch->start_ns, now_ns);
    const double rate = (double)watch->done_bytes / seconds;
    const double left = rate > 0 ? (double)(total_bytes - watch->done_bytes) / rate : 0.0;
    fprintf(stderr, "\rsynth: %.2f of %.2f GB  %3.0f%%  %.0f MB/s  %.0f s left \033[K",
            (double)watch->done_bytes / 1e9, (double)total_bytes / 1e9,
            100.0 * (double)watch->done_bytes / (double)total_bytes, rate / 1e6, left);
}

static bool show_progress(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    struct watch *watch = user;
    watch->done_bytes = done_bytes;
    if (watch->terminal) {
        const uint64_t now_ns = nondet_now_ns();
        if (now_ns - watch->line_ns >= LINE_INTERVAL_NS) {
            watch->line_ns = now_ns;
            print_line(watch, total_bytes, now_ns);
        }
    }
    return caught_signal == 0;
}

static void print_end(const struct watch *watch)
{
    const double seconds = seconds_since(watch->start_ns, nondet_now_ns());
    fprintf(stderr, "%ssynth: %s: wrote %.2f GB in %.1f s, %.0f MB/s\n",
            watch->terminal ? "\r\033[K" : "", watch->dir, (double)watch->done_bytes / 1e9, seconds,
            (double)watch->done_bytes / 1e6 / seconds);
}

static int write_watched(const struct synth_request *request, const char *dir)
{
    struct sigaction old[2];
    struct watch watch = {.dir = dir, .terminal = isatty(STDERR_FILENO) == 1,
                          .start_ns = nondet_now_ns()};
    const struct synth_options options = {
        .preset = request->preset == 0 ? SYNTH_TINY : SYNTH_K3,
        .layers = (uint32_t)request->layers, .experts = (uint32_t)request->experts,
        .vocab = (uint32_t)request->vocab, .seed = request->seed, .sparse = request->sparse,
        .progress = show_progress, .user = &watch};
    catch_signals(old);
    const int rc = synth_write(dir, &options);
    restore_signals(old);
    if (rc == 0) {
        print_end(&watch);
    } else if (watch.terminal && watch.line_ns != 0) {
        fputs("\r\033[K", stderr);
    }
    return rc;
}

int cmd_synth(int argc, char **argv)
{
    struct synth_request request = {0};
    const char *dir = NULL;
    bool help;
    int rc = options_parse(&command, &request, argc, argv, &dir, &help);
    if (rc >= 0 && help) {
        options_help(stdout, &command);
        return 0;
    }
    if (rc >= 0) {
        rc = write_watched(&request, dir);
    }
    if (rc < 0) {
        fprintf(stderr, "k3ring: %s\n", err_message());
        return caught_signal != 0 ? 128 + caught_signal : err_exit_status(rc);
    }
    return 0;
}
