/* SPDX-License-Identifier: Apache-2.0 */
/* Block devices: what a file system lies on, and what that lies on, down to the drives. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/base/proc.h"
#include "core/cli/environment_priv.h"
#include "io/probe.h"

_Static_assert(ENVIRONMENT_DEVICES_MAX <= 32, "a device's `below` has a bit for each");

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool has(const char *drive, const char *entry)
{
    char path[PROC_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", drive, entry);
    return access(path, F_OK) == 0;
}

static enum environment_kind kind_of(const char *drive, const struct environment_device *d)
{
    static const char *const memory[] = {"ram", "zram", "nullb"};
    char uuid[ENVIRONMENT_NAME_BYTES];
    for (size_t i = 0; i < countof(memory); i++) {
        if (begins(d->name, memory[i])) {
            return DEVICE_MEMORY;
        }
    }
    if (has(drive, "dm")) {
        proc_line(uuid, sizeof uuid, "%s/dm/uuid", drive);
        return begins(uuid, "CRYPT-") ? DEVICE_CRYPT : DEVICE_DM;
    }
    return has(drive, "md") ? DEVICE_MD : has(drive, "loop") ? DEVICE_LOOP
           : begins(d->model, "scsi_debug") ? DEVICE_MEMORY : DEVICE_DRIVE;
}

/* "none [mq-deadline] kyber": the one in brackets; a text without any is its own. */
static void look_scheduler(const char *drive, struct environment_device *d)
{
    char text[ENVIRONMENT_TEXT_BYTES];
    proc_line(text, sizeof text, "%s/queue/scheduler", drive);
    const char *begin = strchr(text, '[');
    begin = begin != NULL ? begin + 1 : text;
    snprintf(d->scheduler, sizeof d->scheduler, "%.*s", (int)min_u64(strcspn(begin, "]"), 63),
             begin);
}

static uint32_t queue_number(const char *drive, const char *name)
{
    return (uint32_t)proc_value(0, "%s/queue/%s", drive, name);
}

/* 0, 1, or -1 when there is no such file. */
static int queue_switch(const char *drive, const char *name)
{
    uint64_t value = proc_value(UINT64_MAX, "%s/queue/%s", drive, name);
    return value == UINT64_MAX ? -1 : value != 0;
}

static void look_queue(const char *drive, struct environment_device *d)
{
    uint64_t wbt = proc_value(UINT64_MAX, "%s/queue/wbt_lat_usec", drive);
    d->max_hw_sectors_kb = queue_number(drive, "max_hw_sectors_kb");
    d->max_segments = queue_number(drive, "max_segments");
    d->nr_requests = queue_number(drive, "nr_requests");
    d->logical_block_bytes = queue_number(drive, "logical_block_size");
    d->physical_block_bytes = queue_number(drive, "physical_block_size");
    d->wbt_us = wbt <= INT64_MAX ? (int64_t)wbt : -1;
    d->io_poll = queue_switch(drive, "io_poll");
    d->rotational = queue_switch(drive, "rotational");
    look_scheduler(drive, d);
}

static void look_device(const char *drive, struct environment_device *d)
{
    struct io_place place = {0};
    char text[ENVIRONMENT_NAME_BYTES];
    io_describe_drive(drive, &place);
    snprintf(d->name, sizeof d->name, "%s", place.drive);
    snprintf(d->model, sizeof d->model, "%s", place.model);
    snprintf(d->serial, sizeof d->serial, "%s", place.serial);
    d->max_sectors_kb = place.request_kib_max;
    if (!proc_line(d->firmware, sizeof d->firmware, "%s/device/firmware_rev", drive)) {
        proc_line(d->firmware, sizeof d->firmware, "%s/device/rev", drive);
    }
    proc_line(text, sizeof text, "%s/dev", drive);
    char *end = text;
    d->number[0] = (uint32_t)strtoul(text, &end, 10);
    d->number[1] = *end == ':' ? (uint32_t)strtoul(end + 1, NULL, 10) : 0;
    d->kind = kind_of(drive, d);
    look_queue(drive, d);
    environment_look_link(d, drive);
    d->temperature_fd = environment_open_temperature(drive, &d->too_hot_c);
}

static void add_below(struct environment *env, uint32_t above, uint32_t device)
{
    if (device != ENVIRONMENT_NONE && device != above) {
        env->device[above].below |= 1U << device;
    }
}

/* dm and md list what they are made of. */
static void look_slaves(struct environment *env, uint32_t above, const char *drive)
{
    char folder[PROC_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s/slaves", drive);
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] != '.') {
            snprintf(folder, sizeof folder, "%s/slaves/%s", drive, e->d_name);
            add_below(env, above, environment_add_folder(env, folder));
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* A loop device's file lies on a file system of its own. */
static void look_backing(struct environment *env, uint32_t above, const char *drive)
{
    char path[PATH_MAX];
    struct stat st;
    if (proc_line(path, sizeof path, "%s/loop/backing_file", drive) && stat(path, &st) == 0) {
        add_below(env, above, environment_add_device(env, major(st.st_dev), minor(st.st_dev)));
    }
}

static uint32_t known(const struct environment *env, const char *name)
{
    for (uint32_t i = 0; i < env->device_count; i++) {
        if (strncmp(env->device[i].name, name, ENVIRONMENT_NAME_BYTES - 1) == 0) {
            return i;
        }
    }
    return ENVIRONMENT_NONE;
}

/* Whatever lies below has a higher place in the list, or is known: the walk ends. */
uint32_t environment_add_folder(struct environment *env, const char *folder)
{
    char drive[PATH_MAX];
    if (!io_drive_folder(folder, drive)) {
        return ENVIRONMENT_NONE;
    }
    uint32_t at = known(env, strrchr(drive, '/') + 1);
    if (at != ENVIRONMENT_NONE || env->device_count == ENVIRONMENT_DEVICES_MAX) {
        return at;
    }
    at = env->device_count++;
    look_device(drive, &env->device[at]);
    look_slaves(env, at, drive);
    if (env->device[at].kind == DEVICE_LOOP) {
        look_backing(env, at, drive);
    }
    return at;
}

uint32_t environment_add_device(struct environment *env, uint32_t major, uint32_t minor)
{
    char folder[PROC_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s/sys/dev/block/%u:%u", env->root, major, minor);
    return environment_add_folder(env, folder);
}

const char *environment_kind_name(enum environment_kind kind)
{
    static const char *const names[] = {
        [DEVICE_DRIVE] = "drive", [DEVICE_CRYPT] = "dm-crypt", [DEVICE_DM] = "dm",
        [DEVICE_MD] = "md",       [DEVICE_LOOP] = "loop",      [DEVICE_MEMORY] = "memory"};
    return names[kind];
}
