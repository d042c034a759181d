/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/draft.h"

#define LEARN_RATE 0.15
#define RETRY_AFTER 16 /* declined proposals until one token is tried all the same */
#define SLOPE_MAX 2.0

void draft_init(struct draft *d, double slope, bool fixed)
{
    *d = (struct draft){.slope = slope, .fixed = fixed};
    for (uint32_t match = 1; match <= DRAFT_MATCH_MAX; match++) {
        /* A longer match is a better reason: 0.4 for one token, 0.75 for eight. */
        d->accepted[match] = 0.35 + 0.05 * match;
    }
}

/* Tokens that agree before positions a and b, DRAFT_MATCH_MAX at most. */
static uint32_t agreement(const uint32_t *ids, uint32_t a, uint32_t b)
{
    uint32_t length = 0;
    while (length < DRAFT_MATCH_MAX && length < a && ids[a - 1 - length] == ids[b - 1 - length]) {
        length++;
    }
    return length;
}

/* The latest place whose past agrees longest with the end of history; 0 when there is none. */
static uint32_t find(const uint32_t *history, uint32_t count, uint32_t *match)
{
    uint32_t best = 0;
    *match = 0;
    for (uint32_t at = count - 1; at > 0 && *match < DRAFT_MATCH_MAX; at--) {
        uint32_t length = agreement(history, at, count);
        if (length > *match) {
            *match = length;
            best = at;
        }
    }
    return best;
}

/* The width with most expected tokens per time: 1 + a + ... + a^n for 1 + n * slope. */
static uint32_t best_width(double accepted, double slope, uint32_t most)
{
    double tokens = 1;
    double chance = 1;
    double best_rate = 1;
    uint32_t best = 0;
    for (uint32_t n = 1; n <= most; n++) {
        chance *= accepted;
        tokens += chance;
        double rate = tokens / (1 + n * slope);
        if (rate > best_rate) {
            best_rate = rate;
            best = n;
        }
    }
    return best;
}

uint32_t draft_propose(struct draft *d, const uint32_t *history, uint32_t count, uint32_t most,
                       uint32_t *out)
{
    uint32_t at = count > 1 ? find(history, count, &d->match) : 0;
    if (at == 0 || most == 0) {
        return 0;
    }
    uint32_t width = d->fixed ? most : best_width(d->accepted[d->match], d->slope, most);
    d->declined = width == 0 ? d->declined + 1 : 0;
    if (d->declined == RETRY_AFTER) {
        d->declined = 0;
        width = 1;
    }
    /* Past the end of history the draft goes on with itself: a loop of any length. */
    for (uint32_t i = 0; i < width; i++) {
        out[i] = at + i < count ? history[at + i] : out[at + i - count];
    }
    return width;
}

void draft_learn(struct draft *d, uint32_t tried, uint32_t kept, uint64_t pass_ns)
{
    double ns = (double)pass_ns;
    if (d->base_ns <= 0) {
        d->base_ns = ns / (1 + tried * d->slope);
    } else if (tried == 0) {
        d->base_ns += LEARN_RATE * (ns - d->base_ns);
    } else {
        double seen = (ns / d->base_ns - 1) / tried;
        seen = seen < 0 ? 0 : seen > SLOPE_MAX ? SLOPE_MAX : seen;
        d->slope += LEARN_RATE * (seen - d->slope);
    }
    double *accepted = &d->accepted[d->match];
    for (uint32_t i = 0; i < tried && i <= kept; i++) {
        *accepted += LEARN_RATE * ((i < kept ? 1.0 : 0.0) - *accepted);
    }
}
