/* SPDX-License-Identifier: Apache-2.0 */
/* k3ring: which subcommand, and how it ended. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/cli/commands.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/signals.h"

static void print_usage(FILE *out)
{
    fprintf(out, "usage: k3ring COMMAND ...\n\n");
    for (uint32_t i = 0; i < subcommand_count; i++) {
        fprintf(out, "  %-8s %s\n", subcommands[i].command->name, subcommands[i].brief);
    }
    fputs("\n`k3ring COMMAND --help` lists a command's options, `man k3ring-COMMAND` has\n"
          "examples; `k3ring --version` tells the version. A first run:\n"
          "  k3ring synth tiny && k3ring run tiny --ids 3,141,59,26,53,58,97,93\n\n"
          "exit status: 0 ok, 1 run failed, 2 usage, 3 model or trace refused, 4 does not\n"
          "  fit, 5 benchmark verdict invalid, 129 hung up, 130 interrupted, 141 nobody reads the\n"
          "  output, 143 terminated\n", out);
}

static int finish(int rc)
{
    int signal_number = signals_caught();
    output_flush_folders();
    if (rc < 0 && signal_number == SIGPIPE) {
        return 128 + SIGPIPE; /* nobody reads any more: a quiet end */
    }
    if (rc < 0) {
        fprintf(stderr, "k3ring: %s\n", err_message());
    }
    return rc == ERR_STOPPED && signal_number != 0 ? 128 + signal_number : err_exit_status(rc);
}

/* What is typed in place of a command most often: the model, or an option that belongs behind. */
static int unknown_command(const char *typed)
{
    const char *names[64];
    struct stat st;
    assert(subcommand_count <= countof(names));
    for (uint32_t i = 0; i < subcommand_count; i++) {
        names[i] = subcommands[i].command->name;
    }
    const char *near = options_nearest(typed, names, subcommand_count, sizeof names[0]);
    if (near == NULL && typed[0] == '-') {
        return err_set(ERR_USAGE, "the command comes before its options: k3ring run MODEL "
                       "%.100s ..; `k3ring --help` lists the commands", typed);
    }
    if (near == NULL && stat(typed, &st) == 0) {
        return err_set(ERR_USAGE, "'%.300s' is a %s, not a command; to run a model: k3ring run "
                       "%.300s --prompt 'some text'", typed,
                       S_ISDIR(st.st_mode) ? "folder" : "file", typed);
    }
    return err_set(ERR_USAGE, "there is no command '%.100s'%s%s%s; `k3ring --help` lists them",
                   typed, near != NULL ? " (did you mean " : "", near != NULL ? near : "",
                   near != NULL ? "?)" : "");
}

static int run_command(int argc, char **argv)
{
    for (uint32_t i = 0; i < subcommand_count; i++) {
        if (strcmp(argv[0], subcommands[i].command->name) == 0) {
            return finish(subcommands[i].run(argc, argv));
        }
    }
    return finish(unknown_command(argv[0]));
}

static bool is_any(const char *word, const char *a, const char *b)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

/* An output file must never become one of the three standard ones because that was closed. Results
 * for a standard output that is not there are lost, so writing them has to fail. */
static void fill_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        int mode = fd == STDOUT_FILENO ? O_RDONLY : O_RDWR;
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", mode) != fd) {
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
