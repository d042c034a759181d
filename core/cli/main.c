/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring: the subcommand table. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/cli/commands.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/signals.h"

struct subcommand {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
};

static const struct subcommand subcommands[] = {
    {"run", cmd_run, "run a model: text in, text out, or token ids"},
    {"batch", cmd_batch, "run many prompts together, one pass of the weights for all"},
    {"score", cmd_score, "how likely a model finds a text: perplexity and log probabilities"},
    {"bench", cmd_bench, "benchmark a drive with real inference: reads gate kernels"},
    {"plan", cmd_plan, "explain what a run would read, pin and keep, without reading weights"},
    {"pack", cmd_pack, "write a smaller, run-ready copy of a model, or prove one"},
    {"verify", cmd_verify, "whether a model is complete, undamaged, and computes what it should"},
    {"doctor", cmd_doctor, "what this machine and its drives make of a model, and what to change"},
    {"replay", cmd_replay, "replay recorded routing: cache policies, or its reads on a drive"},
    {"compare", cmd_compare, "what changed between measurements, and whether it is real"},
    {"synth", cmd_synth, "write a synthetic checkpoint in the released layout"},
    {"tokenize", cmd_tokenize, "turn text into token ids, or ids into text"},
};

static void print_usage(FILE *out)
{
    fprintf(out, "usage: k3ring COMMAND ...\n\n");
    for (size_t i = 0; i < countof(subcommands); i++) {
        fprintf(out, "  %-8s %s\n", subcommands[i].name, subcommands[i].summary);
    }
    fputs("\n`k3ring COMMAND --help` lists a command's options; `k3ring --version` tells the\n"
          "version. A first run:\n"
          "  k3ring synth tiny && k3ring run tiny --ids 3,141,59,26,53,58,97,93\n\n"
          "exit status: 0 ok, 1 run failed, 2 usage, 3 model or trace refused, 4 does not\n"
          "  fit, 5 benchmark verdict invalid, 129 hung up, 130 interrupted, 141 nobody reads the\n"
          "  output, 143 terminated\n", out);
}

static int finish(int rc)
{
    int signal_number = signals_caught();
    if (rc < 0 && signal_number == SIGPIPE) {
        return 128 + SIGPIPE; /* nobody reads any more: a quiet end */
    }
    if (rc < 0) {
        fprintf(stderr, "k3ring: %s\n", err_message());
    }
    return rc == ERR_STOPPED && signal_number != 0 ? 128 + signal_number : err_exit_status(rc);
}

static int unknown_command(const char *typed)
{
    const char *near = options_nearest(typed, &subcommands[0].name, countof(subcommands),
                                       sizeof subcommands[0]);
    return finish(err_set(ERR_USAGE, "there is no command '%.100s'%s%s%s; `k3ring --help` lists "
                          "them", typed, near != NULL ? " (did you mean " : "",
                          near != NULL ? near : "", near != NULL ? "?)" : ""));
}

static int run_command(int argc, char **argv)
{
    for (size_t i = 0; i < countof(subcommands); i++) {
        if (strcmp(argv[0], subcommands[i].name) == 0) {
            return finish(subcommands[i].run(argc, argv));
        }
    }
    return unknown_command(argv[0]);
}

static bool is_any(const char *word, const char *a, const char *b)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

/* An output file must never become one of the three standard ones because that was closed. */
static void fill_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) {
            abort();
        }
    }
}

int main(int argc, char **argv)
{
    fill_standard_files();
    signal(SIGXFSZ, SIG_IGN); /* a file size limit becomes a write error with a message */
    if (argc < 2) {
        print_usage(stderr);
        return err_exit_status(ERR_USAGE);
    }
    if (argc > 2 && strcmp(argv[1], "help") == 0) {
        char *help[] = {argv[2], (char *)"--help", NULL};
        return run_command(2, help);
    }
    if (is_any(argv[1], "--help", "-h") || strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return finish(output_flush_stdout());
    }
    if (is_any(argv[1], "--version", "version")) {
        printf("k3ring %s\n", k3ring_version);
        return finish(output_flush_stdout());
    }
    return run_command(argc - 1, argv + 1);
}
