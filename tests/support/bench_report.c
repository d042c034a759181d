/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/bench_report.h"

#include <check.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "tests/support/command.h"

/* Where the test's own drive is none (a container's /tmp in memory, say), figures are refused:
 * then too the report is whole. */
void report_expect(void)
{
    ck_assert_msg(process.status == 0 || process.status == 5, "%d: %s", process.status,
                  process.err);
}

cJSON *report_read(const char *path)
{
    FILE *file = fopen(path, "re");
    ck_assert_msg(file != NULL, "%s is not there: %s", path, process.err);
    static char text[1 << 20];
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    cJSON *root = json_parse(text, size, "report", false);
    ck_assert_msg(root != NULL, "%s", err_message());
    return root;
}

const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    ck_assert_msg(item != NULL, "no member %s", name);
    return item;
}

double member_number(const cJSON *object, const char *name)
{
    const cJSON *item = member(object, name);
    ck_assert_msg(cJSON_IsNumber(item), "%s is no number", name);
    return cJSON_GetNumberValue(item);
}
