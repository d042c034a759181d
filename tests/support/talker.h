/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_TALKER_H
#define TESTS_SUPPORT_TALKER_H

/* The tiny model with a vocabulary for conversations: the 256 single bytes and the added tokens,
 * tiktoken.model beside the weights. */

#include "tests/support/tiny.h"

#define TALKER_VOCABULARY 512U
#define TALKER_ADDED 256U /* the first added token */

/* Random weights: it babbles. */
void talker_make(struct tiny *model, enum tiny_place place);

/* After `sep` it says text, each byte following from the one before (none twice), and ends with
 * [EOS], or says it for ever. Nothing else moves it. */
void talker_scripted(struct tiny *model, enum tiny_place place, const char *text, bool for_ever);

#endif
