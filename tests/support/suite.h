/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUITE_H
#define TESTS_SUITE_H

#include <check.h>

#include "tests/support/watch.h"

/* Check's own, and a watch over the test: see watch.h. */
#undef START_TEST
#define START_TEST(name)                                                      \
    static void name##_body(int _i);                                          \
    static void name##_fn(int _i)                                             \
    {                                                                         \
        watch_began(#name, _i);                                               \
        name##_body(_i);                                                      \
        watch_over();                                                         \
    }                                                                         \
    static const TTest name##_ttest = {#name, name##_fn, __FILE__, __LINE__}; \
    static const TTest *name = &name##_ttest;                                 \
    static void name##_body(int _i CK_ATTRIBUTE_UNUSED)

/* A test case of suite whose tests may take so many seconds each. before and after run around each
 * of them, in its process; NULL: nothing. */
TCase *suite_case(Suite *suite, const char *name, double seconds, void (*before)(void),
                  void (*after)(void));

/* Runs a suite, in one process under sanitizers (their reports survive no fork), and frees it.
 * Returns how many tests failed. */
int suite_run(Suite *suite);

#endif
