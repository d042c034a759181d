/* SPDX-License-Identifier: Apache-2.0 */
/* One wrapper per function: it fails when its turn has come, else it passes the call on. */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/faults/faults.h"

static struct {
    atomic_bool armed;
    enum fault_kind kind;
    const char *only; /* the name of the calls counted, or NULL for all */
    uint64_t at, times;
    int error;
    atomic_ullong seen;
    pthread_mutex_t lock; /* guards hit: threads of the code under test may still run */
    struct fault_hit hit;
} fault = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *count_malloc(size_t size_bytes)
{
    return faults_strike(FAULT_MEMORY, "malloc of cJSON", NULL, -1) ? NULL : malloc(size_bytes);
}

static void arm(enum fault_kind kind, const char *only, uint64_t at, int error, uint64_t times)
{
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = count_malloc, .free_fn = free});
    pthread_mutex_lock(&fault.lock);
    memset(&fault.hit, 0, sizeof fault.hit);
    pthread_mutex_unlock(&fault.lock);
    fault.kind = kind;
    fault.only = only;
    fault.at = at;
    fault.times = times;
    fault.error = error;
    atomic_store(&fault.seen, 0);
    atomic_store(&fault.armed, true);
}

void faults_arm(enum fault_kind kind, uint64_t at, int error, uint64_t times)
{
    arm(kind, NULL, at, error, times);
}

void faults_arm_call(const char *name, int error)
{
    arm(FAULT_CALL, name, 1, error, 1);
}

void faults_disarm(struct fault_hit *hit)
{
    atomic_store(&fault.armed, false);
    pthread_mutex_lock(&fault.lock);
    *hit = fault.hit;
    pthread_mutex_unlock(&fault.lock);
}

int faults_error(void)
{
    return fault.error;
}

static void tell(const char *name, const char *path, int fd)
{
    char link[64];
    pthread_mutex_lock(&fault.lock);
    if (fault.hit.struck) {
        pthread_mutex_unlock(&fault.lock);
        return;
    }
    snprintf(fault.hit.name, sizeof fault.hit.name, "%s", name);
    if (path != NULL) {
        snprintf(fault.hit.file, sizeof fault.hit.file, "%s", path);
    } else if (fd >= 0) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, fault.hit.file, sizeof fault.hit.file - 1);
        fault.hit.file[length > 0 ? length : 0] = '\0';
    }
    fault.hit.struck = true;
    pthread_mutex_unlock(&fault.lock);
}

bool faults_strike(enum fault_kind kind, const char *name, const char *path, int fd)
{
    if (!atomic_load(&fault.armed) || kind != fault.kind ||
        (fault.only != NULL && strcmp(name, fault.only) != 0)) {
        return false;
    }
    uint64_t number = atomic_fetch_add(&fault.seen, 1) + 1;
    if (number < fault.at || number - fault.at >= fault.times) {
        return false;
    }
    tell(name, path, fd);
    errno = fault.error;
    return true;
}

/* ---- the wrappers ---- */

