/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_ENVIRONMENT_H
#define CLI_ENVIRONMENT_H

/* What a report about storage must state beside its numbers: the system, the file systems the
 * files of a model lie on, the block devices below these, and what makes a number of them no
 * number of a drive. Found without root in /proc, /sys and the files themselves, which are only
 * opened for reading. What cannot be found out is left at its "unknown".
 *
 * environment_open() looks once; counters and temperatures may then be asked as often as one likes
 * by one thread. docs/DOCTOR.md has the names and units of the JSON form. */

#include <cjson/cJSON.h>

#include "core/base/base.h"

#define ENVIRONMENT_NAME_BYTES 64
#define ENVIRONMENT_TEXT_BYTES 256
#define ENVIRONMENT_DEVICES_MAX 24U
#define ENVIRONMENT_PLACES_MAX 8U
#define ENVIRONMENT_GATES_MAX 32U
#define ENVIRONMENT_NONE UINT32_MAX
#define ENVIRONMENT_UNLIMITED UINT64_MAX

struct environment_system {
    char kernel[ENVIRONMENT_NAME_BYTES];
    char cpu[ENVIRONMENT_TEXT_BYTES];
    char features[ENVIRONMENT_NAME_BYTES]; /* those that kernels use, "avx2 fma", or "" */
    uint32_t processors;      /* this process may run on, quotas counted */
    uint32_t numa_nodes;
    uint64_t memory_bytes;    /* of the machine, 0 unknown */
    uint64_t available_bytes; /* that this process can still take, cgroups counted */
    const char *available_why; /* what sets that limit; static */
    char thp[ENVIRONMENT_NAME_BYTES]; /* "always", "madvise", "never", or "" */
    uint64_t huge_free_bytes; /* reserved huge pages nobody uses */
    uint64_t memlock_bytes;   /* that may be locked, or ENVIRONMENT_UNLIMITED */
    uint64_t nofile;          /* files that may be open at once, hard limit */
    int io_uring_disabled;    /* the sysctl; -1 when there is none */
    int seccomp;              /* 0 off, 1 strict, 2 filtered; -1 unknown */
};

enum environment_kind {
    DEVICE_DRIVE,             /* the lowest there is */
    DEVICE_CRYPT,             /* dm-crypt */
    DEVICE_DM,                /* LVM and other mappings */
    DEVICE_MD,                /* software RAID */
    DEVICE_LOOP,              /* a file */
    DEVICE_MEMORY             /* RAM disks, zram, null_blk */
};

struct environment_link {
    char speed[ENVIRONMENT_NAME_BYTES]; /* "16.0 GT/s PCIe", or "" */
    uint32_t width;           /* lanes, 0 unknown */
    uint64_t bytes_per_s;     /* what such a link carries at most, 0 unknown */
};

/* A whole block device; partitions are counted as their drive. Unknown numbers are 0, but where a
 * field says otherwise. */
struct environment_device {
    char name[ENVIRONMENT_NAME_BYTES];   /* "nvme0n1" */
    char model[ENVIRONMENT_NAME_BYTES];
    char firmware[ENVIRONMENT_NAME_BYTES];
    char serial[ENVIRONMENT_NAME_BYTES];
    enum environment_kind kind;
    uint32_t number[2];       /* major, minor */
    uint32_t below;           /* bit i: device i carries this one; 0 for the lowest */
    struct environment_link link, link_max; /* in force, and what the drive could */
    struct environment_link slot_max;       /* what it is plugged into could */
    uint32_t max_sectors_kb, max_hw_sectors_kb, max_segments, nr_requests;
    char scheduler[ENVIRONMENT_NAME_BYTES]; /* the one in force */
    int64_t wbt_us;           /* write-back throttling, 0 off; -1 unknown */
    int io_poll, rotational;  /* 0, 1; -1 unknown */
    uint32_t logical_block_bytes, physical_block_bytes;
    char io_max[ENVIRONMENT_TEXT_BYTES];    /* a cgroup's limit on it, "rbps=1048576", or "" */
    int temperature_fd;       /* private; -1 when the drive tells none */
    double too_hot_c;         /* from where it slows down to save itself, as it says; NAN unknown */
};

/* What reads from a file system are worth as figures of a drive. */
enum environment_nature {
    NATURE_DRIVE,
    NATURE_MEMORY,            /* there is no drive */
    NATURE_TRANSFORMING,      /* bytes are not as they lie: compression, an own cache */
    NATURE_REMOTE             /* another machine or program answers */
};

