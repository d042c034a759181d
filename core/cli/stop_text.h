/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_STOP_TEXT_H
#define CLI_STOP_TEXT_H

/* Texts that end an output when they appear in it, wherever tokens begin and end. What may be the
 * beginning of one is held back until it is known to be none, so that no part of it is shown. */

#include "core/cli/options.h"
#include "core/model/tokenizer.h"

struct stop_text {
    const struct option_list *texts; /* the caller's; none of them empty */
    struct byte_list held;           /* the beginning of a text, perhaps */
    const char *found;               /* the one that came first; NULL: none yet */
};

/* ERR_USAGE for an empty text. `name` is the option's. */
int stop_text_check(const char *name, const struct option_list *texts);

/* texts may be an empty list. */
void stop_text_start(struct stop_text *s, const struct option_list *texts);
void stop_text_fini(struct stop_text *s);

/* Appends to out what can be shown of held and bytes, and sets found when a text is complete: the
 * one that is complete first, of two that end together the longer one. What follows it is
 * dropped. Not to be called when one was found. ERR_MEMORY. */
int stop_text_push(struct stop_text *s, const unsigned char *bytes, size_t count,
                   struct byte_list *out);
/* Nothing more comes: appends what is held. */
int stop_text_end(struct stop_text *s, struct byte_list *out);

#endif
