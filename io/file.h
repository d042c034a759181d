/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IO_FILE_H
#define IO_FILE_H

/* The set of files a run reads: opened O_RDONLY with O_DIRECT where the file system allows it. */

#include "core/base/base.h"

struct io_file {
    int fd;
    uint64_t size_bytes;  /* at open */
    bool direct;          /* O_DIRECT is really in force */
    uint32_t alignment;   /* what the file system asks of offsets and memory; <= PAGE_BYTES */
    int64_t mtime_ns;     /* at open */
    uint32_t device;      /* < device_count: files of one file system have the same */
    char *path;           /* owned */
};

/* Beyond this many, devices share a queue. */
#define IO_DEVICES_MAX 8U

struct io_files {
    struct io_file *file;
    uint32_t count;
    uint32_t device_count; /* 1..IO_DEVICES_MAX; at least 1 once open */
    uint32_t direct_count;
};

/* Opens count files. Without O_DIRECT support the file is opened buffered (direct = false). What is
 * transient is tried again for about half a second, here and in io_file_read.
 * A file whose size differs from sizes[i] is refused (sizes may be NULL). ERR_IO with path. */
int io_files_open(struct io_files *files, const char *const *paths, const uint64_t *sizes,
                  uint32_t count);
void io_files_close(struct io_files *files);

/* How many devices, as counted here, count paths lie on; those that cannot be reached on none. At
 * least 1. */
uint32_t io_devices_of(const char *const *paths, uint32_t count);

/* Reads any byte range now, on the calling thread, through an aligned bounce buffer of the caller
 * (bounce_bytes >= 2 pages, page aligned). For the small tensors read at open.
 * *read_bytes grows by the aligned bytes asked for. ERR_IO names file and offset. */
int io_file_read(const struct io_files *files, uint32_t file, uint64_t offset_bytes,
                 uint64_t size_bytes, void *target, void *bounce, uint64_t bounce_bytes,
                 uint64_t *read_bytes);

/* Compares size and mtime of each open file with those at open: ERR_IO when it was written to or
 * cut. One that was renamed, replaced or removed is still read and counts as unchanged. */
int io_files_unchanged(const struct io_files *files);

#endif
