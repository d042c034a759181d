/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exec/logprob.h"

#include <math.h>

#include "kernels/kernels.h"

struct logprob_norm logprob_norm(const struct kernels *kernels, const float *logits,
                                 uint32_t vocab, float *scratch)
{
    struct logprob_norm norm = {.largest = logits[argmax(logits, vocab)]};
    double total = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        scratch[i] = logits[i] - norm.largest;
    }
    kernels->exp(scratch, scratch, vocab);
    for (uint32_t i = 0; i < vocab; i++) {
        total += (double)scratch[i];
    }
    norm.log_total = (double)kernel_log((float)total);
    return norm;
}

uint32_t logprob_top(const float *logits, uint32_t vocab, uint32_t count, uint32_t *ids)
{
    uint32_t found = 0;
    assert(count <= LOGPROB_TOP_MAX);
    for (uint32_t id = 0; id < vocab && count > 0; id++) {
        uint32_t at = found;
        if (found == count && !(logits[id] > logits[ids[count - 1]])) {
            continue;
        }
        found += found < count;
        at = at < count ? at : count - 1;
        for (; at > 0 && logits[id] > logits[ids[at - 1]]; at--) {
            ids[at] = ids[at - 1];
        }
        ids[at] = id;
    }
    return found;
}

/* The function takes f32: what rounding leaves of nats, below 1e-5, is put back to first order. */
double logprob_exp(double nats)
{
    float near = (float)nats;
    double power = (double)kernel_exp(near);
    return isinf(power) ? power : power * (1 + (nats - (double)near));
}

double logprob_bits(double nats)
{
    return nats / 0x1.62e42fefa39efp-1;
}
