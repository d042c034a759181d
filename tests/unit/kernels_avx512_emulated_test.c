/* SPDX-License-Identifier: Apache-2.0 */

/* The AVX-512 source, compiled against SIMDe's emulation of its intrinsics over AVX2 and FMA
 * (this one object needs -mavx2 -mfma), against the scalar table. */

#define KERNELS_AVX512_EMULATED
#include "kernels/avx512.c"

#include <check.h>

#include "tests/support/kernels_compare.h"
#include "tests/support/suite.h"

#define SEEDS 600u
#define SKIPPED 77

START_TEST(emulated_avx512_gives_the_bits_of_scalar)
{
    kernels_thread_init();
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        ck_assert_msg(kernels_compare(_i, &kernels_avx512_emulated, seed),
                      "%s differs from scalar, seed %llu", kernels_compare_name(_i),
                      (unsigned long long)seed);
    }
}
END_TEST

/* Without this the comparison would prove nothing about fused steps. */
START_TEST(the_emulated_fused_step_rounds_once)
{
    struct v16 a = v16_set1(1.0f + 0x1p-12f);
    float lanes[LANES_F32];
    v16_store(lanes, v16_fma(a, a, v16_set1(-1.0f - 0x1p-11f)));
    for (uint32_t j = 0; j < LANES_F32; j++) {
        ck_assert(lanes[j] == 0x1p-24f);
    }
}
END_TEST

int main(void)
{
    if (kernels_select(ISA_AVX2) == NULL) {
        return SKIPPED;
    }
    Suite *suite = suite_create("kernels_avx512_emulated");
    TCase *tcase = tcase_create("bits");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, emulated_avx512_gives_the_bits_of_scalar, 0,
                        kernels_compare_count());
    tcase_add_test(tcase, the_emulated_fused_step_rounds_once);
    suite_add_tcase(suite, tcase);
    int failed = suite_run(suite);
    return failed != 0;
}
