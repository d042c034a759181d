/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_RETRY_H
#define BASE_RETRY_H

/* Asking again for what was refused for the moment: 16 times, with pauses from 10 microseconds to
 * 0.1 s, which are about half a second together. What is still refused then is an error: nothing
 * asks for ever. */

#include "core/base/base.h"

#define RETRY_MAX 16U

/* Before the retries-th repeat (from 1): twice as long each time. */
uint64_t retry_pause_ns(uint32_t retries);

/* True, after the pause, when error (an errno) is EINTR or EAGAIN and fewer than RETRY_MAX repeats
 * were made; *retries counts them and begins at 0. */
bool retry_after(int error, uint32_t *retries);

/* One more repeat was made, by whoever does not use retry_after(). Any thread. */
void retry_note(void);
/* Repeats of this process, those of reads through a struct io excepted. Any thread. */
uint64_t retry_total(void);

#endif
