/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

/* Errors are ints: 0 or positive is success, negative is one of the codes below.
 * The one-line message is written where the failure is born, kept per thread, and the first
 * one wins until err_clear(); what is no UTF-8 or could steer a terminal becomes '?'. Only cli
 * prints it. A thread that hands a failure to another copies err_message() itself. */

/* X(name, code, exit status of the program, what it means) */
#define ERR_LIST(X)                                                       \
    X(ERR_RUN, -5001, 1, "the run failed")                                \
    X(ERR_IO, -5002, 1, "a read or write failed")                         \
    X(ERR_NUMERIC, -5003, 1, "a value was not finite")                    \
    X(ERR_OUTPUT, -5004, 1, "an output could not be written")             \
    X(ERR_MEMORY, -5005, 1, "the system refused memory or threads")       \
    X(ERR_USAGE, -5006, 2, "the command line is wrong")                   \
    X(ERR_MODEL, -5007, 3, "the model or a trace was refused")            \
    X(ERR_FIT, -5008, 4, "the request does not fit")                      \
    X(ERR_VERDICT, -5009, 5, "the benchmark verdict is invalid")          \
    X(ERR_STOPPED, -5010, 130, "stopped by a signal")

enum err_code {
#define X(name, code, status, meaning) name = code,
    ERR_LIST(X)
#undef X
};

#define ERR_MESSAGE_BYTES 1024

/* Records a message (printf form, no newline) unless this thread already holds one; one of
 * ERR_MEMORY that says no cure (after a semicolon) gets the usual one. Returns code, so that
 * callers write `return err_set(ERR_MODEL, ...)`. */
int err_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* `make analyze` looks at one file at a time and is told that the code comes back. */
#ifdef K3RING_ANALYZED
static inline int err_same_(int code, int same)
{
    (void)same;
    return code;
}
#define err_set(code, ...) err_same_((code), (err_set)((code), __VA_ARGS__))
#endif

/* The message of this thread; "" when there is none. Valid until the next err_* call here. */
const char *err_message(void);
/* The code it was recorded with; 0 when there is none. */
int err_code(void);
void err_clear(void);

/* After err_clear() and a report of the failure `first`: records it again, and with it what the
 * report met, if it met something. Returns code. */
int err_after(int code, const char *first);

/* Exit status of the program for a code: 0 for success, 1 for codes of no list. */
int err_exit_status(int code);

/* The only macro that hides control flow: returns a negative result to the caller. */
#define TRY(call)               \
    do {                        \
        int try_rc_ = (call);   \
        if (try_rc_ < 0) {      \
            return try_rc_;     \
        }                       \
    } while (0)

#endif
