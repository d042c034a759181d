/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_RUN_STATE_H
#define CLI_RUN_STATE_H

/* --load-state and --save-state of `k3ring run`: a run that goes on behind what an earlier one
 * held, and one that leaves what it holds to a later one. docs/STATE.md. */

#include <cjson/cJSON.h>

#include "core/cli/output.h"
#include "core/cli/prompt.h"
#include "core/exec/generate.h"
#include "core/exec/saved_state.h"

struct run_state_cli {
    const char *load, *save;
};

/* type: the command's struct, with a member `state` of struct run_state_cli. */
#define RUN_STATE_OPTION_ROWS(type)                                                               \
    {"load-state", OPTION_TEXT, offsetof(type, state.load), NULL, 0, 0, NULL, "FILE",             \
     "go on behind a saved state; a prompt, if one is given, follows it"},                        \
    {"save-state", OPTION_TEXT, offsetof(type, state.save), NULL, 0, 0, NULL, "FILE",             \
     "keep the state at the end, also when the run is stopped, for --load-state"}

struct run_state {
    const struct run_state_cli *cli;
    bool quiet;
    struct saved_state loaded; /* its ids are the prompt's now */
    struct output out;         /* open from the start: a bad path is told before the run */
    bool saved;
    uint32_t saved_positions, saved_ids;
};

/* Before the model is opened. Reads the prompt, which may be missing when a state is loaded, and
 * puts the state's ids before it: prompt then has all ids of the sequence. dir: the model, for its
 * tokenizer. What prompt_read() and saved_state_open() say, ERR_USAGE, ERR_OUTPUT. Undone by
 * run_state_close, also then. */
int run_state_open(struct run_state *s, const struct run_state_cli *cli,
                   const struct prompt_cli *prompt_cli, const char *dir, struct prompt *prompt);

/* What of all the prompt's ids is still to be fed. */
void run_state_request(const struct run_state *s, const struct prompt *prompt,
                       struct generate_request *request);

/* Gives an engine what was loaded, if anything. */
int run_state_load(const struct run_state *s, struct engine *e);

/* Keeps the state after a run that ended well or was stopped, by rc. Returns rc, or why it could
 * not be kept. */
int run_state_save(struct run_state *s, struct engine *e, const struct prompt *prompt,
                   const struct generate_result *made, int rc);

/* Adds "state" to a report when there is something to say. */
void run_state_json(const struct run_state *s, cJSON *root);

void run_state_close(struct run_state *s);

#endif
