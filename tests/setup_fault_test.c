/* SPDX-License-Identifier: Apache-2.0 */
/* Opening an engine while the n-th system call, allocation or read fails, for n = 1, 2, .. until
 * none does: either it opens and gives the right tokens, or one line says what failed, on which
 * file, and what to do. No file is left open and, as the address sanitizer sees, no memory lost. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/file.h"
#include "tests/faults/faults.h"
#include "tests/support/amount.h"
#include "tests/support/suite.h"
#include "tests/support/tiny.h"

#define STRIDE AMOUNT(1, 2, 9)
#define ALL UINT64_MAX

static struct tiny tiny;
static char notes[4096];
static struct engine_facts facts;
static char features[128]; /* of the ring; facts point into an engine that is gone */
static char refused[ERR_MESSAGE_BYTES]; /* why there is no ring */
static char hash[65];
static char message[ERR_MESSAGE_BYTES];
static const char *only; /* the call that fails, whichever its number */
static struct rlimit memlock, nofile; /* as they were: opening raises them */

static void take_note(const char *line)
{
    size_t used = strlen(notes);
    snprintf(notes + used, sizeof notes - used, "%s\n", line);
}

static int generate_one(struct engine *e)
{
    uint32_t prompt[GOLDEN_PROMPT];
    uint32_t id = 0;
    for (int i = 0; i < GOLDEN_PROMPT; i++) {
        prompt[i] = (uint32_t)golden_prompt[i];
    }
    struct generate_request request = {.ids = prompt, .id_count = GOLDEN_PROMPT, .gen = 1};
    struct generate_result result = {.ids = &id};
    int rc = generate(e, &request, &result);
    generate_hash_text(result.hash, hash);
    engine_facts(e, &facts);
    snprintf(features, sizeof features, "%s", facts.io_features);
    snprintf(refused, sizeof refused, "%s", facts.io_refused != NULL ? facts.io_refused : "");
    ck_assert(rc < 0 || (int)id == golden_ids[0]);
    return rc;
}

/* Opens with the fault armed, then runs without it. Returns what opening or running came to. */
static int open_faulty(enum io_engine engine, enum fault_kind kind, uint64_t at, int error,
                       uint64_t times, struct fault_hit *hit)
{
    struct engine *e = NULL;
    struct engine_options o = tiny_options(1);
    unsigned files = faults_open_files();
    o.io = engine;
    o.note = take_note;
    notes[0] = message[0] = hash[0] = '\0';
    setrlimit(RLIMIT_MEMLOCK, &memlock);
    setrlimit(RLIMIT_NOFILE, &nofile);
    err_clear();
    watch_note("engine %d, kind %d, call %llu fails: %s", (int)engine, (int)kind,
               (unsigned long long)at, strerror(error));
    if (only != NULL) {
        faults_arm_call(only, error);
    } else {
        faults_arm(kind, at, error, times);
    }
    int rc = engine_open(&e, tiny.dir, &o);
    faults_disarm(hit);
    ck_assert(rc == 0 || e == NULL);
    rc = rc == 0 ? generate_one(e) : rc;
    snprintf(message, sizeof message, "%s", err_message());
    engine_close(e);
    err_clear();
    ck_assert_msg(faults_open_files() == files, "%s left a file open", hit->name);
    return rc;
}

