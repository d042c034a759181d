/* SPDX-License-Identifier: Apache-2.0 */

/* k3ring chat on a terminal: typing, pasting, commands, Ctrl-C and Ctrl-D. */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "core/base/nondet.h"
#include "tests/support/process.h"
#include "tests/support/suite.h"
#include "tests/support/talker.h"

#define WATCHDOG_SECONDS 240
#define PATIENCE_MS 100000
#define TEXT_BYTES 262144

static struct tiny scripted, wild, folder;
static char history[TINY_PATH_BYTES];
static int master = -1;
static pid_t pid;
static const char *term = "TERM=xterm"; /* NULL: none is set */
static char text[TEXT_BYTES]; /* all that came */
static size_t text_bytes, looked_bytes;

/* Starts it on a terminal of its own; false: there is none here. A status line that comes between
 * the letters of an answer is none of most tests' business: they take --quiet. */
static bool start(const struct tiny *model, const char *more, bool quiet)
{
    struct winsize size = {.ws_row = 40, .ws_col = 100};
    master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
        printf("skip: no pseudo terminal\n");
        return false;
    }
    const char *name = ptsname(master);
    ioctl(master, TIOCSWINSZ, &size);
    text_bytes = looked_bytes = 0;
    text[0] = '\0';
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        char state[TINY_PATH_BYTES + 16];
        setsid();
        int slave = open(name, O_RDWR); /* becomes the controlling terminal: Ctrl-C is a signal */
        dup2(slave, STDIN_FILENO);
        dup2(slave, STDOUT_FILENO);
        dup2(slave, STDERR_FILENO);
        close(slave);
        close(master);
        snprintf(state, sizeof state, "XDG_STATE_HOME=%s", folder.dir);
        char *environment[] = {state, (char *)"HOME=/nonexistent", (char *)(uintptr_t)term, NULL};
        execle(process_binary(), "k3ring", "chat", model->dir, "--io", "pread", "--threads", "1",
               more, quiet ? "--quiet" : "--isa=auto", NULL, environment);
        _exit(127);
    }
    return true;
}

/* The deadlock watchdog's ticks interrupt a wait: it goes on for what is left of it. */
static bool read_more(int milliseconds)
{
    struct pollfd polled = {.fd = master, .events = POLLIN};
    const uint64_t end = nondet_now_ns() + (uint64_t)milliseconds * 1000000;
    int ready;
    do {
        uint64_t now = nondet_now_ns();
        ready = poll(&polled, 1, now < end ? (int)((end - now) / 1000000) : 0);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
        return false;
    }
    ssize_t got = read(master, text + text_bytes, sizeof text - 1 - text_bytes);
    text_bytes += got > 0 ? (size_t)got : 0;
    text[text_bytes] = '\0';
    return got > 0;
}

/* Waits until part has come behind what was looked at before. */
static void see(const char *part)
{
    char *found;
    while ((found = strstr(text + looked_bytes, part)) == NULL) {
        ck_assert_msg(read_more(PATIENCE_MS), "no \"%s\" in: %.2000s", part,
                      text + looked_bytes);
    }
    looked_bytes = (size_t)(found - text) + strlen(part);
}

static void type(const char *keys)
{
    ck_assert_int_eq(write(master, keys, strlen(keys)), (ssize_t)strlen(keys));
}

/* Waits for the end, and says how it was: by SIGKILL when it did not come. */
static int status(void)
{
    int raw;
    while (read_more(PATIENCE_MS)) {
    }
    if (poll(&(struct pollfd){.fd = master, .events = 0}, 1, 0) == 0) {
        kill(pid, SIGKILL); /* it holds the terminal still */
    }
    ck_assert_int_eq(waitpid(pid, &raw, 0), pid);
    close(master);
    return WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
}

static void see_prompt(void)
{
    see("> ");
}

