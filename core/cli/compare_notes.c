/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "core/cli/compare_priv.h"

#define NOTE_BYTES 512

/* Files by letter, as the report calls them. */
static char letter(uint32_t file)
{
    return (char)('A' + (int)file);
}

static void note_verdict(const struct comparison *c, uint32_t file, compare_note_fn *note,
                         void *to)
{
    const struct measured *m = &c->file[file];
    char text[NOTE_BYTES];
    if (m->verdict == MEASURED_INVALID) {
        snprintf(text, sizeof text, "%c: %s; its figures are marked with !", letter(file),
                 m->is_run ? "the run failed" : "the verdict of its measurement is INVALID");
        note(to, text);
    }
    for (uint32_t i = 0; i < m->reason_count; i++) {
        snprintf(text, sizeof text, "%c: %s", letter(file), m->reason[i]);
        note(to, text);
    }
    if (m->verdict == MEASURED_UNSAID && !m->is_run) {
        snprintf(text, sizeof text, "%c: says nothing of its validity", letter(file));
        note(to, text);
    }
}

static bool same_logits(const struct measured_point *a, const struct measured_point *b)
{
    return a->logits_hash[0] == '\0' || b->logits_hash[0] == '\0' ||
           strcmp(a->logits_hash, b->logits_hash) == 0;
}

bool comparison_sound(const struct comparison *c, uint32_t file, uint32_t point)
{
    const struct measured_point *other = comparison_point(c, file, point);
    return c->file[0].verdict != MEASURED_INVALID && c->file[file].verdict != MEASURED_INVALID &&
           (other == NULL || same_logits(&c->file[0].point[point], other));
}

/* Against the first file: points without a partner, and what was not the same work. */
static void note_points(const struct comparison *c, uint32_t file, compare_note_fn *note, void *to)
{
    uint32_t points = c->file[0].point_count;
    uint32_t paired = 0;
    uint32_t unlike = 0;
    char text[NOTE_BYTES];
    for (uint32_t i = 0; i < points; i++) {
        const struct measured_point *other = comparison_point(c, file, i);
        paired += other != NULL;
        unlike += other != NULL && !same_logits(&c->file[0].point[i], other);
    }
    if (paired < points || paired < c->file[file].point_count) {
        snprintf(text, sizeof text, "%c: %u of A's %u points and %u of its %u have a counterpart",
                 letter(file), paired, points, paired, c->file[file].point_count);
        note(to, text);
    }
    if (unlike > 0) {
        snprintf(text, sizeof text, "%c: logits_hash differs from A's in %u of %u points: another "
                 "prompt, length or model, so the two are not comparable; their figures are marked "
                 "with !", letter(file), unlike, paired);
        note(to, text);
    }
    if (c->file[file].is_run != c->file[0].is_run) {
        snprintf(text, sizeof text, "%c: one of A and %c comes from k3ring run, the other from "
                 "k3ring bench", letter(file), letter(file));
        note(to, text);
    }
}

void comparison_notes(const struct comparison *c, compare_note_fn *note, void *to)
{
    for (uint32_t file = 0; file < c->count; file++) {
        note_verdict(c, file, note, to);
    }
    for (uint32_t file = 1; file < c->count; file++) {
        note_points(c, file, note, to);
    }
}

/* ---- settings and environment ---- */

/* What all points of a file have alike: those of its first. */
static const struct measured_fields *fields_of(const struct comparison *c, uint32_t file,
                                               bool environment)
{
    return environment ? &c->file[file].environment : &c->file[file].point[0].settings;
}

static bool before(const struct comparison *c, uint32_t file, bool environment, const char *name)
{
    for (uint32_t i = 0; i < file; i++) {
        if (measured_value(fields_of(c, i, environment), name) != NULL) {
            return true;
        }
    }
    return false;
}

static void compare_field(const struct comparison *c, bool environment, const char *name,
                          compare_row_fn *row, void *to)
{
    const char *value[COMPARE_FILES_MAX];
    bool differs = false;
    for (uint32_t i = 0; i < c->count; i++) {
        value[i] = measured_value(fields_of(c, i, environment), name);
        differs = differs || (value[i] == NULL) != (value[0] == NULL) ||
                  (value[i] != NULL && strcmp(value[i], value[0]) != 0);
    }
    if (differs) {
        row(to, name, value, c->count);
    }
}

void comparison_differences(const struct comparison *c, bool environment, compare_row_fn *row,
                            void *to)
{
    for (uint32_t file = 0; file < c->count; file++) {
        const struct measured_fields *fields = fields_of(c, file, environment);
        for (uint32_t i = 0; i < fields->count; i++) {
            const char *name = fields->field[i].name;
            bool shown = environment || !compare_listed(&c->varying, name);
            if (shown && !before(c, file, environment, name)) {
                compare_field(c, environment, name, row, to);
            }
        }
    }
}
