/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

/* The subcommands. Each takes its own argv (argv[0] is its name), prints results on stdout and
 * talk on stderr, and returns 0 or a code of err.h whose message main prints. What its table says
 * is at once what it parses, its --help, its page of the manual and its completion. */

#include "core/cli/options.h"

struct subcommand {
    const struct command *command;
    int (*run)(int argc, char **argv);
    const char *brief; /* its line in `k3ring --help` and in the manual */
};

extern const struct subcommand subcommands[];
extern const uint32_t subcommand_count;

extern const struct command command_run;
extern const struct command command_chat;
extern const struct command command_batch;
extern const struct command command_score;
extern const struct command command_plan;
extern const struct command command_pack;
extern const struct command command_verify;
extern const struct command command_bench;
extern const struct command command_doctor;
extern const struct command command_replay;
extern const struct command command_compare;
extern const struct command command_synth;
extern const struct command command_tokenize;

int cmd_run(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_batch(int argc, char **argv);
int cmd_score(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_synth(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);

/* The program's version, "0.1.0", and the day it is of, "2026-11-30": in reports, manual and
 * packages. */
extern const char *const k3ring_version;
extern const char *const k3ring_version_day;

#endif
