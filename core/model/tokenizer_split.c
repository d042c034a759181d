/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/model/tokenizer_split.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/utf8.h"

/* Sets of characters. General categories divide all characters, so the intersection of a union of
 * them with "not Han" is what is left without the others and without Han: one class that needs no
 * look-ahead and takes no memory to step back in. sc: asks for the script itself; \p{Han} alone
 * would be PCRE2's wider one, of all that is used with Han. */
#define HAN "\\p{sc:Han}"
#define NO_LETTER "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}" HAN
#define UPPER "[^\\p{Ll}" NO_LETTER "]"         /* Lu Lt Lm Lo M, not Han */
#define LOWER "[^\\p{Lu}\\p{Lt}" NO_LETTER "]"  /* Ll Lm Lo M, not Han */
#define SPACE "\\t-\\r \\x{85}\\p{Z}"           /* White_Space; PCRE2's \s has U+180E as well */
#define PREFIX "[^\\r\\n\\p{L}\\p{N}]?"
#define ENDING "(?i:'(?:[stmd]|re|ve|ll))?+"

/* Alternatives in this order, each as long as it can be. A quantifier that could never give
 * anything back for a match is possessive. */
static const char pattern[] =
    "[" HAN "]++"
    "|" PREFIX UPPER "*" LOWER "++" ENDING
    "|" PREFIX UPPER "++" LOWER "*+" ENDING
    "|\\p{N}{1,3}+"
    "| ?+[^" SPACE "\\p{L}\\p{N}]++[\\r\\n]*+"
    "|[" SPACE "]*[\\r\\n]++"
    "|[" SPACE "]+(?![^" SPACE "])"
    "|[" SPACE "]++";

/* Matching needs a few steps per byte and next to no memory; these only end what cannot happen. */
#define MATCH_LIMIT 0x7FFFFFFFU
#define HEAP_LIMIT_KIB (1U << 20)

/* Stands for a byte that belongs to no character: a control character, of one byte. */
#define STRAY_BYTE 0x01

struct splitter {
    pcre2_code *code;
    pcre2_match_context *limits;
    bool jit;
};

static int pcre2_failed(const char *what, int error)
{
    char reason[128] = "";
    pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof reason);
    return err_set(error == PCRE2_ERROR_NOMEMORY ? ERR_MEMORY : ERR_RUN,
                   "the pattern that splits text %s: PCRE2 says %s", what, reason);
}

int splitter_open(bool machine_code, struct splitter **out)
{
    struct splitter *s = calloc(1, sizeof *s);
    int error;
    PCRE2_SIZE at;
    if (s == NULL) {
        return err_set(ERR_MEMORY, "no memory for the pattern that splits text");
    }
    s->code = pcre2_compile((PCRE2_SPTR)pattern, sizeof pattern - 1,
                            PCRE2_UTF | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                            NULL);
    s->limits = pcre2_match_context_create(NULL);
    if (s->code == NULL || s->limits == NULL) {
        int rc = pcre2_failed("cannot be compiled",
                              s->code == NULL ? error : PCRE2_ERROR_NOMEMORY);
        splitter_close(s);
        return rc;
    }
    pcre2_set_match_limit(s->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(s->limits, MATCH_LIMIT);
    pcre2_set_heap_limit(s->limits, HEAP_LIMIT_KIB);
    /* Refused where memory must not be both written and run. */
    s->jit = machine_code && pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE) == 0;
    *out = s;
    return 0;
}

void splitter_close(struct splitter *splitter)
{
    if (splitter != NULL) {
        pcre2_match_context_free(splitter->limits);
        pcre2_code_free(splitter->code);
        free(splitter);
    }
}

/* ---- slices ---- */

static inline bool is_space(uint32_t code)
{
    if (code < 0x80) {
        return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20);
    }
    return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
           code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool split_is_space(uint32_t code)
{
    return is_space(code);
}

/* The character at text, stray bytes included. */
static inline size_t step(const unsigned char *text, size_t size_bytes, uint32_t *code)
{
    if (text[0] < 0x80) {
        *code = text[0];
        return 1;
    }
    size_t bytes = utf8_read(text, size_bytes, code);
    if (bytes == 0) {
        *code = STRAY_BYTE;
        return 1;
    }
    return bytes;
}

/* How many bytes from text on are ASCII, in steps of eight. */
static size_t ascii_bytes(const unsigned char *text, size_t size_bytes)
{
    size_t at = 0;
    uint64_t word;
    while (at + sizeof word <= size_bytes) {
        memcpy(&word, text + at, sizeof word);
        if ((word & 0x8080808080808080U) != 0) {
            break;
        }
        at += sizeof word;
    }
    return at;
}

