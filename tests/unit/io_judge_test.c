/* SPDX-License-Identifier: Apache-2.0 */

/* The rules of completion, row by row. */

#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "io/io.h"
#include "tests/support/suite.h"

#define FILE_BYTES (1 * MIB + 1234)

struct row {
    const char *what;
    int64_t res;
    uint32_t want;
    uint32_t got;
    uint64_t offset;
    uint32_t times; /* the answer of this many calls in a row; the last one is judged */
    enum io_verdict verdict;
    uint32_t got_after;
    int error;
};

static const struct row rows[] = {
    {"all of it", 8192, 8192, 0, 0, 1, IO_DONE, 8192, 0},
    {"the rest of it", 4096, 8192, 4096, 0, 1, IO_DONE, 8192, 0},
    {"a short aligned part", 4096, 8192, 0, 0, 1, IO_RESUME, 4096, 0},
    {"a second short part", 4096, 16384, 4096, 8192, 1, IO_RESUME, 8192, 0},
    {"a short unaligned part", 5000, 16384, 0, 0, 1, IO_RESUME, 4096, 0},
    {"unaligned after progress", 4097, 16384, 4096, 0, 1, IO_RESUME, 8192, 0},
    {"less than a page", 100, 8192, 0, 0, 1, IO_RESUME, 0, 0},
    {"less than a page, 16 times", 100, 8192, 0, 0, 16, IO_RESUME, 0, 0},
    {"less than a page, for ever", 100, 8192, 0, 0, 17, IO_FAILED, 0, ENODATA},
    {"end of file in the last page", 1234, 4096, 0, 1 * MIB, 1, IO_DONE, 1234, 0},
    {"end of file after a page", 5330, 8192, 0, 1 * MIB - 4096, 1, IO_DONE, 5330, 0},
    {"end of file on the second part", 1234, 8192, 4096, 1 * MIB - 4096, 1, IO_DONE, 5330, 0},
    {"one byte before the end", 1233, 4096, 0, 1 * MIB, 1, IO_RESUME, 0, 0},
    {"a whole page where the file grew", 4096, 4096, 0, 1 * MIB, 1, IO_DONE, 4096, 0},
    {"part of a file that grew", 2000, 4096, 0, 1 * MIB, 1, IO_DONE, 2000, 0},
    {"nothing inside the file", 0, 8192, 0, 0, 1, IO_FAILED, 0, ENODATA},
    {"nothing after a part", 0, 8192, 4096, 0, 1, IO_FAILED, 4096, ENODATA},
    {"nothing past the end", 0, 4096, 0, 2 * MIB, 1, IO_FAILED, 0, ENODATA},
    {"more than asked for", 8193, 8192, 0, 0, 1, IO_FAILED, 0, EIO},
    {"more than the rest", 8192, 8192, 4096, 0, 1, IO_FAILED, 4096, EIO},
    {"interrupted", -EINTR, 8192, 0, 0, 1, IO_RETRY, 0, 0},
    {"interrupted 16 times", -EINTR, 8192, 0, 0, 16, IO_RETRY, 0, 0},
    {"interrupted 17 times", -EINTR, 8192, 0, 0, 17, IO_FAILED, 0, EBUSY},
    {"not now", -EAGAIN, 8192, 4096, 0, 1, IO_RETRY, 4096, 0},
    {"not now, 17 times", -EAGAIN, 8192, 0, 0, 17, IO_FAILED, 0, EBUSY},
    {"bad medium once", -EIO, 8192, 0, 0, 1, IO_RETRY, 0, 0},
    {"bad medium twice", -EIO, 8192, 0, 0, 2, IO_FAILED, 0, EIO},
    {"bad checksum twice", -EILSEQ, 8192, 0, 0, 2, IO_FAILED, 0, EILSEQ},
    {"remote error twice", -EREMOTEIO, 8192, 0, 0, 2, IO_FAILED, 0, EREMOTEIO},
    {"critical medium twice", -ENODATA, 8192, 0, 0, 2, IO_FAILED, 0, ENODATA},
    {"misaligned", -EINVAL, 8192, 0, 0, 1, IO_FAILED, 0, EINVAL},
    {"bad address", -EFAULT, 8192, 0, 0, 1, IO_FAILED, 0, EFAULT},
    {"bad descriptor", -EBADF, 8192, 0, 0, 1, IO_FAILED, 0, EBADF},
    {"no memory", -ENOMEM, 8192, 0, 0, 1, IO_RETRY, 0, 0},
    {"no memory, 17 times", -ENOMEM, 8192, 0, 0, 17, IO_FAILED, 0, ENOMEM},
    {"busy, 16 times", -EBUSY, 8192, 0, 0, 16, IO_RETRY, 0, 0},
    {"busy, 17 times", -EBUSY, 8192, 0, 0, 17, IO_FAILED, 0, EBUSY},
    {"cancelled", -ECANCELED, 8192, 0, 0, 1, IO_RETRY, 0, 0},
    {"cancelled, 17 times", -ECANCELED, 8192, 0, 0, 17, IO_FAILED, 0, ECANCELED},
    {"the drive's time ran out, once", -ETIMEDOUT, 8192, 0, 0, 1, IO_RETRY, 0, 0},
    {"the drive's time ran out, twice", -ETIMEDOUT, 8192, 0, 0, 2, IO_FAILED, 0, ETIMEDOUT},
    {"no path to the drive, twice", -ENOLINK, 8192, 0, 0, 2, IO_FAILED, 0, ENOLINK},
};

