/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/text.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"

size_t text_step(const char *text)
{
    uint32_t code = 0;
    size_t size = text[0] != '\0' ? utf8_read((const unsigned char *)text, strnlen(text, 4), &code)
                                  : 0;
    return size > 0 && utf8_harmless(code) ? size : 0;
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

void text_show(FILE *out, const void *bytes, size_t size_bytes)
{
    const unsigned char *text = bytes;
    for (size_t at = 0; at < size_bytes;) {
        uint32_t code = 0;
        size_t step = utf8_read(text + at, size_bytes - at, &code);
        if (step > 0 && (utf8_harmless(code) || code == '\n' || code == '\t')) {
            fwrite(text + at, 1, step, out);
        } else {
            fputc('?', out);
        }
        at += step > 0 ? step : 1;
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
