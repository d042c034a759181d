/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CACHE_HEAT_H
#define CACHE_HEAT_H

/* What a policy has learned, as a file: a later run begins with it instead of knowing nothing. It
 * holds no experts and no residents, and changes which experts stay, never what comes out.
 *
 * File, all little endian:
 *     0  4  "K3RH"          12  4  experts per layer    24  8  bytes of the body
 *     4  2  version, 1      16  4  experts a token      32  8  checksum: FNV-1a, 64 bits, of the
 *     6  2  zero            20  4  zero                        file without these 8 bytes
 *     8  4  MoE layers      40 24  name of the policy, zeros behind
 * then the policy's arrays, one after the other (learned() of cache/policy.h). */

#include <stdio.h>

#include "cache/policy.h"

/* ERR_USAGE for a policy that learns nothing, by a line that names those that do. */
int heat_check_policy(const struct policy_ops *ops);

/* Fills a policy fresh from open() from the file at path: 1; or leaves it as it is when there is no
 * such file: 0. ERR_USAGE when the file is of another policy or geometry or not a regular one,
 * ERR_MODEL when it is no heat file, of an unknown version, damaged or cut, ERR_IO when it cannot
 * be read; then the policy must not be used. */
int heat_load(const char *path, const struct policy_ops *ops, const struct policy_shape *shape,
              struct policy *policy);

/* Writes the file in order from its present place; whether that worked is the stream's to say. */
void heat_write(FILE *file, const struct policy_ops *ops, const struct policy_shape *shape,
                struct policy *policy);

#endif
