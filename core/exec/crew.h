/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_CREW_H
#define EXEC_CREW_H

/* How many of the workers compute a pass of few tokens. More are not always faster: on a machine
 * with few cores the drive's own work needs one, and memory may be used up by fewer than all. So
 * with `auto` passes are compared, and the count moves only when another one is faster again and
 * again. A pure state machine: no clock, no threads. It changes time, never a bit of the output.
 *
 * A trial compares a candidate with the count in force by pairs of neighbouring passes:
 *
 *   in force, candidate, in force, candidate, ...
 *
 * The first pair the candidate loses ends the trial; CREW_PAIRS won ones in a row, and some gain
 * in all, put it in force. Candidates are one worker less, a quarter less, half; one more, half of
 * those at rest, all of them. When all have lost, the crew rests and then asks again, less often
 * each time. So a count taken by accident is found out, and steady work is left alone. */

#include "core/base/base.h"

#define CREW_PAIRS 3U
#define CREW_TOKENS_MAX 16U   /* of a pass whose time is that of its weights, not of its tokens */

struct crew {
    uint32_t most;            /* workers there are, >= 1 */
    bool automatic;
    uint32_t chosen;          /* in force */
    uint32_t candidate;       /* of the trial; 0 = none runs */
    uint32_t move;            /* which candidate comes next */
    uint32_t lost_moves;      /* candidates in a row that lost */
    uint32_t pause, pause_left; /* passes of rest between rounds of trials */
    uint32_t running;         /* workers of the pass that runs */
    /* the trial */
    bool base_known;          /* the pass before was made by the count in force */
    uint32_t base_tokens;
    uint64_t base_ns, base_bytes;
    uint32_t pairs, unlike;   /* won; dropped since their passes read unlike amounts */
    uint64_t sum_ns[2];       /* of the count in force, of the candidate */
    /* for the report */
    uint32_t trials, changes;
    uint32_t beaten;          /* the count that `chosen` last beat, 0 = none */
    double gain;              /* its time : that of the beaten one */
};

/* automatic: as many of `most` as prove fastest; else all of them in every pass. */
void crew_init(struct crew *crew, uint32_t most, bool automatic);

/* Workers for the next pass. Passes of more than CREW_TOKENS_MAX tokens take all of them. */
uint32_t crew_next(struct crew *crew, uint32_t tokens);

/* What that pass took. bytes: read meanwhile; only passes of equally many tokens and similar bytes
 * are compared. */
void crew_made(struct crew *crew, uint32_t tokens, uint64_t bytes, uint64_t took_ns);

/* One line that says why the count in force is what it is. */
void crew_explain(const struct crew *crew, char *text, size_t capacity);

#endif
