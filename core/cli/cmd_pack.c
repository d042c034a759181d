/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring pack: a run-ready, smaller copy of a checkpoint, and the proof that it is one. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/memory.h"
#include "core/cli/commands.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/pack.h"
#include "core/cli/signals.h"

#define SHARE_MAX 1000000U

struct pack_cli {
    struct option_list to;
    const char *share;
    bool trunk_only, verify, quiet;
    uint64_t tile, threads;
};

static const struct option_row rows[] = {
    {"to", OPTION_LIST, offsetof(struct pack_cli, to), NULL, 0, 0, NULL, "DIR",
     "a folder on another drive, which gets a part of the pack; again for more"},
    {"share", OPTION_TEXT, offsetof(struct pack_cli, share), NULL, 0, 0, NULL, "N,N,..",
     "parts of OUT and of each --to, like 60,40; else by measured read speed"},
    {"trunk-only", OPTION_FLAG, offsetof(struct pack_cli, trunk_only), NULL, 0, 0, NULL, NULL,
     "leave the experts in MODEL, which runs then need too"},
    {"tile", OPTION_SIZE, offsetof(struct pack_cli, tile), "auto", 4096, 16 * MIB, "auto",
     "SIZE|auto", "rows of a matrix read and computed together, for good"},
    {"threads", OPTION_COUNT, offsetof(struct pack_cli, threads), "auto", 1, 256, "auto",
     "N|auto", "that read and code"},
    {"verify", OPTION_FLAG, offsetof(struct pack_cli, verify), NULL, 0, 0, NULL, NULL,
     "prove that every byte of the pack OUT is that of its source"},
    {"quiet", OPTION_FLAG, offsetof(struct pack_cli, quiet), NULL, 0, 0, NULL, NULL,
     "no talk on stderr but errors"},
};

const struct command command_pack = {
    "pack", "MODEL OUT [--to DIR].. [--trunk-only] [options], or pack --verify OUT",
    "Writes a run-ready copy of MODEL into OUT: tiles in the order of the walk, bf16 in 12 bits, "
    "lossless.",
    rows, countof(rows), 1, 2 + OPTION_LIST_MAX};

static double gb(uint64_t bytes)
{
    return (double)bytes / 1e9;
}

static void print_packed(const char *dir, const struct pack_summary *s)
{
    double seconds = (double)(s->taken_ns + 1) / 1e9;
    fprintf(stderr, "pack: %s: %llu tiles, %.3f GB of bf16 as %.3f GB (%.4f); %llu experts and "
            "what else there is, %.3f GB; %.1f s, %.0f MB/s\n", dir, (unsigned long long)s->tiles,
            gb(s->raw_bytes), gb(s->stored_bytes),
            s->raw_bytes > 0 ? (double)s->stored_bytes / (double)s->raw_bytes : 1,
            (unsigned long long)s->experts, gb(s->other_bytes), seconds,
            gb(s->raw_bytes + s->other_bytes - s->kept_bytes) * 1e3 / seconds);
    if (s->kept_bytes > 0) {
        fprintf(stderr, "pack: %s: %.3f GB were there from an earlier run\n", dir,
                gb(s->kept_bytes));
    }
}

static int run_verify(const char *dir, const struct pack_cli *cli, uint32_t threads)
{
    struct pack_summary summary;
    TRY(pack_verify(dir, threads, cli->quiet, &summary));
    if (!cli->quiet) {
        fprintf(stderr, "pack: %s: equal to its source, byte for byte: %llu tiles, %llu experts, "
                "%.3f GB in %.1f s\n", dir, (unsigned long long)summary.tiles,
                (unsigned long long)summary.experts, gb(summary.raw_bytes + summary.other_bytes),
                (double)summary.taken_ns / 1e9);
    }
    return 0;
}

static int parse_shares(const struct pack_cli *cli, uint32_t **shares)
{
    uint32_t count;
    if (cli->share == NULL) {
        return 0;
    }
    int rc = options_ids("share", cli->share, shares, &count);
    if (rc < 0 && rc != ERR_USAGE) {
        return rc;
    }
    err_clear(); /* it speaks of token ids */
    bool good = rc > 0 && count == cli->to.count + 1;
    for (uint32_t i = 0; i < count; i++) {
        good = good && (*shares)[i] > 0 && (*shares)[i] <= SHARE_MAX;
    }
    return good ? 0 : err_set(ERR_USAGE, "--share: '%s' is not one number from 1 to %u for OUT and "
                              "each --to (%u)", cli->share, SHARE_MAX, cli->to.count + 1);
}

static int run_pack(const char *const *dirs, const struct pack_cli *cli, uint32_t threads)
{
    struct pack_summary summary;
    uint32_t *shares = NULL;
    int rc = parse_shares(cli, &shares);
    if (rc == 0) {
        const struct pack_options options = {
            .source = dirs[0], .dir = dirs[1], .to = cli->to.item, .to_count = cli->to.count,
            .shares = shares, .trunk_only = cli->trunk_only, .tile_bytes = cli->tile,
            .threads = threads, .quiet = cli->quiet};
        rc = pack_write(&options, &summary);
    }
    if (rc == 0 && !cli->quiet) {
        print_packed(dirs[1], &summary);
    }
    free(shares);
    return rc;
}

/* `--to A B` is as good as `--to A --to B`. Returns how many words are left. */
static int take_folders(struct pack_cli *cli, const char *const *words, int found)
{
    int taken = 2;
    while (cli->to.count > 0 && taken < found && cli->to.count < OPTION_LIST_MAX) {
        cli->to.item[cli->to.count++] = words[taken++];
    }
    return found > 2 ? 2 + found - taken : found;
}

int cmd_pack(int argc, char **argv)
{
    struct pack_cli cli = {.quiet = false};
    const char *dirs[2 + OPTION_LIST_MAX] = {NULL};
    bool help;
    int found = options_parse(&command_pack, &cli, argc, argv, dirs, &help);
    TRY(found);
    if (help) {
        options_help(stdout, &command_pack);
        return output_flush_stdout();
    }
    uint32_t threads = cli.threads == OPTION_AUTO ? memory_processors() : (uint32_t)cli.threads;
    found = take_folders(&cli, dirs, found);
    if (found != (cli.verify ? 1 : 2)) {
        return err_set(ERR_USAGE, "pack: %s; usage: k3ring pack %s", cli.verify
                       ? "--verify takes the pack alone" : "MODEL and OUT are needed",
                       command_pack.usage);
    }
    if (cli.verify && (cli.to.count > 0 || cli.share != NULL || cli.trunk_only)) {
        return err_set(ERR_USAGE, "pack: --verify goes with --threads and --quiet only");
    }
    signals_catch(NULL, output_remove_temporaries);
    return cli.verify ? run_verify(dirs[0], &cli, threads) : run_pack(dirs, &cli, threads);
}
