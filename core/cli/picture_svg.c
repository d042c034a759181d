/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cli/picture.h"

/* Where ids stand: an id, and what points to one. */
static const char *const before_id[] = {" id=\"", " id='", "href=\"#", "href='#", "url(#",
                                        "url('#", "url(\"#"};

static bool begins(const char *text, size_t left, const char *word)
{
    size_t length = strlen(word);
    return length <= left && memcmp(text, word, length) == 0;
}

/* Bytes of one of these words when text begins with it. */
static size_t id_follows(const char *text, size_t left)
{
    for (size_t i = 0; i < countof(before_id); i++) {
        if (begins(text, left, before_id[i])) {
            return strlen(before_id[i]);
        }
    }
    return 0;
}

/* Bytes of a comment, an instruction, a script or gnuplot's signature that begins here; left when
 * it never ends. */
static size_t unwanted(const char *text, size_t left)
{
    static const char *const pairs[][2] = {
        {"<!--", "-->"}, {"<?", "?>"}, {"<script", "</script>"}, {"<title>", "</title>"},
        {"<desc>", "</desc>"}, {"<!", ">"}};
    for (size_t i = 0; i < countof(pairs); i++) {
        if (begins(text, left, pairs[i][0])) {
            const char *end = memmem(text, left, pairs[i][1], strlen(pairs[i][1]));
            return end != NULL ? (size_t)(end - text) + strlen(pairs[i][1]) : left;
        }
    }
    return 0;
}

char *picture_svg_clean(const char *svg, size_t size_bytes, const char *prefix)
{
    const char *at = memmem(svg, size_bytes, "<svg", 4);
    char *clean = NULL;
    size_t clean_bytes = 0;
    FILE *out = at != NULL ? open_memstream(&clean, &clean_bytes) : NULL;
    if (out == NULL) {
        return NULL;
    }
    for (const char *end = svg + size_bytes; at < end;) {
        size_t left = (size_t)(end - at);
        size_t skip = unwanted(at, left);
        size_t word = skip == 0 ? id_follows(at, left) : 0;
        if (skip == 0) {
            fwrite(at, 1, word > 0 ? word : 1, out);
        }
        if (word > 0) {
            fprintf(out, "%s-", prefix);
        }
        at += skip > 0 ? skip : word > 0 ? word : 1;
    }
    bool bad = ferror(out) != 0;
    bad = fclose(out) != 0 || bad;
    if (bad) {
        free(clean);
        clean = NULL;
    }
    return clean;
}
