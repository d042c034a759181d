/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/compare_priv.h"

static int no_memory(void)
{
    return err_set(ERR_MEMORY, "no memory for a comparison");
}

/* ---- settings that vary ---- */

bool compare_listed(const struct compare_names *names, const char *name)
{
    for (uint32_t i = 0; i < names->count; i++) {
        if (strcmp(names->name[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static int add_name(struct compare_names *names, const char *name)
{
    const char **more;
    if (compare_listed(names, name)) {
        return 0;
    }
    more = realloc(names->name, (names->count + 1) * sizeof *names->name);
    if (more == NULL) {
        return no_memory();
    }
    names->name = more;
    names->name[names->count++] = name;
    return 0;
}

/* Fields of one that are not the same in the other. */
static int add_unlike(struct compare_names *names, const struct measured_fields *one,
                      const struct measured_fields *other)
{
    for (uint32_t i = 0; i < one->count; i++) {
        const char *value = measured_value(other, one->field[i].name);
        if (value == NULL || strcmp(value, one->field[i].value) != 0) {
            TRY(add_name(names, one->field[i].name));
        }
    }
    return 0;
}

int compare_varying(struct compare_names *names, const struct measured *m)
{
    for (uint32_t i = 1; i < m->point_count; i++) {
        TRY(add_unlike(names, &m->point[0].settings, &m->point[i].settings));
        TRY(add_unlike(names, &m->point[i].settings, &m->point[0].settings));
    }
    return 0;
}

void compare_names_free(struct compare_names *names)
{
    free(names->name);
    *names = (struct compare_names){.name = NULL};
}

char *compare_label(const struct measured_point *point, const struct compare_names *names)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        no_memory();
        return NULL;
    }
    const char *between = "";
    for (uint32_t i = 0; i < names->count; i++) {
        const char *value = measured_value(&point->settings, names->name[i]);
        if (value != NULL) {
            fprintf(out, "%s%s=%s", between, names->name[i], value);
            between = ", ";
        }
    }
    if (fclose(out) != 0) {
        no_memory();
        free(text);
        return NULL;
    }
    return text;
}

/* ---- which points belong together ---- */

static void free_labels(char **label, uint32_t count)
{
    for (uint32_t i = 0; label != NULL && i < count; i++) {
        free(label[i]);
    }
    free(label);
}

static char **make_labels(const struct measured *m, const struct compare_names *names)
{
    char **label = calloc(m->point_count, sizeof *label);
    bool bad = label == NULL;
    for (uint32_t i = 0; !bad && i < m->point_count; i++) {
        label[i] = compare_label(&m->point[i], names);
        bad = label[i] == NULL;
    }
    if (bad) {
        no_memory();
        free_labels(label, m->point_count);
        return NULL;
    }
    return label;
}

/* Equal labels in order; each point is taken once. */
static uint32_t pair(char *const *base, uint32_t base_count, char **other, uint32_t other_count,
                     uint32_t *match)
{
    uint32_t pairs = 0;
    for (uint32_t i = 0; i < base_count; i++) {
        match[i] = MEASURED_NONE;
        for (uint32_t k = 0; k < other_count && match[i] == MEASURED_NONE; k++) {
            if (other[k] != NULL && strcmp(base[i], other[k]) == 0) {
                match[i] = k;
                pairs++;
                free(other[k]);
                other[k] = NULL;
            }
        }
    }
    return pairs;
}

int compare_match(const struct measured *base, const struct measured *other, uint32_t *match)
{
    struct compare_names names = {.name = NULL};
    if (base->point_count == 1 && other->point_count == 1) {
        match[0] = 0;
        return 1;
    }
    int rc = compare_varying(&names, base);
    rc = rc == 0 ? compare_varying(&names, other) : rc;
    char **a = rc == 0 ? make_labels(base, &names) : NULL;
    char **b = a != NULL ? make_labels(other, &names) : NULL;
    rc = b != NULL ? (int)pair(a, base->point_count, b, other->point_count, match) : ERR_MEMORY;
    free_labels(a, base->point_count);
    free_labels(b, other->point_count);
    compare_names_free(&names);
    return rc;
}

/* ---- files beside one another ---- */

int comparison_init(struct comparison *c, const struct measured *file, uint32_t count)
{
    assert(count >= 1 && count <= COMPARE_FILES_MAX);
    *c = (struct comparison){.file = file, .count = count};
    TRY(compare_varying(&c->varying, &file[0]));
    for (uint32_t i = 1; i < count; i++) {
        c->match[i] = calloc(file[0].point_count, sizeof *c->match[i]);
        if (c->match[i] == NULL) {
            return no_memory();
        }
        TRY(compare_match(&file[0], &file[i], c->match[i]));
    }
    return 0;
}

void comparison_fini(struct comparison *c)
{
    for (uint32_t i = 0; i < c->count; i++) {
        free(c->match[i]);
    }
    compare_names_free(&c->varying);
    *c = (struct comparison){.file = NULL};
}

const struct measured_point *comparison_point(const struct comparison *c, uint32_t file,
                                              uint32_t point)
{
    uint32_t at = file == 0 ? point : c->match[file][point];
    return at != MEASURED_NONE ? &c->file[file].point[at] : NULL;
}
