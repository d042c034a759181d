/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_POLICY_MODEL_H
#define TESTS_POLICY_MODEL_H

/* The cache policies written a second time, as plainly as their publications state them and
 * without regard to speed: arrays, whole scans, pow(). What the product must agree with. */

#include "cache/policy.h"

struct policy_model;

/* name as in policy_table; asserts that it is known and that memory is there. */
struct policy_model *policy_model_open(const char *name, const struct policy_shape *shape);
void policy_model_close(struct policy_model *model);
void policy_model_batch(struct policy_model *model, uint32_t layer, const uint16_t *ids,
                        uint32_t tokens);
bool policy_model_resident(const struct policy_model *model, policy_key key);

#endif
