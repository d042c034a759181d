/* SPDX-License-Identifier: Apache-2.0 */

/* What a user is told where the kernel refuses a ring or its memory. Each case lives in a child,
 * since filters, limits and a given-up root cannot be taken back. */

#include <check.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "io/io.h"
#include "tests/support/suite.h"

#define BUFFER_BYTES (2 * MIB)
#define READ_BYTES ((uint32_t)(64 * KIB))
#define DEPTH 8U
#define SECOND_NS 1000000000ULL
#define SKIP_USER 77
#define SKIP_KERNEL 78

static char path[64];
static struct io_files files;
static unsigned char *memory;
static struct io *io;

static void setup(void)
{
    memory = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                  0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    snprintf(path, sizeof path, "/tmp/k3ring-io-refusal-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    memset(memory, 0x3C, READ_BYTES);
    ck_assert_int_eq(write(fd, memory, READ_BYTES), (ssize_t)READ_BYTES);
    close(fd);
    memset(memory, 0, READ_BYTES);
    const char *paths[] = {path};
    ck_assert_int_eq(io_files_open(&files, paths, NULL, 1), 0);
    err_clear();
    io = NULL;
}

static void teardown(void)
{
    io_files_close(&files);
    unlink(path);
    munmap(memory, BUFFER_BYTES);
}

static void ignore(struct io_req *req)
{
    (void)req;
}

/* Runs body in a child and returns its exit status; the child must not return. */
static int status_of(int (*body)(void))
{
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        _exit(body());
    }
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect_or_skip(int status)
{
    if (status == SKIP_USER) {
        fprintf(stderr, "skipped: not root, cannot set limits and become another user\n");
    } else if (status == SKIP_KERNEL) {
        fprintf(stderr, "skipped: this kernel filters, charges or refuses otherwise\n");
    } else {
        ck_assert_int_eq(status, 0);
    }
}

static int open_refused(void)
{
    struct io_options options = {.engine = IO_URING, .depth = DEPTH, .buffer_count = 1};
    int rc = io_open(&io, &options, &files);
    return rc == ERR_RUN && io == NULL && strstr(err_message(), "--io pread") != NULL;
}

static int with_a_filter(uint32_t answer)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = countof(code), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        return SKIP_KERNEL;
    }
    if (!open_refused()) {
        return 1;
    }
    bool named = strstr(err_message(), "seccomp") != NULL ||
                 strstr(err_message(), "io_uring_disabled") != NULL;
    return named ? 0 : 2;
}

static int with_a_filter_that_forbids(void)
{
    return with_a_filter(EPERM);
}

static int with_a_filter_that_hides(void)
{
    return with_a_filter(ENOSYS);
}

START_TEST(a_seccomp_filter_is_named_with_its_cure)
{
    expect_or_skip(status_of(with_a_filter_that_forbids));
}
END_TEST

START_TEST(a_filter_that_denies_the_call_exists_is_named_too)
{
    expect_or_skip(status_of(with_a_filter_that_hides));
}
END_TEST

static bool become_nobody(rlim_t memlock_bytes)
{
    struct rlimit limit = {.rlim_cur = memlock_bytes, .rlim_max = memlock_bytes};
    return setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && setuid(65534) == 0;
}

static int without_locked_memory(void)
{
    if (!become_nobody(0)) {
        return SKIP_USER;
    }
    if (!open_refused()) {
        return io != NULL ? SKIP_KERNEL : 1; /* some kernels do not charge rings */
    }
    return strstr(err_message(), "locked memory limit of 0 KiB") != NULL ? 0 : 2;
}

static int with_little_locked_memory(void)
{
    if (!become_nobody(1 * MIB)) {
        return SKIP_USER;
    }
    struct io_options options = {.engine = IO_URING, .depth = DEPTH, .buffer_count = 1};
    if (io_open(&io, &options, &files) < 0) {
        return SKIP_KERNEL;
    }
    if (io_register_buffer(io, 0, memory, BUFFER_BYTES) != -ENOMEM) {
        return 1;
    }
    struct io_req req = {.size_bytes = READ_BYTES,
                         .target = memory,
                         .buffer = 0, /* asked for, no longer in force */
                         .done = ignore};
    io_read(io, &req);
    while (io_in_flight(io) > 0 && io_run(io, SECOND_NS) >= 0) {
    }
    bool right = req.res == (int32_t)READ_BYTES && memory[READ_BYTES - 1] == 0x3C;
    io_close(io);
    return right ? 0 : 2;
}

START_TEST(without_locked_memory_the_limit_is_named)
{
    expect_or_skip(status_of(without_locked_memory));
}
END_TEST

START_TEST(with_little_locked_memory_reads_are_plain)
{
    expect_or_skip(status_of(with_little_locked_memory));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("io_refusal");
    TCase *tcase = tcase_create("refusals");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_seccomp_filter_is_named_with_its_cure);
    tcase_add_test(tcase, a_filter_that_denies_the_call_exists_is_named_too);
    tcase_add_test(tcase, without_locked_memory_the_limit_is_named);
    tcase_add_test(tcase, with_little_locked_memory_reads_are_plain);
    suite_add_tcase(suite, tcase);
    return suite_run(suite) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
