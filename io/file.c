/* SPDX-License-Identifier: Apache-2.0 */
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/retry.h"
#include "io/io.h"

static int64_t mtime_of(const struct stat *status)
{
    return (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec;
}

static void raise_nofile(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit); /* open() tells if it was not enough */
    }
}

static int open_patiently(const char *path, int flags)
{
    uint32_t retries = 0;
    int fd;
    do {
        fd = open(path, flags);
    } while (fd < 0 && retry_after(errno, &retries));
    return fd;
}

static int open_fd(const char *path, bool *direct)
{
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        return err_set(ERR_IO, "%s: not a regular file; give the files of the model", path);
    }
    int fd = open_patiently(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    *direct = fd >= 0;
    if (fd < 0 && (errno == EINVAL || errno == EOPNOTSUPP)) {
        fd = open_patiently(path, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0) {
        return err_set(ERR_IO, "%s: cannot open: %s; %s", path, strerror(errno),
                       file_cure(errno));
    }
    return fd;
}

static int read_failed(const struct io_file *file, uint64_t offset_bytes, uint64_t size_bytes,
                       int error)
{
    const char *cure = error == ENODATA ? "the file shrank; restore it" : io_cure(error);
    return err_set(ERR_IO, "%s: read of %llu bytes at offset %llu failed: %s; %s", file->path,
                   (unsigned long long)size_bytes, (unsigned long long)offset_bytes,
                   strerror(error), cure);
}

/* One aligned window, whole or up to the end of the file, with the rules of every read. Returns 0
 * or the errno (positive) it came to. */
static int read_window(const struct io_file *file, uint64_t offset_bytes, uint32_t want_bytes,
                       unsigned char *bounce)
{
    uint32_t got = 0;
    uint32_t retries = 0;
    for (;;) {
        ssize_t rc = pread(file->fd, bounce + got, want_bytes - got,
                           (off_t)(offset_bytes + got));
        int error = 0;
        switch (io_judge(rc < 0 ? -errno : rc, want_bytes, &got, offset_bytes,
                         file->size_bytes, &retries, &error)) {
        case IO_DONE:
            return 0;
        case IO_FAILED:
            return error;
        case IO_RETRY:
            retry_note();
            nanosleep(&(struct timespec){.tv_nsec = (long)io_pause_ns(retries)}, NULL);
            break;
        case IO_RESUME:
            break;
        }
    }
}

/* Some file systems take the flag and refuse the read. 1 = read well, 0 = refused. */
static int probe_direct(const struct io_file *file)
{
    unsigned char *page = aligned_alloc(PAGE_BYTES, PAGE_BYTES);
    if (page == NULL) {
        return err_set(ERR_MEMORY, "no memory for one page");
    }
    int error = file->size_bytes > 0 ? read_window(file, 0, PAGE_BYTES, page) : 0;
    free(page);
    if (error != 0 && error != EINVAL && error != EOPNOTSUPP) {
        return read_failed(file, 0, PAGE_BYTES, error);
    }
    return error == 0;
}

/* What the file system asks of direct reads; 0 when our pages do not satisfy it, -1 when it
 * says nothing. */
static int stated_alignment(const struct io_file *file)
{
#ifdef STATX_DIOALIGN
    struct statx status;
    if (statx(file->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
        (status.stx_mask & STATX_DIOALIGN) != 0) {
        uint64_t need = max_u64(status.stx_dio_mem_align, status.stx_dio_offset_align);
        bool usable = status.stx_dio_offset_align > 0 && PAGE_BYTES % need == 0;
        return usable ? (int)need : 0;
    }
#else
    (void)file;
#endif
    return -1;
}

static int settle_direct(struct io_file *file)
{
    int alignment = stated_alignment(file);
    if (alignment < 0) {
        int works = probe_direct(file);
        TRY(works);
        alignment = works == 1 ? (int)PAGE_BYTES : 0;
    }
    if (alignment > 0) {
        file->alignment = (uint32_t)alignment;
        return 0;
    }
    int flags = fcntl(file->fd, F_GETFL);
    if (flags < 0 || fcntl(file->fd, F_SETFL, flags & ~O_DIRECT) < 0) {
        return err_set(ERR_IO, "%s: direct reads are refused and cannot be turned off: %s; copy "
                       "the model to ext4 or xfs", file->path, strerror(errno));
    }
    file->direct = false;
    return 0;
}

/* File systems met so far, in the order they were met. */
struct devices {
    dev_t device[IO_DEVICES_MAX];
    uint32_t count;
};

static uint32_t device_number(struct devices *devices, dev_t device)
{
    for (uint32_t i = 0; i < devices->count; i++) {
        if (devices->device[i] == device) {
            return i;
        }
    }
    if (devices->count == IO_DEVICES_MAX) {
        return IO_DEVICES_MAX - 1;
    }
    devices->device[devices->count] = device;
    return devices->count++;
}

uint32_t io_devices_of(const char *const *paths, uint32_t count)
{
    struct devices devices = {.count = 0};
    struct stat status;
    for (uint32_t i = 0; i < count; i++) {
        if (stat(paths[i], &status) == 0) {
            device_number(&devices, status.st_dev);
        }
    }
    return devices.count > 0 ? devices.count : 1;
}

static int open_one(struct io_file *file, const char *path, const uint64_t *size_bytes,
                    struct devices *devices)
{
    file->path = strdup(path);
    if (file->path == NULL) {
        return err_set(ERR_MEMORY, "no memory for the name of a file");
    }
    file->alignment = 1;
    file->fd = open_fd(path, &file->direct);
    TRY(file->fd);
    struct stat status;
    if (fstat(file->fd, &status) < 0) {
        return err_set(ERR_IO, "%s: cannot be examined: %s; %s", path, strerror(errno),
                       io_cure(errno));
    }
    file->size_bytes = (uint64_t)status.st_size;
    file->mtime_ns = mtime_of(&status);
    file->device = device_number(devices, status.st_dev);
    if (size_bytes != NULL && *size_bytes != file->size_bytes) {
        return err_set(ERR_IO,
                       "%s: changed while opening: %llu bytes, but %llu a moment ago; let the "
                       "writer finish and run again",
                       path, (unsigned long long)file->size_bytes,
                       (unsigned long long)*size_bytes);
    }
    return file->direct ? settle_direct(file) : 0;
}

int io_files_open(struct io_files *files, const char *const *paths, const uint64_t *sizes,
                  uint32_t count)
{
    struct devices devices = {.count = 0};
    *files = (struct io_files){0};
    raise_nofile();
    files->file = calloc(max_u64(count, 1), sizeof *files->file);
    if (files->file == NULL) {
        return err_set(ERR_MEMORY, "no memory for a table of %u files", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        files->count = i + 1;
        files->file[i].fd = -1;
        int rc = open_one(&files->file[i], paths[i], sizes != NULL ? &sizes[i] : NULL,
                          &devices);
        if (rc < 0) {
            io_files_close(files);
            return rc;
        }
        files->direct_count += files->file[i].direct;
    }
    files->device_count = devices.count > 0 ? devices.count : 1;
    return 0;
}

void io_files_close(struct io_files *files)
{
    for (uint32_t i = 0; i < files->count; i++) {
        if (files->file[i].fd >= 0) {
            close(files->file[i].fd);
        }
        free(files->file[i].path);
    }
    free(files->file);
    *files = (struct io_files){0};
}

/* ---- reading at once ---- */

int io_file_read(const struct io_files *files, uint32_t file, uint64_t offset_bytes,
                 uint64_t size_bytes, void *target, void *bounce, uint64_t bounce_bytes,
                 uint64_t *read_bytes)
{
    assert(file < files->count);
    assert((uintptr_t)bounce % PAGE_BYTES == 0 && bounce_bytes >= 2 * PAGE_BYTES);
    const struct io_file *source = &files->file[file];
    if (size_bytes > source->size_bytes || offset_bytes > source->size_bytes - size_bytes) {
        return read_failed(source, offset_bytes, size_bytes, ENODATA);
    }
    unsigned char *out = target;
    uint64_t room_bytes = align_down(min_u64(bounce_bytes, GIB), PAGE_BYTES);
    uint64_t end = offset_bytes + size_bytes;
    for (uint64_t at = offset_bytes; at < end;) {
        uint64_t begin = align_down(at, PAGE_BYTES);
        uint64_t want = min_u64(room_bytes, align_up(end, PAGE_BYTES) - begin);
        int error = read_window(source, begin, (uint32_t)want, bounce);
        if (error != 0) {
            return read_failed(source, begin, want, error);
        }
        uint64_t part = min_u64(begin + want, end) - at;
        memcpy(out, (const unsigned char *)bounce + (at - begin), part);
        out += part;
        at += part;
        *read_bytes += want;
    }
    return 0;
}

/* ---- being the same ---- */

/* A file that was renamed or removed is still the one being read: only its content counts. */
static int check_unchanged(const struct io_file *file)
{
    struct stat now;
    if (fstat(file->fd, &now) < 0) {
        return err_set(ERR_IO, "%s: cannot be looked at: %s; %s", file->path, strerror(errno),
                       io_cure(errno));
    }
    if ((uint64_t)now.st_size != file->size_bytes) {
        return err_set(ERR_IO, "%s: changed while being read: its size went from %llu to %llu "
                       "bytes; the results cannot be trusted, run again on files at rest",
                       file->path, (unsigned long long)file->size_bytes,
                       (unsigned long long)now.st_size);
    }
    if (mtime_of(&now) != file->mtime_ns) {
        return err_set(ERR_IO, "%s: changed while being read: it was written to; the results "
                       "cannot be trusted, run again on files at rest", file->path);
    }
    return 0;
}

int io_files_unchanged(const struct io_files *files)
{
    for (uint32_t i = 0; i < files->count; i++) {
        TRY(check_unchanged(&files->file[i]));
    }
    return 0;
}
