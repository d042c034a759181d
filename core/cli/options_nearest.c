/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "core/cli/options.h"

#define EDITS_MAX 2U
#define CUT_SHORT_MIN 3U /* letters from which on the beginning of a name stands for it */

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Edits (insert, delete, replace) between two short words, in any case. */
static uint32_t edit_distance(const char *a, const char *b)
{
    uint32_t row[64];
    size_t width = strlen(b);
    if (width >= countof(row)) {
        return UINT32_MAX;
    }
    for (uint32_t j = 0; j <= width; j++) {
        row[j] = j;
    }
    for (uint32_t i = 0; a[i] != '\0'; i++) {
        uint32_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < width; j++) {
            uint32_t replace = diagonal + !same_letter(a[i], b[j]);
            diagonal = row[j + 1];
            uint32_t shift = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            row[j + 1] = replace < shift ? replace : shift;
        }
    }
    return row[width];
}

/* Whether one of the words is how the other begins. */
static bool cut_short(const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] != '\0' && b[i] != '\0' && same_letter(a[i], b[i])) {
        i++;
    }
    return i >= CUT_SHORT_MIN && (a[i] == '\0' || b[i] == '\0');
}

const char *options_nearest(const char *typed, const void *names, uint32_t count, size_t step)
{
    const char *best = NULL;
    uint32_t best_edits = EDITS_MAX + 1;
    for (uint32_t i = 0; i < count; i++) {
        const char *name;
        memcpy(&name, (const char *)names + i * step, sizeof name);
        uint32_t edits = name != NULL ? edit_distance(typed, name) : UINT32_MAX;
        if (name != NULL && edits > EDITS_MAX && best_edits > EDITS_MAX && cut_short(typed, name)) {
            best = best == NULL ? name : best;
        } else if (edits < best_edits && edits < strlen(typed)) {
            best_edits = edits;
            best = name;
        }
    }
    return best;
}
