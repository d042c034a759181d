/* SPDX-License-Identifier: Apache-2.0 */

/* Choices: which experts, which token. Scalar, shared by every table, ties to the lower index. */

#include "kernels/kernels_priv.h"

/* Puts (expert, choice) into the ordered list of count entries, of which at most k are kept.
 * Candidates come in increasing index and pass only what is strictly smaller, so a tie leaves
 * the lower index ahead. Returns the new count. */
static uint32_t list_insert(uint16_t *index, float *choice, uint32_t count, uint32_t k,
                            uint16_t expert, float value)
{
    if (count == k && !(value > choice[k - 1])) {
        return count;
    }
    uint32_t at = count < k ? count : k - 1;
    while (at > 0 && value > choice[at - 1]) {
        index[at] = index[at - 1];
        choice[at] = choice[at - 1];
        at--;
    }
    index[at] = expert;
    choice[at] = value;
    return count < k ? count + 1 : k;
}

void router_order(uint16_t *index, float *choice, const float *score, const float *bias,
                  uint32_t n, uint32_t k)
{
    assert(k >= 1 && k <= n && n <= UINT16_MAX + 1u);
    uint32_t count = 0;
    for (uint32_t e = 0; e < n; e++) {
        count = list_insert(index, choice, count, k, (uint16_t)e, score[e] + bias[e]);
    }
}

void router_top_k(uint16_t *index, float *weight, const float *score, const float *bias,
                  uint32_t n, uint32_t k, bool renormalize, float scaling)
{
    router_order(index, weight, score, bias, n, k); /* weight holds the choices for now */
    double sum = 0.0;
    for (uint32_t j = 0; j < k; j++) {
        sum += (double)score[index[j]];
    }
    double divisor = renormalize ? sum + 1e-20 : 1.0;
    for (uint32_t j = 0; j < k; j++) {
        weight[j] = (float)((double)score[index[j]] / divisor * (double)scaling);
    }
}

uint32_t argmax(const float *x, size_t n)
{
    assert(n >= 1 && n <= UINT32_MAX);
    size_t best = 0;
    for (size_t i = 1; i < n; i++) {
        if (x[i] > x[best]) {
            best = i;
        }
    }
    return (uint32_t)best;
}