START_TEST(a_turn_and_its_end)
{
    struct stat st;
    if (!start(&scripted, "--effort=low", false)) {
        return;
    }
    see("effort low");
    see_prompt();
    type("Hello\r");
    see("reading ");
    see("\033[2m"); /* dim */
    see("!"); /* the letters may come one by one */;
    see("\033[0m");
    see_prompt();
    type("\004");
    ck_assert_int_eq(status(), 0);
    ck_assert_int_eq(stat(history, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
}
END_TEST

START_TEST(commands_and_what_is_nearly_one)
{
    char path[TINY_PATH_BYTES], line[TINY_PATH_BYTES + 16];
    size_t size;
    if (!start(&scripted, "--no-thinking", true)) {
        return;
    }
    tiny_path(&folder, "saved.json", path);
    see_prompt();
    type("/help\r");
    see("/effort low|high|max|off");
    see_prompt();
    type("/sav x\r");
    see("did you mean /save?");
    see_prompt();
    type("//Hello\r");
    see("Hi!");
    see_prompt();
    snprintf(line, sizeof line, "/save %s\r", path);
    type(line);
    see("saved 2 messages");
    see_prompt();
    unsigned char *saved = tiny_read(&folder, "saved.json", &size);
    ck_assert_ptr_nonnull(memmem(saved, size, "\"content\": \"/Hello\"", 19));
    free(saved);
    type("/stats\r");
    see("of 4096 positions");
    see_prompt();
    type("/effort medium\r");
    see("none of low, high, max, off");
    see_prompt();
    type("/effort high\r");
    see("read again with the next turn");
    see_prompt();
    type("/reset\r");
    see("a new conversation");
    see_prompt();
    snprintf(line, sizeof line, "/load %s\r", path);
    type(line);
    see("2 messages from");
    see_prompt();
    type("/load\r");
    see("/load takes FILE");
    see_prompt();
    type("/exit\r");
    ck_assert_int_eq(status(), 0);
}
END_TEST

static void expect_said(const char *path, const char *content)
{
    char line[TINY_PATH_BYTES + 16];
    size_t size;
    snprintf(line, sizeof line, "/save %s\r", path);
    type(line);
    see(" messages in "); /* not the echo */
    see_prompt();
    unsigned char *saved = tiny_read(&folder, "saved.json", &size);
    ck_assert_msg(memmem(saved, size, content, strlen(content)) != NULL, "%s not in %.*s", content,
                  (int)(size < 2000 ? size : 2000), saved);
    free(saved);
}

START_TEST(pastes_lines_that_go_on_and_editing)
{
    char path[TINY_PATH_BYTES];
    if (!start(&scripted, "--no-thinking", true)) {
        return;
    }
    tiny_path(&folder, "saved.json", path);
    see_prompt();
    type("\033[200~one\rtwo\nthree\n\033[201~\r");
    see("Hi!");
    see_prompt();
    type("four\\\r");
    see("... ");
    type("five\r");
    see("Hi!");
    see_prompt();
    type("x\u4F60z\001<\005>\002\002\177!\r"); /* home, end, two left, delete backwards */
    see("Hi!");
    see_prompt();
    expect_said(path, "\"one\\ntwo\\nthree\"");
    expect_said(path, "\"four\\nfive\"");
    expect_said(path, "\"<x!z>\"");
    type("\004");
    ck_assert_int_eq(status(), 0);
}
END_TEST

START_TEST(ctrl_c_drops_a_line)
{
    if (!start(&scripted, "--no-thinking", true)) {
        return;
    }
    see_prompt();
    type("never said\003");
    see("(Ctrl-D or /exit ends)");
    see_prompt();
    type("Hello\r");
    see("Hi!");
    see_prompt();
    type("/stats\r");
    see("in 1 answer");
    see_prompt();
    type("\004");
    ck_assert_int_eq(status(), 0);
}
END_TEST

/* This one would talk for ever. */
START_TEST(ctrl_c_stops_an_answer_and_keeps_the_turn)
{
    if (!start(&wild, "--effort=max", true)) {
        return;
    }
    see_prompt();
    type("Hello\r");
    see("\033[2m");
    type("\003");
    see("[stopped; the turn is kept]");
    see_prompt();
    type("/stats\r");
    see("in 1 answer");
    see_prompt();
    type("again\r");
    see("\033[2m");
    type("\003");
    see("[stopped; the turn is kept]");
    see_prompt();
    kill(pid, SIGTERM);
    ck_assert_int_eq(status(), 128 + SIGTERM);
}
END_TEST

/* As a shell does that puts the program in the foreground again. */
static void put_key_back(void)
{
    struct termios now;
    ck_assert_int_eq(tcgetattr(master, &now), 0);
    now.c_cc[VEOF] = '\004';
    ck_assert_int_eq(tcsetattr(master, TCSANOW, &now), 0);
}

static void stop_answer(void)
{
    kill(pid, SIGINT);
    see("[stopped; the turn is kept]");
}

/* Between two prompts the terminal cooks what is typed, and would take the key for itself. A signal
 * ends the answer: the key Ctrl-C would drop what was typed ahead. */
START_TEST(ctrl_d_typed_during_an_answer_ends_after_it)
{
    if (!start(&wild, "--effort=max", true)) {
        return;
    }
    for (int turn = 0; turn < _i; turn++) {
        see_prompt();
        type("Hello\r");
        see("\033[2m");
        put_key_back();
        stop_answer();
    }
    see_prompt();
    type("Hello\r");
    see("\033[2m");
    type("\004");
    stop_answer();
    ck_assert_int_eq(status(), 0);
}
END_TEST

/* What an answer, a line of talk, a command and two ways to end send there. */
START_TEST(a_terminal_without_escape_sequences_gets_none)
{
    static const char *const names[] = {"TERM=dumb", "TERM=", NULL};
    term = names[_i];
    bool started = start(&scripted, "--effort=low", false);
    if (started) {
        see("effort low");
        see_prompt();
        type("Hello\r");
        see("!");
        see_prompt();
        type("/effort off\r");
        see("read again with the next turn");
        see_prompt();
        type("Hello\r");
        see("Hi!");
        see_prompt();
        if (_i == 0) {
            kill(pid, SIGTERM);
        } else {
            type("\004");
        }
        ck_assert_int_eq(status(), _i == 0 ? 128 + SIGTERM : 0);
        ck_assert_msg(strchr(text, '\033') == NULL, "an escape: %s", strchr(text, '\033'));
        ck_assert_ptr_null(strstr(text, "terminal type")); /* what libedit would say */
    }
    term = "TERM=xterm";
}
END_TEST

static Suite *terminal_suite(void)
{
    Suite *suite = suite_create("chat_terminal");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, WATCHDOG_SECONDS);
    tcase_add_test(all, a_turn_and_its_end);
    tcase_add_test(all, commands_and_what_is_nearly_one);
    tcase_add_test(all, pastes_lines_that_go_on_and_editing);
    tcase_add_test(all, ctrl_c_drops_a_line);
    tcase_add_test(all, ctrl_c_stops_an_answer_and_keeps_the_turn);
    tcase_add_loop_test(all, ctrl_d_typed_during_an_answer_ends_after_it, 0, 2);
    tcase_add_loop_test(all, a_terminal_without_escape_sequences_gets_none, 0, 3);
    suite_add_tcase(suite, all);
    return suite;
}

int main(void)
{
    if (process_binary() == NULL) {
        fprintf(stderr, "build k3ring first: this test runs it\n");
        return EXIT_FAILURE;
    }
    talker_scripted(&scripted, TINY_MEMORY, "Hi!", false);
    talker_scripted(&wild, TINY_MEMORY, "ab", true);
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "k3ring/chat_history", history);
    int failed = suite_run(terminal_suite());
    tiny_remove(&scripted);
    tiny_remove(&wild);
    tiny_remove(&folder);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
