/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

/* One line on a terminal that is rewritten in place: what, bytes of bytes, rate, time left. In a
 * pipe, a file, or on a terminal without escape sequences it prints nothing, but for one line when
 * the drive is slow. */

#include <pthread.h>

#include "core/base/base.h"

struct progress_mark {
    uint64_t at_ns, bytes;
};

struct progress {
    const char *what;      /* "reading", "writing" */
    bool terminal, quiet;
    bool told_slow;
    uint64_t begun_ns, shown_ns;
    struct progress_mark older, newer; /* rates are of the 10 to 20 s since older */
    bool shown;            /* a line is on the screen */
    const char *waiting;   /* detail of the line that counts seconds; its thread and how it ends */
    pthread_t thread;
    int wake_fd;
    bool counting;
};

/* quiet: never show anything. */
void progress_begin(struct progress *p, const char *what, bool quiet);
/* detail may be NULL. total_bytes 0 = unknown. Shows at most five lines a second. */
void progress_show(struct progress *p, uint64_t done_bytes, uint64_t total_bytes,
                   const char *detail);
/* For work that cannot say how far it is: until progress_clear a line counts its seconds, so that
 * slow is not taken for hung. detail must last as long. */
void progress_wait(struct progress *p, const char *detail);
/* Says once, also in a pipe, how long a pass takes when that is minutes: total_bytes are those of
 * so many passes. For the first pass only: later ones find much in the cache. Its first ten seconds
 * are not judged, for memory is being made in them. */
void progress_slow(struct progress *p, uint64_t done_bytes, uint64_t total_bytes, uint32_t passes);
/* Clears the line, so that other output starts on a clean one. */
void progress_clear(struct progress *p);

#endif
