/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SAMPLE_OPTIONS_H
#define CLI_SAMPLE_OPTIONS_H

/* How a command's next token is chosen (docs/SAMPLING.md): rows for its table, what they come to,
 * and how reports state it. */

#include <cjson/cJSON.h>

#include "core/cli/options.h"
#include "core/exec/sample.h"

struct sample_cli {
    double temperature, top_p, min_p, repetition_penalty;
    uint64_t top_k, seed;
    const char *logit_bias;
};

#define SAMPLE_SEED_MAX (((uint64_t)1 << 53) - 1) /* so that JSON holds it */

/* type: the command's struct, with a member `sample` of struct sample_cli. The defaults are texts
 * as a user would type them. */
#define SAMPLE_OPTION_ROWS(type, default_temperature, default_top_p)                              \
    {"temperature", OPTION_REAL, offsetof(type, sample.temperature), default_temperature, 0,      \
     1000000, NULL, "T", "0: always the likeliest token; 1: by chance, as the model has it; "     \
     "between and above: less and more chance"},                                                  \
    {"top-p", OPTION_REAL, offsetof(type, sample.top_p), default_top_p, 0, 1000, NULL, "P",       \
     "only the fewest likeliest tokens that have this chance together"},                          \
    {"top-k", OPTION_COUNT, offsetof(type, sample.top_k), "0", 0, UINT32_MAX, NULL, "K",          \
     "only the K likeliest tokens; 0: all"},                                                      \
    {"min-p", OPTION_REAL, offsetof(type, sample.min_p), "0", 0, 1000, NULL, "P",                 \
     "only tokens that have at least this share of the likeliest one's chance"},                  \
    {"seed", OPTION_COUNT, offsetof(type, sample.seed), "auto", 0, SAMPLE_SEED_MAX, "auto",       \
     "N|auto", "of chance: the same seed, the same tokens; auto: another one each time, told"},   \
    {"repetition-penalty", OPTION_REAL, offsetof(type, sample.repetition_penalty), "1", 0,        \
     1000000, NULL, "R", "above 1: tokens that were there become less likely; 1: none"},          \
    {"logit-bias", OPTION_TEXT, offsetof(type, sample.logit_bias), NULL, 0, 0, NULL,              \
     "LIST|FILE", "what is added to the logits of ids, like 11:-2.5,42:ban, or a file with "      \
     "{\"11\": -2.5, \"42\": \"ban\"}"}

struct sampling {
    struct sample_options options; /* rests on biases */
    struct sample_cli cli;         /* as typed */
    struct sample_bias *biases;
    bool seed_drawn;               /* not given, and of use */
};

/* What the options come to; a seed that is of use and not given is drawn. ERR_USAGE, ERR_IO,
 * ERR_MEMORY. Undone by sampling_close, also after a failure. */
int sampling_open(struct sampling *s, const struct sample_cli *cli);
void sampling_close(struct sampling *s);

/* For a request: NULL when the largest logit is taken as it is. */
const struct sample_options *sampling_wanted(const struct sampling *s);

/* Something was given that has no effect without --temperature. */
bool sampling_idle(const struct sampling *s);

/* Adds an object "sampling" to parent. */
void sampling_json(const struct sampling *s, cJSON *parent);

/* One line without its end: what differs from taking the likeliest. */
void sampling_text(const struct sampling *s, char *text, size_t capacity);

#endif
