/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_BATCH_H
#define EXEC_BATCH_H

/* Many prompts at once: every pass takes one token of each sequence that is past its prompt, then
 * as many prompt tokens of the others as the chunk has room for. Weights pass by once for all.
 * Each sequence has a state of its own, joins when another is done, and makes the very bits it
 * would make alone. */

#include "core/exec/generate.h"

struct batch_request {
    const uint32_t *ids;  /* prompt, >= 1; valid until its result was taken */
    uint32_t id_count;
    uint32_t gen;         /* tokens to make, >= 1 */
    const uint32_t *stop; /* ids that end it after they are made */
    uint32_t stop_count;
    const struct sample_options *sample; /* as generate_request has it; valid as ids are */
    uint32_t tag;         /* the caller's */
};

struct batch_result {
    uint32_t tag;
    const uint32_t *ids;  /* made; the callee copies what it keeps */
    uint32_t count;
    unsigned char hash[LOGITS_HASH_BYTES]; /* as generate() makes it; of no use after a failure */
    enum finish_reason finish;
    const char *error;    /* when it failed: which value was not finite; else NULL */
};

struct batch_source {
    /* False when there are no more. Asked ahead by one. */
    bool (*next)(void *ctx, struct batch_request *out);
    /* In order of completion. A negative result ends the batch with it. */
    int (*done)(void *ctx, const struct batch_result *result);
    void *ctx;
};

struct batch_totals {
    uint64_t passes, prompt_tokens, made_tokens;
    uint32_t sequences, failed;
    uint64_t total_ns;
    uint64_t steady_ns, steady_tokens; /* of passes that had no prompt token */
};

/* Runs all requests of the source on as many sequences as the engine has. Checks ids and the
 * context of each as it is taken: ERR_USAGE, ERR_FIT. totals is filled also after a failure. */
int batch_run(struct engine *e, const struct batch_source *source,
              const struct engine_forecast *forecast, struct batch_totals *totals);

#endif
