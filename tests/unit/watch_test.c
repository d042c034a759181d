/* SPDX-License-Identifier: Apache-2.0 */

/* The watch over tests: what stands still is ended and named, what works or waits for another is
 * left alone. Each case is a child with short limits. */

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/nondet.h"
#include "tests/support/suite.h"

#define SECOND_NS 1000000000ULL

static char said[65536];
static int status;

/* Runs body in a child under a short watch, and catches what is said on standard error. */
static void watched(void (*body)(void))
{
    static const struct watch_limits brief = {
        .first_ms = 100, .tick_ms = 100, .still_ticks = 5, .ticks_max = 100};
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        watch_set_limits(&brief);
        watch_began("a_test", 7);
        watch_note("step %d", 3);
        body();
        watch_over();
        _exit(0);
    }
    close(ends[1]);
    size_t size = 0;
    for (ssize_t got; (got = read(ends[0], said + size, sizeof said - 1 - size)) > 0;) {
        size += (size_t)got;
    }
    said[size] = '\0';
    close(ends[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
}

static void expect_told(int number, const char *what)
{
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == number, "status %x: %s", status, said);
    ck_assert_msg(strstr(said, "a_test[7]") != NULL, "%s", said);
    ck_assert_msg(strstr(said, "step 3") != NULL, "%s", said);
    ck_assert_msg(strstr(said, what) != NULL, "%s", said);
    ck_assert_msg(strstr(said, "thread ") != NULL, "%s", said);
}

static void expect_left_alone(void)
{
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x: %s", status, said);
    ck_assert_str_eq(said, "");
}

static void stand_still(void)
{
    for (;;) {
        pause();
    }
}

static void *lock_for_ever(void *argument)
{
    pthread_mutex_lock(argument); /* the other thread has it */
    return NULL;
}

static void lock_each_other_out(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    pthread_mutex_lock(&lock);
    pthread_create(&thread, NULL, lock_for_ever, &lock);
    pthread_join(thread, NULL);
}

static void work(void)
{
    volatile unsigned count = 0;
    for (uint64_t begun = nondet_now_ns(); nondet_now_ns() - begun < 2 * SECOND_NS;) {
        count = count + 1;
    }
}

static void work_for_ever(void)
{
    for (;;) {
        work();
    }
}

static void wait_for_a_child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        usleep(1500000);
        _exit(0);
    }
    while (waitpid(pid, NULL, 0) != pid) {
    }
}

static void outlive_an_alarm(void)
{
    alarm(1);
    work_for_ever();
}

START_TEST(who_stands_still_is_named)
{
    watched(stand_still);
    expect_told(SIGABRT, "stands still");
}
END_TEST

START_TEST(a_deadlock_shows_both_threads)
{
    watched(lock_each_other_out);
    expect_told(SIGABRT, "stands still");
    const char *first = strstr(said, "thread ");
    ck_assert_msg(strstr(first + 1, "thread ") != NULL, "%s", said);
    ck_assert_msg(strstr(said, "watch_test") != NULL, "no stack in: %s", said);
}
END_TEST

START_TEST(who_works_is_left_alone)
{
    watched(work);
    expect_left_alone();
}
END_TEST

START_TEST(who_waits_for_a_child_is_left_alone)
{
    watched(wait_for_a_child);
    expect_left_alone();
}
END_TEST

START_TEST(work_without_an_end_is_ended)
{
    watched(work_for_ever);
    expect_told(SIGABRT, "finds no end");
}
END_TEST

START_TEST(a_limit_of_the_test_itself_is_told_in_the_same_way)
{
    watched(outlive_an_alarm);
    expect_told(SIGALRM, "took longer than it may");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("watch");
    TCase *tcase = tcase_create("tests");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, who_stands_still_is_named);
    tcase_add_test(tcase, a_deadlock_shows_both_threads);
    tcase_add_test(tcase, who_works_is_left_alone);
    tcase_add_test(tcase, who_waits_for_a_child_is_left_alone);
    tcase_add_test(tcase, work_without_an_end_is_ended);
    tcase_add_test(tcase, a_limit_of_the_test_itself_is_told_in_the_same_way);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
