/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/kimi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/vocabulary.h"

#define LINE_BYTES 64U
#define JOINED_BYTES 65536U

static const struct {
    uint32_t id;
    const char *text;
} known[] = {
    /* tags and attributes */
    {2778, "message"}, {6244, " role"}, {878, "=\""}, {2482, "user"}, {14062, "system"},
    {69702, "assistant"}, {20960, "tool"}, {1798, " type"}, {4453, " tool"}, {4002, " index"},
    {2355, " key"}, {39964, "think"}, {12092, "response"}, {25385, "tools"}, {10257, "call"},
    {47185, "argument"}, {2033, "string"}, {10006, "number"},
    /* what the system says of effort */
    {130400, "thinking"}, {59991, "-eff"}, {123074, "_eff"}, {470, "ort"}, {28560, " guides"},
    {418, " on"}, {1632, " how"}, {2455, " much"}, {308, " to"}, {2704, " think"}, {306, " in"},
    {651, " your"}, {9545, " thinking"}, {8491, " channel"}, {347, " ("}, {2976, "not"},
    {3411, " including"}, {276, " the"}, {4503, " response"}, {904, "),"}, {9141, " supported"},
    {4661, " values"}, {3867, " include"}, {1268, " `"}, {1332, "low"}, {5713, "`,"},
    {50004, "medium"}, {19421, "high"}, {316, " and"}, {5354, "max"}, {16518, "`.\n"},
    {10048, "Now"}, {2403, " system"}, {387, " is"}, {42070, " invoked"}, {472, " with"},
    {105281, "=max"}, {11369, "`."},
    /* what was said */
    {18699, "Hi"}, {19180, "Hello"}, {47221, "because"}, {1008, "The"}, {10484, " capital"},
    {318, " of"}, {15383, " France"}, {17374, " Paris"}, {113476, "Paris"}, {3900, "You"},
    {554, " are"}, {13205, " helpful"}, {93330, " terse"}, {42780, "473"}, {49114, "921"},
    {23782, "235"}, {5376, "What"}, {1646, " were"}, {1356, " other"}, {2069, " two"},
    {414, " \""}, {4546, "\u65E5\u672C"}, {63011, "\u8A9E"}, {17137, " \xF0\x9F"},
    {8959, "second"}, {2470, " line"}, {2354, " does"}, {793, " ["}, {85521, "EOS"},
    {4992, " mean"}, {12583, " vs"}, {54904, "PAD"}, {57780, "UNK"}, {87795, "]?"},
    {618, "get"}, {21055, "_we"}, {2800, "ather"}, {37666, "city"}, {21030, "days"},
    /* steps on the way to some of these; their order is the order in which bytes are joined */
    {256, "in"}, {257, "th"}, {258, "thin"}, {259, "ing"}, {260, "or"}, {261, "ff"},
    {262, "eff"}, {263, "er"}, {264, "ther"}, {265, "we"}, {266, "lo"}, {267, "\xF0\x9F"},
    {268, "\xE6\x97"}, {269, "\xE6\x9C"}, {270, "\u65E5"}, {271, "\u672C"}, {272, "\xE8\xAA"},
};

static const char *text_of(uint32_t id)
{
    for (size_t i = 0; i < countof(known); i++) {
        if (known[i].id == id) {
            return known[i].text;
        }
    }
    return NULL;
}

static char *write_token(char *at, uint32_t id)
{
    unsigned char byte;
    const char *text = text_of(id);
    if (id < VOCABULARY_BYTES) {
        byte = vocabulary_byte(id);
        return vocabulary_line(at, &byte, 1, id);
    }
    if (text != NULL) {
        return vocabulary_line(at, text, strlen(text), id);
    }
    const unsigned char filler[] = {0xFF, 0xFE, (unsigned char)(0x80 | id >> 14),
                                    (unsigned char)(0x80 | (id >> 7 & 0x7F)),
                                    (unsigned char)(0x80 | (id & 0x7F)), 0xFF};
    return vocabulary_line(at, filler, sizeof filler, id);
}

void kimi_write(const char *path)
{
    char *text = malloc((size_t)KIMI_TOKENS * LINE_BYTES), *at = text;
    if (text == NULL) {
        abort();
    }
    for (uint32_t id = 0; id < KIMI_TOKENS; id++) {
        at = write_token(at, id);
    }
    FILE *file = fopen(path, "wb");
    size_t size = (size_t)(at - text);
    if (file == NULL || fwrite(text, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        abort();
    }
    free(text);
}

const char *kimi_join(const uint32_t *ids, size_t count)
{
    static char joined[2][JOINED_BYTES];
    static int turn;
    char *text = joined[turn ^= 1];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count && used + 16 < JOINED_BYTES; i++) {
        used += (size_t)snprintf(text + used, JOINED_BYTES - used, "%s%u", i > 0 ? "," : "",
                                 ids[i]);
    }
    return text;
}
