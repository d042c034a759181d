/* SPDX-License-Identifier: Apache-2.0 */
/* refuse CALL ERRNO PROGRAM [ARGUMENTS]: runs a program to which the kernel refuses a system call,
 * as the seccomp filters of containers do. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct named {
    const char *name;
    int number;
};

static const struct named calls[] = {
    {"io_uring_setup", SYS_io_uring_setup},
    {"io_uring_enter", SYS_io_uring_enter},
    {"io_uring_register", SYS_io_uring_register},
    {"statx", SYS_statx},
    {"madvise", SYS_madvise},
    {"eventfd2", SYS_eventfd2},
    {"prlimit64", SYS_prlimit64},
    {"sched_getaffinity", SYS_sched_getaffinity},
    {"clone3", SYS_clone3},
    {NULL, 0},
};

static const struct named errors[] = {
    {"ENOSYS", ENOSYS}, {"EPERM", EPERM}, {"ENOMEM", ENOMEM}, {"EINVAL", EINVAL},
    {"EIO", EIO},       {"EACCES", EACCES}, {NULL, 0},
};

/* Ends the program when there is no such name. */
static int number_of(const struct named *list, const char *name)
{
    for (; list->name != NULL; list++) {
        if (strcmp(list->name, name) == 0) {
            return list->number;
        }
    }
    fprintf(stderr, "refuse: '%s' is not known here\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: refuse CALL ERRNO PROGRAM [ARGUMENTS]\n");
        return 2;
    }
    unsigned call = (unsigned)number_of(calls, argv[1]);
    unsigned error = (unsigned)number_of(errors, argv[2]);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("refuse: this kernel takes no filter");
        return 2;
    }
    execv(argv[3], argv + 3);
    perror(argv[3]);
    return 2;
}
