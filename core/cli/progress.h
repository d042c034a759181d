/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

/* One line on a terminal that is rewritten in place: what, bytes of bytes, rate, time left. In a
 * pipe or a file it prints nothing, but for one line when the drive is slow. */

#include "core/base/base.h"

struct progress {
    const char *what;      /* "reading", "writing" */
    bool terminal, quiet;
    bool told_slow;
    uint64_t begun_ns, shown_ns;
    bool shown;            /* a line is on the screen */
};

/* quiet: never show anything. */
void progress_begin(struct progress *p, const char *what, bool quiet);
/* detail may be NULL. total_bytes 0 = unknown. Shows at most five lines a second. */
void progress_show(struct progress *p, uint64_t done_bytes, uint64_t total_bytes,
                   const char *detail);
/* Says once, also in a pipe, how long a pass takes when that is minutes: total_bytes are those of
 * so many passes. */
void progress_slow(struct progress *p, uint64_t done_bytes, uint64_t total_bytes, uint32_t passes);
/* Clears the line, so that other output starts on a clean one. */
void progress_clear(struct progress *p);

#endif
