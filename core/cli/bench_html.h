/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BENCH_HTML_H
#define CLI_BENCH_HTML_H

/* A benchmark as one page: verdict, report, pictures, environment. */

#include "core/cli/bench.h"

/* pictures: the folder bench_pictures() has written to. ERR_OUTPUT, ERR_MEMORY. */
int bench_html(const struct bench_result *result, const char *pictures, const char *path);
/* The same with pictures drawn in a folder of its own, which is removed again. */
int bench_html_alone(const struct bench_result *result, const char *path);

#endif
