/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUITE_H
#define TESTS_SUITE_H

#include <check.h>

/* Runs a suite, in one process under sanitizers (their reports survive no fork), and frees it.
 * Returns how many tests failed. */
int suite_run(Suite *suite);

#endif
