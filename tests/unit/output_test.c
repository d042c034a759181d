/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/cli/output.h"
#include "core/cli/temporary.h"
#include "tests/support/suite.h"

#define NOBODY 65534

static char dir[64];
static char path[128];
static unsigned folders_flushed, files_flushed;

/* In place of the C library's, for the code under test too. */
int fsync(int fd)
{
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    folders_flushed += S_ISDIR(st.st_mode);
    files_flushed += S_ISREG(st.st_mode);
    return (int)syscall(SYS_fsync, fd);
}

static void setup(void)
{
    snprintf(dir, sizeof dir, "/tmp/k3ring-output-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/out.json", dir);
    err_clear();
}

static void in_dir(const char *name, char full[128])
{
    snprintf(full, 128, "%s/%s", dir, name);
}

/* Files of the folder; removes them when asked to. */
static int files(bool removing)
{
    int count = 0;
    DIR *stream = opendir(dir);
    for (const struct dirent *e; (e = readdir(stream)) != NULL;) {
        if (e->d_name[0] == '.' && (e->d_name[1] == '\0' || e->d_name[1] == '.')) {
            continue;
        }
        count++;
        if (removing) {
            char full[400];
            snprintf(full, sizeof full, "%s/%s", dir, e->d_name);
            remove(full);
        }
    }
    closedir(stream);
    return count;
}

static void teardown(void)
{
    files(true);
    rmdir(dir);
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
}

static void expect_text(const char *name, const char *text)
{
    char got[256] = "";
    FILE *file = fopen(name, "r");
    ck_assert_msg(file != NULL, "no %s", name);
    got[fread(got, 1, sizeof got - 1, file)] = '\0';
    fclose(file);
    ck_assert_str_eq(got, text);
}

static void expect_refused(int rc, const char *part)
{
    ck_assert_int_eq(rc, ERR_OUTPUT);
    ck_assert_msg(strstr(err_message(), part) != NULL, "no '%s' in: %s", part, err_message());
    ck_assert_msg(strstr(err_message(), "Success") == NULL, "%s", err_message());
}

START_TEST(a_file_appears_only_when_it_is_whole)
{
    struct output out;
    ck_assert_int_eq(output_open(&out, path), 0);
    fputs("half", out.file);
    fflush(out.file);
    ck_assert_int_ne(access(path, F_OK), 0);
    fputs(" and half", out.file);
    ck_assert_int_eq(output_commit(&out), 0);
    expect_text(path, "half and half");
    ck_assert_int_eq(files(false), 1);
}
END_TEST

START_TEST(an_old_file_stays_until_the_new_one_replaces_it)
{
    struct output out;
    put(path, "old and longer");
    ck_assert_int_eq(output_open(&out, path), 0);
    fputs("new", out.file);
    fflush(out.file);
    expect_text(path, "old and longer");
    ck_assert_int_eq(output_commit(&out), 0);
    expect_text(path, "new");
    ck_assert_int_eq(files(false), 1);
}
END_TEST

START_TEST(an_abandoned_file_leaves_the_old_one_and_nothing_else)
{
    struct output out;
    put(path, "old");
    ck_assert_int_eq(output_open(&out, path), 0);
    fputs("new", out.file);
    output_abandon(&out);
    output_abandon(&out); /* twice does no harm */
    expect_text(path, "old");
    ck_assert_int_eq(files(false), 1);
}
END_TEST

START_TEST(the_permissions_are_those_of_a_file_made_plainly)
{
    struct stat st;
    mode_t mask = umask(027);
    ck_assert_int_eq(output_text(path, "x"), 0);
    umask(mask);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0640);
}
END_TEST

START_TEST(a_missing_folder_is_refused_at_once)
{
    struct output out;
    char inside[128];
    in_dir("missing/out.json", inside);
    expect_refused(output_open(&out, inside), "No such file or directory");
    ck_assert_ptr_nonnull(strstr(err_message(), inside));
    ck_assert_ptr_null(out.file);
}
END_TEST

