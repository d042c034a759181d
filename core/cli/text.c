/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/text.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"

/* Bytes behind a lead byte, and the smallest code that needs them. */
static size_t followers(unsigned char lead, uint32_t *code, uint32_t *least)
{
    if (lead >= 0xC2 && lead < 0xE0) {
        *code = lead & 0x1FU;
        *least = 0xA0; /* below are control characters */
        return 1;
    }
    if (lead >= 0xE0 && lead < 0xF0) {
        *code = lead & 0x0FU;
        *least = 0x800;
        return 2;
    }
    if (lead >= 0xF0 && lead < 0xF5) {
        *code = lead & 0x07U;
        *least = 0x10000;
        return 3;
    }
    return 0;
}

/* Marks that turn the direction of writing, or break lines where nobody expects it. */
static bool deceives(uint32_t code)
{
    return (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) ||
           code == 0x2028 || code == 0x2029;
}

size_t text_step(const char *text)
{
    unsigned char lead = (unsigned char)text[0];
    uint32_t code = 0;
    uint32_t least = 0;
    if (lead < 0x80) {
        return lead >= 0x20 && lead != 0x7F ? 1 : 0;
    }
    size_t behind = followers(lead, &code, &least);
    for (size_t i = 1; i <= behind; i++) {
        unsigned char next = (unsigned char)text[i];
        if ((next & 0xC0) != 0x80) {
            return 0;
        }
        code = code << 6 | (next & 0x3FU);
    }
    bool sound = behind > 0 && code >= least && code <= 0x10FFFF &&
                 (code < 0xD800 || code > 0xDFFF) && code % 0x10000 < 0xFFFE && !deceives(code);
    return sound ? behind + 1 : 0;
}

static const char *rule_for(char byte, const struct text_rule *rules, uint32_t rule_count)
{
    for (uint32_t i = 0; i < rule_count; i++) {
        if (rules[i].byte == byte) {
            return rules[i].instead;
        }
    }
    return NULL;
}

void text_put(FILE *out, const char *text, const struct text_rule *rules, uint32_t rule_count,
              bool lines)
{
    while (*text != '\0') {
        const char *instead = rule_for(*text, rules, rule_count);
        size_t step = text_step(text);
        if (instead != NULL) {
            fputs(instead, out);
        } else if (*text == '\n' || *text == '\t') {
            fputc(lines ? *text : ' ', out);
        } else if (step == 0) {
            fputc('?', out);
        } else {
            fwrite(text, 1, step, out);
        }
        text += step > 0 ? step : 1;
    }
}

void text_clean(char *to, size_t capacity_bytes, const char *text)
{
    size_t used = 0;
    while (*text != '\0') {
        size_t step = text_step(text);
        size_t size = step > 0 ? step : 1;
        if (used + size >= capacity_bytes) {
            break;
        }
        memcpy(to + used, step > 0 ? text : "?", size);
        used += size;
        text += size;
    }
    to[used] = '\0';
}

size_t text_shell(char *to, size_t capacity_bytes, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789/._-+,:@%=";
    size_t used = 0;
    if (text[0] != '\0' && text[strspn(text, plain)] == '\0') {
        snprintf(to, capacity_bytes, "%s", text);
        return strlen(to);
    }
    to[used++] = '\'';
    for (const char *at = text; *at != '\0' && used + 6 < capacity_bytes; at++) {
        used += (size_t)snprintf(to + used, capacity_bytes - used,
                                 *at == '\'' ? "'\\''" : "%c", *at);
    }
    return used + (size_t)snprintf(to + used, capacity_bytes - used, "'");
}

#define JSON_BYTES_MAX 6U /* of a byte of text: \u0001 */

/* Writes the character at text as JSON has it, and a zero byte; returns its bytes in text. */
static size_t write_json(const unsigned char *text, size_t size_bytes, char *out)
{
    uint32_t code;
    size_t bytes = utf8_read(text, size_bytes, &code);
    if (bytes == 0 || code == 0) {
        memcpy(out, "\xEF\xBF\xBD", 4);
        return bytes > 0 ? bytes : utf8_bad_bytes(text, size_bytes);
    }
    if (code == '"' || code == '\\') {
        snprintf(out, JSON_BYTES_MAX + 1, "\\%c", (int)code);
    } else if (code == '\n') {
        memcpy(out, "\\n", 3);
    } else if (code < 0x20 || (code >= 0x7F && code < 0xA0)) {
        snprintf(out, JSON_BYTES_MAX + 1, "\\u%04x", code & 0xFFU);
    } else {
        memcpy(out, text, bytes);
        out[bytes] = '\0';
    }
    return bytes;
}

char *text_json(const void *bytes, size_t size_bytes)
{
    const unsigned char *text = bytes;
    char *out = malloc(JSON_BYTES_MAX * size_bytes + sizeof "\"\"");
    size_t used = 0;
    if (out == NULL) {
        return NULL;
    }
    out[used++] = '"';
    for (size_t at = 0; at < size_bytes;) {
        char one[JSON_BYTES_MAX + 1];
        at += write_json(text + at, size_bytes - at, one);
        memcpy(out + used, one, strlen(one));
        used += strlen(one);
    }
    memcpy(out + used, "\"", 2);
    char *fitting = realloc(out, used + 2);
    return fitting != NULL ? fitting : out;
}
