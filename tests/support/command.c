/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/command.h"

#include <check.h>
#include <string.h>

struct process process;
struct tiny folder;

void expect(int status, const char *part)
{
    ck_assert_msg(process.status == status, "exit %d, expected %d; it said: %s", process.status,
                  status, process.err);
    ck_assert_msg(part == NULL || strstr(process.err, part) != NULL, "no \"%s\" in: %s", part,
                  process.err);
}

void expect_refusal(int status, const char *part)
{
    expect(status, part);
    ck_assert_str_eq(process.out, "");
    const char *end = strchr(process.err, '\n');
    ck_assert_msg(end != NULL && end[1] == '\0', "not one line: %s", process.err);
    ck_assert_msg(strncmp(process.err, "k3ring: ", 8) == 0, "%s", process.err);
}
