/* SPDX-License-Identifier: Apache-2.0 */

/* What a terminal shows of an answer, played on a small screen that knows the sequences used. */

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "core/base/nondet.h"
#include "core/cli/chat_show.h"
#include "tests/support/suite.h"

#define ROWS 6
#define COLUMNS 60
#define SECOND_NS 1000000000ULL

static int master = -1, saved_out, saved_err;
static char screen[ROWS][COLUMNS + 1];
static int row, column, kept_row, kept_column;
static struct show show;

/* ---- the screen ---- */

static void line_down(void)
{
    if (row + 1 < ROWS) {
        row++;
        return;
    }
    memmove(screen[0], screen[1], sizeof screen - sizeof screen[0]);
    memset(screen[ROWS - 1], ' ', COLUMNS);
}

/* Handles the sequence behind an escape; returns its bytes. Unknown ones fail the test. */
static size_t escape(const char *text)
{
    static const char *const known[] = {"D", "7", "8", "[A", "[B", "[K", "[2m", "[0m"};
    for (size_t i = 0; i < countof(known); i++) {
        size_t size = strlen(known[i]);
        if (strncmp(text, known[i], size) != 0) {
            continue;
        }
        switch (i) {
        case 0: line_down(); break;
        case 1: kept_row = row; kept_column = column; break;
        case 2: row = kept_row; column = kept_column; break;
        case 3: row -= row > 0; break;
        case 4: row += row + 1 < ROWS; break;
        case 5: memset(screen[row] + column, ' ', (size_t)(COLUMNS - column)); break;
        default: break; /* colours */
        }
        return size;
    }
    ck_abort_msg("the sequence ESC %.10s", text);
}

static void play(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\033') {
            text += escape(text + 1);
        } else if (*text == '\r') {
            column = 0;
        } else if (*text == '\n') {
            line_down();
        } else {
            ck_assert_msg(column < COLUMNS, "a line wraps: %s", text);
            screen[row][column++] = *text;
        }
    }
}

/* Plays what was printed since the last time. */
static void refresh(void)
{
    char text[65536];
    struct pollfd polled = {.fd = master, .events = POLLIN};
    fflush(stdout);
    fflush(stderr);
    while (poll(&polled, 1, 50) > 0) {
        ssize_t got = read(master, text, sizeof text - 1);
        ck_assert_int_gt(got, 0);
        text[got] = '\0';
        play(text);
    }
}

/* The screen from its top, lines without the space behind them. */
static const char *shown(void)
{
    static char text[ROWS * (COLUMNS + 2)];
    size_t used = 0;
    refresh();
    for (int i = 0; i < ROWS; i++) {
        int length = COLUMNS;
        while (length > 0 && screen[i][length - 1] == ' ') {
            length--;
        }
        used += (size_t)sprintf(text + used, "%.*s\n", length, screen[i]);
    }
    while (used > 1 && text[used - 2] == '\n') {
        text[--used] = '\0';
    }
    return text;
}

static void setup(void)
{
    struct winsize size = {.ws_row = ROWS, .ws_col = COLUMNS};
    master = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(slave, 0);
    ioctl(slave, TIOCSWINSZ, &size);
    fflush(stdout);
    saved_out = dup(STDOUT_FILENO);
    saved_err = dup(STDERR_FILENO);
    dup2(slave, STDOUT_FILENO);
    dup2(slave, STDERR_FILENO);
    close(slave);
    memset(screen, ' ', sizeof screen);
    row = column = 0;
    show_open(&show, false);
    ck_assert(show.terminal && show.status_wanted);
}

static void teardown(void)
{
    fflush(stdout);
    dup2(saved_out, STDOUT_FILENO);
    dup2(saved_err, STDERR_FILENO);
    close(saved_out);
    close(saved_err);
    close(master);
}

/* ---- tests ---- */

static void say(enum chat_channel channel, const char *text)
{
    show_text(&show, channel, text, strlen(text));
}

