/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct figure sorted(const struct figure *f)
{
    struct figure copy = *f;
    qsort(copy.value, copy.count, sizeof copy.value[0], by_value);
    return copy;
}

void figure_add(struct figure *f, double value)
{
    assert(f->count < MEASURE_MAX);
    f->value[f->count++] = value;
}

double figure_median(const struct figure *f)
{
    struct figure s = sorted(f);
    if (s.count == 0) {
        return NAN;
    }
    return (s.value[(s.count - 1) / 2] + s.value[s.count / 2]) / 2;
}

double measure_median(const double *values, uint32_t count)
{
    struct figure f = {0};
    for (uint32_t i = 0; i < count; i++) {
        figure_add(&f, values[i]);
    }
    return figure_median(&f);
}

double figure_least(const struct figure *f)
{
    return f->count > 0 ? sorted(f).value[0] : NAN;
}

double figure_most(const struct figure *f)
{
    return f->count > 0 ? sorted(f).value[f->count - 1] : NAN;
}

/* Share of the 2^n ways n coins fall in which at most `heads` show heads. */
static double coins(uint32_t n, uint32_t heads)
{
    double ways = 1;
    double sum = 1;
    for (uint32_t i = 1; i <= heads; i++) {
        ways = ways * (n - i + 1) / i;
        sum += ways;
    }
    return ldexp(sum, -(int)n);
}

double figure_interval(const struct figure *f, double *low, double *high)
{
    struct figure s = sorted(f);
    uint32_t rank = 0;
    *low = *high = NAN;
    if (s.count == 0) {
        return 0;
    }
    while (2 * (rank + 2) <= s.count && 1 - 2 * coins(s.count, rank + 1) >= 0.95) {
        rank++;
    }
    *low = s.value[rank];
    *high = s.value[s.count - 1 - rank];
    return 100 * (1 - 2 * coins(s.count, rank));
}

void figure_json(cJSON *object, const char *name, const struct figure *f)
{
    cJSON *o = cJSON_AddObjectToObject(object, name);
    cJSON_AddNumberToObject(o, "median", figure_median(f));
    cJSON_AddNumberToObject(o, "min", figure_least(f));
    cJSON_AddNumberToObject(o, "max", figure_most(f));
    cJSON_AddItemToObject(o, "values", cJSON_CreateDoubleArray(f->value, (int)f->count));
}

void measure_quick(cJSON *root, const char *what)
{
    printf("quick form: %s\n", what);
    fflush(stdout);
    if (root != NULL) {
        cJSON_AddStringToObject(root, "quick_form", what);
    }
}

bool measure_write(const char *path, cJSON *root)
{
    char *text = cJSON_Print(root);
    FILE *out = fopen(path, "w");
    bool good = text != NULL && out != NULL && fprintf(out, "%s\n", text) > 0;
    if (out != NULL) {
        good = fclose(out) == 0 && good;
    }
    if (!good) {
        fprintf(stderr, "bench: cannot write %s\n", path);
    }
    cJSON_free(text);
    cJSON_Delete(root);
    return good;
}
