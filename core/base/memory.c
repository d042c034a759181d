/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/memory.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/cgroup.h"
#include "core/base/proc.h"

#define TEXT_BYTES 16384

static uint64_t stat_number(const char *dir, const char *name)
{
    char text[TEXT_BYTES];
    uint64_t value = 0;
    return proc_text(text, sizeof text, "%s/memory.stat", dir) && proc_number(text, name, &value)
               ? value : 0;
}

static uint64_t group_limit(const char *dir, bool v2)
{
    uint64_t limit = proc_value(UINT64_MAX, "%s/%s", dir,
                                v2 ? "memory.max" : "memory.limit_in_bytes");
    return limit >= UINT64_MAX / 4 ? UINT64_MAX : limit;
}

/* Room in one group: what it may hold, less what it holds that cannot be dropped. */
static uint64_t group_room(const char *dir, bool v2)
{
    uint64_t limit = group_limit(dir, v2);
    if (limit == UINT64_MAX) {
        return UINT64_MAX;
    }
    uint64_t used = proc_value(0, "%s/%s", dir,
                               v2 ? "memory.current" : "memory.usage_in_bytes");
    uint64_t cached = v2 ? stat_number(dir, "inactive_file") + stat_number(dir, "active_file")
                         : stat_number(dir, "total_inactive_file") +
                               stat_number(dir, "total_active_file");
    used -= min_u64(used, cached);
    return limit - min_u64(limit, used);
}

/* Least of what the groups of this process allow, from its own to the root. */
static uint64_t path_least(const char *controller,
                           uint64_t (*allowed)(const char *dir, bool v2))
{
    struct cgroup_path at;
    uint64_t least = UINT64_MAX;
    for (bool more = cgroup_find("", controller, &at); more; more = cgroup_up(&at)) {
        least = min_u64(least, allowed(at.folder, controller[0] == '\0'));
    }
    return least;
}

uint64_t memory_available(const char **why)
{
    char text[TEXT_BYTES];
    uint64_t least = UINT64_MAX;
    *why = "no limit is known";
    uint64_t kib = 0;
    if (proc_text(text, sizeof text, "/proc/meminfo") &&
        proc_number(text, "MemAvailable:", &kib)) {
        least = kib * KIB;
        *why = "MemAvailable of /proc/meminfo";
    }
    uint64_t room = path_least("memory", group_room);
    *why = room < least ? "the memory cgroup (v1)" : *why;
    least = min_u64(least, room);
    room = path_least("", group_room);
    *why = room < least ? "the memory cgroup (v2)" : *why;
    return min_u64(least, room);
}

uint64_t memory_limit(void)
{
    return min_u64(path_least("memory", group_limit), path_least("", group_limit));
}

uint64_t memory_status(const char *name)
{
    char text[TEXT_BYTES];
    uint64_t kib = 0;
    return proc_text(text, sizeof text, "/proc/self/status") && proc_number(text, name, &kib)
               ? kib * KIB : 0;
}

uint64_t memory_storage_read_bytes(void)
{
    char text[TEXT_BYTES];
    uint64_t bytes = 0;
    return proc_text(text, sizeof text, "/proc/self/io") &&
                   proc_number(text, "read_bytes:", &bytes)
               ? bytes : 0;
}

#define CAP_IPC_LOCK_BIT 14U

static bool may_lock_all(void)
{
    char text[TEXT_BYTES];
    bool read = proc_text(text, sizeof text, "/proc/self/status");
    const char *line = read ? strstr(text, "\nCapEff:") : NULL;
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
    char text[64];
    uint64_t quota = 0;
    uint64_t period = 0;
    if (!v2) {
        quota = proc_value(0, "%s/cpu.cfs_quota_us", dir); /* -1 is no quota */
        period = proc_value(0, "%s/cpu.cfs_period_us", dir);
    } else if (proc_text(text, sizeof text, "%s/cpu.max", dir) && text[0] >= '0' &&
               text[0] <= '9') {
        char *end;
        quota = strtoull(text, &end, 10);
        period = strtoull(end, NULL, 10);
    }
    return quota > 0 && period > 0 ? div_ceil(quota, period) : UINT64_MAX;
}

static uint64_t quota_processors(void)
{
    return min_u64(path_least("cpu", group_processors), path_least("", group_processors));
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
