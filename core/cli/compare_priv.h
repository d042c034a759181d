/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_COMPARE_PRIV_H
#define CLI_COMPARE_PRIV_H

/* What the report and its JSON share. */

#include "core/cli/compare.h"

/* Names of settings. */
struct compare_names {
    const char **name; /* into the files */
    uint32_t count;
};

/* Adds the settings of which a file's points have different values. ERR_MEMORY. */
int compare_varying(struct compare_names *names, const struct measured *m);
bool compare_listed(const struct compare_names *names, const char *name);
void compare_names_free(struct compare_names *names);

/* "io_depth=8, cache_policy=arc" of a point; "" without names. Free it; NULL without memory. */
char *compare_label(const struct measured_point *point, const struct compare_names *names);

/* Files beside one another. */
struct comparison {
    const struct measured *file;
    uint32_t count;
    struct compare_names varying;       /* in the first file */
    uint32_t *match[COMPARE_FILES_MAX]; /* by point of the first; [0] is NULL */
};

int comparison_init(struct comparison *c, const struct measured *file, uint32_t count);
void comparison_fini(struct comparison *c);

/* The point of a file that belongs to a point of the first, or NULL. */
const struct measured_point *comparison_point(const struct comparison *c, uint32_t file,
                                              uint32_t point);

/* A metric's own figure: the middle of its repeats, and the interval of their mean. */
struct compare_figure {
    double median;
    bool has_interval;
    double low, high;
};

/* ERR_MEMORY. */
int compare_figure(const struct measured_metric *metric, struct compare_figure *out);

/* Calls note for each thing a reader must know before the figures; where is "" or like "B: ". */
typedef void compare_note_fn(void *to, const char *text);
void comparison_notes(const struct comparison *c, compare_note_fn *note, void *to);

/* Calls row for each field that differs between files; value[i] is NULL where file i has none. */
typedef void compare_row_fn(void *to, const char *name, const char *const *value, uint32_t count);
void comparison_differences(const struct comparison *c, bool environment, compare_row_fn *row,
                            void *to);

/* False when the verdict of either file is invalid, or their logits differ. */
bool comparison_sound(const struct comparison *c, uint32_t file, uint32_t point);

#endif
