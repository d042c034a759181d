/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_DRAFT_H
#define EXEC_DRAFT_H

/* Prompt lookup: what followed the last few tokens when they came before is tried as a draft. How
 * many tokens are tried follows from what a longer pass costs and how often drafts were right,
 * both measured while running. Drafts change time only: a token is kept when it is the one that
 * plain decoding makes. */

#include "core/base/base.h"

#define DRAFT_TOKENS_MAX 64
#define DRAFT_MATCH_MAX 8 /* tokens of context compared */

struct draft {
    double accepted[DRAFT_MATCH_MAX + 1]; /* chance of the next drafted token, by match length */
    double base_ns;      /* of a pass of one token; 0 = not seen yet */
    double slope;        /* share of base_ns that one more token costs */
    uint32_t match;      /* of the last proposal */
    uint32_t declined;   /* proposals in a row that were not worth it */
    bool fixed;          /* as many as may be, whatever they cost: the same passes every time */
};

/* slope: first guess, from the bytes of the plan. */
void draft_init(struct draft *d, double slope, bool fixed);

/* Writes at most `most` (<= DRAFT_TOKENS_MAX) tokens that may follow history; returns how many. */
uint32_t draft_propose(struct draft *d, const uint32_t *history, uint32_t count, uint32_t most,
                       uint32_t *out);

/* What came of the last proposal: `kept` of `tried` tokens, in a pass of pass_ns. */
void draft_learn(struct draft *d, uint32_t tried, uint32_t kept, uint64_t pass_ns);

#endif
