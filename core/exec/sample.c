/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/nondet.h"
#include "kernels/kernels.h"

#define TEMPERATURE_MIN 0.001f
#define TEMPERATURE_MAX 1000.0f
#define PENALTY_MIN 0.001f /* less makes infinities of logits */
#define PENALTY_MAX 1000.0f
#define BIAS_MAX 1e6f

struct sample_options sample_greedy(void)
{
    return (struct sample_options){.top_p = 1, .repetition_penalty = 1};
}

/* Comparisons are false for NaN, which is refused with all else. */
int sample_check(const struct sample_options *o, uint32_t vocab)
{
    if (!(o->temperature == 0 ||
          (o->temperature >= TEMPERATURE_MIN && o->temperature <= TEMPERATURE_MAX))) {
        return err_set(ERR_USAGE, "--temperature: %g is neither 0 nor from 0.001 to 1000",
                       (double)o->temperature);
    }
    if (!(o->top_p > 0 && o->top_p <= 1)) {
        return err_set(ERR_USAGE, "--top-p: %g is not above 0 and at most 1", (double)o->top_p);
    }
    if (!(o->min_p >= 0 && o->min_p <= 1)) {
        return err_set(ERR_USAGE, "--min-p: %g is not from 0 to 1", (double)o->min_p);
    }
    if (!(o->repetition_penalty >= PENALTY_MIN && o->repetition_penalty <= PENALTY_MAX)) {
        return err_set(ERR_USAGE, "--repetition-penalty: %g is not from 0.001 to 1000",
                       (double)o->repetition_penalty);
    }
    for (uint32_t i = 0; i < o->bias_count; i++) {
        float value = o->biases[i].value;
        bool good = (value >= -BIAS_MAX && value <= BIAS_MAX) || value == -INFINITY;
        if (o->biases[i].id >= vocab) {
            return err_set(ERR_USAGE, "--logit-bias: id %u is not of this model, whose ids run "
                           "from 0 to %u", o->biases[i].id, vocab - 1);
        }
        if (!good) {
            return err_set(ERR_USAGE, "--logit-bias: %u:%g is neither a ban nor a number from "
                           "-1000000 to 1000000", o->biases[i].id, (double)value);
        }
    }
    return 0;
}

int sampler_open(struct sampler *s, const struct sample_options *options,
                 const struct kernels *kernels, uint32_t vocab)
{
    *s = (struct sampler){.options = *options, .kernels = kernels, .vocab = vocab};
    s->logit = malloc(vocab * sizeof *s->logit);
    s->weight = malloc(vocab * sizeof *s->weight);
    s->order = malloc(vocab * sizeof *s->order);
    s->seen = calloc(vocab, sizeof *s->seen);
    if (s->logit == NULL || s->weight == NULL || s->order == NULL || s->seen == NULL) {
        sampler_close(s);
        return err_set(ERR_MEMORY, "no memory to choose among %u tokens", vocab);
    }
    return 0;
}

void sampler_close(struct sampler *s)
{
    free(s->logit);
    free(s->weight);
    free(s->order);
    free(s->seen);
    *s = (struct sampler){.vocab = 0};
}

double sample_chance(uint64_t seed, uint64_t number)
{
    struct rng rng = rng_seed(seed + number * 0x9E3779B97F4A7C15ULL);
    return (double)(rng_next(&rng) >> 11) * 0x1p-53;
}

/* ---- logits ---- */

/* Once for each different id, however often it came. */
static void penalise(struct sampler *s, const uint32_t *ids, uint32_t count)
{
    const float penalty = s->options.repetition_penalty;
    for (uint32_t i = 0; penalty != 1.0f && i < count; i++) {
        assert(ids[i] < s->vocab);
        float *logit = &s->logit[ids[i]];
        if (!s->seen[ids[i]]) {
            *logit = *logit > 0 ? *logit / penalty : *logit * penalty;
        }
        s->seen[ids[i]] = true;
    }
    for (uint32_t i = 0; penalty != 1.0f && i < count; i++) {
        s->seen[ids[i]] = false;
    }
}

static void adjust(struct sampler *s, const float *logits, const uint32_t *ids, uint32_t count)
{
    memcpy(s->logit, logits, s->vocab * sizeof *logits);
    penalise(s, ids, count);
    for (uint32_t i = 0; i < s->options.bias_count; i++) {
        s->logit[s->options.biases[i].id] += s->options.biases[i].value;
    }
}

/* weight[i] = exp(logit[i] / temperature - the largest of them), which is 0 for a banned token.
 * Returns the sum of the weights, in order of ids. */
