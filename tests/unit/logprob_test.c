/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/nondet.h"
#include "core/exec/logprob.h"
#include "kernels/kernels.h"
#include "tests/support/suite.h"

#define VOCAB 3000U

static float logits[VOCAB], scratch[VOCAB];

static void fill(uint64_t seed, double width)
{
    struct rng rng = rng_seed(seed);
    for (uint32_t i = 0; i < VOCAB; i++) { /* coarse, so that some are equal */
        logits[i] = (float)((double)rng_below(&rng, 500) / 500 * width - width / 3);
    }
}

START_TEST(they_are_logarithms_of_the_softmax)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        const struct kernels *kernels = kernels_select(ISA_AUTO);
        double total = 0, largest = -HUGE_VAL, sum = 0;
        fill(seed, seed < 10 ? 20 : 400);
        for (uint32_t i = 0; i < VOCAB; i++) {
            largest = fmax(largest, (double)logits[i]);
        }
        for (uint32_t i = 0; i < VOCAB; i++) {
            total += exp((double)logits[i] - largest);
        }
        struct logprob_norm norm = logprob_norm(kernels, logits, VOCAB, scratch);
        for (uint32_t i = 0; i < VOCAB; i++) {
            double expected = (double)logits[i] - largest - log(total);
            double got = logprob_of(&norm, logits[i]);
            ck_assert_msg(fabs(got - expected) < 2e-6, "seed %d, id %u: %g, not %g", (int)seed, i,
                          got, expected);
            sum += exp(got);
        }
        ck_assert_double_lt(fabs(sum - 1), 2e-6);
    }
}
END_TEST

START_TEST(every_instruction_set_has_the_same_bits)
{
    fill(1, 30);
    struct logprob_norm truth =
        logprob_norm(kernels_select(ISA_SCALAR), logits, VOCAB, scratch);
    for (enum isa isa = ISA_SCALAR; isa <= ISA_AVX512; isa++) {
        const struct kernels *kernels = kernels_select(isa);
        if (kernels == NULL) {
            printf("skip: this processor lacks instruction set %d\n", (int)isa);
            continue;
        }
        struct logprob_norm norm = logprob_norm(kernels, logits, VOCAB, scratch);
        ck_assert_mem_eq(&norm.log_total, &truth.log_total, sizeof truth.log_total);
        ck_assert_mem_eq(&norm.largest, &truth.largest, sizeof truth.largest);
    }
}
END_TEST

static int by_logit(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (logits[x] != logits[y]) {
        return logits[x] < logits[y] ? 1 : -1;
    }
    return x < y ? -1 : 1;
}

START_TEST(the_likeliest_come_first_and_of_equals_the_lower_id)
{
    static uint32_t order[VOCAB];
    static const uint32_t counts[] = {0, 1, 2, 17, LOGPROB_TOP_MAX};
    for (uint64_t seed = 0; seed < 30; seed++) {
        fill(seed, 10);
        for (uint32_t i = 0; i < VOCAB; i++) {
            order[i] = i;
        }
        qsort(order, VOCAB, sizeof *order, by_logit);
        for (size_t i = 0; i < countof(counts); i++) {
            uint32_t top[LOGPROB_TOP_MAX];
            ck_assert_uint_eq(logprob_top(logits, VOCAB, counts[i], top), counts[i]);
            ck_assert(memcmp(top, order, counts[i] * sizeof *top) == 0);
        }
    }
    uint32_t few[5];
    logits[0] = 1;
    logits[1] = 3;
    logits[2] = 3;
    ck_assert_uint_eq(logprob_top(logits, 3, 5, few), 3);
    ck_assert(few[0] == 1 && few[1] == 2 && few[2] == 0);
}
END_TEST

START_TEST(a_perplexity_is_right_to_six_digits)
{
    for (double nats = 0; nats < 80; nats += 0.037) {
        ck_assert_double_lt(fabs(logprob_exp(nats) / exp(nats) - 1), 5e-7);
        ck_assert_double_lt(fabs(logprob_bits(nats) - nats / log(2)), 1e-12);
    }
    ck_assert(isinf(logprob_exp(200)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("logprob");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, kernels_thread_init, NULL);
    tcase_add_test(all, they_are_logarithms_of_the_softmax);
    tcase_add_test(all, every_instruction_set_has_the_same_bits);
    tcase_add_test(all, the_likeliest_come_first_and_of_equals_the_lower_id);
    tcase_add_test(all, a_perplexity_is_right_to_six_digits);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