/* Some bytes of a pass were read; nothing was shown for two seconds. */
static void progress(uint64_t done_bytes)
{
    const struct engine_progress p = {.done_bytes = done_bytes, .planned_bytes = 40000000000,
                                      .pass = 0, .passes = 4};
    uint64_t now = nondet_now_ns();
    show.status_ns = 0;
    show.token_ns = now - 2 * SECOND_NS;
    show.begun_ns = now - 4 * SECOND_NS;
    show_progress(&show, &p);
}

START_TEST(reasoning_and_response_are_apart)
{
    show_begin(&show, 10, 1);
    say(CHAT_REASONING, "hm");
    say(CHAT_REASONING, "m\n");
    say(CHAT_RESPONSE, "yes");
    show_end(&show, NULL);
    ck_assert_str_eq(shown(), "hmm\n\nyes\n");
}
END_TEST

START_TEST(the_first_token_is_announced)
{
    show_begin(&show, 10, 2);
    progress(0);
    progress(5000000000);
    ck_assert_str_eq(shown(), "reading 10 tokens, pass 1 of 2: 5.00 GB of about 20.00, 1.2\n");
    say(CHAT_RESPONSE, "yes");
    ck_assert_str_eq(shown(), "yes\n");
}
END_TEST

/* In the middle of a line and at the bottom of the screen, which has to scroll. */
START_TEST(a_status_below_leaves_the_text_alone)
{
    const char *lines[] = {"1\n", "2\n", "3\n", "4\n", "5\n"};
    show_begin(&show, 10, 1);
    for (int i = 0; i < _i; i++) {
        say(CHAT_RESPONSE, lines[i]);
    }
    say(CHAT_RESPONSE, "six");
    show_token(&show);
    show_token(&show);
    progress(0);
    progress(5000000000);
    ck_assert_msg(strstr(shown(), "\ntoken 3, ") != NULL || _i == 0, "%s", shown());
    ck_assert_ptr_nonnull(strstr(shown(), "six\ntoken 3, "));
    say(CHAT_RESPONSE, "teen");
    ck_assert_ptr_nonnull(strstr(shown(), "sixteen\n"));
    ck_assert_ptr_null(strstr(shown(), "token"));
    progress(6000000000);
    show_end(&show, "stopped");
    ck_assert_ptr_nonnull(strstr(shown(), "sixteen\n[stopped]\n"));
    ck_assert_ptr_null(strstr(shown(), "token"));
}
END_TEST

START_TEST(control_characters_are_harmless)
{
    show_begin(&show, 10, 1);
    say(CHAT_RESPONSE, "a\033]0;x\a\b\r\x7F\xC2\x9B" "b\t|");
    show_end(&show, NULL);
    refresh();
    ck_assert_int_eq(memcmp(screen[0], "a?]0;x?????b", 12), 0);
}
END_TEST

START_TEST(a_call_is_a_line_of_its_own)
{
    char city[] = "city", paris[] = "Pa\033ris", name[] = "get";
    struct chat_argument argument = {.type = CHAT_STRING, .key = city, .value = paris};
    const struct chat_call call = {.name = name, .argument = &argument, .argument_count = 1};
    show_begin(&show, 10, 1);
    say(CHAT_RESPONSE, "well");
    show_call(&show, &call);
    show_end(&show, NULL);
    ck_assert_str_eq(shown(), "well\n\ncall get {\"city\": \"Pa\\u001bris\"}\n");
}
END_TEST

int main(void)
{
    setenv("TERM", "xterm", 1); /* one that takes escape sequences */
    Suite *suite = suite_create("chat_show");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, reasoning_and_response_are_apart);
    tcase_add_test(all, the_first_token_is_announced);
    tcase_add_loop_test(all, a_status_below_leaves_the_text_alone, 0, 6);
    tcase_add_test(all, control_characters_are_harmless);
    tcase_add_test(all, a_call_is_a_line_of_its_own);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
