/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

/* What this process may use and has used: /proc and the cgroup tree, v1 and v2. */

#include "core/base/base.h"

/* Bytes this process can still take: MemAvailable, and for every memory cgroup on the path from
 * the process to the root, limit - usage + reclaimable file pages. *why (a static string) says
 * which of them is the least. */
uint64_t memory_available(const char **why);

/* The least limit of these cgroups; UINT64_MAX without one. */
uint64_t memory_limit(void);

/* A field of /proc/self/status in bytes, such as "VmHWM:"; 0 when absent. */
uint64_t memory_status(const char *field);

/* read_bytes of /proc/self/io: what storage really delivered to this process. */
uint64_t memory_storage_read_bytes(void);

/* Bytes this process may lock: the hard RLIMIT_MEMLOCK, to which the soft one is raised, or
 * UINT64_MAX when it has CAP_IPC_LOCK or there is no limit. */
uint64_t memory_lockable(void);

/* Processors this process may run on, counting affinity and a CPU quota; at least 1. */
uint32_t memory_processors(void);

#endif