size_t split_cut(const unsigned char *text, size_t size_bytes)
{
    size_t at = 0;
    for (uint32_t i = 0; i < SPLIT_CUT_CHARACTERS && at < size_bytes; i++) {
        uint32_t code;
        at += step(text + at, size_bytes - at, &code);
    }
    return at;
}

int split_start(struct split *split, const struct splitter *splitter, const void *text,
                size_t size_bytes)
{
    *split = (struct split){.splitter = splitter, .text = text, .size_bytes = size_bytes};
    split->match = pcre2_match_data_create(1, NULL);
    return split->match != NULL ? 0 : err_set(ERR_MEMORY, "no memory to split text");
}

void split_end(struct split *split)
{
    pcre2_match_data_free(split->match);
    free(split->plain);
    *split = (struct split){.text = NULL};
}

/* The end of the slice that begins at begin_bytes. */
static size_t find_end(struct split *split)
{
    size_t at = split->begin_bytes;
    uint32_t run = 0;
    bool in_space = false;
    while (at < split->size_bytes && split->cut_left > 0) {
        uint32_t code;
        size_t bytes = step(split->text + at, split->size_bytes - at, &code);
        bool space = is_space(code);
        run = space == in_space ? run + 1 : 1;
        in_space = space;
        if (run > SPLIT_RUN_CHARACTERS) {
            break;
        }
        at += bytes;
        split->cut_left--;
    }
    return at;
}

/* Copies the slice, with the stand-ins the pattern needs. */
static void make_plain(struct split *split)
{
    size_t size = split->end_bytes - split->begin_bytes;
    unsigned char *plain = split->plain;
    memcpy(plain, split->text + split->begin_bytes, size);
    for (size_t at = ascii_bytes(plain, size); at < size;) {
        uint32_t code;
        if (plain[at] < 0x80) {
            at += 1 + ascii_bytes(plain + at + 1, size - at - 1);
            continue;
        }
        size_t bytes = step(plain + at, size - at, &code);
        utf8_write(plain + at, bytes, split_stand_in(code));
        at += bytes;
    }
}

int split_slice(struct split *split)
{
    if (split->end_bytes == split->size_bytes) {
        return 0;
    }
    split->begin_bytes = split->end_bytes;
    split->cut_left = split->cut_left > 0 ? split->cut_left : SPLIT_CUT_CHARACTERS;
    split->end_bytes = find_end(split);
    size_t size = split->end_bytes - split->begin_bytes;
    if (size > split->plain_capacity) {
        free(split->plain);
        split->plain_capacity = size;
        split->plain = malloc(size);
        if (split->plain == NULL) {
            split->plain_capacity = 0;
            return err_set(ERR_MEMORY, "no memory to split text");
        }
    }
    make_plain(split);
    return 1;
}

/* ---- pieces ---- */

/* Most pieces of most text: small ASCII letters, a space before them or not, and behind them the
 * end or another ASCII character but the apostrophe. By the second alternative that is a piece,
 * whatever follows; it is not worth a call. 0 when the text is anything else. */
static size_t plain_word(const unsigned char *text, size_t size_bytes)
{
    size_t begin = text[0] == ' ', at = begin;
    while (at < size_bytes && text[at] >= 'a' && text[at] <= 'z') {
        at++;
    }
    bool ends = at == size_bytes || (text[at] < 0x80 && text[at] != '\'');
    return at > begin && ends ? at : 0;
}

int split_piece(struct split *split, size_t begin_bytes, size_t limit_bytes, size_t *end_bytes)
{
    const struct splitter *s = split->splitter;
    PCRE2_SPTR plain = split->plain + (begin_bytes - split->begin_bytes);
    size_t size = limit_bytes - begin_bytes;
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    assert(begin_bytes >= split->begin_bytes && begin_bytes < limit_bytes &&
           limit_bytes <= split->end_bytes);
    size_t word = plain_word(plain, size);
    if (word > 0) {
        *end_bytes = begin_bytes + word;
        return 0;
    }
    if (s->jit) {
        rc = pcre2_jit_match(s->code, plain, size, 0, 0, split->match, s->limits);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(s->code, plain, size, 0, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, split->match,
                         s->limits);
    }
    if (rc < 0) {
        return pcre2_failed("failed", rc);
    }
    size_t taken = pcre2_get_ovector_pointer(split->match)[1];
    assert(taken > 0 && taken <= size);
    *end_bytes = begin_bytes + taken;
    return 0;
}
