/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_KIMI_H
#define TESTS_SUPPORT_KIMI_H

/* A tiktoken.model of the size of Kimi K3's in which the tokens of published id lists have their
 * published ids. Single bytes are where they belong; the rest is filler that no text makes. A word
 * of several tokens needs merges on the way: these have ids from 256 on, which no list has. */

#include "core/base/base.h"

#define KIMI_TOKENS 163584U /* before the added ones */

void kimi_write(const char *path);

/* A list of ids as text, separated by commas; static, valid until the next call but one. */
const char *kimi_join(const uint32_t *ids, size_t count);

#endif
