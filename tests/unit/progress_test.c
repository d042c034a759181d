/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/cli/progress.h"
#include "tests/support/suite.h"

/* What standard error received while body ran with fd in its place. */
static void capture(int write_fd, int read_fd, void (*body)(void), char *text, size_t capacity)
{
    int saved = dup(STDERR_FILENO);
    ck_assert_int_ge(saved, 0);
    ck_assert_int_ge(dup2(write_fd, STDERR_FILENO), 0);
    body();
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(write_fd);
    size_t used = 0;
    struct pollfd poll_fd = {.fd = read_fd, .events = POLLIN};
    while (used + 1 < capacity && poll(&poll_fd, 1, 100) > 0 && (poll_fd.revents & POLLIN) != 0) {
        ssize_t got = read(read_fd, text + used, capacity - 1 - used);
        if (got <= 0) {
            break;
        }
        used += (size_t)got;
    }
    text[used] = '\0';
    close(read_fd);
}

static void in_pipe(void (*body)(void), char *text, size_t capacity)
{
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    capture(fds[1], fds[0], body, text, capacity);
}

/* False when this machine has no pseudo terminals. */
static bool in_terminal(void (*body)(void), char *text, size_t capacity)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
        printf("skip: no pseudo terminal\n");
        return false;
    }
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(slave, 0);
    int keep = dup(slave); /* what was written is lost when the last slave closes */
    capture(slave, master, body, text, capacity);
    close(keep);
    return true;
}

static bool quiet;

static void one_line(void)
{
    struct progress p;
    progress_begin(&p, "reading", quiet);
    progress_show(&p, 1500000000, 6000000000, "token 2");
    progress_clear(&p);
}

static void unknown_total(void)
{
    struct progress p;
    progress_begin(&p, "writing", false);
    progress_show(&p, 0, 0, NULL);
}

static void wait_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static void many(void)
{
    struct progress p;
    progress_begin(&p, "reading", false);
    for (uint64_t i = 0; i < 1000; i++) {
        progress_show(&p, i, 1000, NULL);
    }
    wait_ms(220);
    progress_show(&p, 1000, 1000, NULL);
}

static void clear_only(void)
{
    struct progress p;
    progress_begin(&p, "reading", false);
    progress_clear(&p);
    progress_clear(&p);
}

/* As if it had begun so much earlier. */
static void let_pass(struct progress *p, uint64_t seconds)
{
    uint64_t ns = seconds * 1000000000;
    p->begun_ns -= ns;
    p->older.at_ns -= ns;
    p->newer.at_ns -= ns;
}

/* Two passes of total_bytes, of which first_bytes came in the first ten seconds and 1 GB in each
 * ten after that. */
static void slow_after(uint64_t first_bytes, uint64_t total_bytes, uint64_t seconds)
{
    struct progress p;
    progress_begin(&p, "reading", quiet);
    for (uint64_t at = 10, bytes = first_bytes; at <= seconds; at += 10, bytes += 1000000000) {
        let_pass(&p, 10);
        progress_slow(&p, bytes, total_bytes, 2);
    }
}

static void slow(void)
{
    slow_after(1000000000, 240000000000, 40);
}

static void not_known_yet(void)
{
    slow_after(1, 240000000000, 10);
}

static void slow_at_first(void)
{
    slow_after(1, 10000000000, 40);
}

static void fast(void)
{
    slow_after(1000000000, 10000000000, 40);
}

static void late_rate(void)
{
    struct progress p;
    progress_begin(&p, "reading", false);
    let_pass(&p, 10);
    progress_show(&p, 0, 30000000000, NULL);
    let_pass(&p, 10);
    wait_ms(220);
    progress_show(&p, 10000000000, 30000000000, NULL);
}

static void counted(void)
{
    struct progress p;
    progress_begin(&p, "opening", quiet);
    progress_wait(&p, "a model");
    wait_ms(900);
    progress_clear(&p);
    progress_clear(&p);
}

static uint32_t occurrences(const char *text, const char *part)
{
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) {
        count++;
    }
    return count;
}

