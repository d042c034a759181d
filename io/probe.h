/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IO_PROBE_H
#define IO_PROBE_H

/* What an open file lies on: file system, block device, drive model. For reports; nothing here
 * changes how a file is read. */

#include <limits.h>

#include "core/base/base.h"

#define PROBE_NAME_BYTES 64

struct io_place {
    uint64_t device;                   /* st_dev: equal for files of one file system */
    char file_system[PROBE_NAME_BYTES]; /* "ext4", "tmpfs", or its magic number in hex */
    char drive[PROBE_NAME_BYTES];       /* "nvme0n1", or "" when there is no block device */
    char model[PROBE_NAME_BYTES];       /* what the drive calls itself, or "" */
    char serial[PROBE_NAME_BYTES];      /* its serial number, or another name of its own, or "" */
    uint32_t request_kib_max;           /* max_sectors_kb of its queue, 0 when unknown */
};

/* Fills place as far as it can be known. A negative errno when the file cannot be looked at. */
int io_probe(int fd, struct io_place *place);

/* The resolved folder of a block device in sysfs, given any way to it; a partition's is that of
 * its drive. False when there is none. */
bool io_drive_folder(const char *folder, char drive[PATH_MAX]);
/* Fills drive, model, serial and request_kib_max from such a folder. */
void io_describe_drive(const char *drive, struct io_place *place);

/* The place in one line that tells it from others: file system, device number, drive, model,
 * serial number. No control characters. */
void io_place_identity(const struct io_place *place, char *text, size_t capacity);

#endif
