/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_BENCH_REPORT_H
#define TESTS_SUPPORT_BENCH_REPORT_H

/* Reports of `k3ring bench`, looked at by tests. What is missing fails the test. */

#include <cjson/cJSON.h>

/* The last command ended with a verdict: valid, or refused. */
void report_expect(void);

cJSON *report_read(const char *path); /* cJSON_Delete() it */

const cJSON *member(const cJSON *object, const char *name);
double member_number(const cJSON *object, const char *name);

#endif