/* A file system that files lie on. */
struct environment_place {
    uint64_t device;          /* st_dev of its files */
    char file_system[ENVIRONMENT_NAME_BYTES];
    char options[ENVIRONMENT_TEXT_BYTES];   /* of the mount, "" unknown */
    char source[ENVIRONMENT_TEXT_BYTES];    /* of the mount: "/dev/nvme0n1p2", "server:/path" */
    char lower[ENVIRONMENT_NAME_BYTES];     /* of an overlay: the file system read through it */
    enum environment_nature nature;
    uint32_t files, direct_files;           /* and how many of them are read with O_DIRECT */
    uint32_t alignment;       /* the strictest that direct reads ask for */
    uint64_t bytes, holes_bytes;
    bool compressed;          /* by the mount's options or the files' own extents */
    bool encrypted;           /* by the file system, not by a device below */
    uint32_t top;             /* the device it lies on, or ENVIRONMENT_NONE */
    uint32_t number[2];       /* of that device or its partition */
    uint32_t others;          /* bit i: it spreads over device i as well, as btrfs may */
};

struct environment {
    struct environment_system system;
    struct environment_place place[ENVIRONMENT_PLACES_MAX];
    uint32_t place_count;     /* later file systems are counted in the last one */
    struct environment_device device[ENVIRONMENT_DEVICES_MAX];
    uint32_t device_count;
    char root[ENVIRONMENT_TEXT_BYTES];
    int diskstats_fd;         /* private */
};

/* Looks at the system, and at count files (0: the system alone). root stands before /proc and /sys:
 * "", or the folder of a tree that a test made. ERR_IO when a file cannot be opened, ERR_MEMORY.
 * Close it, also after an error. */
int environment_open(struct environment *env, const char *root, const char *const *paths,
                     uint32_t count);
void environment_close(struct environment *env);

/* True for devices that nothing lies below: those whose counters and links are a drive's. */
static inline bool environment_lowest(const struct environment *env, uint32_t device)
{
    return env->device[device].below == 0;
}

/* Celsius now, NAN when unknown. */
double environment_device_temperature(const struct environment *env, uint32_t device);
/* Of the hottest drive. */
double environment_temperature(const struct environment *env);
/* 1 + the first drive that is as hot now as it calls too hot; 0 when none says so. */
uint32_t environment_too_hot(const struct environment *env);

/* Of a block device since it was started, as /proc/diskstats has them: sectors of 512 bytes,
 * milliseconds. */
struct environment_counts {
    uint64_t read_ios, read_merges, read_sectors, read_ms;
    uint64_t write_ios, write_merges, write_sectors, write_ms;
    uint64_t busy_ms;         /* at least one request was in flight */
    uint64_t queue_ms;        /* requests in flight x time */
};

struct environment_diskstats {
    bool known;               /* false: no block device, or no counters */
    struct environment_counts files;   /* sum over what the file systems lie on: partitions alone,
                                        * but for `others` of a place */
    struct environment_counts drives;  /* sum over the lowest devices, others' use included */
    struct environment_counts device[ENVIRONMENT_DEVICES_MAX]; /* in the order of env->device */
};

void environment_diskstats(const struct environment *env, struct environment_diskstats *out);
/* What happened from one snapshot to a later one. */
void environment_diskstats_since(const struct environment_diskstats *from,
                                 const struct environment_diskstats *to,
                                 struct environment_diskstats *out);

/* Whether the drives delivered what was asked of them, by their counters (`files` of the stretch).
 * False with the reason why rates of that stretch are none of theirs. Few bytes say nothing. */
bool environment_delivered(const struct environment_counts *files, uint64_t requested_bytes,
                           char reason[ENVIRONMENT_TEXT_BYTES]);

enum environment_severity {
    GATE_WARNING,             /* worth to know beside a figure */
    GATE_INVALID              /* no figure of these files is one of a drive */
};

struct environment_gate {
    const char *code;         /* static, for machines: docs/DOCTOR.md has them all */
    enum environment_severity severity;
    char reason[ENVIRONMENT_TEXT_BYTES];
};

/* What speaks against a benchmark before it is run. Returns how many. */
uint32_t environment_gates(const struct environment *env,
                           struct environment_gate gates[ENVIRONMENT_GATES_MAX]);

/* Bytes a PCIe link carries in a second: 8b/10b or 128b/130b coding, and what packets cost. 0 when
 * speed is no "16.0 GT/s". */
uint64_t environment_link_bytes(const char *speed, uint32_t width);

/* Names for reports: "drive", "dm-crypt"; "drive", "memory", "transforming", "remote". */
const char *environment_kind_name(enum environment_kind kind);
const char *environment_nature_name(enum environment_nature nature);

/* Adds an object "environment" to parent; NULL when memory is refused. */
cJSON *environment_json(cJSON *parent, const struct environment *env);
/* Adds an array of gates under a name. */
void environment_gates_json(cJSON *parent, const char *name,
                            const struct environment_gate *gates, uint32_t count);

#endif
