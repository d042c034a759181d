/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"

#define FLOAT_DIGITS_MAX 17 /* so many tell every double apart */

struct writer {
    FILE *out;
    unsigned flags;
};

static int put_value(const struct writer *w, const cJSON *item);

static void put_string(FILE *out, const char *text)
{
    static const char named[] = "\b\t\n\f\r\"\\";
    static const char letters[] = "btnfr\"\\";
    fputc('"', out);
    for (; *text != '\0'; text++) {
        const char *at = strchr(named, *text);
        if (at != NULL) {
            fprintf(out, "\\%c", letters[at - named]);
        } else if ((unsigned char)*text < 0x20) {
            fprintf(out, "\\u%04x", (unsigned char)*text);
        } else {
            fputc(*text, out);
        }
    }
    fputc('"', out);
}

/* The shortest digits that mean value; `d.ddde[+-]dd`. */
static void shortest(double value, char text[32])
{
    for (int digits = 0; digits < FLOAT_DIGITS_MAX; digits++) {
        snprintf(text, 32, "%.*e", digits, value);
        if (strtod(text, NULL) == value) {
            return;
        }
    }
}

/* From 1e-4 to below 1e16 in plain digits with a point, beyond in powers of ten. */
static void put_double(FILE *out, double value)
{
    char text[32];
    shortest(value, text);
    const char *e = strchr(text, 'e');
    long exponent = strtol(e + 1, NULL, 10);
    int digits = (int)(e - text) - (value < 0 || signbit(value) ? 1 : 0);
    digits -= digits > 1; /* the point */
    if (exponent < -4 || exponent >= 16) {
        fputs(text, out);
    } else {
        int behind = digits - 1 - (int)exponent;
        fprintf(out, "%.*f", behind > 1 ? behind : 1, value);
    }
}

static void put_number(FILE *out, const cJSON *item)
{
    const char *text = item->valuestring;
    bool whole = text != NULL && strpbrk(text, ".eE") == NULL;
    if (whole) {
        fputs(strcmp(text, "-0") == 0 ? "0" : text, out);
    } else if (isfinite(item->valuedouble)) {
        put_double(out, item->valuedouble);
    } else {
        fputs(text != NULL ? text : "null", out); /* 1e999: no double says it */
    }
}

static int compare(const void *a, const void *b)
{
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

static int put_members(const struct writer *w, const cJSON *object, const cJSON **member)
{
    size_t count = 0;
    for (const cJSON *item = object->child; item != NULL; item = item->next) {
        member[count++] = item;
    }
    if ((w->flags & JSON_SORTED) != 0) {
        qsort(member, count, sizeof *member, compare);
    }
    fputc('{', w->out);
    for (size_t i = 0; i < count; i++) {
        fputs(i == 0 ? "" : (w->flags & JSON_SPACED) != 0 ? ", " : ",", w->out);
        put_string(w->out, member[i]->string);
        fputs((w->flags & JSON_SPACED) != 0 ? ": " : ":", w->out);
        TRY(put_value(w, member[i]));
    }
    fputc('}', w->out);
    return 0;
}

static int put_object(const struct writer *w, const cJSON *object)
{
    size_t count = (size_t)cJSON_GetArraySize(object);
    const cJSON **member = malloc((count + 1) * sizeof *member);
    int rc = member != NULL ? put_members(w, object, member)
                            : err_set(ERR_MEMORY, "no memory for %zu keys", count);
    free((void *)member);
    return rc;
}

static int put_array(const struct writer *w, const cJSON *array)
{
    fputc('[', w->out);
    for (const cJSON *item = array->child; item != NULL; item = item->next) {
        TRY(put_value(w, item));
        fputs(item->next == NULL ? "" : (w->flags & JSON_SPACED) != 0 ? ", " : ",", w->out);
    }
    fputc(']', w->out);
    return 0;
}

static int put_value(const struct writer *w, const cJSON *item)
{
    if (cJSON_IsObject(item)) {
        return put_object(w, item);
    }
    if (cJSON_IsArray(item)) {
        return put_array(w, item);
    }
    if (cJSON_IsString(item)) {
        put_string(w->out, item->valuestring);
    } else if (cJSON_IsNumber(item)) {
        put_number(w->out, item);
    } else if (cJSON_IsRaw(item)) {
        fputs(item->valuestring, w->out);
    } else {
        fputs(cJSON_IsTrue(item) ? "true" : cJSON_IsFalse(item) ? "false" : "null", w->out);
    }
    return 0;
}

char *json_text(const cJSON *tree, unsigned flags)
{
    char *text = NULL;
    size_t size;
    struct writer w = {.out = open_memstream(&text, &size), .flags = flags};
    if (w.out == NULL) {
        err_set(ERR_MEMORY, "no memory for JSON text");
        return NULL;
    }
    int rc = put_value(&w, tree);
    bool whole = fclose(w.out) == 0;
    if (rc < 0 || !whole) {
        err_set(ERR_MEMORY, "no memory for JSON text");
        free(text);
        return NULL;
    }
    return text;
}
