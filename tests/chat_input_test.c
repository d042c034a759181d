/* SPDX-License-Identifier: Apache-2.0 */

/* What k3ring chat takes from pipes and files: how much of it, and what of it is text. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/suite.h"
#include "tests/support/talker.h"

static struct tiny babbler;
static char in_path[TINY_PATH_BYTES], talk_path[TINY_PATH_BYTES], session[TINY_PATH_BYTES];

static void setup_once(void)
{
    talker_make(&babbler, TINY_MEMORY);
    tiny_folder(&folder, TINY_MEMORY);
    tiny_path(&folder, "in", in_path);
    tiny_path(&folder, "talk.json", talk_path);
    tiny_path(&folder, "session.k3", session);
}

static void teardown_once(void)
{
    tiny_remove(&babbler);
    tiny_remove(&folder);
}

/* A file of one byte, again and again. */
static void fill(const char *name, char byte, size_t size)
{
    char *bytes = malloc(size);
    ck_assert_ptr_nonnull(bytes);
    memset(bytes, byte, size);
    tiny_put(&folder, name, bytes, size);
    free(bytes);
}

/* Neither what never fits into the context nor what the memory cannot hold is read to its end. */
START_TEST(a_line_without_an_end_is_not_read_to_it)
{
    unlink(in_path);
    ck_assert_int_eq(symlink("/dev/zero", in_path), 0);
    k3ring("chat tests/model --ram 64M --quiet");
    expect_refusal(2, "zero byte");
    unlink(in_path);
    fill("in", 'a', 8 << 20);
    k3ring("chat tests/model --ram 64M --quiet");
    expect_refusal(4, "standard input: line 1 has more than the 262144 bytes that 4096 positions");
    k3ring("chat tests/model --ram 64M --quiet --context 1000000");
    expect_refusal(4, "1000000 positions");
    fill("in", 'a', 262144);
    k3ring("chat tests/model --ram 64M --quiet");
    expect_refusal(4, "4096"); /* as long as may be: the context says that it does not fit */
}
END_TEST

START_TEST(a_file_of_messages_or_tools_that_is_too_long_is_refused_unread)
{
    const char *option = _i == 0 ? "--tools" : "--messages";
    tiny_put(&folder, "in", "", 0);
    fill("talk.json", ' ', 1 << 20);
    k3ring("chat tests/model --ram 64M --quiet %s %s", option, talk_path);
    expect_refusal(4, "talk.json has 1048576 bytes, more than the 360448 that 4096 positions");
    ck_assert_ptr_nonnull(strstr(process.err, option));
    k3ring("chat tests/model --ram 1M --quiet %s %s", option, talk_path);
    expect_refusal(4, "more than the 262144 that 1.0 MiB of RAM have room for; give a larger --r");
}
END_TEST

/* Other text would be answered by other tokens. */
static void same_as(const char *plain, size_t plain_bytes, const char *marked, size_t marked_bytes)
{
    char first[PROCESS_TEXT_BYTES];
    tiny_put(&folder, "in", plain, plain_bytes);
    k3ring("chat %s --gen 20 --seed 3 --no-thinking --quiet", babbler.dir);
    expect(0, NULL);
    memcpy(first, process.out, sizeof first);
    tiny_put(&folder, "in", marked, marked_bytes);
    k3ring("chat %s --gen 20 --seed 3 --no-thinking --quiet", babbler.dir);
    expect(0, NULL);
    ck_assert_str_eq(process.out, first);
}

START_TEST(line_ends_and_marks_of_other_systems_are_no_text)
{
    static const struct {
        const char *plain, *marked;
    } rows[] = {
        {"Hello\n\nAnd\n", "Hello\r\n\r\nAnd\r\n"},
        {"Hello\nAnd\n", "\xEF\xBB\xBFHello\r\nAnd\n"},
        {"\nHello", "\xEF\xBB\xBF\r\nHello"},
        {"", "\xEF\xBB\xBF"},
    };
    same_as(rows[_i].plain, strlen(rows[_i].plain), rows[_i].marked, strlen(rows[_i].marked));
}
END_TEST

/* Only these: a session shows what was said. */
START_TEST(other_carriage_returns_and_marks_stay)
{
    static const char lines[] = "a\rb\r\r\n\xEF\xBB\xBFz\nc\r";
    size_t size;
    unlink(session);
    tiny_put(&folder, "in", lines, sizeof lines - 1);
    k3ring("chat %s --gen 2 --no-thinking --quiet --session %s", babbler.dir, session);
    expect(0, NULL);
    unsigned char *kept = tiny_read(&folder, "session.k3", &size);
    ck_assert_ptr_nonnull(memmem(kept, size, "\"a\\rb\\r\"", 8));
    ck_assert_ptr_nonnull(memmem(kept, size, "\"\xEF\xBB\xBFz\"", 6));
    ck_assert_ptr_nonnull(memmem(kept, size, "\"c\\r\"", 5));
    free(kept);
    unlink(session);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat_input");
    TCase *all = tcase_create("all");
    if (process_binary() == NULL) {
        fprintf(stderr, "build k3ring first: this test runs it\n");
        return EXIT_FAILURE;
    }
    tcase_add_unchecked_fixture(all, setup_once, teardown_once);
    tcase_set_timeout(all, 300);
    tcase_add_test(all, a_line_without_an_end_is_not_read_to_it);
    tcase_add_loop_test(all, a_file_of_messages_or_tools_that_is_too_long_is_refused_unread, 0, 2);
    tcase_add_loop_test(all, line_ends_and_marks_of_other_systems_are_no_text, 0, 4);
    tcase_add_test(all, other_carriage_returns_and_marks_stay);
    suite_add_tcase(suite, all);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
