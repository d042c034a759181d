/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PICTURE_PRIV_H
#define CLI_PICTURE_PRIV_H

/* Data and script of a picture. A series without a point that can be drawn is in neither; the
 * others are blocks of the data, in order. */

#include <stdio.h>

#include "core/cli/picture.h"

/* What the points that can be drawn span; count 0: none can. */
struct picture_range {
    double low, high;
    uint32_t count;
};

/* False when a logarithm was asked for and nothing is positive. */
bool picture_log(const struct picture *p, const struct picture_axis *axis);

/* One way of an axis (&p->x, &p->y, &p->y2) over all series against it, intervals included. */
struct picture_range picture_span(const struct picture *p, const struct picture_axis *axis);

/* Points that are finite, and positive where an axis is logarithmic. */
uint32_t picture_drawable(const struct picture *p, const struct picture_series *s);

void picture_put_data(FILE *out, const struct picture *p);
void picture_put_script(FILE *out, const struct picture *p);

#endif
