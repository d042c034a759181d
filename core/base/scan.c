/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/scan.h"

#include <string.h>

#include "core/base/json.h"

#define SAVE_IT "; save it as UTF-8 without a byte order mark"

const char *scan_encoding(const char *text, size_t size_bytes)
{
    if (size_bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        return "the text begins with a byte order mark" SAVE_IT;
    }
    bool wide = size_bytes >= 2 && (memcmp(text, "\xFF\xFE", 2) == 0 ||
                                    memcmp(text, "\xFE\xFF", 2) == 0);
    bool low = size_bytes >= 4 && text[0] != '\0' && text[1] == '\0' && text[2] != '\0' &&
               text[3] == '\0';
    bool high = size_bytes >= 4 && text[0] == '\0' && text[1] != '\0' && text[2] == '\0' &&
                text[3] != '\0';
    return wide || low || high ? "the text is UTF-16" SAVE_IT : NULL;
}

static bool fault(struct scan *scan, const char *what)
{
    if (scan->fault == NULL) {
        /* UTF-16 without a mark fails at the zero byte behind a bracket. */
        const char *encoding = scan_offset(scan) <= 1 ? scan_encoding(scan->begin,
                                                        (size_t)(scan->end - scan->begin)) : NULL;
        scan->fault = encoding != NULL ? encoding : what;
    }
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

char scan_peek(struct scan *scan)
{
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t' ||
                                    *scan->at == '\r')) {
        scan->at++;
    }
    return scan->at < scan->end && scan->fault == NULL ? *scan->at : '\0';
}

bool scan_take(struct scan *scan, char c)
{
    if (scan_peek(scan) != c || scan->at == scan->end || scan->fault != NULL) {
        return false;
    }
    scan->at++;
    return true;
}

bool scan_expect(struct scan *scan, char c)
{
    if (scan_take(scan, c)) {
        return true;
    }
    switch (c) {
    case '{':
        return fault(scan, "an object was expected");
    case '[':
        return fault(scan, "a list was expected");
    case '"':
        return fault(scan, "a string was expected");
    case ':':
        return fault(scan, "a colon was expected");
    default:
        return fault(scan, "a comma or a closing bracket was expected");
    }
}

bool scan_next(struct scan *scan, char close, bool *first)
{
    if (*first) {
        *first = false;
        return scan->fault == NULL && !scan_take(scan, close);
    }
    return scan_take(scan, ',') || (!scan_take(scan, close) && scan_expect(scan, ','));
}

/* Four hexadecimal digits at scan->at, or -1. */
static int32_t take_hex(struct scan *scan)
{
    if (scan->end - scan->at < 4) {
        return -1;
    }
    int32_t code = 0;
    for (int i = 0; i < 4; i++) {
        const char c = *scan->at++;
        const int32_t lower = c | 0x20;
        if (is_digit(c)) {
            code = code * 16 + (c - '0');
        } else if (lower >= 'a' && lower <= 'f') {
            code = code * 16 + (lower - 'a' + 10);
        } else {
            return -1;
        }
    }
    return code;
}

static size_t encode_utf8(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = code < 0x20 || code == 0x7F ? '?' : (char)code;
        return 1;
    }
    const size_t extra = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    const uint32_t lead = extra == 1 ? 0xC0 : extra == 2 ? 0xE0 : 0xF0;
    out[0] = (char)(lead | (code >> (6 * extra)));
    for (size_t i = 1; i <= extra; i++) {
        out[i] = (char)(0x80 | ((code >> (6 * (extra - i))) & 0x3F));
    }
    return extra + 1;
}

/* The rest of a \u escape, a second one included where the first is half of a pair. */
static size_t take_unicode(struct scan *scan, char out[4])
{
    int32_t code = take_hex(scan);
    if (code >= 0xD800 && code < 0xDC00 && scan->end - scan->at >= 2 && scan->at[0] == '\\' &&
        scan->at[1] == 'u') {
        scan->at += 2;
        const int32_t low = take_hex(scan);
        code = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                                             : -1;
    }
    if (code <= 0 || (code >= 0xD800 && code < 0xE000)) {
        fault(scan, "an escape denotes no character");
        return 0;
    }
    return encode_utf8((uint32_t)code, out);
}

