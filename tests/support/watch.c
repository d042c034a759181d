/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/watch.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIGNAL_TICK (SIGRTMAX - 1)
#define SIGNAL_STACK (SIGRTMAX - 2)
#define FRAMES_MAX 48
#define BUSY_PERCENT 1 /* of a processor: less is standing still, */
#define QUEUED_PERCENT 20 /* unless threads waited for a processor for so much of the time */
#define ANSWER_TRIES 50 /* of 10 ms: for a thread to show its stack */

static struct watch_limits limits = {
    .first_ms = 15000, .tick_ms = 5000, .still_ticks = 6, .ticks_max = 720};

static struct {
    const char *test;
    int loop;
    char note[256];
    timer_t timer;
    pid_t timer_of; /* the process that has it: a child has none */
    unsigned ticks, still;
    struct rusage used; /* at the last tick */
    int64_t queued_ns;
    atomic_uint answers;
} watch;

/* ---- all of this runs in signal handlers: nothing but what is safe there ---- */

static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static void say_number(long number)
{
    char digits[24];
    char *at = digits + sizeof digits - 1;
    *at = '\0';
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    say(at);
}

/* A small file of a thread in /proc. Returns its length, 0 when there is none. */
static size_t thread_file(const char *tid, const char *name, char *text, size_t text_bytes)
{
    char path[96] = "/proc/self/task/";
    strncat(path, tid, 20);
    strncat(path, "/", 2);
    strncat(path, name, 20);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, text_bytes - 1) : 0;
    if (fd >= 0) {
        close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

/* R, S, D, ..: the letter behind the name in its stat. */
static char thread_state(const char *tid)
{
    char text[256];
    thread_file(tid, "stat", text, sizeof text);
    const char *end = strrchr(text, ')');
    return end != NULL && end[1] == ' ' ? end[2] : '?';
}

struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

static void each_thread(void (*visit)(const char *tid, void *ctx), void *ctx)
{
    int fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _Alignas(8) char block[4096];
    long got;
    while (fd >= 0 && (got = syscall(SYS_getdents64, fd, block, sizeof block)) > 0) {
        for (long at = 0; at < got;) {
            const struct entry *entry = (const struct entry *)(const void *)(block + at);
            if (entry->name[0] >= '0' && entry->name[0] <= '9') {
                visit(entry->name, ctx);
            }
            at += entry->length;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void on_stack(int number)
{
    int saved = errno;
    void *frame[FRAMES_MAX];
    (void)number;
    backtrace_symbols_fd(frame, backtrace(frame, FRAMES_MAX), STDERR_FILENO);
    atomic_fetch_add(&watch.answers, 1);
    errno = saved;
}

static void show_thread(const char *tid, void *ctx)
{
    char text[256];
    unsigned before = atomic_load(&watch.answers);
    (void)ctx;
    say("  thread ");
    say(tid);
    say(" ");
    thread_file(tid, "comm", text, sizeof text);
    text[strcspn(text, "\n")] = '\0';
    say(text);
    say(", in system call ");
    thread_file(tid, "syscall", text, sizeof text);
    say(text[0] != '\0' ? text : "unknown\n");
    syscall(SYS_tgkill, getpid(), atoi(tid), SIGNAL_STACK);
    for (int i = 0; i < ANSWER_TRIES && atomic_load(&watch.answers) == before; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    if (atomic_load(&watch.answers) == before) {
        say("    (shows no stack: it blocks signals or is in the kernel)\n");
    }
}

static void tell(const char *what)
{
    say("\nwatch: ");
    say(watch.test != NULL ? watch.test : "(no test)");
    say("[");
    say_number(watch.loop);
    say("] ");
    say(what);
    say(watch.note[0] != '\0' ? "; it was doing: " : "");
    say(watch.note);
    say("\n");
    each_thread(show_thread, NULL);
    say("  (addr2line -e PROGRAM ADDRESS names the lines)\n");
}

static void end_by(int number)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t only;
    sigaction(number, &plain, NULL);
    sigemptyset(&only);
    sigaddset(&only, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
}

struct look {
    bool drive;        /* a thread waits for one */
    int64_t queued_ns; /* all threads, since they began, were ready and had no processor */
};

static void look_at(const char *tid, void *ctx)
{
    struct look *look = ctx;
    char text[128];
    look->drive = look->drive || thread_state(tid) == 'D';
    thread_file(tid, "schedstat", text, sizeof text);
    const char *second = strchr(text, ' ');
    look->queued_ns += second != NULL ? strtoll(second + 1, NULL, 10) : 0;
}

/* Whoever has children waits for them; they have limits of their own. */
static bool has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static int64_t time_us(const struct rusage *used)
{
    return (int64_t)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) * 1000000 +
           used->ru_utime.tv_usec + used->ru_stime.tv_usec;
}

/* Since the last tick: enough time of a processor, or enough waiting for one, or a drive has moved
 * or is waited for. */
static bool was_busy(void)
{
    struct rusage now;
    struct look look = {.drive = false};
    int64_t percent_us = (int64_t)limits.tick_ms * 10;
    getrusage(RUSAGE_SELF, &now);
    each_thread(look_at, &look);
    bool busy = time_us(&now) - time_us(&watch.used) > percent_us * BUSY_PERCENT ||
                look.queued_ns - watch.queued_ns > percent_us * 1000 * QUEUED_PERCENT ||
                now.ru_inblock != watch.used.ru_inblock ||
                now.ru_oublock != watch.used.ru_oublock || look.drive;
    watch.used = now;
    watch.queued_ns = look.queued_ns;
    return busy;
}

static void on_tick(int number)
{
    int saved = errno;
    bool progress = was_busy();
    (void)number;
    watch.still = progress || has_children() ? 0 : watch.still + 1;
    watch.ticks++;
    if (watch.still >= limits.still_ticks || watch.ticks >= limits.ticks_max) {
        tell(watch.still >= limits.still_ticks ? "stands still" : "finds no end");
        end_by(SIGABRT);
    }
    errno = saved;
}

static void on_alarm(int number)
{
    tell("took longer than it may");
    end_by(number);
}

/* ---- around a test ---- */

static void catch(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(number, &action, NULL);
}

static bool make_timer(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGNAL_TICK};
    void *frame[1];
    if (watch.timer_of == getpid()) {
        return true;
    }
    backtrace(frame, 1); /* the first call loads a library: not in a handler */
    catch(SIGNAL_TICK, on_tick);
    catch(SIGNAL_STACK, on_stack);
    catch(SIGALRM, on_alarm);
    event._sigev_un._tid = gettid(); /* one thread alone looks: a test may begin others */
    if (timer_create(CLOCK_MONOTONIC, &event, &watch.timer) != 0) {
        return false;
    }
    watch.timer_of = getpid();
    return true;
}

static struct timespec after_ms(unsigned ms)
{
    return (struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = ms % 1000 * 1000000L};
}

void watch_set_limits(const struct watch_limits *other)
{
    limits = *other;
}

void watch_began(const char *test, int loop)
{
    struct itimerspec times = {.it_value = after_ms(limits.first_ms),
                               .it_interval = after_ms(limits.tick_ms)};
    watch.test = test;
    watch.loop = loop;
    watch.note[0] = '\0';
    watch.ticks = watch.still = 0;
    watch.queued_ns = 0;
    memset(&watch.used, 0, sizeof watch.used);
    if (!make_timer() || timer_settime(watch.timer, 0, &times, NULL) != 0) {
        perror("watch: no timer");
        abort();
    }
}

void watch_over(void)
{
    struct itimerspec none = {0};
    if (watch.timer_of == getpid()) {
        timer_settime(watch.timer, 0, &none, NULL);
    }
}

void watch_note(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(watch.note, sizeof watch.note, format, list);
    va_end(list);
}
