/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BATCH_INPUT_H
#define CLI_BATCH_INPUT_H

/* The lines of a batch: {"id": anything, "ids": [3, 141, ...], "gen": 16, "stop": [2]}, and how
 * tokens are chosen: "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed". All of
 * them are read and judged before anything is run. */

#include "core/base/file.h"
#include "core/exec/sample.h"

struct batch_line {
    const char *id;        /* JSON text as written, in the file's memory; NULL when absent */
    uint32_t id_bytes;
    uint32_t number;       /* in the file, from 1 */
    uint32_t *ids, *stop;
    uint32_t id_count, stop_count, gen;
    struct sample_options sample; /* sample_greedy() unless the line says otherwise; seed 0 */
};

struct batch_input {
    struct file_text file;
    struct batch_line *line;
    uint32_t count;
};

/* Empty lines are skipped. ram_bytes: of --ram, or OPTION_AUTO. ERR_USAGE names the first line that
 * cannot be run, and why; ERR_FIT a line, or a file, too long for that memory (text_limit.h).
 * Free with batch_input_free, also after a failure. */
int batch_input_read(const char *path, uint32_t gen_default, uint64_t ram_bytes,
                     struct batch_input *out);
void batch_input_free(struct batch_input *input);

/* Whether a line wants more than the largest logit. */
bool batch_line_samples(const struct batch_line *line);
bool batch_input_samples(const struct batch_input *input);

/* What the input keeps in memory, and what its results may come to as text. */
uint64_t batch_input_bytes(const struct batch_input *input);

/* Tokens of the longest prompt; positions of the longest sequence. */
uint32_t batch_input_prompt_max(const struct batch_input *input);
uint64_t batch_input_positions_max(const struct batch_input *input);

#endif