/* What follows a backslash. Returns bytes written to out, 0 with a fault. */
static size_t take_escape(struct scan *scan, char out[4])
{
    const char c = scan->at < scan->end ? *scan->at++ : '\0';
    switch (c) {
    case 'u':
        return take_unicode(scan, out);
    case '"':
    case '\\':
    case '/':
        out[0] = c;
        return 1;
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        out[0] = '?';
        return 1;
    default:
        fault(scan, "an unknown escape in a string");
        return 0;
    }
}

/* The body of a string whose quote has been taken, up to and with the closing quote.
 * text may be NULL: then the string is only checked. */
static bool take_string(struct scan *scan, char *text, size_t capacity_bytes)
{
    size_t used = 0;
    while (scan->at < scan->end && *scan->at != '"') {
        char piece[4] = {*scan->at};
        size_t size = 1;
        if ((unsigned char)*scan->at < 0x20) {
            return fault(scan, "a control byte in a string");
        }
        scan->at++;
        if (piece[0] == '\\') {
            size = take_escape(scan, piece);
        }
        if (size == 0) {
            return false;
        }
        if (text != NULL) {
            if (used + size >= capacity_bytes) {
                return fault(scan, "a string is too long");
            }
            memcpy(text + used, piece, size);
        }
        used += size;
    }
    if (scan->at == scan->end) {
        return fault(scan, "the text ends inside a string");
    }
    scan->at++;
    if (text != NULL) {
        text[used] = '\0';
    }
    return true;
}

/* Bit 7 of each byte of the result is set where that byte of word equals c; bits above the first
 * such byte may be set as well. */
static uint64_t bytes_equal(uint64_t word, unsigned char c)
{
    const uint64_t ones = UINT64_MAX / 0xFF;
    const uint64_t zero_where_equal = word ^ (ones * c);
    return (zero_where_equal - ones) & ~zero_where_equal & (ones * 0x80);
}

/* How many bytes from at on stand for themselves: up to a quote, a backslash or a control byte.
 * Eight at a time, for half a million names at open. */
static size_t plain_length(const char *at, const char *end)
{
    const uint64_t ones = UINT64_MAX / 0xFF;
    const char *start = at;
    while (end - at >= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        const uint64_t control = (word - ones * 0x20) & ~word & (ones * 0x80);
        if ((control | bytes_equal(word, '"') | bytes_equal(word, '\\')) != 0) {
            break; /* the loop below finds where */
        }
        at += 8;
    }
    while (at < end && *at != '"' && *at != '\\' && (unsigned char)*at >= 0x20) {
        at++;
    }
    return (size_t)(at - start);
}

bool scan_string(struct scan *scan, char *text, size_t capacity_bytes)
{
    assert(capacity_bytes > 0);
    text[0] = '\0';
    if (!scan_expect(scan, '"')) {
        return false;
    }
    /* Names hold no escapes as a rule: then one copy does. */
    const size_t size = plain_length(scan->at, scan->end);
    const char *stop = scan->at + size;
    if (stop == scan->end || *stop != '"' || size >= capacity_bytes) {
        return take_string(scan, text, capacity_bytes);
    }
    memcpy(text, scan->at, size);
    text[size] = '\0';
    scan->at = stop + 1;
    return true;
}

bool scan_key(struct scan *scan, char *text, size_t capacity_bytes)
{
    return scan_string(scan, text, capacity_bytes) && scan_expect(scan, ':');
}

