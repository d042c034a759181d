/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_VERIFY_GOLDEN_H
#define CLI_VERIFY_GOLDEN_H

/* Known output of known weights: tables of figures, and the judge that compares a model's own with
 * them, figure by figure. */

#include "core/cli/engine_options.h"
#include "core/cli/verify.h"

/* A logit after the last token of a prompt. */
struct golden_logit {
    uint32_t id;
    double value;
};

/* What is known of a prompt; what is not is NULL or 0. */
struct golden_prompt {
    const char *text;            /* what the ids say, or instead of ids */
    const uint32_t *ids;
    uint32_t id_count;
    const uint32_t *next;        /* greedy continuation: the first of them is the argmax */
    uint32_t next_count;
    const char *next_text;       /* or as text, of next_count tokens */
    const struct golden_logit *logit;
    uint32_t logit_count;
    const double *mean, *least;  /* of all logits there */
    double logit_tolerance;      /* absolute, of all logits and their mean */
    const double *layer_max;     /* [layers] largest |h| after each layer ... */
    bool layer_max_last;         /* ... at the last position; else at any */
    double layer_tolerance;      /* relative */
};

/* Values of exp(A_log) of a layer's heads; past the heads all A_log are 0. */
struct golden_decay {
    uint32_t layer;
    double least, most;
    double tolerance;
};

struct golden_table {
    const char *name;
    uint32_t layers, hidden, vocab, dense_width, kda_heads, kda_dim, mla_heads, kv_lora, experts,
        experts_per_token, expert_width, latent;
    const struct golden_prompt *prompt;
    uint32_t prompt_count;
    const struct golden_decay *decay;
    uint32_t decay_count;
};

/* verify_tables.c: the one for a config, or NULL; names of all in one text. */
const struct golden_table *golden_find(const struct model_config *c);
const char *golden_names(void);

#define GOLDEN_TEXT_BYTES 256

/* One figure that was compared. */
struct golden_row {
    char what[96];
    bool pass, numeric;
    double wanted, found, allowed; /* numeric: |found - wanted| <= allowed passes */
    char wanted_text[GOLDEN_TEXT_BYTES], found_text[GOLDEN_TEXT_BYTES]; /* otherwise */
};

struct verify_golden {
    const struct golden_table *table;
    struct golden_row *row;
    uint32_t row_count, row_capacity, failed;
};

/* Compares, and adds a line to v. A model of no table: ERR_MODEL. ERR_STOPPED; what opening an
 * engine and running it say. Free it, also then. */
int verify_golden(struct verify *v, const struct engine_cli *cli, struct verify_golden *out);
void verify_golden_free(struct verify_golden *golden);

void verify_golden_print(FILE *out, const struct verify_golden *golden);
cJSON *verify_golden_json(const struct verify_golden *golden);

/* For verify_golden.c and tests: one comparison. */
int golden_compare(struct verify_golden *golden, double wanted, double found, double allowed,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
