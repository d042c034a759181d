/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_TEXT_LIMIT_H
#define CLI_TEXT_LIMIT_H

/* How long a text may be that a command takes whole. What it becomes in memory has to stay well
 * below the ceiling, and what is never to fit into a context need not be read to its end. One rule
 * for all commands; what is no longer than TEXT_LIMIT_LEAST is never refused by it. */

#include "core/base/base.h"

#define TEXT_LIMIT_LEAST (256 * KIB)

enum text_kind {
    TEXT_PLAIN, /* is encoded: a sixteenth of the memory, 256 MiB at most */
    TEXT_JSON,  /* becomes a tree: a 64th of the memory */
    TEXT_LINES  /* a file of many texts that is kept: half of the memory */
};

struct text_limit {
    uint64_t bytes;     /* of the longest text that is taken */
    uint64_t ram_bytes; /* > 0: of the ceiling that is the reason */
    uint64_t positions; /* > 0: of the context that is the reason */
};

/* ram_bytes: what --ram says; 0 or OPTION_AUTO for what that comes to now. */
struct text_limit text_limit_of(enum text_kind kind, uint64_t ram_bytes);

/* Lowers it for text of which all has to fit into so many positions, of tokens of at most
 * token_bytes bytes. */
void text_limit_context(struct text_limit *limit, enum text_kind kind, uint64_t positions,
                        uint32_t token_bytes);

/* ERR_FIT for a text of size_bytes (0: longer than the limit, by how much is not known) that is
 * longer than the limit; otherwise 0. The message names it "called: name". */
int text_limit_check(const struct text_limit *limit, const char *called, const char *name,
                     uint64_t size_bytes);

#endif