bool scan_u64(struct scan *scan, uint64_t *value)
{
    const char first = scan_peek(scan);
    const char *start = scan->at;
    uint64_t sum = 0;
    while (scan->fault == NULL && scan->at < scan->end && is_digit(*scan->at)) {
        const uint64_t digit = (uint64_t)(*scan->at - '0');
        if (sum > (UINT64_MAX - digit) / 10) {
            return fault(scan, "a number exceeds 64 bits");
        }
        sum = sum * 10 + digit;
        scan->at++;
    }
    const char next = scan->at < scan->end ? *scan->at : ',';
    const bool ends = next != '.' && next != 'e' && next != 'E' && next != '+' && next != '-';
    if (scan->at == start || !ends || (first == '0' && scan->at - start > 1)) {
        return fault(scan, "a whole number was expected");
    }
    *value = sum;
    return true;
}

static bool skip_digits(struct scan *scan)
{
    const char *start = scan->at;
    while (scan->at < scan->end && is_digit(*scan->at)) {
        scan->at++;
    }
    return scan->at > start || fault(scan, "a digit was expected");
}

/* Takes one of two bytes if it comes next. */
static bool take_either(struct scan *scan, char a, char b)
{
    if (scan->at < scan->end && (*scan->at == a || *scan->at == b)) {
        scan->at++;
        return true;
    }
    return false;
}

static bool skip_number(struct scan *scan)
{
    const char *start = scan->at;
    bool whole = !take_either(scan, '-', '-');
    const char *digits = scan->at;
    if (!skip_digits(scan)) {
        return false;
    }
    if (*digits == '0' && scan->at - digits > 1) {
        return fault(scan, "a number begins with 0");
    }
    if (take_either(scan, '.', '.')) {
        whole = false;
        if (!skip_digits(scan)) {
            return false;
        }
    }
    if (take_either(scan, 'e', 'E')) {
        whole = false;
        take_either(scan, '+', '-');
        if (!skip_digits(scan)) {
            return false;
        }
    }
    if (scan->integers_only && !whole) {
        scan->at = start;
        return fault(scan, "a number has a sign, fraction or exponent");
    }
    return true;
}

static bool skip_word(struct scan *scan)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < countof(words); i++) {
        const size_t length = strlen(words[i]);
        if ((size_t)(scan->end - scan->at) >= length && memcmp(scan->at, words[i], length) == 0) {
            scan->at += length;
            return true;
        }
    }
    return fault(scan, "a value was expected");
}

/* Anything that is neither an object nor a list. */
static bool skip_scalar(struct scan *scan)
{
    const char c = scan_peek(scan);
    if (c == '"') {
        scan->at++;
        return take_string(scan, NULL, 0);
    }
    return c == '-' || is_digit(c) ? skip_number(scan) : skip_word(scan);
}

static bool skip_key(struct scan *scan)
{
    return scan_expect(scan, '"') && take_string(scan, NULL, 0) && scan_expect(scan, ':');
}

bool scan_skip(struct scan *scan)
{
    char close[JSON_DEPTH_MAX]; /* of each open bracket */
    bool first = false;         /* nothing yet inside the innermost bracket */
    size_t depth = 0;
    do {
        if (depth > 0) {
            if (!scan_next(scan, close[depth - 1], &first)) {
                depth--;
                continue;
            }
            if (close[depth - 1] == '}' && !skip_key(scan)) {
                return false;
            }
        }
        const char c = scan_peek(scan);
        if (c != '{' && c != '[') {
            if (!skip_scalar(scan)) {
                return false;
            }
            continue;
        }
        if (depth == JSON_DEPTH_MAX) {
            return fault(scan, "brackets are nested too deep");
        }
        scan->at++;
        close[depth++] = c == '{' ? '}' : ']';
        first = true;
    } while (depth > 0 && scan->fault == NULL);
    return scan->fault == NULL;
}

bool scan_finish(struct scan *scan)
{
    scan_peek(scan);
    if (scan->at < scan->end) {
        return fault(scan, "something follows the value");
    }
    return scan->fault == NULL;
}
