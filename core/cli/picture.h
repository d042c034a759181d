/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PICTURE_H
#define CLI_PICTURE_H

/* Pictures of measurements, drawn by gnuplot: NAME.dat, NAME.gp, NAME.svg and NAME.png in a folder
 * (docs/PICTURES.md). The script draws its picture again wherever the four lie. */

#include "core/base/base.h"

#define PICTURE_SERIES_MAX 24U

enum picture_kind {
    PICTURE_LINES,  /* x, y; with low and high also their bars */
    PICTURE_STEPS,  /* y holds from its x on, until the next */
    PICTURE_POINTS, /* x, y; with low and high also their bars */
    PICTURE_BARS,   /* side by side where several series have bars */
    PICTURE_BOXES,  /* bars with low and high on top */
    PICTURE_SPANS   /* filled from x to x_end in row y: a timeline; one series for each colour */
};

struct picture_axis {
    const char *label;        /* with its unit: "bytes per token (GB)"; NULL for none */
    const char *const *names; /* of positions 0, 1, ..; NULL: numbers */
    uint32_t name_count;
    bool log;                 /* powers of 2, over 3 decades of 10; not when none is positive */
    bool from_zero;           /* the axis begins at 0; not with log */
    double low, high;         /* ends of the axis; both 0: what the data need */
};

/* All arrays are the caller's, count long; a value that is not finite is a gap. */
struct picture_series {
    const char *name;          /* in the key; NULL: not there */
    enum picture_kind kind;
    bool second;               /* against y2 */
    bool reference;            /* black and dashed: a bound, not a measurement */
    uint32_t count;
    const double *x, *y;
    const double *low, *high;  /* ends of the interval around y, or NULL */
    const double *x_end;       /* of spans */
};

struct picture {
    const char *name;  /* of the files: letters, digits, - and _ only */
    const char *title;
    struct picture_axis x, y, y2; /* y2 shows when a series is against it */
    struct picture_series series[PICTURE_SERIES_MAX];
    uint32_t series_count;
};

/* Makes dir when it is missing (its parent must be there), so that a bad one is told before the
 * work. ERR_OUTPUT. */
int picture_folder(const char *dir);

/* Whether path could be a picture's in dir, or that of its data or script: these are replaced. */
bool picture_owns(const char *dir, const char *path);

/* Writes the four files into dir, which is made when it is missing.
 * Every text is escaped. A picture with a great many points makes an SVG as great: thin out first,
 * some thousands are plenty.
 * Returns 0, or 1 when gnuplot is missing or failed: data and script are there then, and a line on
 * stderr said what to do (once for all pictures when it is missing). ERR_OUTPUT, ERR_MEMORY. */
int picture_write(const char *dir, const struct picture *picture);

/* The SVG of a written picture, for a place inside HTML: no prolog, no comments, every id begins
 * with the picture's name. Free it; NULL when there is none that can be read (no error is set). */
char *picture_svg_inline(const char *dir, const char *name);

/* The same for SVG text: ids begin with prefix. NULL when it is no SVG or memory is refused. */
char *picture_svg_clean(const char *svg, size_t size_bytes, const char *prefix);

#endif
