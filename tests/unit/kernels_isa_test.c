/* SPDX-License-Identifier: Apache-2.0 */

/* Every table this CPU can run against the scalar one. */

#include <check.h>

#include "tests/support/amount.h"
#include "tests/support/kernels_compare.h"
#include "tests/support/suite.h"

#define SEEDS AMOUNT(1000u, 1000u, 60u)

static void compare_with_scalar(const struct kernels *k, int check)
{
    if (k == NULL) {
        return; /* this CPU lacks it; kernels_avx512_emulated_test covers AVX-512 */
    }
    kernels_thread_init();
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        ck_assert_msg(kernels_compare(check, k, seed), "%s: %s differs from scalar, seed %llu",
                      k->name, kernels_compare_name(check), (unsigned long long)seed);
    }
}

START_TEST(avx2_gives_the_bits_of_scalar)
{
    compare_with_scalar(kernels_select(ISA_AVX2) == NULL ? NULL : &kernels_avx2, _i);
}
END_TEST

START_TEST(avx2_for_half_width_gives_the_bits_of_scalar)
{
    compare_with_scalar(kernels_select(ISA_AVX2) == NULL ? NULL : &kernels_avx2_halves, _i);
}
END_TEST

START_TEST(avx512_gives_the_bits_of_scalar)
{
    compare_with_scalar(kernels_select(ISA_AVX512), _i);
}
END_TEST

/* A table that differs in one entry, to prove that the comparison can fail. */
static void exp_of_another_library(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = kernel_exp(x[i]) * 1.0000001f;
    }
}

static void bf16_that_feeds_zeros(const struct matmul *m)
{
    kernels_select(ISA_SCALAR)->bf16(m);
    m->y[0] += 0.0f * m->x[0] + 1e-30f;
}

START_TEST(a_wrong_table_is_noticed)
{
    struct kernels wrong = *kernels_select(ISA_SCALAR);
    wrong.exp = exp_of_another_library;
    wrong.bf16 = bf16_that_feeds_zeros;
    bool noticed[2] = {false, false};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        noticed[0] = noticed[0] || !kernels_compare(0, &wrong, seed);
        noticed[1] = noticed[1] || !kernels_compare(7, &wrong, seed);
    }
    ck_assert(noticed[0] && noticed[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_isa");
    TCase *tcase = tcase_create("bits");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, avx2_gives_the_bits_of_scalar, 0, kernels_compare_count());
    tcase_add_loop_test(tcase, avx2_for_half_width_gives_the_bits_of_scalar, 0,
                        kernels_compare_count());
    tcase_add_loop_test(tcase, avx512_gives_the_bits_of_scalar, 0, kernels_compare_count());
    tcase_add_test(tcase, a_wrong_table_is_noticed);
    suite_add_tcase(suite, tcase);
    int failed = suite_run(suite);
    return failed != 0;
}
