/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned char vocabulary_byte(uint32_t rank)
{
    static const struct {
        uint32_t first, last, rank;
    } ranges[] = {{33, 126, 0},    {161, 172, 94},  {174, 255, 106},
                  {0, 32, 188},    {127, 160, 221}, {173, 173, 255}};
    for (size_t i = 0; i < countof(ranges); i++) {
        uint32_t count = ranges[i].last - ranges[i].first + 1;
        if (rank >= ranges[i].rank && rank < ranges[i].rank + count) {
            return (unsigned char)(ranges[i].first + rank - ranges[i].rank);
        }
    }
    abort();
}

char *vocabulary_line(char *text, const void *bytes, size_t size_bytes, uint32_t rank)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *b = bytes;
    for (size_t i = 0; i < size_bytes; i += 3) {
        uint32_t bits = (uint32_t)b[i] << 16;
        bits |= i + 1 < size_bytes ? (uint32_t)b[i + 1] << 8 : 0;
        bits |= i + 2 < size_bytes ? (uint32_t)b[i + 2] : 0;
        for (size_t k = 0; k < 4; k++) {
            *text++ = i + k <= size_bytes ? digits[bits >> (18 - 6 * k) & 63] : '=';
        }
    }
    return text + sprintf(text, " %u\n", rank);
}

char *vocabulary_text(const char *const *merges, size_t count, size_t *size_bytes)
{
    size_t room = 256 * 16;
    for (size_t i = 0; i < count; i++) {
        room += strlen(merges[i]) * 2 + 20;
    }
    char *text = malloc(room), *at = text;
    if (text == NULL) {
        abort();
    }
    for (uint32_t rank = 0; rank < VOCABULARY_BYTES; rank++) {
        unsigned char byte = vocabulary_byte(rank);
        at = vocabulary_line(at, &byte, 1, rank);
    }
    for (size_t i = 0; i < count; i++) {
        at = vocabulary_line(at, merges[i], strlen(merges[i]), VOCABULARY_BYTES + (uint32_t)i);
    }
    *size_bytes = (size_t)(at - text);
    return text;
}

void vocabulary_write(const char *path, const char *const *merges, size_t count)
{
    size_t size;
    char *text = vocabulary_text(merges, count, &size);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(text, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        abort();
    }
    free(text);
}
