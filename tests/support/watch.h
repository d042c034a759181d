/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_WATCH_H
#define TESTS_SUPPORT_WATCH_H

/* A watch over each test: when the process stands still, it says which test that is, what it was
 * doing, what every thread waits for and where it is, and aborts. Standing still is using no
 * processor time to speak of, waiting for no drive and for no child, for half a minute; a test
 * that is busy for ever is ended after an hour, or by the limit of its test case.
 *
 * suite.h puts it around every test. A limit of the test's own, set with alarm(), is told in the
 * same way. */

struct watch_limits {
    unsigned first_ms;    /* before this nothing is looked at */
    unsigned tick_ms;     /* then this often */
    unsigned still_ticks; /* so many in a row without progress end it */
    unsigned ticks_max;   /* so many in all end it too */
};

void watch_set_limits(const struct watch_limits *limits); /* for the tests that follow */

void watch_began(const char *test, int loop); /* test outlives the call */
void watch_over(void);

/* What the test is doing now, for that report. Cheap. */
void watch_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