START_TEST(a_folder_and_an_empty_name_are_no_files)
{
    struct output out;
    expect_refused(output_open(&out, dir), "Is a directory");
    err_clear();
    expect_refused(output_open(&out, ""), "empty name");
}
END_TEST

START_TEST(a_full_device_is_an_error_however_much_is_written)
{
    static const size_t sizes[] = {1, 5000, 1000000};
    if (access("/dev/full", W_OK) != 0) {
        printf("skip: no /dev/full\n");
        return;
    }
    char *text = malloc(sizes[_i] + 1);
    memset(text, 'x', sizes[_i]);
    text[sizes[_i]] = '\0';
    expect_refused(output_text("/dev/full", text), "/dev/full");
    free(text);
    ck_assert_int_eq(access("/dev/full", W_OK), 0);
}
END_TEST

START_TEST(a_device_is_written_in_place)
{
    struct stat st;
    ck_assert_int_eq(output_text("/dev/null", "text"), 0);
    ck_assert_int_eq(stat("/dev/null", &st), 0);
    ck_assert(S_ISCHR(st.st_mode));
}
END_TEST

START_TEST(a_symbolic_link_is_written_through)
{
    char link[128];
    struct stat st;
    in_dir("link", link);
    put(path, "old");
    ck_assert_int_eq(symlink(path, link), 0);
    ck_assert_int_eq(output_text(link, "new"), 0);
    expect_text(path, "new");
    ck_assert_int_eq(lstat(link, &st), 0);
    ck_assert(S_ISLNK(st.st_mode));
    ck_assert_int_eq(files(false), 2);
}
END_TEST

START_TEST(what_a_killed_process_left_is_no_hindrance)
{
    char stale[160];
    snprintf(stale, sizeof stale, "%s.tmp.%ld", path, (long)getpid());
    put(stale, "half");
    ck_assert_int_eq(output_text(path, "whole"), 0);
    expect_text(path, "whole");
    ck_assert_int_eq(files(false), 1);
}
END_TEST

/* A number that no process has. */
static long dead(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    return pid;
}

START_TEST(what_dead_processes_left_of_a_file_is_removed)
{
    char name[160];
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, i == 0 ? "%s.tmp.%ld" : "%s.tmp.%ld.3", path, dead());
        put(name, "half");
    }
    ck_assert_int_eq(files(false), 2);
    ck_assert_int_eq(output_text(path, "whole"), 0);
    expect_text(path, "whole");
    ck_assert_int_eq(files(false), 1);
}
END_TEST

/* Of a process that lives, of one elsewhere with a number that is dead here (it holds the lock), of
 * other files, and of other programs. */
