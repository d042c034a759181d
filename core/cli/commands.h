/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

/* The subcommands. Each takes its own argv (argv[0] is its name), prints results on stdout and
 * talk on stderr, and returns 0 or a code of err.h whose message main prints. */

int cmd_run(int argc, char **argv);
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

/* The program's version, "0.1.0". */
extern const char *const k3ring_version;

#endif
