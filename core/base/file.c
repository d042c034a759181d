/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/retry.h"

int file_read_at(int fd, const char *path, uint64_t offset_bytes, void *target,
                 size_t size_bytes)
{
    size_t done = 0;
    uint32_t retries = 0;
    while (done < size_bytes) {
        const ssize_t got = pread(fd, (char *)target + done, size_bytes - done,
                                  (off_t)(offset_bytes + done));
        if (got < 0 && retry_after(errno, &retries)) {
            continue;
        }
        if (got < 0) {
            return err_set(ERR_IO, "%s: reading %zu bytes at offset %llu: %s; check the drive "
                           "(dmesg, smartctl) or fetch the file again", path, size_bytes - done,
                           (unsigned long long)(offset_bytes + done), strerror(errno));
        }
        if (got == 0) {
            return err_set(ERR_IO, "%s: the file ended at byte %llu while it was read; let its "
                           "writer finish, or fetch it again", path,
                           (unsigned long long)(offset_bytes + done));
        }
        done += (size_t)got;
        retries = 0;
    }
    return 0;
}

static int read_open(int fd, const char *path, uint64_t cap_bytes, struct file_text *out)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return err_set(ERR_IO, "%s: cannot be examined: %s; check the drive (dmesg, smartctl)",
                       path, strerror(errno));
    }
    if (!S_ISREG(status.st_mode)) {
        return err_set(ERR_MODEL, "%s: is not a regular file: put the file itself there", path);
    }
    const uint64_t size_bytes = (uint64_t)status.st_size;
    if (size_bytes > cap_bytes) {
        return err_set(ERR_MODEL, "%s: has %llu bytes, more than the %llu such a file may have",
                       path, (unsigned long long)size_bytes, (unsigned long long)cap_bytes);
    }
    char *text = mmap(NULL, size_bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    if (text == MAP_FAILED) {
        return err_set(ERR_MEMORY, "%s: no memory for its %llu bytes; free memory or raise the "
                       "limit (ulimit -v)", path, (unsigned long long)size_bytes);
    }
    *out = (struct file_text){.text = text, .size_bytes = size_bytes};
    const int rc = file_read_at(fd, path, 0, text, size_bytes);
    if (rc < 0) {
        file_text_free(out);
    }
    return rc;
}

const char *file_cure(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return "check the path";
    case EACCES:
    case EPERM:
        return "allow this user to read it";
    case EMFILE:
        return "raise ulimit -n";
    case ENFILE:
        return "the system has too many open files: close some, or raise fs.file-max";
    case ENOMEM:
        return "free memory";
    case ENXIO:
        return "it is a socket, or a device with nothing behind it, and no file: give a file";
    case EIO:
    case EAGAIN:
    case EINTR:
    case ESTALE:
        return "check the drive or server it lies on (dmesg, smartctl)";
    default:
        return "check the path and what its links point to";
    }
}

static bool is_users_matter(int error)
{
    return error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM ||
           error == ELOOP || error == ENAMETOOLONG || error == EISDIR || error == ENXIO;
}

int file_refused(const char *path, const char *doing)
{
    return err_set(is_users_matter(errno) ? ERR_MODEL : ERR_IO, "%s: cannot %s: %s: %s", path,
                   doing, strerror(errno), file_cure(errno));
}

int file_open(const char *path)
{
    uint32_t retries = 0;
    int fd;
    do {
        /* Without O_NONBLOCK a pipe in the place of the file would wait for a writer. */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    } while (fd < 0 && retry_after(errno, &retries));
    return fd;
}

DIR *file_open_folder(const char *path)
{
    uint32_t retries = 0;
    DIR *folder;
    do {
        folder = opendir(path);
    } while (folder == NULL && retry_after(errno, &retries));
    return folder;
}

static int open_plain(const char *path)
{
    const int fd = file_open(path);
    return fd >= 0 ? fd : file_refused(path, "open");
}

int file_read(const char *path, uint64_t cap_bytes, struct file_text *out)
{
    *out = (struct file_text){.text = NULL};
    const int fd = open_plain(path);
    TRY(fd);
    const int rc = read_open(fd, path, cap_bytes, out);
    close(fd);
    return rc;
}

int file_read_begin(const char *path, void *target, size_t size_bytes)
{
    const int fd = open_plain(path);
    TRY(fd);
    const int rc = file_read_at(fd, path, 0, target, size_bytes);
    close(fd);
    return rc;
}

void file_text_free(struct file_text *file)
{
    if (file->text != NULL) {
        munmap(file->text, file->size_bytes + 1);
    }
    *file = (struct file_text){.text = NULL};
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

char *path_join(const char *dir, const char *name)
{
    const size_t dir_bytes = strlen(dir);
    const size_t name_bytes = strlen(name);
    const bool slash = dir_bytes > 0 && dir[dir_bytes - 1] != '/';
    char *path = malloc(dir_bytes + name_bytes + 2);
    if (path == NULL) {
        err_set(ERR_MEMORY, "no memory for the path of %s", name);
        return NULL;
    }
    memcpy(path, dir, dir_bytes);
    if (slash) {
        path[dir_bytes] = '/';
    }
    memcpy(path + dir_bytes + slash, name, name_bytes + 1);
    return path;
}

const char *path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}
