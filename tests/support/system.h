/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_SYSTEM_H
#define TESTS_SUPPORT_SYSTEM_H

/* A /proc and a /sys of the test's own, below a folder that tiny_folder() made. Failures abort. */

#include <stdint.h>

#include "tests/support/tiny.h"

/* Removes it with all that lies below it. */
void system_remove(const struct tiny *root);

/* A file with its folders, or another content for it, in place. */
void system_put(const struct tiny *root, const char *text, const char *path_format, ...)
    __attribute__((format(printf, 3, 4)));
/* A link at path, with its folders. */
void system_link(const struct tiny *root, const char *target, const char *path_format, ...)
    __attribute__((format(printf, 3, 4)));

/* A block device: at is its folder below sys/devices and ends in its name. What a virtio disk has:
 * a queue, and neither model nor serial number. */
void system_block(const struct tiny *root, const char *at, uint32_t major, uint32_t minor);
/* A partition of it. */
void system_partition(const struct tiny *root, const char *at, uint32_t part, uint32_t major,
                      uint32_t minor);
/* nvme<n>n1 at number 259:n, PCIe 4.0 x4 in a slot of the same kind. Its folder goes to at. */
void system_nvme(const struct tiny *root, uint32_t n, char at[TINY_PATH_BYTES]);
/* Makes the block device at a folder lie on others, by name: "nvme0n1 nvme1n1". */
void system_slaves(const struct tiny *root, const char *at, const char *names);

#endif