static bool offers_a_cure(const char *text)
{
    static const char *const words[] = {"raise ", "check ", "free ",  "give ", "lower ",
                                        "run again", "fetch ", "copy ", "allow ", "close ",
                                        "restore ", "use ", "see ", "try ", "let "};
    for (size_t i = 0; i < countof(words); i++) {
        if (strstr(text, words[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* What is wrong with a line that should help a user, or NULL. */
static const char *fault_of_line(int rc, const struct fault_hit *hit, int error, uint64_t times)
{
    /* Shards are read side by side: when all calls fail, any of them may be the one named. */
    bool ours = times == 1 && strncmp(hit->file, tiny.dir, strlen(tiny.dir)) == 0;
    bool memory_text = strstr(message, "memory") != NULL;
    int status = err_exit_status(rc);
    bool forbidden = error == EPERM && status == 3; /* a matter of the model's owner */
    return status != 1 && !forbidden                                     ? "exit status"
           : !memory_text && strstr(message, strerror(error)) == NULL    ? "no errno"
           : ours && strstr(message, path_name(hit->file)) == NULL       ? "no file"
           : !offers_a_cure(message)                                     ? "no cure"
                                                                         : NULL;
}

/* Prints it; true when something is wrong. */
static bool complain(int rc, const struct fault_hit *hit, int error, uint64_t times)
{
    const char *wrong = fault_of_line(rc, hit, error, times);
    if (wrong != NULL) {
        printf("%s(%s), %s: %s: %d '%s'\n", hit->name, hit->file, strerror(error), wrong,
               err_exit_status(rc), message);
        fflush(stdout);
    }
    return wrong != NULL;
}

/* Every call of a kind fails in its turn. Returns how many there are. */
static uint64_t sweep(enum io_engine engine, enum fault_kind kind, int error, uint64_t times,
                      const char *right)
{
    uint32_t wrong = 0;
    bool patient = times == ALL && (error == EAGAIN || error == EINTR); /* half a second each */
    bool again = kind == FAULT_MEMORY && (times == ALL || engine == IO_PREAD); /* once was whole */
    for (uint64_t at = 1;; at += patient || again ? 6 * STRIDE : STRIDE) {
        struct fault_hit hit;
        int rc = open_faulty(engine, kind, at, error, times, &hit);
        ck_assert_msg(rc < 0 || strcmp(hash, right) == 0, "%s(%s): other logits", hit.name,
                      hit.file);
        if (!hit.struck) {
            ck_assert_msg(rc == 0, "no call failed, but: %s", message);
            ck_assert_msg(wrong == 0, "%u lines that do not help, printed above", wrong);
            return at - 1;
        }
        wrong += rc < 0 && complain(rc, &hit, error, times);
    }
}

static const char *right_hash(void)
{
    static char right[65];
    struct fault_hit hit;
    ck_assert_int_eq(open_faulty(IO_PREAD, FAULT_CALL, ALL, EIO, 1, &hit), 0);
    ck_assert(!hit.struck);
    memcpy(right, hash, sizeof right);
    return right;
}

START_TEST(whichever_system_call_fails_it_is_explained_or_made_up_for)
{
    static const int errors[] = {EIO, ENOMEM, EPERM, ENOSYS, EINVAL, EMFILE, EAGAIN, EINTR};
    const char *right = right_hash();
    uint64_t calls = sweep(IO_URING, FAULT_CALL, errors[_i], 1, right);
    ck_assert_uint_gt(calls, 40);
    if (errors[_i] == EIO || errors[_i] == EMFILE) {
        sweep(IO_PREAD, FAULT_CALL, errors[_i], 1, right);
    }
}
END_TEST

START_TEST(system_calls_that_stay_broken_are_explained)
{
    static const int errors[] = {EIO, ENOMEM, EMFILE, EAGAIN, EINTR};
    const char *right = right_hash();
    sweep(IO_URING, FAULT_CALL, errors[_i], ALL, right);
}
END_TEST

START_TEST(whichever_allocation_fails_it_is_explained)
{
    const char *right = right_hash();
    uint64_t allocations = sweep(IO_URING, FAULT_MEMORY, ENOMEM, 1, right);
    ck_assert_uint_gt(allocations, 100);
    sweep(IO_PREAD, FAULT_MEMORY, ENOMEM, 1, right);
    sweep(IO_URING, FAULT_MEMORY, ENOMEM, ALL, right);
}
END_TEST

START_TEST(whichever_read_at_open_fails_it_is_explained_or_repeated)
{
    const char *right = right_hash();
    uint64_t reads = sweep(IO_URING, FAULT_READ, EIO, ALL, right);
    ck_assert_uint_gt(reads, 100);
    sweep(IO_URING, FAULT_READ, EIO, 1, right);
}
END_TEST

START_TEST(a_transient_read_at_open_is_repeated)
{
    static const int errors[] = {EINTR, EAGAIN};
    const char *right = right_hash();
    for (uint64_t at = 1;; at += 1 + 10 * (STRIDE - 1)) {
        struct fault_hit hit;
        int rc = open_faulty(IO_URING, FAULT_READ, at, errors[_i], 3, &hit);
        ck_assert_msg(rc == 0, "read %llu of %s: %s", (unsigned long long)at, hit.file, message);
        ck_assert_str_eq(hash, right);
        if (!hit.struck) {
            break;
        }
    }
}
END_TEST

/* ---- what is refused as a whole ---- */

/* Opens while the first call of that name fails. */
static int open_refused(const char *name, int error, struct fault_hit *hit)
{
    only = name;
    int rc = open_faulty(IO_URING, FAULT_CALL, 1, error, 1, hit);
    only = NULL;
    ck_assert_str_eq(hit->name, name);
    return rc;
}

START_TEST(without_a_ring_the_pool_reads_and_a_note_says_why)
{
    static const struct {
        int error;
        const char *why;
    } rows[] = {{ENOSYS, "io_uring refused"}, {EPERM, "io_uring refused"},
                {ENOMEM, "locked memory"},        {EMFILE, "Too many open files"},
                {EFAULT, "Bad address"}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct fault_hit hit;
        int rc = open_refused("io_uring_queue_init_params", rows[i].error, &hit);
        ck_assert_msg(rc == 0, "%s", message);
        ck_assert_str_eq(facts.io_engine, "pread");
        ck_assert_msg(strstr(refused, rows[i].why) != NULL, "no '%s': %s", rows[i].why, refused);
        ck_assert_msg(strstr(notes, rows[i].why) != NULL, "no '%s' in: %s", rows[i].why, notes);
        ck_assert_msg(strstr(notes, "pread") != NULL, "%s", notes);
    }
}
END_TEST

START_TEST(without_registered_buffers_reads_are_plain_and_a_note_says_why)
{
    static const char *const names[] = {"io_uring_register_buffers_sparse",
                                        "io_uring_register_buffers_update_tag"};
    for (size_t i = 0; i < countof(names); i++) {
        struct fault_hit hit;
        int rc = open_refused(names[i], ENOMEM, &hit);
        ck_assert_msg(rc == 0, "%s", message);
        ck_assert_str_eq(facts.io_engine, "io_uring");
        ck_assert(!facts.fixed_buffers);
        ck_assert_ptr_null(strstr(features, "FIXED_BUFFERS"));
        ck_assert_msg(strstr(notes, "registered buffers off") != NULL, "%s", notes);
    }
}
END_TEST

START_TEST(without_registered_files_plain_descriptors_serve)
{
    struct fault_hit hit;
    ck_assert_int_eq(open_refused("io_uring_register_files", EMFILE, &hit), 0);
    ck_assert_str_eq(facts.io_engine, "io_uring");
    ck_assert_ptr_null(strstr(features, "FIXED_FILES"));
}
END_TEST

int main(void)
{
    tiny_make(&tiny, TINY_MEMORY);
    getrlimit(RLIMIT_MEMLOCK, &memlock);
    getrlimit(RLIMIT_NOFILE, &nofile);
    Suite *suite = suite_create("faults of opening");
    TCase *tcase = tcase_create("sweeps");
    tcase_set_timeout(tcase, 1200);
    tcase_add_loop_test(tcase, whichever_system_call_fails_it_is_explained_or_made_up_for, 0, 8);
    tcase_add_loop_test(tcase, system_calls_that_stay_broken_are_explained, 0, 5);
    tcase_add_test(tcase, whichever_allocation_fails_it_is_explained);
    tcase_add_test(tcase, whichever_read_at_open_fails_it_is_explained_or_repeated);
    tcase_add_loop_test(tcase, a_transient_read_at_open_is_repeated, 0, 2);
    tcase_add_test(tcase, without_a_ring_the_pool_reads_and_a_note_says_why);
    tcase_add_test(tcase, without_registered_buffers_reads_are_plain_and_a_note_says_why);
    tcase_add_test(tcase, without_registered_files_plain_descriptors_serve);
    suite_add_tcase(suite, tcase);
    int failed = suite_run(suite);
    tiny_remove(&tiny);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
