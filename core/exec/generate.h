/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_GENERATE_H
#define EXEC_GENERATE_H

/* Generation over an engine: prompt in chunks, then one token a pass, or more when drafts prove
 * right, and the hash of the logits of every generated step. */

#include "core/exec/engine.h"
#include "core/exec/sample.h"

#define LOGITS_HASH_BYTES 32

/* All of gen; an end id; no position of the context is left; an interrupt; an error. */
enum finish_reason {
    FINISH_LENGTH, FINISH_STOP, FINISH_CONTEXT, FINISH_INTERRUPTED, FINISH_FAILED
};

struct generate_request {
    const uint32_t *ids;        /* prompt, >= 1 */
    uint32_t id_count;
    uint32_t gen;               /* tokens to make, >= 1; fewer when the context ends before */
    bool resume;                /* behind what the engine holds: engine_resume, not engine_begin */
    const uint32_t *past;       /* with resume: ids it holds, for drafts and penalties; or NULL */
    uint32_t past_count;
    /* NULL: the largest logit. Else a token is chosen, penalties counting past, ids and what was
     * made, with the chance of its position: for the first one that is the next behind those the
     * engine holds and the prompt's. So a sequence that was left and gone on with, or drafted, is
     * the one made in one go. */
    const struct sample_options *sample;
    const uint32_t *stop;       /* ids that end the run after they are made */
    uint32_t stop_count;
    uint32_t drafts;            /* most tokens to draft for a pass, <= drafts of the engine */
    bool drafts_fixed;          /* so many whenever there is a match, not as many as pay */
    /* All may be NULL. step counts from 0; logits are [vocab], before the token is chosen. */
    void (*on_logits)(void *ctx, uint32_t step, const float *logits);
    /* The logits as the model gave them, and what was chosen. */
    void (*on_choice)(void *ctx, uint32_t step, const float *logits, uint32_t id);
    void (*on_token)(void *ctx, uint32_t step, uint32_t id);
    /* Asked after each token: true ends the sequence there, as an id of stop does. */
    bool (*stops)(void *ctx, uint32_t step, uint32_t id);
    /* After a pass: its first count tokens are the sequence's for good. Before the next pass. */
    void (*on_positions)(void *ctx, uint32_t count);
    /* Asked after each token but the last: true ends the sequence there, as its length. */
    bool (*enough)(void *ctx);
    void *ctx;
};

struct generate_result {
    uint32_t *ids;              /* caller's array of gen ids */
    uint32_t count;
    unsigned char hash[LOGITS_HASH_BYTES]; /* SHA-256 of the f32 little-endian logits, in order */
    enum finish_reason finish;
    uint32_t steps;             /* passes after the prompt */
    uint32_t drafted, accepted; /* tokens tried in them, and tokens kept */
    uint64_t first_ns;          /* from begin to the first token */
    uint64_t rest_ns;           /* all later tokens together */
};

/* Runs a whole sequence (engine_begin or engine_resume .. engine_end). out->ids must have room for
 * gen ids, or as many as the context leaves, and is filled as far as it came also when this fails.
 * Prompt and tokens together never exceed the context: ERR_FIT when the prompt leaves no room for
 * a token. A token is never made from non-finite logits: ERR_NUMERIC names the first one.
 * ERR_USAGE for sample options out of range. */
int generate(struct engine *e, const struct generate_request *request,
             struct generate_result *out);

/* Whether all logits of a step are finite; text names the first that is not. */
bool generate_finite(const float *logits, uint32_t vocab, uint32_t step,
                     char text[ERR_MESSAGE_BYTES]);

/* Whether id is one of the ids that end a sequence. */
bool generate_stops(const uint32_t *stop, uint32_t count, uint32_t id);

/* 64 hex digits and a NUL. */
void generate_hash_text(const unsigned char hash[LOGITS_HASH_BYTES], char text[65]);

const char *generate_finish_name(enum finish_reason reason);

#endif