static double weigh(struct sampler *s, float largest)
{
    const float temperature = s->options.temperature;
    const float top = largest / temperature;
    double total = 0;
    for (uint32_t i = 0; i < s->vocab; i++) {
        s->logit[i] /= temperature;
        s->weight[i] = s->logit[i] - top;
    }
    s->kernels->exp(s->weight, s->weight, s->vocab);
    for (uint32_t i = 0; i < s->vocab; i++) {
        total += (double)s->weight[i];
    }
    return total;
}

/* ---- the likeliest first, without sorting all: a heap gives as many as are asked for ---- */

static bool before(const struct sampler *s, uint32_t a, uint32_t b)
{
    return s->logit[a] > s->logit[b] || (s->logit[a] == s->logit[b] && a < b);
}

static void sift(struct sampler *s, uint32_t at, uint32_t count)
{
    uint32_t id = s->order[at];
    for (uint32_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && before(s, s->order[child + 1], s->order[child]);
        if (!before(s, s->order[child], id)) {
            break;
        }
        s->order[at] = s->order[child];
        at = child;
    }
    s->order[at] = id;
}

static void make_heap(struct sampler *s)
{
    for (uint32_t i = 0; i < s->vocab; i++) {
        s->order[i] = i;
    }
    for (uint32_t i = s->vocab / 2; i-- > 0;) {
        sift(s, i, s->vocab);
    }
}

/* Takes the likeliest of count out and puts it behind the rest. */
static uint32_t take(struct sampler *s, uint32_t count)
{
    uint32_t id = s->order[0];
    s->order[0] = s->order[count - 1];
    sift(s, 0, count - 1);
    s->order[count - 1] = id;
    return id;
}

/* The token taken out as number i, the likeliest being 0. */
static uint32_t taken(const struct sampler *s, uint32_t i)
{
    return s->order[s->vocab - 1 - i];
}

/* ---- choice ---- */

/* Takes out all that the limits leave. Returns how many; *sum is what they weigh together. */
static uint32_t limit(struct sampler *s, double total, double *sum)
{
    const struct sample_options *o = &s->options;
    uint32_t most = o->top_k > 0 && o->top_k < s->vocab ? o->top_k : s->vocab;
    uint32_t count = 0;
    if (most < s->vocab) { /* chances are those among the k */
        total = 0;
        for (uint32_t i = 0; i < most; i++) {
            total += (double)s->weight[take(s, s->vocab - i)];
        }
    }
    *sum = 0;
    while (count < most) {
        uint32_t id = most < s->vocab ? taken(s, count) : take(s, s->vocab - count);
        float weight = s->weight[id];
        if (weight == 0 || weight < o->min_p) {
            break;
        }
        *sum += (double)weight;
        count++;
        if (o->top_p < 1 && *sum >= (double)o->top_p * total) {
            break;
        }
    }
    return count;
}

/* The first whose weight and those before it exceed mark. */
static uint32_t find_limited(struct sampler *s, double total, double chance)
{
    double sum, passed = 0;
    uint32_t count = limit(s, total, &sum), i = 0;
    for (; i + 1 < count; i++) {
        passed += (double)s->weight[taken(s, i)];
        if (passed > chance * sum) {
            break;
        }
    }
    return taken(s, i);
}

/* As with limits that leave all: most often the first few decide. */
static uint32_t find_free(struct sampler *s, double total, double chance)
{
    double passed = 0;
    uint32_t id = 0, last = 0;
    for (uint32_t i = 0; i < s->vocab; i++) {
        id = take(s, s->vocab - i);
        if (s->weight[id] == 0) {
            break;
        }
        last = id;
        passed += (double)s->weight[id];
        if (passed > chance * total) {
            break;
        }
    }
    return last;
}

int sampler_choose(struct sampler *s, const float *logits, const uint32_t *ids, uint32_t count,
                   uint64_t number, uint32_t *id)
{
    const struct sample_options *o = &s->options;
    adjust(s, logits, ids, count);
    uint32_t best = argmax(s->logit, s->vocab);
    *id = best;
    if (s->logit[best] == -INFINITY) {
        return err_set(ERR_RUN, "--logit-bias bans every token: leave one");
    }
    if (o->temperature == 0) {
        return 0;
    }
    double chance = sample_chance(o->seed, number);
    double total = weigh(s, s->logit[best]);
    bool limited = (o->top_k > 0 && o->top_k < s->vocab) || o->top_p < 1 || o->min_p > 0;
    make_heap(s);
    *id = limited ? find_limited(s, total, chance) : find_free(s, total, chance);
    return 0;
}
