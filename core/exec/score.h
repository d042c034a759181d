/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_SCORE_H
#define EXEC_SCORE_H

/* How likely a model finds a text: the log probability of every token but the first, given those
 * before it, in passes of as many tokens as the chunk has room for. Logits of all of them are made
 * while each weight passes by once.
 *
 * A text longer than the window is read in several: window k begins, with a clear state, at token
 * k * stride, reads `window` tokens and scores those that follow one it read and have no score yet.
 * So every token but the first has one score; with stride == window a token right behind a border
 * is judged by one token before it, with a smaller stride by window - stride + 1 or more. */

#include "core/exec/engine.h"
#include "core/exec/generate.h"

struct score_request {
    const uint32_t *ids;
    uint32_t id_count;       /* >= 2 */
    uint32_t window, stride; /* 1 <= stride <= window <= context of the engine */
};

struct score_result {
    double *logprob;         /* caller's [id_count]; natural; that of ids[0] is not written */
    uint32_t scored;         /* tokens 1..scored have one, also after a failure */
    uint32_t windows, passes;
    uint64_t positions;      /* read, some more than once */
    double nats;             /* sum of -logprob, in double, in order */
    unsigned char hash[LOGITS_HASH_BYTES]; /* of the logits of all scores, in order */
    uint64_t took_ns;
};

/* Passes a request takes. */
uint32_t score_passes(const struct score_request *request, uint32_t chunk);

/* Runs it on an engine opened with logits_all (engine_start .. engine_end). ERR_USAGE for ids not
 * of the model; ERR_NUMERIC names the position whose logits are not finite. out is filled as far as
 * it came also when this fails. */
int score_run(struct engine *e, const struct score_request *request, struct score_result *out);

#endif
