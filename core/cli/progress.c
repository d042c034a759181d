/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "core/base/nondet.h"

#define INTERVAL_NS 200000000ULL
#define SLOW_AFTER_SECONDS 10.0 /* before, the rate says little */
#define SLOW_PASS_SECONDS 120.0

void progress_begin(struct progress *p, const char *what, bool quiet)
{
    *p = (struct progress){.what = what, .quiet = quiet,
                           .terminal = !quiet && isatty(STDERR_FILENO) == 1};
    p->begun_ns = nondet_now_ns();
}

void progress_show(struct progress *p, uint64_t done_bytes, uint64_t total_bytes,
                   const char *detail)
{
    uint64_t now = nondet_now_ns();
    if (!p->terminal || (p->shown_ns != 0 && now - p->shown_ns < INTERVAL_NS)) {
        return;
    }
    p->shown = true;
    p->shown_ns = now;
    double seconds = (double)(now - p->begun_ns) / 1e9;
    double rate = seconds > 0 ? (double)done_bytes / seconds : 0;
    fprintf(stderr, "\r\033[K%s%s%s: %.2f", p->what, detail != NULL ? ", " : "",
            detail != NULL ? detail : "", (double)done_bytes / 1e9);
    if (total_bytes > 0) {
        fprintf(stderr, " of %.2f", (double)total_bytes / 1e9);
    }
    fprintf(stderr, " GB, %.2f GB/s", rate / 1e9);
    if (rate > 0 && total_bytes > done_bytes) {
        fprintf(stderr, ", %.0f s left", (double)(total_bytes - done_bytes) / rate);
    }
    fflush(stderr);
}

void progress_clear(struct progress *p)
{
    if (p->shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        p->shown = false;
    }
}

void progress_slow(struct progress *p, uint64_t done_bytes, uint64_t total_bytes, uint32_t passes)
{
    double seconds = (double)(nondet_now_ns() - p->begun_ns) / 1e9;
    if (p->quiet || p->told_slow || seconds < SLOW_AFTER_SECONDS || done_bytes == 0 ||
        passes == 0) {
        return;
    }
    double rate = (double)done_bytes / seconds;
    double pass = (double)total_bytes / passes / rate;
    if (pass < SLOW_PASS_SECONDS) {
        return;
    }
    p->told_slow = true;
    progress_clear(p);
    fprintf(stderr, "k3ring: at %.3f GB/s a pass takes %.0f s; `k3ring doctor MODEL` tells what "
            "the drive gives and what would help\n", rate / 1e9, pass);
}
