/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

/* What harnesses share: a folder in memory with the tiny model, in which the file under attack is
 * replaced before every try. A harness has one function, LLVMFuzzerTestOneInput; run.sh makes its
 * first inputs from files that the program itself has written. A try must end with success or with
 * an error that has a message of one line. */

#include "tests/support/tiny.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The folder; made at the first call, removed at the end of the process. with_model: holds the tiny
 * model, which must be said at the first call. */
const struct tiny *fuzz_folder(bool with_model);

/* Replaces a file of the folder. Sparse zeros follow up to total_bytes, unless that is less. */
void fuzz_put(const char *name, const void *data, size_t size, uint64_t total_bytes);

/* Aborts when rc is an error without a message, or with more than a line of text; forgets it. */
void fuzz_expect(int rc);

#endif