START_TEST(each_result_of_a_transfer_has_its_verdict)
{
    const struct row *row = &rows[_i];
    uint32_t got = row->got;
    uint32_t retries = 0;
    int error = 0;
    enum io_verdict verdict = IO_DONE;
    for (uint32_t i = 0; i < row->times; i++) {
        ck_assert_msg(i == 0 || verdict == IO_RETRY || verdict == IO_RESUME, "%s: call %u",
                      row->what, i);
        error = 0;
        verdict = io_judge(row->res, row->want, &got, row->offset, FILE_BYTES, &retries, &error);
    }
    ck_assert_msg(verdict == row->verdict, "%s: verdict %d", row->what, (int)verdict);
    ck_assert_msg(got == row->got_after, "%s: got %u", row->what, got);
    if (verdict == IO_FAILED) {
        ck_assert_msg(error == row->error, "%s: error %d", row->what, error);
    }
}
END_TEST

START_TEST(progress_forgives_earlier_interruptions)
{
    uint32_t got = 0;
    uint32_t retries = 0;
    int error = 0;
    for (int part = 0; part < 3; part++) {
        for (int i = 0; i < 16; i++) {
            ck_assert_int_eq(
                io_judge(-EAGAIN, 16384, &got, 0, FILE_BYTES, &retries, &error), IO_RETRY);
        }
        ck_assert_int_eq(io_judge(4096, 16384, &got, 0, FILE_BYTES, &retries, &error),
                         IO_RESUME);
    }
    ck_assert_uint_eq(got, 12288);
}
END_TEST

START_TEST(interruptions_and_medium_errors_are_counted_apart)
{
    uint32_t got = 0;
    uint32_t retries = 0;
    int error = 0;
    ck_assert_int_eq(io_judge(-EINTR, 8192, &got, 0, FILE_BYTES, &retries, &error), IO_RETRY);
    ck_assert_int_eq(io_judge(-EIO, 8192, &got, 0, FILE_BYTES, &retries, &error), IO_RETRY);
    ck_assert_int_eq(io_judge(-EINTR, 8192, &got, 0, FILE_BYTES, &retries, &error), IO_RETRY);
    ck_assert_int_eq(io_judge(4096, 8192, &got, 0, FILE_BYTES, &retries, &error), IO_RESUME);
    ck_assert_int_eq(io_judge(-EIO, 8192, &got, 0, FILE_BYTES, &retries, &error), IO_FAILED);
    ck_assert_int_eq(error, EIO);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("io_judge");
    TCase *tcase = tcase_create("rules");
    tcase_add_loop_test(tcase, each_result_of_a_transfer_has_its_verdict, 0,
                        (int)countof(rows));
    tcase_add_test(tcase, progress_forgives_earlier_interruptions);
    tcase_add_test(tcase, interruptions_and_medium_errors_are_counted_apart);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
