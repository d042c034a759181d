/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_PIECES_H
#define TESTS_SUPPORT_PIECES_H

/* A second opinion on how text falls into pieces: written from the description of the pattern,
 * character by character, without a regular expression. Only what a character is comes from PCRE2,
 * one property at a time. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a character is. */
enum {
    PIECES_HAN = 1,    /* by script */
    PIECES_UPPER = 2,  /* Lu Lt */
    PIECES_LOWER = 4,  /* Ll */
    PIECES_LETTER = 8, /* Lm Lo */
    PIECES_MARK = 16,
    PIECES_NUMBER = 32,
    PIECES_SPACE = 64  /* White_Space */
};

#define PIECES_CODES 0x110000U

/* Fills the table of all characters; aborts when PCRE2 fails. Once per process. */
void pieces_learn(void);
/* Of a code below PIECES_CODES, as this PCRE2 has it. */
uint8_t pieces_class(uint32_t code);

/* Characters of the piece at codes[0]; count > 0. class gives what a character is. */
size_t pieces_next(const uint32_t *codes, size_t count, uint8_t (*class)(uint32_t code));

#endif
