/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_PAPER_H
#define TESTS_SUPPORT_PAPER_H

/* A model that exists on paper: an open struct model without files, whose tensors lie where those
 * of the released shards lie (a shard per layer, F32 before BF16 before U8, then by name). What
 * only computes with places and sizes can be tested on the full geometry with it. */

#include "planner/plan.h"

/* All experts in one piece, as released. Free with model_close(). */
struct model *paper_model(const struct model_config *c);

/* The same with the parts of every expert in six shards of their own, none touching another. */
struct model *paper_scattered(const struct model_config *c);

/* Where the data of a layer's shard begins: behind a header of the size the released one has. */
uint64_t paper_data_start(const struct model_config *c, uint32_t layer);

/* A request with everything automatic: two workers, eight reads of 4 MiB, three prompt tokens and
 * five positions, and about what an engine asks for itself. */
struct plan_request paper_request(uint64_t ram_bytes);

/* Whether the tensor stays resident: a norm, a residual projection, taps, biases. */
bool paper_is_small(enum tensor_id id);

#endif
