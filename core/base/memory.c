/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/memory.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define TEXT_BYTES 16384

/* Reads a small /proc or cgroup file; false when it is not there. */
static bool slurp(const char *path, char *text)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    size_t used = 0;
    for (;;) {
        ssize_t got = read(fd, text + used, TEXT_BYTES - 1 - used);
        if (got <= 0) {
            break;
        }
        used += (size_t)got;
    }
    text[used] = '\0';
    close(fd);
    return used > 0;
}

/* The number after a line's first word. */
static bool field(const char *text, const char *name, uint64_t *value)
{
    size_t length = strlen(name);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == '\t')) {
            *value = strtoull(line + length, NULL, 10);
            return true;
        }
    }
    return false;
}

static uint64_t file_number(const char *dir, const char *name, uint64_t otherwise)
{
    char path[4480];
    char text[TEXT_BYTES];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!slurp(path, text) || text[0] < '0' || text[0] > '9') {
        return otherwise; /* "max" is no limit */
    }
    return strtoull(text, NULL, 10);
}

static uint64_t stat_number(const char *dir, const char *name)
{
    char path[4480];
    char text[TEXT_BYTES];
    uint64_t value = 0;
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    return slurp(path, text) && field(text, name, &value) ? value : 0;
}

/* Room in one group: what it may hold, less what it holds that cannot be dropped. */
static uint64_t group_room(const char *dir, bool v2)
{
    uint64_t limit = file_number(dir, v2 ? "memory.max" : "memory.limit_in_bytes", UINT64_MAX);
    if (limit >= UINT64_MAX / 4) {
        return UINT64_MAX;
    }
    uint64_t used = file_number(dir, v2 ? "memory.current" : "memory.usage_in_bytes", 0);
    uint64_t cached = v2 ? stat_number(dir, "inactive_file") + stat_number(dir, "active_file")
                         : stat_number(dir, "total_inactive_file") +
                               stat_number(dir, "total_active_file");
    used -= min_u64(used, cached);
    return limit - min_u64(limit, used);
}

/* Least of what the groups from a group's folder up to the mount point allow. In a container the
 * path may be one of the host: folders that are not there set no limit. */
static uint64_t path_least(const char *mount, const char *group, bool v2,
                           uint64_t (*allowed)(const char *dir, bool v2))
{
    char dir[4352];
    uint64_t least = UINT64_MAX;
    size_t root = strlen(mount);
    snprintf(dir, sizeof dir, "%s%s", mount, group);
    for (;;) {
        least = min_u64(least, allowed(dir, v2));
        char *slash = strrchr(dir, '/');
        if (slash == NULL || (size_t)(slash - dir) < root) {
            return least;
        }
        *slash = '\0';
    }
}

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

/* The group of this process for a v1 controller, or of the v2 tree (controller ""). */
static bool group_of(const char *controller, char *group, size_t capacity)
{
    char text[TEXT_BYTES];
    if (!slurp("/proc/self/cgroup", text)) {
        return false;
    }
    size_t length = strlen(controller);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char *names = strchr(line, ':');
        char *path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        names++;
        if (length == 0 ? *names == '\0' : listed(names, controller, length)) {
            snprintf(group, capacity, "%s", strcmp(path, "/") == 0 ? "" : path);
            return true;
        }
    }
    return false;
}

static const char *v2_mount(void)
{
    return access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0 ? "/sys/fs/cgroup"
                                                                  : "/sys/fs/cgroup/unified";
}

uint64_t memory_available(const char **why)
{
    char text[TEXT_BYTES];
    char group[4096];
    uint64_t least = UINT64_MAX;
    *why = "no limit is known";
    uint64_t kib = 0;
    if (slurp("/proc/meminfo", text) && field(text, "MemAvailable:", &kib)) {
        least = kib * KIB;
        *why = "MemAvailable of /proc/meminfo";
    }
    if (group_of("memory", group, sizeof group)) {
        uint64_t room = path_least("/sys/fs/cgroup/memory", group, false, group_room);
        *why = room < least ? "the memory cgroup (v1)" : *why;
        least = min_u64(least, room);
    }
    if (group_of("", group, sizeof group)) {
        uint64_t room = path_least(v2_mount(), group, true, group_room);
        *why = room < least ? "the memory cgroup (v2)" : *why;
        least = min_u64(least, room);
    }
    return least;
}

uint64_t memory_status(const char *name)
{
    char text[TEXT_BYTES];
    uint64_t kib = 0;
    return slurp("/proc/self/status", text) && field(text, name, &kib) ? kib * KIB : 0;
}

uint64_t memory_storage_read_bytes(void)
{
    char text[TEXT_BYTES];
    uint64_t bytes = 0;
    return slurp("/proc/self/io", text) && field(text, "read_bytes:", &bytes) ? bytes : 0;
}

#define CAP_IPC_LOCK_BIT 14U

static bool may_lock_all(void)
{
    char text[TEXT_BYTES];
    const char *line = slurp("/proc/self/status", text) ? strstr(text, "\nCapEff:") : NULL;
    return line != NULL && (strtoull(line + 8, NULL, 16) >> CAP_IPC_LOCK_BIT & 1) != 0;
}

uint64_t memory_lockable(void)
{
    struct rlimit limit;
    if (may_lock_all() || getrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
        return UINT64_MAX;
    }
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_MEMLOCK, &limit);
    return limit.rlim_max == RLIM_INFINITY ? UINT64_MAX : limit.rlim_max;
}

/* Whole processors the quota of one group grants, rounded up; UINT64_MAX without one. */
static uint64_t group_processors(const char *dir, bool v2)
{
    char path[4480];
    char text[TEXT_BYTES];
    uint64_t quota = 0;
    uint64_t period = 0;
    if (!v2) {
        quota = file_number(dir, "cpu.cfs_quota_us", 0); /* -1 is no quota */
        period = file_number(dir, "cpu.cfs_period_us", 0);
    } else {
        snprintf(path, sizeof path, "%s/cpu.max", dir);
        if (slurp(path, text) && text[0] >= '0' && text[0] <= '9') {
            char *end;
            quota = strtoull(text, &end, 10);
            period = strtoull(end, NULL, 10);
        }
    }
    return quota > 0 && period > 0 ? div_ceil(quota, period) : UINT64_MAX;
}

static uint64_t quota_processors(void)
{
    char group[4096];
    uint64_t least = UINT64_MAX;
    if (group_of("cpu", group, sizeof group)) {
        least = path_least("/sys/fs/cgroup/cpu", group, false, group_processors);
    }
    if (group_of("", group, sizeof group)) {
        least = min_u64(least, path_least(v2_mount(), group, true, group_processors));
    }
    return least;
}

uint32_t memory_processors(void)
{
    cpu_set_t set;
    uint32_t count = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        count = (uint32_t)CPU_COUNT(&set);
    } else {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        count = online > 0 ? (uint32_t)online : 1;
    }
    return (uint32_t)max_u64(1, min_u64(count, quota_processors()));
}
