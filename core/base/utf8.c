/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/utf8.h"

#include <string.h>

/* Bytes of the character that begins with lead, 0 for a byte that begins none, and the range of
 * its second byte, which is where overlong forms, surrogates and what is too large are told. */
static size_t lead_bytes(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (lead < 0x80) {
        return 1;
    }
    if (lead < 0xC2 || lead > 0xF4) {
        return 0;
    }
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* How many of the bytes of one character stand at text; *wanted: how many it has in all. */
static size_t begun_bytes(const unsigned char *text, size_t size_bytes, size_t *wanted)
{
    unsigned char low, high;
    size_t have = 1;
    *wanted = lead_bytes(text[0], &low, &high);
    while (have < *wanted && have < size_bytes && text[have] >= low && text[have] <= high) {
        have++;
        low = 0x80;
        high = 0xBF;
    }
    return *wanted == 0 ? 0 : have;
}

size_t utf8_read(const unsigned char *text, size_t size_bytes, uint32_t *code)
{
    static const unsigned char lead_mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    size_t wanted;
    if (begun_bytes(text, size_bytes, &wanted) < wanted || wanted == 0) {
        return 0;
    }
    *code = text[0] & lead_mask[wanted];
    for (size_t i = 1; i < wanted; i++) {
        *code = *code << 6 | (text[i] & 0x3FU);
    }
    return wanted;
}

void utf8_mend(char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        uint32_t code;
        size_t size = utf8_read((unsigned char *)text, left, &code);
        if (size == 0) {
            *text = '?';
            size = 1;
        }
        text += size;
        left -= size;
    }
}

size_t utf8_whole_bytes(const void *text, size_t size_bytes)
{
    const unsigned char *bytes = text;
    size_t at = 0, size = 1;
    while (at < size_bytes && size > 0) {
        uint32_t code;
        size = utf8_read(bytes + at, size_bytes - at, &code);
        at += size;
    }
    return at;
}

bool utf8_whole(const void *text, size_t size_bytes)
{
    return utf8_whole_bytes(text, size_bytes) == size_bytes;
}

size_t utf8_unfinished(const unsigned char *text, size_t size_bytes)
{
    for (size_t back = 1; back <= 3 && back <= size_bytes; back++) {
        const unsigned char *lead = text + size_bytes - back;
        size_t wanted;
        if ((*lead & 0xC0) != 0x80) {
            size_t have = begun_bytes(lead, back, &wanted);
            return have == back && have < wanted ? back : 0;
        }
    }
    return 0;
}

size_t utf8_bad_bytes(const unsigned char *text, size_t size_bytes)
{
    size_t wanted, have = begun_bytes(text, size_bytes, &wanted);
    return have > 0 ? have : 1;
}

bool utf8_harmless(uint32_t code)
{
    bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
    bool turns = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    bool breaks = code == 0x2028 || code == 0x2029;
    return !control && !turns && !breaks && code % 0x10000 < 0xFFFE;
}

void utf8_write(unsigned char *text, size_t size_bytes, uint32_t code)
{
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    assert(size_bytes >= 1 && size_bytes <= 4);
    for (size_t i = size_bytes; i-- > 1; code >>= 6) {
        text[i] = (unsigned char)(0x80 | (code & 0x3F));
    }
    text[0] = (unsigned char)(lead[size_bytes] | code);
}