#define WRAP(type, name, parameters, arguments, kind, path, fd, failure)              \
    type __real_##name parameters;                                                    \
    type __wrap_##name parameters;                                                    \
    type __wrap_##name parameters                                                     \
    {                                                                                 \
        return faults_strike(kind, #name, path, fd) ? failure : __real_##name arguments; \
    }

#define CALL(type, name, parameters, arguments, path, fd, failure) \
    WRAP(type, name, parameters, arguments, FAULT_CALL, path, fd, failure)
#define MEMORY(name, parameters, arguments) \
    WRAP(void *, name, parameters, arguments, FAULT_MEMORY, NULL, -1, NULL)
/* liburing returns its errors. */
#define RING(name, parameters, arguments) \
    CALL(int, name, parameters, arguments, NULL, -1, -faults_error())

MEMORY(malloc, (size_t size), (size))
MEMORY(calloc, (size_t count, size_t size), (count, size))
MEMORY(realloc, (void *old, size_t size), (old, size))
MEMORY(aligned_alloc, (size_t alignment, size_t size), (alignment, size))
WRAP(char *, strdup, (const char *text), (text), FAULT_MEMORY, NULL, -1, NULL)

CALL(int, fstat, (int fd, struct stat *out), (fd, out), NULL, fd, -1)
CALL(int, stat, (const char *path, struct stat *out), (path, out), path, -1, -1)
CALL(int, statx, (int dir, const char *path, int flags, unsigned mask, struct statx *out),
     (dir, path, flags, mask, out), path[0] != '\0' ? path : NULL, dir, -1)
CALL(DIR *, opendir, (const char *path), (path), path, -1, NULL)
CALL(FILE *, fopen, (const char *path, const char *mode), (path, mode), path, -1, NULL)
CALL(char *, realpath, (const char *path, char *out), (path, out), path, -1, NULL)
CALL(off_t, lseek, (int fd, off_t offset, int whence), (fd, offset, whence), NULL, fd, -1)
CALL(ssize_t, read, (int fd, void *out, size_t size), (fd, out, size), NULL, fd, -1)
CALL(void *, mmap, (void *at, size_t size, int access, int flags, int fd, off_t offset),
     (at, size, access, flags, fd, offset), NULL, -1, MAP_FAILED)
CALL(int, mprotect, (void *at, size_t size, int access), (at, size, access), NULL, -1, -1)
CALL(int, madvise, (void *at, size_t size, int advice), (at, size, advice), NULL, -1, -1)
CALL(int, eventfd, (unsigned value, int flags), (value, flags), NULL, -1, -1)
CALL(int, getrlimit, (__rlimit_resource_t what, struct rlimit *out), (what, out), NULL, -1, -1)
CALL(int, setrlimit, (__rlimit_resource_t what, const struct rlimit *limit), (what, limit), NULL,
     -1, -1)
/* Threads return their errors, unsigned. */
CALL(int, pthread_create,
     (pthread_t *out, const pthread_attr_t *how, void *(*body)(void *), void *argument),
     (out, how, body, argument), NULL, -1, faults_error())

RING(io_uring_register_ring_fd, (struct io_uring *ring), (ring))
RING(io_uring_ring_dontfork, (struct io_uring *ring), (ring))
RING(io_uring_register_files, (struct io_uring *ring, const int *files, unsigned count),
     (ring, files, count))
RING(io_uring_register_buffers_sparse, (struct io_uring *ring, unsigned count), (ring, count))
RING(io_uring_register_buffers_update_tag,
     (struct io_uring *ring, unsigned at, const struct iovec *iov, const __u64 *tags,
      unsigned count), (ring, at, iov, tags, count))
CALL(struct io_uring_probe *, io_uring_get_probe_ring, (struct io_uring *ring), (ring), NULL, -1,
     NULL)
RING(io_uring_queue_init_params,
     (unsigned entries, struct io_uring *ring, struct io_uring_params *p), (entries, ring, p))

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
    va_end(list);
    return faults_strike(FAULT_CALL, "open", path, -1) ? -1 : __real_open(path, flags, mode);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...) /* only those that take an int or nothing */
{
    va_list list;
    va_start(list, command);
    int argument = command == F_GETFL ? 0 : va_arg(list, int);
    va_end(list);
    return faults_strike(FAULT_CALL, "fcntl", NULL, fd) ? -1
                                                        : __real_fcntl(fd, command, argument);
}

ssize_t __real_pread(int fd, void *target, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *target, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *target, size_t size, off_t offset)
{
    if (faults_strike(FAULT_READ, "pread", NULL, fd)) {
        return -1;
    }
    if (!drive_armed()) {
        return __real_pread(fd, target, size, offset);
    }
    int error = drive_before(fd, (uint64_t)offset);
    if (error != 0) {
        errno = error;
        return -1;
    }
    ssize_t got = __real_pread(fd, target, size, offset);
    return got > 0 ? (ssize_t)drive_after(fd, (uint64_t)offset, target, got) : got;
}

/* What builds with checks of buffers call instead. */
ssize_t __wrap___pread_chk(int fd, void *target, size_t size, off_t offset, size_t room);
ssize_t __wrap___pread_chk(int fd, void *target, size_t size, off_t offset, size_t room)
{
    return size <= room ? __wrap_pread(fd, target, size, offset) : (abort(), -1);
}

ssize_t __wrap___read_chk(int fd, void *target, size_t size, size_t room);
ssize_t __wrap___read_chk(int fd, void *target, size_t size, size_t room)
{
    return size <= room ? __wrap_read(fd, target, size) : (abort(), -1);
}

char *__wrap___realpath_chk(const char *path, char *out, size_t room);
char *__wrap___realpath_chk(const char *path, char *out, size_t room)
{
    return room >= PATH_MAX ? __wrap_realpath(path, out) : (abort(), NULL);
}

DIR *__real_opendir(const char *path);

unsigned faults_open_files(void)
{
    unsigned count = 0;
    DIR *folder = __real_opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}
