/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_REWRITE_H
#define TESTS_SUPPORT_REWRITE_H

/* Writes a checkpoint anew with the same tensors in other places: another order, other files,
 * another beginning of the data. What a model computes must not depend on any of it. */

#include "tests/support/tiny.h"

struct rewrite_options {
    uint64_t seed;    /* order of the tensors within each file; 0 keeps the order of names */
    uint32_t shards;  /* files to write, 1..64; neighbours in the order of names go to different
                       * files, so that 6 or more part every expert six ways */
    bool odd_base;    /* data begins at an odd byte of each file */
    uint32_t gap_bytes; /* unused zero bytes before each tensor */
};

/* to must not exist yet as a struct tiny: it gets a folder of its own. */
void rewrite(struct tiny *to, const struct tiny *from, enum tiny_place place,
             const struct rewrite_options *options);

#endif
