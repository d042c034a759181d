/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_MEASURED_PRIV_H
#define CLI_MEASURED_PRIV_H

/* How the two kinds of files become measurements. Failures are ERR_IO or ERR_MEMORY. */

#include "core/cli/measured.h"

/* Room for count points without anything in them. */
int measured_points_init(struct measured *m, uint32_t count);

/* Room for metrics; measured_add takes it up. */
int measured_metrics_init(struct measured_point *point, uint32_t count);
/* A metric of one sample; nothing when value is not finite. */
int measured_add(struct measured_point *point, const char *name, const char *unit,
                 enum measured_better better, double value);

/* The scalars below tree, names joined by dots, begin before them unless empty. */
int measured_flatten(struct measured_fields *fields, const cJSON *tree, const char *begin);

/* The text of a member, made harmless and cut, or "". */
void measured_text(char *to, size_t capacity_bytes, const cJSON *object, const char *name);

/* The JSON of `k3ring run`. */
bool measured_is_run(const cJSON *tree);
int measured_take_run(struct measured *m, const cJSON *tree);

#endif
