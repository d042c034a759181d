/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_KERNELS_COMPARE_H
#define TESTS_SUPPORT_KERNELS_COMPARE_H

/* Compares a table of kernels with the scalar one, bit for bit, over random shapes and values.
 * Inputs end at a page without access, so an element too many is a crash; outputs are compared
 * with the bytes around them. */

#include "kernels/kernels.h"

/* The checks: each covers one or a few entries of the table. */
int kernels_compare_count(void);
const char *kernels_compare_name(int check);

/* Runs one check with what the seed gives. True when all bits agree. */
bool kernels_compare(int check, const struct kernels *k, uint64_t seed);

/* Places n bytes so that the byte after them cannot be read; slot 0..KERNELS_SLOTS-1, n at
 * most 1 MiB. Contents of a slot last until it is placed again. */
#define KERNELS_SLOTS 12
void *kernels_guarded(int slot, size_t size_bytes);

/* All bits equal, or NaN in both. */
bool kernels_same(const float *a, const float *b, size_t n);

#endif