START_TEST(what_may_be_anothers_is_left_alone)
{
    char name[5][160];
    long none = dead();
    snprintf(name[0], sizeof name[0], "%s.tmp.%ld", path, (long)getppid());
    snprintf(name[1], sizeof name[1], "%s.tmp.%ld", path, none);
    snprintf(name[2], sizeof name[2], "%s.b.tmp.%ld", path, none);
    snprintf(name[3], sizeof name[3], "%s.tmp.%ld~", path, none);
    snprintf(name[4], sizeof name[4], "%s.tmp.x", path);
    for (size_t i = 0; i < countof(name); i++) {
        put(name[i], "not ours");
    }
    int held = open(name[1], O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(flock(held, LOCK_EX | LOCK_NB), 0);
    ck_assert_int_eq(output_text(path, "whole"), 0);
    for (size_t i = 0; i < countof(name); i++) {
        expect_text(name[i], "not ours");
    }
    close(held);
    ck_assert_int_eq(files(false), 6);
}
END_TEST

/* As in two containers: the second one may neither take the first one's file nor its name. */
START_TEST(two_processes_of_one_number_write_side_by_side)
{
    struct output first, second;
    ck_assert_int_eq(output_open(&first, path), 0);
    ck_assert_int_eq(output_open(&second, path), 0);
    fputs("the first", first.file);
    fputs("the second", second.file);
    ck_assert_int_eq(output_commit(&first), 0);
    expect_text(path, "the first");
    ck_assert_int_eq(output_commit(&second), 0);
    expect_text(path, "the second");
    ck_assert_int_eq(files(false), 1);
}
END_TEST

static atomic_bool sweeping;

static void *sweep_all_the_time(void *unused)
{
    while (atomic_load(&sweeping)) {
        temporary_sweep(path);
    }
    return unused;
}

/* Its lock holds until it has its name. */
START_TEST(a_finished_file_is_not_taken_for_a_dead_process_s)
{
    pthread_t sweeper;
    struct output out;
    atomic_store(&sweeping, true);
    ck_assert_int_eq(pthread_create(&sweeper, NULL, sweep_all_the_time, NULL), 0);
    for (int i = 0; i < 200; i++) {
        ck_assert_int_eq(output_open(&out, path), 0);
        fputs("whole", out.file);
        ck_assert_msg(output_commit(&out) == 0, "file %d: %s", i, err_message());
    }
    atomic_store(&sweeping, false);
    pthread_join(sweeper, NULL);
    expect_text(path, "whole");
    ck_assert_int_eq(files(false), 1);
}
END_TEST

START_TEST(the_reason_outlives_a_write_that_failed_earlier)
{
    struct output out;
    ck_assert_int_eq(output_open(&out, "/dev/full"), 0);
    fputs("lost", out.file);
    ck_assert_int_ne(fflush(out.file), 0);
    expect_refused(output_commit(&out), "No space left");
}
END_TEST

START_TEST(a_target_that_became_a_folder_is_an_error_and_leaves_nothing)
{
    struct output out;
    ck_assert_int_eq(output_open(&out, path), 0);
    fputs("text", out.file);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    expect_refused(output_commit(&out), path);
    ck_assert_int_eq(files(false), 1);
}
END_TEST

/* Runs in a child: standard output and the user are of the whole process. */
static int in_child(int (*body)(void))
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        _exit(body());
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "the child was killed");
    return WEXITSTATUS(status);
}

static int write_as_nobody(void)
{
    struct output out;
    if (geteuid() == 0 && setuid(NOBODY) != 0) {
        return 77;
    }
    int rc = output_open(&out, path);
    return rc == ERR_OUTPUT && strstr(err_message(), "Permission denied") != NULL ? 0 : 1;
}

START_TEST(a_read_only_folder_is_refused)
{
    ck_assert_int_eq(chmod(dir, 0555), 0);
    int status = in_child(write_as_nobody);
    ck_assert_int_eq(chmod(dir, 0755), 0);
    if (status == 77) {
        printf("skip: cannot become another user\n");
        return;
    }
    ck_assert_int_eq(status, 0);
}
END_TEST

static int write_to_stdout(void)
{
    if (freopen(path, "w", stdout) == NULL) {
        return 1;
    }
    fputs("before ", stdout);
    if (output_text("-", "text") != 0 || ferror(stdout)) {
        return 2;
    }
    fputs(" after", stdout); /* it is still open */
    return output_flush_stdout() == 0 ? 0 : 3;
}

START_TEST(a_dash_is_standard_output)
{
    ck_assert_int_eq(in_child(write_to_stdout), 0);
    expect_text(path, "before text after");
    ck_assert_int_ne(access("-", F_OK), 0);
}
END_TEST

static int flush_full_stdout(void)
{
    if (freopen("/dev/full", "w", stdout) == NULL) {
        return 1;
    }
    fputs("text", stdout);
    if (output_flush_stdout() != ERR_OUTPUT ||
        strstr(err_message(), "standard output") == NULL) {
        return 2;
    }
    err_clear();
    return output_text("-", "text") == ERR_OUTPUT ? 0 : 3;
}

START_TEST(what_standard_output_loses_is_an_error)
{
    if (access("/dev/full", W_OK) != 0) {
        printf("skip: no /dev/full\n");
        return;
    }
    ck_assert_int_eq(in_child(flush_full_stdout), 0);
}
END_TEST

