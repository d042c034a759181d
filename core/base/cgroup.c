/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/cgroup.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/proc.h"

#define TEXT_BYTES 16384

/* True when a comma-separated list names a controller. */
static bool listed(const char *names, const char *controller, size_t length)
{
    for (const char *at = names; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, controller, length) == 0 && (at[length] == '\0' || at[length] == ',')) {
            return true;
        }
    }
    return false;
}

/* Where the controller's tree is mounted. */
static void find_mount(const char *root, const char *controller, char *mount, size_t capacity)
{
    if (controller[0] != '\0') {
        snprintf(mount, capacity, "%s/sys/fs/cgroup/%s", root, controller);
        return;
    }
    snprintf(mount, capacity, "%s/sys/fs/cgroup/cgroup.controllers", root);
    bool pure = access(mount, R_OK) == 0;
    snprintf(mount, capacity, "%s/sys/fs/cgroup%s", root, pure ? "" : "/unified");
}

bool cgroup_find(const char *root, const char *controller, struct cgroup_path *out)
{
    char text[TEXT_BYTES];
    char mount[512];
    size_t length = strlen(controller);
    char *rest = text;
    if (!proc_text(text, sizeof text, "%s/proc/self/cgroup", root)) {
        return false;
    }
    find_mount(root, controller, mount, sizeof mount);
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *names = strchr(line, ':');
        char *path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        names++;
        if (length == 0 ? *names == '\0' : listed(names, controller, length)) {
            snprintf(out->folder, sizeof out->folder, "%s%s", mount,
                     strcmp(path, "/") == 0 ? "" : path);
            out->mount_bytes = strlen(mount);
            return true;
        }
    }
    return false;
}

bool cgroup_up(struct cgroup_path *at)
{
    char *slash = strrchr(at->folder, '/');
    if (slash == NULL || (size_t)(slash - at->folder) < at->mount_bytes) {
        return false;
    }
    *slash = '\0';
    return true;
}
