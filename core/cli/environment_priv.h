/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_ENVIRONMENT_PRIV_H
#define CLI_ENVIRONMENT_PRIV_H

/* Between the files of the environment. All paths below env->root. */

#include <limits.h>

#include "core/cli/environment.h"

/* environment_kernel.c */
void environment_look_system(struct environment *env);

/* environment_files.c: fills places and their devices. */
int environment_look_files(struct environment *env, const char *const *paths, uint32_t count);

/* environment_mount.c: file system, options, source of the mount that fd lies on; a place that is
 * in no table of mounts keeps what it has. */
void environment_look_mount(struct environment *env, int fd, struct environment_place *place);
/* The value of an option "name=value" of a mount, cut at a comma; "" when it has none. */
void environment_option(const char *options, const char *name, char *value, size_t capacity);

/* environment_drive.c: the device behind a number, with all below it; the one there already is when
 * it is known. ENVIRONMENT_NONE when it is none, or there are too many. */
uint32_t environment_add_device(struct environment *env, uint32_t major, uint32_t minor);
/* The same for any folder of sysfs that leads to a block device. */
uint32_t environment_add_folder(struct environment *env, const char *folder);

/* environment_link.c: the PCIe link of an NVMe drive whose sysfs folder is given, and a descriptor
 * of the file with a drive's temperature, or -1; and the temperature that the drive calls too
 * hot, NAN when it names none. */
void environment_look_link(struct environment_device *device, const char *drive);
int environment_open_temperature(const char *drive, double *too_hot_c);

/* environment_cgroup.c */
void environment_look_limits(struct environment *env);

#endif
