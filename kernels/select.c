/* SPDX-License-Identifier: Apache-2.0 */

/* Which table this CPU can run, and the floating-point state every table assumes. */

#include <xmmintrin.h>

#include "kernels/kernels_priv.h"

/* Round to nearest, subnormals kept, all exceptions masked, no flag raised. */
#define MXCSR_CONTRACT 0x1f80u

/* The builtins ask cpuid and the operating system once, at start-up, and remember. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

/* The first Zen carries out a 256-bit operation as two of 128. */
static const struct kernels *avx2_table(void)
{
    return __builtin_cpu_is("znver1") ? &kernels_avx2_halves : &kernels_avx2;
}

const struct kernels *kernels_select(enum isa isa)
{
    __builtin_cpu_init();
    switch (isa) {
    case ISA_SCALAR:
        return &kernels_ref;
    case ISA_AVX2:
        return has_avx2() ? avx2_table() : NULL;
    case ISA_AVX512:
        return has_avx512() ? &kernels_avx512 : NULL;
    case ISA_AUTO:
    default:
        break;
    }
    if (has_avx512()) {
        return &kernels_avx512;
    }
    return has_avx2() ? avx2_table() : &kernels_ref;
}

void kernels_thread_init(void)
{
    _mm_setcsr(MXCSR_CONTRACT);
    assert(_mm_getcsr() == MXCSR_CONTRACT);
}
