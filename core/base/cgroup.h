/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

/* The control groups of this process, v1 and v2, from its own up to the root. In a container the
 * path may be one of the host: folders that are not there hold no limit.
 *
 *     struct cgroup_path at;
 *     for (bool more = cgroup_find("", "memory", &at); more; more = cgroup_up(&at)) {
 *         ... at.folder ...
 *     } */

#include "core/base/base.h"

struct cgroup_path {
    char folder[4352];
    size_t mount_bytes; /* how much of it is the mount point */
};

/* The group for a v1 controller, or of the v2 tree (controller ""). root stands before /proc and
 * /sys: "" for the system's own. False when there is none. */
bool cgroup_find(const char *root, const char *controller, struct cgroup_path *out);

/* To the group above; false when this was the topmost. */
bool cgroup_up(struct cgroup_path *at);

#endif
