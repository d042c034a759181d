/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_COMMAND_H
#define TESTS_SUPPORT_COMMAND_H

/* k3ring run to its end, and what is said of how it ended. The test makes `folder` before the first
 * command and removes it at the end. */

#include "tests/support/process.h"
#include "tests/support/tiny.h"

extern struct process process; /* the last command */
extern struct tiny folder;     /* its outputs are caught here */

#define k3ring(...)                                                                               \
    do {                                                                                          \
        process_start(&process, folder.dir, process_binary(), __VA_ARGS__);                       \
        process_wait(&process);                                                                   \
    } while (0)

/* part, unless NULL, is in what it said on standard error. */
void expect(int status, const char *part);
/* And that was one line of k3ring, with nothing on standard output. */
void expect_refusal(int status, const char *part);

#endif
