/* SPDX-License-Identifier: Apache-2.0 */
/* faultfs MOUNTPOINT -f SOURCE [SETTING=VALUE ..]: shows a folder, read-only, out of order.
 *
 *   file=NAME        the file that is faulty (all, when not given)
 *   error=ERRNO      number; reads that touch a place fail with it:
 *   at=OFFSET size=BYTES
 *   times=N          only the first N of them (all)
 *   delay_ms=N       every read takes so long
 *   short=BYTES      a read brings so much at most
 *   direct=0         O_DIRECT is refused, with EINVAL
 *   open_error=ERRNO the file cannot be opened */
#define FUSE_USE_VERSION 31
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES 4096

static const char *source;
static const char *faulty_file;

enum setting { ERROR, AT, SIZE, TIMES, DELAY_MS, SHORT, DIRECT, OPEN_ERROR, SETTINGS };

static const char *const names[SETTINGS] = {"error", "at",    "size",   "times",
                                            "delay_ms", "short", "direct", "open_error"};
static long value[SETTINGS] = {[SIZE] = 4096, [TIMES] = -1, [DIRECT] = 1};
static atomic_long failed;

static void place(const char *path, char out[PATH_BYTES])
{
    snprintf(out, PATH_BYTES, "%s%s", source, path);
}

static int is_faulty(const char *path)
{
    return faulty_file == NULL || strcmp(path + 1, faulty_file) == 0;
}

static int fs_getattr(const char *path, struct stat *out, struct fuse_file_info *info)
{
    char real[PATH_BYTES];
    (void)info;
    place(path, real);
    return lstat(real, out) == 0 ? 0 : -errno;
}

static int fs_readdir(const char *path, void *list, fuse_fill_dir_t fill, off_t offset,
                      struct fuse_file_info *info, enum fuse_readdir_flags flags)
{
    char real[PATH_BYTES];
    (void)offset;
    (void)info;
    (void)flags;
    place(path, real);
    DIR *folder = opendir(real);
    if (folder == NULL) {
        return -errno;
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        fill(list, entry->d_name, NULL, 0, 0);
    }
    closedir(folder);
    return 0;
}

static int fs_open(const char *path, struct fuse_file_info *info)
{
    char real[PATH_BYTES];
    if (is_faulty(path) && value[OPEN_ERROR] != 0) {
        return (int)-value[OPEN_ERROR];
    }
    if (value[DIRECT] == 0 && (info->flags & O_DIRECT) != 0) {
        return -EINVAL;
    }
    place(path, real);
    int fd = open(real, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    info->fh = (uint64_t)fd;
    info->direct_io = value[DIRECT] != 0; /* reads come as they were asked for */
    return 0;
}

static int fails(const char *path, off_t offset, size_t size)
{
    off_t begin = (off_t)value[AT];
    off_t end = begin + (off_t)value[SIZE];
    if (value[ERROR] == 0 || !is_faulty(path) || offset >= end || offset + (off_t)size <= begin) {
        return 0;
    }
    return value[TIMES] < 0 || atomic_fetch_add(&failed, 1) < value[TIMES];
}

static int fs_read(const char *path, char *out, size_t size, off_t offset,
                   struct fuse_file_info *info)
{
    if (value[DELAY_MS] > 0) {
        nanosleep(&(struct timespec){.tv_sec = value[DELAY_MS] / 1000,
                                     .tv_nsec = value[DELAY_MS] % 1000 * 1000000}, NULL);
    }
    if (fails(path, offset, size)) {
        return (int)-value[ERROR];
    }
    if (value[SHORT] > 0 && is_faulty(path) && size > (size_t)value[SHORT]) {
        size = (size_t)value[SHORT];
    }
    ssize_t got = pread((int)info->fh, out, size, offset);
    return got >= 0 ? (int)got : -errno;
}

static int fs_release(const char *path, struct fuse_file_info *info)
{
    (void)path;
    close((int)info->fh);
    return 0;
}

static int take(const char *argument)
{
    size_t length = strcspn(argument, "=");
    if (argument[length] != '=') {
        return 0;
    }
    if (strncmp(argument, "file=", 5) == 0) {
        faulty_file = argument + 5;
        return 1;
    }
    for (int i = 0; i < SETTINGS; i++) {
        if (strlen(names[i]) == length && strncmp(argument, names[i], length) == 0) {
            value[i] = strtol(argument + length + 1, NULL, 0);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct fuse_operations operations = {.getattr = fs_getattr, .readdir = fs_readdir,
                                                      .open = fs_open, .read = fs_read,
                                                      .release = fs_release};
    if (argc < 4) {
        fprintf(stderr, "usage: faultfs MOUNTPOINT -f SOURCE [SETTING=VALUE ..]\n");
        return 2;
    }
    source = argv[3];
    for (int i = 4; i < argc; i++) {
        if (!take(argv[i])) {
            fprintf(stderr, "faultfs: '%s' is no setting\n", argv[i]);
            return 2;
        }
    }
    return fuse_main(3, argv, &operations, NULL);
}
