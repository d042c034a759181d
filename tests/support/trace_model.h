/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_TRACE_MODEL_H
#define TESTS_TRACE_MODEL_H

/* Makes routing that looks like a model's: an expert tends to be asked for again by the next
 * token, the better its rank the more so, and some experts are popular. Same seed, same trace. */

#include "cache/trace.h"

struct trace_model {
    uint64_t seed;
    uint32_t layers, experts, top_k, tokens; /* experts <= 256, top_k <= 16 and < experts */
};

/* Of tests/data/small.k3rt; `trace_test PATH` writes the file anew. */
extern const struct trace_model trace_model_small;
#define TRACE_MODEL_SMALL_PATH "tests/data/small.k3rt"

/* Initialises trace and fills it, token by token through all layers. As trace_init(). */
int trace_model_make(struct trace *trace, const struct trace_model *model);

#endif