START_TEST(nothing_is_shown_in_a_pipe)
{
    char text[4096];
    quiet = false;
    in_pipe(one_line, text, sizeof text);
    ck_assert_str_eq(text, "");
    in_pipe(many, text, sizeof text);
    ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(a_terminal_gets_one_line_that_is_then_cleared)
{
    char text[4096];
    quiet = false;
    if (!in_terminal(one_line, text, sizeof text)) {
        return;
    }
    ck_assert_ptr_nonnull(strstr(text, "reading, token 2: 1.50 of 6.00 GB, "));
    ck_assert_ptr_nonnull(strstr(text, " GB/s"));
    ck_assert_ptr_nonnull(strstr(text, " s left"));
    ck_assert_ptr_null(strchr(text, '\n'));
    size_t length = strlen(text);
    ck_assert_str_eq(text + length - 4, "\r\033[K");
    ck_assert_uint_eq(occurrences(text, "\r\033[K"), 2);
}
END_TEST

START_TEST(minutes_for_a_pass_are_told_once_with_what_to_do)
{
    char text[4096];
    quiet = false;
    in_pipe(slow, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "k3ring: at 0.100 GB/s a pass takes 1200 s; "));
    ck_assert_ptr_nonnull(strstr(text, "`k3ring doctor MODEL`"));
    ck_assert_uint_eq(occurrences(text, "\n"), 1);
    in_pipe(not_known_yet, text, sizeof text);
    ck_assert_str_eq(text, "");
    in_pipe(fast, text, sizeof text);
    ck_assert_str_eq(text, "");
    in_pipe(slow_at_first, text, sizeof text);
    ck_assert_str_eq(text, "");
    quiet = true;
    in_pipe(slow, text, sizeof text);
    ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(the_time_left_is_that_of_the_latest_rate)
{
    char text[4096];
    if (!in_terminal(late_rate, text, sizeof text)) {
        return;
    }
    const char *left = strstr(text, "10.00 of 30.00 GB, ");
    ck_assert_ptr_nonnull(left);
    double rate = strtod(left + strlen("10.00 of 30.00 GB, "), NULL);
    double seconds = strtod(strstr(left, "GB/s, ") + strlen("GB/s, "), NULL);
    ck_assert_msg(rate > 0.8 && rate <= 1.0 && seconds >= 20 && seconds < 25, "%s", left);
}
END_TEST

START_TEST(seconds_are_counted_where_nothing_else_can_be)
{
    char text[4096];
    quiet = false;
    in_pipe(counted, text, sizeof text);
    ck_assert_str_eq(text, "");
    if (!in_terminal(counted, text, sizeof text)) {
        return;
    }
    ck_assert_ptr_nonnull(strstr(text, "\r\033[Kopening, a model: 0 s"));
    ck_assert_ptr_nonnull(strstr(text, "opening, a model: 1 s"));
    ck_assert_str_eq(text + strlen(text) - 4, "\r\033[K");
    quiet = true;
    ck_assert(in_terminal(counted, text, sizeof text));
    ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(an_unknown_total_is_left_out)
{
    char text[4096];
    if (!in_terminal(unknown_total, text, sizeof text)) {
        return;
    }
    ck_assert_ptr_nonnull(strstr(text, "writing: 0.00 GB, "));
    ck_assert_ptr_null(strstr(text, " of "));
    ck_assert_ptr_null(strstr(text, "left"));
    ck_assert_ptr_null(strstr(text, "nan"));
}
END_TEST

START_TEST(a_quiet_run_shows_nothing_on_a_terminal_either)
{
    char text[4096];
    quiet = true;
    if (in_terminal(one_line, text, sizeof text)) {
        ck_assert_str_eq(text, "");
    }
}
END_TEST

START_TEST(at_most_five_lines_a_second_are_shown)
{
    char text[65536];
    if (in_terminal(many, text, sizeof text)) {
        /* The first at once, one after the pause, and more only if the loop itself was slow. */
        uint32_t shown = occurrences(text, "reading:");
        ck_assert_msg(shown >= 2 && shown < 20, "%u lines", shown);
    }
}
END_TEST

START_TEST(nothing_is_cleared_that_was_not_shown)
{
    char text[4096];
    if (in_terminal(clear_only, text, sizeof text)) {
        ck_assert_str_eq(text, "");
    }
}
END_TEST

START_TEST(a_terminal_without_escape_sequences_shows_nothing)
{
    static const char *const names[] = {"dumb", "", NULL};
    char text[4096] = "";
    if (names[_i] != NULL) {
        setenv("TERM", names[_i], 1);
    } else {
        unsetenv("TERM");
    }
    in_terminal(one_line, text, sizeof text);
    setenv("TERM", "xterm", 1);
    ck_assert_str_eq(text, "");
}
END_TEST

static Suite *progress_suite(void)
{
    TCase *line = tcase_create("line");
    tcase_add_test(line, nothing_is_shown_in_a_pipe);
    tcase_add_test(line, a_terminal_gets_one_line_that_is_then_cleared);
    tcase_add_test(line, an_unknown_total_is_left_out);
    tcase_add_test(line, minutes_for_a_pass_are_told_once_with_what_to_do);
    tcase_add_test(line, the_time_left_is_that_of_the_latest_rate);
    tcase_add_test(line, seconds_are_counted_where_nothing_else_can_be);
    tcase_add_test(line, a_quiet_run_shows_nothing_on_a_terminal_either);
    tcase_add_loop_test(line, a_terminal_without_escape_sequences_shows_nothing, 0, 3);
    tcase_add_test(line, at_most_five_lines_a_second_are_shown);
    tcase_add_test(line, nothing_is_cleared_that_was_not_shown);
    Suite *suite = suite_create("progress");
    suite_add_tcase(suite, line);
    return suite;
}

int main(void)
{
    setenv("TERM", "xterm", 1); /* one that takes escape sequences */
    return suite_run(progress_suite()) == 0 ? 0 : 1;
}
