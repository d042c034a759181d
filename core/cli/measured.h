/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_MEASURED_H
#define CLI_MEASURED_H

/* A file of measurements: the JSON of `k3ring bench`, or of `k3ring run` as one point with single
 * samples. Everything in it was checked: texts can be shown, numbers are finite. */

#include <cjson/cJSON.h>

#include "core/base/base.h"

#define MEASURED_NONE UINT32_MAX
#define MEASURED_BYTES_MAX (64 * MIB)
#define MEASURED_POINTS_MAX 1024U
#define MEASURED_METRICS_MAX 256U
#define MEASURED_FIELDS_MAX 256U /* further ones are not looked at */
#define MEASURED_SAMPLE_MAX 1e100
#define MEASURED_REASONS_MAX 16U
#define MEASURED_NAME_BYTES 96
#define MEASURED_TEXT_BYTES 160

enum measured_better { MEASURED_NEITHER, MEASURED_HIGHER, MEASURED_LOWER };

struct measured_metric {
    char name[MEASURED_NAME_BYTES], unit[32];
    enum measured_better better;
    double *sample; /* one for each repeat, in order */
    uint32_t count; /* > 0 */
};

/* A setting or a fact of the environment, as text. Longer text is cut. */
struct measured_field {
    char name[MEASURED_NAME_BYTES]; /* "cpu.model" for what lies in an object */
    char value[MEASURED_TEXT_BYTES];
};

struct measured_fields {
    struct measured_field *field;
    uint32_t count;
};

struct measured_point {
    struct measured_fields settings;
    struct measured_metric *metric;
    uint32_t metric_count;
    char logits_hash[65]; /* "" when the file says none */
};

enum measured_verdict { MEASURED_UNSAID, MEASURED_VALID, MEASURED_INVALID };

struct measured {
    const char *path;   /* the caller's */
    char version[32];   /* of the k3ring that measured; "" when the file says none */
    bool is_run;        /* by `k3ring run` */
    enum measured_verdict verdict;
    char reason[MEASURED_REASONS_MAX][MEASURED_TEXT_BYTES];
    uint32_t reason_count;
    struct measured_fields environment;
    struct measured_point *point;
    uint32_t point_count; /* > 0 */
};

/* ERR_IO names the file: what it is not, or where it is wrong. Undone by measured_fini, also after
 * a failure. path is kept. */
int measured_read(struct measured *m, const char *path);
/* The same from a tree; name is kept and stands for the path. */
int measured_take(struct measured *m, const char *name, const cJSON *tree);
void measured_fini(struct measured *m);

/* NULL when there is none of that name. */
const struct measured_metric *measured_metric(const struct measured_point *point,
                                              const char *name);
const char *measured_value(const struct measured_fields *fields, const char *name);

#endif
