/* SPDX-License-Identifier: Apache-2.0 */
/* The program on a terminal, in a pipe whose reader leaves, and under impatient signals. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/process.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define WATCHDOG_SECONDS 120
#define TEXT_BYTES 65536

static struct tiny tiny;
static struct tiny folder; /* for what programs write */
static char text[TEXT_BYTES];

static void watch(void)
{
    alarm(WATCHDOG_SECONDS);
    tiny_folder(&folder, TINY_MEMORY);
}

static void unwatch(void)
{
    tiny_remove(&folder);
    alarm(0);
}

/* Starts a run with out and err in place; json may be NULL. */
static pid_t start(int out, int err, const char *gen, const char *json)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        execl(process_binary(), "k3ring", "run", tiny.dir, "--ids", "3,141,59,26,53,58,97,93",
              "--gen", gen, "--io", "pread", json != NULL ? "--json" : NULL, json, NULL);
        _exit(127);
    }
    return pid;
}

static int status_of(pid_t pid)
{
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void drain(int fd)
{
    size_t used = 0;
    ssize_t got;
    while (used + 1 < sizeof text && (got = read(fd, text + used, sizeof text - 1 - used)) > 0) {
        used += (size_t)got;
    }
    text[used] = '\0';
}

/* What a screen shows: a carriage return starts over, ESC [ K clears to the end of the line. */
static void replay(char *screen, size_t capacity)
{
    size_t line = 0;
    size_t column = 0;
    memset(screen, 0, capacity);
    for (const char *p = text; *p != '\0' && line + column + 1 < capacity; p++) {
        if (*p == '\r') {
            column = 0;
        } else if (*p == '\n') {
            line += strlen(screen + line);
            screen[line++] = '\n';
            column = 0;
        } else if (strncmp(p, "\033[K", 3) == 0) {
            memset(screen + line + column, 0, capacity - line - column);
            p += 2;
        } else {
            screen[line + column++] = *p;
        }
    }
}

START_TEST(ids_stay_on_a_terminal)
{
    static char screen[TEXT_BYTES];
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
        printf("skip: no pseudo terminal\n");
        return;
    }
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(slave, 0);
    pid_t pid = start(slave, slave, "5", NULL);
    close(slave);
    drain(master);
    close(master);
    ck_assert_int_eq(status_of(pid), 0);
    replay(screen, sizeof screen);
    ck_assert_msg(strstr(screen, "\n170\n126\n66\n6\n37\n") != NULL, "screen: '%s'", screen);
    ck_assert_msg(strstr(text, "pass 1 of 5") != NULL, "no progress in '%s'", text);
    ck_assert_msg(strstr(text, "of 0:") == NULL, "'%s'", text);
}
END_TEST

static int entries(const char *dir)
{
    int count = 0;
    DIR *open_dir = opendir(dir);
    ck_assert_ptr_nonnull(open_dir);
    for (struct dirent *entry; (entry = readdir(open_dir)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(open_dir);
    return count;
}

START_TEST(a_reader_that_leaves_ends_the_run_quietly)
{
    char json[TINY_PATH_BYTES];
    int out[2];
    int err[2];
    tiny_path(&folder, "report.json", json);
    ck_assert(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
    pid_t pid = start(out[1], err[1], "4000", json);
    close(out[1]);
    close(err[1]);
    char first[4];
    ck_assert_int_eq(read(out[0], first, 3), 3);
    close(out[0]);
    drain(err[0]);
    close(err[0]);
    ck_assert_int_eq(status_of(pid), 128 + SIGPIPE);
    ck_assert_ptr_null(strstr(text, "cannot be written"));
    ck_assert_int_eq(entries(folder.dir), 1); /* the report, whole, and nothing else */
    ck_assert_int_eq(access(json, R_OK), 0);
}
END_TEST

START_TEST(a_second_signal_ends_at_once_and_leaves_nothing)
{
    char json[TINY_PATH_BYTES];
    int out[2];
    tiny_path(&folder, "report.json", json);
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    pid_t pid = start(out[1], null, "4000", json);
    close(out[1]);
    close(null);
    char first[4];
    ck_assert_int_eq(read(out[0], first, 3), 3);
    kill(pid, SIGSTOP); /* both signals are there before it goes on */
    kill(pid, SIGINT);
    kill(pid, SIGTERM);
    kill(pid, SIGCONT);
    int status = status_of(pid);
    ck_assert_msg(status == 128 + SIGINT || status == 128 + SIGTERM, "status %d", status);
    close(out[0]);
    ck_assert_int_eq(entries(folder.dir), 0);
}
END_TEST

static Suite *terminal_suite(void)
{
    Suite *suite = suite_create("terminal");
    TCase *tcase = tcase_create("as a user sees it");
    tcase_add_checked_fixture(tcase, watch, unwatch);
    tcase_set_timeout(tcase, WATCHDOG_SECONDS);
    tcase_add_test(tcase, ids_stay_on_a_terminal);
    tcase_add_test(tcase, a_reader_that_leaves_ends_the_run_quietly);
    tcase_add_test(tcase, a_second_signal_ends_at_once_and_leaves_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    if (process_binary() == NULL) {
        fprintf(stderr, "build k3ring first: this test runs it\n");
        return EXIT_FAILURE;
    }
    tiny_make(&tiny, TINY_MEMORY);
    int failed = suite_run(terminal_suite());
    tiny_remove(&tiny);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
