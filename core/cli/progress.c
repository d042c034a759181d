/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/progress.h"

#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/nondet.h"
#include "core/base/thread.h"
#include "core/cli/terminal.h"

#define INTERVAL_NS 200000000ULL
#define MARK_NS 10000000000ULL
#define COUNT_MS 500
#define STACK_BYTES 65536
#define SLOW_PASS_SECONDS 120.0
#define SLOW_BYTES_PER_S 1e8 /* in GB two digits would not show it */

void progress_begin(struct progress *p, const char *what, bool quiet)
{
    *p = (struct progress){.what = what, .quiet = quiet,
                           .terminal = !quiet && isatty(STDERR_FILENO) == 1 &&
                                       terminal_escapes()};
    p->begun_ns = nondet_now_ns();
    p->older.at_ns = p->newer.at_ns = p->begun_ns;
}

/* Bytes per second of late: since the beginning they would tell of how a run began, and the time
 * left would be far off for long. */
static double recent_rate(struct progress *p, uint64_t now, uint64_t done_bytes)
{
    if (now - p->newer.at_ns >= MARK_NS) {
        p->older = p->newer;
        p->newer = (struct progress_mark){.at_ns = now, .bytes = done_bytes};
    }
    double seconds = (double)(now - p->older.at_ns) / 1e9;
    return seconds > 0 && done_bytes > p->older.bytes
               ? (double)(done_bytes - p->older.bytes) / seconds : 0;
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
    double rate = recent_rate(p, now, done_bytes);
    fprintf(stderr, "\r\033[K%s%s%s: %.2f", p->what, detail != NULL ? ", " : "",
            detail != NULL ? detail : "", (double)done_bytes / 1e9);
    if (total_bytes > 0) {
        fprintf(stderr, " of %.2f", (double)total_bytes / 1e9);
    }
    bool slow = rate > 0 && rate < SLOW_BYTES_PER_S;
    fprintf(stderr, " GB, %.2f %s/s", rate / (slow ? 1e6 : 1e9), slow ? "MB" : "GB");
    if (rate > 0 && total_bytes > done_bytes) {
        fprintf(stderr, ", %.0f s left", (double)(total_bytes - done_bytes) / rate);
    }
    fflush(stderr);
}

static void *count(void *argument)
{
    struct progress *p = argument;
    struct pollfd woken = {.fd = p->wake_fd, .events = POLLIN};
    do {
        double seconds = (double)(nondet_now_ns() - p->begun_ns) / 1e9;
        fprintf(stderr, "\r\033[K%s, %s: %.0f s", p->what, p->waiting, seconds);
        fflush(stderr);
    } while (poll(&woken, 1, COUNT_MS) == 0);
    return NULL;
}

/* Without a thread there is no line, and nothing else is lost. Signals are left to the others. */
void progress_wait(struct progress *p, const char *detail)
{
    if (!p->terminal || p->counting) {
        return;
    }
    p->waiting = detail;
    p->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (p->wake_fd < 0) {
        return;
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    p->counting = thread_create(&p->thread, &attributes, count, p) == 0;
    pthread_attr_destroy(&attributes);
    p->shown = p->counting;
    if (!p->counting) {
        close(p->wake_fd);
    }
}

void progress_clear(struct progress *p)
{
    if (p->counting) {
        eventfd_write(p->wake_fd, 1);
        pthread_join(p->thread, NULL);
        close(p->wake_fd);
        p->counting = false;
    }
    if (p->shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        p->shown = false;
    }
}

void progress_slow(struct progress *p, uint64_t done_bytes, uint64_t total_bytes, uint32_t passes)
{
    uint64_t now = nondet_now_ns();
    double rate = recent_rate(p, now, done_bytes);
    bool settled = p->older.at_ns != p->begun_ns && now - p->older.at_ns >= MARK_NS;
    if (p->quiet || p->told_slow || !settled || rate == 0 || passes == 0 ||
        (double)total_bytes / passes / rate < SLOW_PASS_SECONDS) {
        return;
    }
    p->told_slow = true;
    progress_clear(p);
    fprintf(stderr, "k3ring: at %.3f GB/s a pass takes %.0f s; `k3ring doctor MODEL` tells what "
            "the drive gives and what would help\n", rate / 1e9,
            (double)total_bytes / passes / rate);
}