/* In folders of their own below dir, and count of them in each. */
static void commit_outputs(unsigned folders, unsigned count)
{
    for (unsigned i = 0; i < folders * count; i++) {
        char full[128], name[32];
        snprintf(name, sizeof name, "%u", i % folders);
        in_dir(name, full);
        ck_assert(mkdir(full, 0700) == 0 || access(full, F_OK) == 0);
        snprintf(name, sizeof name, "%u/%u", i % folders, i);
        in_dir(name, full);
        ck_assert_int_eq(output_text(full, "text"), 0);
        expect_text(full, "text");
    }
}

static void remove_outputs(unsigned folders, unsigned count)
{
    for (unsigned i = 0; i < folders * count; i++) {
        char full[128], name[32];
        snprintf(name, sizeof name, "%u/%u", i % folders, i);
        in_dir(name, full);
        ck_assert_int_eq(unlink(full), 0);
    }
}

/* More folders than are kept in mind are flushed as they come. */
START_TEST(each_file_is_flushed_and_each_folder_once_for_all_of_its_files)
{
    const unsigned folders = _i == 0 ? 1 : 12, count = _i == 0 ? 5 : 2;
    folders_flushed = files_flushed = 0;
    commit_outputs(folders, count);
    ck_assert_uint_eq(files_flushed, folders * count);
    ck_assert_uint_eq(folders_flushed, _i == 0 ? 0 : 16); /* eight at a time */
    output_flush_folders();
    ck_assert_uint_eq(folders_flushed, _i == 0 ? 1 : 24);
    output_flush_folders();
    ck_assert_uint_eq(folders_flushed, _i == 0 ? 1 : 24);
    remove_outputs(folders, count);
}
END_TEST

static Suite *output_suite(void)
{
    TCase *file = tcase_create("file");
    tcase_set_timeout(file, 60); /* hundreds of flushes, on a drive that others keep busy */
    tcase_add_checked_fixture(file, setup, teardown);
    tcase_add_test(file, a_file_appears_only_when_it_is_whole);
    tcase_add_test(file, an_old_file_stays_until_the_new_one_replaces_it);
    tcase_add_test(file, an_abandoned_file_leaves_the_old_one_and_nothing_else);
    tcase_add_test(file, the_permissions_are_those_of_a_file_made_plainly);
    tcase_add_test(file, what_a_killed_process_left_is_no_hindrance);
    tcase_add_test(file, what_dead_processes_left_of_a_file_is_removed);
    tcase_add_test(file, what_may_be_anothers_is_left_alone);
    tcase_add_test(file, two_processes_of_one_number_write_side_by_side);
    tcase_add_test(file, a_finished_file_is_not_taken_for_a_dead_process_s);
    tcase_add_test(file, the_reason_outlives_a_write_that_failed_earlier);
    tcase_add_test(file, a_symbolic_link_is_written_through);
    tcase_add_loop_test(file, each_file_is_flushed_and_each_folder_once_for_all_of_its_files, 0, 2);
    TCase *refusal = tcase_create("refusal");
    tcase_add_checked_fixture(refusal, setup, teardown);
    tcase_add_test(refusal, a_missing_folder_is_refused_at_once);
    tcase_add_test(refusal, a_folder_and_an_empty_name_are_no_files);
    tcase_add_test(refusal, a_read_only_folder_is_refused);
    tcase_add_test(refusal, a_target_that_became_a_folder_is_an_error_and_leaves_nothing);
    tcase_add_loop_test(refusal, a_full_device_is_an_error_however_much_is_written, 0, 3);
    TCase *stream = tcase_create("stream");
    tcase_add_checked_fixture(stream, setup, teardown);
    tcase_add_test(stream, a_device_is_written_in_place);
    tcase_add_test(stream, a_dash_is_standard_output);
    tcase_add_test(stream, what_standard_output_loses_is_an_error);
    Suite *suite = suite_create("output");
    suite_add_tcase(suite, file);
    suite_add_tcase(suite, refusal);
    suite_add_tcase(suite, stream);
    return suite;
}

int main(void)
{
    return suite_run(output_suite()) == 0 ? 0 : 1;
}
