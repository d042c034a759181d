/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/verify.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/cli/text.h"

static const struct verify_line no_memory = {VERIFY_BAD, "memory", NULL};

static void add_line(struct verify *v, int code, enum verify_mark mark, const char *what,
                     const char *format, va_list args)
{
    char *text = NULL;
    if (v->line_count == v->line_capacity) {
        uint32_t capacity = v->line_capacity == 0 ? 32 : v->line_capacity * 2;
        struct verify_line *larger = realloc(v->line, capacity * sizeof *larger);
        if (larger != NULL) {
            v->line = larger;
            v->line_capacity = capacity;
        }
    }
    if (v->line_count == v->line_capacity || vasprintf(&text, format, args) < 0) {
        v->count[VERIFY_BAD]++; /* what cannot be told must not pass */
        v->rc = v->rc == 0 ? ERR_MEMORY : v->rc;
        return;
    }
    char *clean = malloc(strlen(text) + 1);
    if (clean != NULL) {
        text_clean(clean, strlen(text) + 1, text);
        free(text);
        text = clean;
    }
    v->line[v->line_count++] = (struct verify_line){.mark = mark, .what = what, .text = text};
    v->count[mark]++;
    v->rc = mark == VERIFY_BAD && v->rc == 0 ? code : v->rc;
}

void verify_say(struct verify *v, enum verify_mark mark, const char *what, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_line(v, ERR_RUN, mark, what, format, args);
    va_end(args);
}

void verify_fail(struct verify *v, int code, const char *what, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_line(v, code, VERIFY_BAD, what, format, args);
    va_end(args);
}

int verify_open(struct verify *v, const char *dir)
{
    struct model_options options = {.threads = 0};
    *v = (struct verify){.dir = dir};
    int rc = model_open(dir, &options, &v->model);
    if (rc < 0 && rc != ERR_MEMORY) {
        verify_fail(v, rc, "model", "%s", err_message());
        err_clear();
        rc = 0;
    }
    return rc;
}

void verify_close(struct verify *v)
{
    for (uint32_t i = 0; i < v->line_count; i++) {
        free(v->line[i].text);
    }
    free(v->line);
    survey_free(&v->survey);
    verify_reading_free(&v->reading);
    model_close(v->model);
}

int verify_verdict(const struct verify *v)
{
    const struct verify_line *first = &no_memory;
    if (v->count[VERIFY_BAD] == 0) {
        return 0;
    }
    for (uint32_t i = v->line_count; i > 0; i--) {
        first = v->line[i - 1].mark == VERIFY_BAD ? &v->line[i - 1] : first;
    }
    const char *text = first->text != NULL ? first->text : "no memory for what was found";
    if (v->count[VERIFY_BAD] == 1) {
        return err_set(v->rc, "%s", text);
    }
    return err_set(v->rc, "%u checks of %s failed, the first: %s", v->count[VERIFY_BAD], v->dir,
                   text);
}
