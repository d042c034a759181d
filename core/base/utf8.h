/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

/* UTF-8 as Unicode defines it: no surrogates, no overlong forms, nothing above U+10FFFF. Pure
 * functions over bytes that may be anything. */

#include "core/base/base.h"

/* Bytes of the character at text (1 to 4), or 0 when no well-formed one begins there. Its code
 * goes to *code, which a 0 leaves alone. size_bytes > 0. */
size_t utf8_read(const unsigned char *text, size_t size_bytes, uint32_t *code);

/* Bytes before the first that belongs to no character; size_bytes when there is none. */
size_t utf8_whole_bytes(const void *text, size_t size_bytes);

/* Whether all of text is well-formed; an empty one is. */
bool utf8_whole(const void *text, size_t size_bytes);

/* Puts '?' in the place of every byte of text that belongs to no character. */
void utf8_mend(char *text);

/* Bytes at the end of text (0 to 3) that begin a character and could be completed by more. */
size_t utf8_unfinished(const unsigned char *text, size_t size_bytes);

/* Bytes of the ill-formed sequence at text that one U+FFFD stands for: the longest beginning of a
 * character, at least 1. utf8_read() has returned 0 there. */
size_t utf8_bad_bytes(const unsigned char *text, size_t size_bytes);

/* Whether a terminal may be given code: no control character, none that turns the direction of
 * writing or breaks lines where nobody expects it, and none that is no character. */
bool utf8_harmless(uint32_t code);

/* Writes code, of which size_bytes must be the number of bytes in UTF-8. */
void utf8_write(unsigned char *text, size_t size_bytes, uint32_t code);

#endif
