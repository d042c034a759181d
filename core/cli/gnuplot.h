/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_GNUPLOT_H
#define CLI_GNUPLOT_H

/* gnuplot as a child process, started without a shell. */

#include "core/base/base.h"

enum gnuplot_end {
    GNUPLOT_DRAWN,
    GNUPLOT_MISSING, /* not on the path */
    GNUPLOT_FAILED
};

/* Runs script, a file of dir, in dir, with the gnuplot variable part set to part (no quotes in
 * it). The user's own gnuplot settings are not read. After GNUPLOT_FAILED said holds the line in
 * which gnuplot, or the system, told why. */
enum gnuplot_end gnuplot_run(const char *dir, const char *script, const char *part, char *said,
                             size_t said_bytes);

#endif
