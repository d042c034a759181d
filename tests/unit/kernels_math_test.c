/* SPDX-License-Identifier: Apache-2.0 */

/* The transcendental functions: their error against double libm, their limits, and equal bits in
 * every table. `kernels_math_test slow` compares the tables on every seventh float, some minutes;
 * without it the stride is coarse. */

#include <check.h>
#include <math.h>
#include <string.h>

#include "tests/support/kernels_compare.h"
#include "tests/support/suite.h"

#define BLOCK 1000u
#define ERROR_STRIDE 4099u /* both strides are prime: no pattern of the mantissa is missed */
#define TABLE_STRIDE 3001u
#define SLOW_STRIDE 7u

static uint32_t table_stride = TABLE_STRIDE;

static float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Distance of y from exact in units of the last place of the f32 nearest to exact. */
static double error_ulp(float y, double exact)
{
    int exponent;
    frexp(exact, &exponent);
    double unit = ldexp(1.0, exponent - 24 < -149 ? -149 : exponent - 24);
    return fabs((double)y - exact) / unit;
}

/* The largest error over a sample of all floats in [low, high] of either sign. */
static double largest_error(float (*f)(float), double (*exact)(double), double low, double high)
{
    double worst = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += ERROR_STRIDE) {
        float x = float_of_bits((uint32_t)bits);
        if ((double)x >= low && (double)x <= high) {
            double error = error_ulp(f(x), exact((double)x));
            worst = error > worst ? error : worst;
        }
    }
    return worst;
}

static double exact_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

START_TEST(exp_is_within_its_bound_down_to_subnormals)
{
    double worst = largest_error(kernel_exp, exp, -103.0, 88.7);
    ck_assert_msg(worst <= 1.0, "exp: %.3f ulp", worst);
}
END_TEST

START_TEST(tanh_is_within_its_bound)
{
    double worst = largest_error(kernel_tanh, tanh, -1e30, 1e30);
    ck_assert_msg(worst <= 2.0, "tanh: %.3f ulp", worst);
}
END_TEST

START_TEST(sigmoid_is_within_its_bound)
{
    double worst = largest_error(kernel_sigmoid, exact_sigmoid, -88.0, 1e30);
    ck_assert_msg(worst <= 3.0, "sigmoid: %.3f ulp", worst);
}
END_TEST

START_TEST(log_is_within_its_bound)
{
    double worst = largest_error(kernel_log, log, 1e-45, 3.4e38);
    ck_assert_msg(worst <= 1.0, "log: %.3f ulp", worst);
}
END_TEST

START_TEST(exp_has_its_limits)
{
    ck_assert(kernel_exp(0.0f) == 1 && kernel_exp(-0.0f) == 1);
    ck_assert(isinf(kernel_exp(88.73f)) && isinf(kernel_exp(INFINITY)));
    ck_assert(isfinite(kernel_exp(88.72f)));
    ck_assert(kernel_exp(-103.9f) == 0x1p-149f);
    ck_assert(kernel_exp(-104.5f) == 0 && kernel_exp(-INFINITY) == 0);
    ck_assert(!signbit(kernel_exp(-INFINITY)));
    for (uint32_t payload = 1; payload < 0x800000; payload += 997) {
        ck_assert(isnan(kernel_exp(float_of_bits(0x7f800000u | payload))));
        ck_assert(isnan(kernel_exp(float_of_bits(0xff800000u | payload))));
    }
}
END_TEST

START_TEST(tanh_keeps_the_sign_and_saturates)
{
    ck_assert(kernel_tanh(INFINITY) == 1 && kernel_tanh(-INFINITY) == -1);
    ck_assert(kernel_tanh(0.0f) == 0 && !signbit(kernel_tanh(0.0f)));
    ck_assert(kernel_tanh(-0.0f) == 0 && signbit(kernel_tanh(-0.0f)));
    ck_assert(kernel_tanh(0x1p-149f) == 0x1p-149f);
    ck_assert(isnan(kernel_tanh(NAN)) && isnan(kernel_tanh(-NAN)));
}
END_TEST

START_TEST(sigmoid_saturates)
{
    ck_assert(kernel_sigmoid(0.0f) == 0.5f && kernel_sigmoid(-0.0f) == 0.5f);
    ck_assert(kernel_sigmoid(INFINITY) == 1 && kernel_sigmoid(-INFINITY) == 0);
    ck_assert(kernel_sigmoid(-100.0f) == 0 && kernel_sigmoid(-88.0f) > 0);
    ck_assert(isnan(kernel_sigmoid(NAN)));
}
END_TEST

START_TEST(log_has_its_limits)
{
    ck_assert(kernel_log(1.0f) == 0);
    ck_assert(isinf(kernel_log(0.0f)) && kernel_log(0.0f) < 0 && isinf(kernel_log(-0.0f)));
    ck_assert(isnan(kernel_log(-1.0f)) && isnan(kernel_log(NAN)));
    ck_assert(isinf(kernel_log(INFINITY)));
    ck_assert(kernel_log(0x1p-149f) == (float)log(0x1p-149));
}
END_TEST

typedef void unary_function(float *y, const float *x, size_t n);

static void compare_block(unary_function *const f[2], const float *x)
{
    static float y[BLOCK];
    static float z[BLOCK];
    f[0](y, x, BLOCK);
    f[1](z, x, BLOCK);
    if (!kernels_same(y, z, BLOCK)) {
        ck_abort_msg("the tables differ between %a and %a", (double)x[0], (double)x[BLOCK - 1]);
    }
}

/* Loop 0..2: exp, tanh, sigmoid, of the widest table of this CPU against scalar. */
START_TEST(tables_agree_on_a_sweep_of_all_floats)
{
    const struct kernels *k = kernels_select(ISA_AUTO);
    const struct kernels *ref = kernels_select(ISA_SCALAR);
    unary_function *const f[3][2] = {
        {k->exp, ref->exp}, {k->tanh, ref->tanh}, {k->sigmoid, ref->sigmoid}};
    kernels_thread_init();
    static float x[BLOCK];
    uint64_t bits = 0;
    while (bits <= UINT32_MAX) {
        for (uint32_t i = 0; i < BLOCK; i++) {
            x[i] = float_of_bits((uint32_t)bits);
            bits += table_stride;
        }
        compare_block(f[_i], x);
    }
}
END_TEST

int main(int argc, char **argv)
{
    bool slow = argc > 1 && strcmp(argv[1], "slow") == 0;
    table_stride = slow ? SLOW_STRIDE : TABLE_STRIDE;
    Suite *suite = suite_create("kernels_math");
    TCase *tcase = tcase_create("functions");
    tcase_set_timeout(tcase, slow ? 1200 : 60);
    tcase_add_test(tcase, exp_is_within_its_bound_down_to_subnormals);
    tcase_add_test(tcase, tanh_is_within_its_bound);
    tcase_add_test(tcase, sigmoid_is_within_its_bound);
    tcase_add_test(tcase, log_is_within_its_bound);
    tcase_add_test(tcase, exp_has_its_limits);
    tcase_add_test(tcase, tanh_keeps_the_sign_and_saturates);
    tcase_add_test(tcase, sigmoid_saturates);
    tcase_add_test(tcase, log_has_its_limits);
    tcase_add_loop_test(tcase, tables_agree_on_a_sweep_of_all_floats, 0, 3);
    suite_add_tcase(suite, tcase);
    int failed = suite_run(suite);
    return failed != 0;
}
