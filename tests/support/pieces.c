/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tests/support/pieces.h"

#include <pcre2.h>
#include <stdlib.h>

#define LETTERS (PIECES_UPPER | PIECES_LOWER | PIECES_LETTER)

static uint8_t classes[PIECES_CODES];

/* ---- what a character is ---- */

static size_t write_code(uint32_t code, unsigned char text[4])
{
    size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = size; i-- > 1; code >>= 6) {
        text[i] = (unsigned char)(0x80 | (code & 63));
    }
    text[0] = (unsigned char)(lead[size] | code);
    return size;
}

static void learn_one(const char *property, uint8_t bit)
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)property, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_ANCHORED, &error, &at, NULL);
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (code == NULL || match == NULL) {
        abort();
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    for (uint32_t c = 0; c < PIECES_CODES; c++) {
        unsigned char text[4];
        if (c < 0xD800 || c > 0xDFFF) {
            size_t size = write_code(c, text);
            classes[c] |= pcre2_match(code, text, size, 0, PCRE2_NO_UTF_CHECK, match, NULL) > 0
                              ? bit : 0;
        }
    }
    pcre2_match_data_free(match);
    pcre2_code_free(code);
}

void pieces_learn(void)
{
    static const struct {
        const char *property;
        uint8_t bit;
    } rows[] = {{"\\p{sc:Han}", PIECES_HAN}, {"\\p{Lu}", PIECES_UPPER}, {"\\p{Lt}", PIECES_UPPER},
                {"\\p{Ll}", PIECES_LOWER}, {"\\p{Lm}", PIECES_LETTER}, {"\\p{Lo}", PIECES_LETTER},
                {"\\p{M}", PIECES_MARK}, {"\\p{N}", PIECES_NUMBER},
                {"\\p{White_Space}", PIECES_SPACE}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        learn_one(rows[i].property, rows[i].bit);
    }
}

uint8_t pieces_class(uint32_t code)
{
    return classes[code];
}

/* ---- pieces ---- */

/* A text whose characters are known. */
struct view {
    const uint32_t *code;
    size_t count;
    uint8_t (*class)(uint32_t code);
};

static bool is(const struct view *v, size_t at, uint8_t bits)
{
    return at < v->count && (v->class(v->code[at]) & bits) != 0;
}

static bool is_break(const struct view *v, size_t at)
{
    return at < v->count && (v->code[at] == '\r' || v->code[at] == '\n');
}

static bool in_first_set(const struct view *v, size_t at)
{
    return is(v, at, PIECES_UPPER | PIECES_LETTER | PIECES_MARK) && !is(v, at, PIECES_HAN);
}

static bool in_second_set(const struct view *v, size_t at)
{
    return is(v, at, PIECES_LOWER | PIECES_LETTER | PIECES_MARK) && !is(v, at, PIECES_HAN);
}

/* 's 't 're 've 'm 'll 'd, in any case; U+017F is an s. */
static size_t ending(const struct view *v, size_t at)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0] && at < v->count; i++) {
        size_t k = 0;
        while (v->code[at] == '\'' && endings[i][k] != '\0' && at + 1 + k < v->count) {
            uint32_t c = v->code[at + 1 + k], small = (uint32_t)endings[i][k];
            if (c != small && c != small - 32 && !(c == 0x17F && small == 's')) {
                break;
            }
            k++;
        }
        if (k > 0 && endings[i][k] == '\0') {
            return k + 1;
        }
    }
    return 0;
}

/* The longest run of the first set from at, given back until one of the second follows. */
static size_t lower_word(const struct view *v, size_t at)
{
    size_t stop = at;
    while (in_first_set(v, stop)) {
        stop++;
    }
    while (!in_second_set(v, stop)) {
        if (stop == at) {
            return 0;
        }
        stop--;
    }
    while (in_second_set(v, stop)) {
        stop++;
    }
    return stop;
}

static size_t upper_word(const struct view *v, size_t at)
{
    size_t stop = at;
    while (in_first_set(v, stop)) {
        stop++;
    }
    if (stop == at) {
        return 0;
    }
    while (in_second_set(v, stop)) {
        stop++;
    }
    return stop;
}

static size_t word(const struct view *v)
{
    bool prefix = !is_break(v, 0) && !is(v, 0, LETTERS | PIECES_NUMBER);
    size_t stop = prefix ? lower_word(v, 1) : 0;
    stop = stop == 0 ? lower_word(v, 0) : stop;
    stop = stop == 0 && prefix ? upper_word(v, 1) : stop;
    stop = stop == 0 ? upper_word(v, 0) : stop;
    return stop > 0 ? stop + ending(v, stop) : 0;
}

static size_t signs(const struct view *v)
{
    size_t begin = v->code[0] == ' ' ? 1 : 0, stop = begin;
    while (stop < v->count && !is(v, stop, PIECES_SPACE | LETTERS | PIECES_NUMBER)) {
        stop++;
    }
    if (stop == begin) {
        return 0;
    }
    while (is_break(v, stop)) {
        stop++;
    }
    return stop;
}

static size_t blank(const struct view *v)
{
    size_t run = 0, last_break = 0;
    while (is(v, run, PIECES_SPACE)) {
        run++;
        last_break = is_break(v, run - 1) ? run : last_break;
    }
    if (last_break > 0) {
        return last_break;
    }
    return run == v->count || run == 1 ? run : run - 1;
}

size_t pieces_next(const uint32_t *codes, size_t count, uint8_t (*class)(uint32_t code))
{
    const struct view v = {codes, count, class};
    size_t stop = 0;
    while (is(&v, stop, PIECES_HAN)) {
        stop++;
    }
    stop = stop == 0 ? word(&v) : stop;
    for (size_t i = 0; stop == i && i < 3 && is(&v, i, PIECES_NUMBER); i++) {
        stop = i + 1;
    }
    stop = stop == 0 ? signs(&v) : stop;
    return stop == 0 ? blank(&v) : stop;
}
