/* SPDX-License-Identifier: Apache-2.0 */
#include "io/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

static const struct {
    uint32_t magic;
    const char *name;
} file_systems[] = {
    {0xEF53, "ext4"},         {0x58465342, "xfs"},      {0x9123683E, "btrfs"},
    {0x01021994, "tmpfs"},    {0x794C7630, "overlayfs"}, {0x2FC12FC1, "zfs"},
    {0x6969, "nfs"},          {0x65735546, "fuse"},     {0xF2F52010, "f2fs"},
    {0x858458F6, "ramfs"},    {0x01021997, "9p"},       {0x2011BAB0, "exfat"},
    {0x4D44, "vfat"},         {0xCA451A4E, "bcachefs"}, {0x0BD00BD0, "lustre"},
};

static void name_file_system(int fd, struct io_place *place)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0) {
        return;
    }
    uint32_t magic = (uint32_t)fs.f_type;
    snprintf(place->file_system, sizeof place->file_system, "0x%X", magic);
    for (size_t i = 0; i < countof(file_systems); i++) {
        if (file_systems[i].magic == magic) {
            snprintf(place->file_system, sizeof place->file_system, "%s", file_systems[i].name);
        }
    }
}

/* The first line of a small sysfs file, without trailing blanks; "" when it is not there. */
static void read_line(const char *path, char *line, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, line, capacity - 1) : 0;
    if (fd >= 0) {
        close(fd);
    }
    line[got > 0 ? got : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    for (size_t end = strlen(line); end > 0 && line[end - 1] == ' '; end--) {
        line[end - 1] = '\0';
    }
}

/* Describes the drive behind a block device's folder in sysfs; a partition's is its parent. */
static void describe_drive(const char *folder, struct io_place *place)
{
    char path[PATH_MAX];
    char drive[PATH_MAX];
    char text[PROBE_NAME_BYTES];
    snprintf(path, sizeof path, "%s/partition", folder);
    bool partition = access(path, F_OK) == 0;
    snprintf(path, sizeof path, "%.4000s%s", folder, partition ? "/.." : "");
    if (realpath(path, drive) == NULL) {
        return;
    }
    snprintf(place->drive, sizeof place->drive, "%.63s", strrchr(drive, '/') + 1);
    snprintf(path, sizeof path, "%.4000s/device/model", drive);
    read_line(path, place->model, sizeof place->model);
    static const char *const names[] = {"device/serial", "serial", "device/wwid", "wwid",
                                        "dm/uuid"};
    for (size_t i = 0; i < countof(names) && place->serial[0] == '\0'; i++) {
        snprintf(path, sizeof path, "%.4000s/%s", drive, names[i]);
        read_line(path, place->serial, sizeof place->serial);
    }
    snprintf(path, sizeof path, "%.4000s/queue/max_sectors_kb", drive);
    read_line(path, text, sizeof text);
    place->request_kib_max = (uint32_t)strtoul(text, NULL, 10);
}

int io_probe(int fd, struct io_place *place)
{
    struct stat st;
    char folder[64];
    *place = (struct io_place){0};
    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    place->device = st.st_dev;
    name_file_system(fd, place);
    snprintf(folder, sizeof folder, "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
    if (access(folder, F_OK) == 0) {
        describe_drive(folder, place);
    }
    return 0;
}

void io_place_identity(const struct io_place *place, char *text, size_t capacity)
{
    const char *const parts[] = {place->drive, place->model, place->serial};
    int at = snprintf(text, capacity, "%s %u:%u", place->file_system, major(place->device),
                      minor(place->device));
    for (size_t i = 0; i < countof(parts) && at >= 0 && (size_t)at < capacity; i++) {
        if (parts[i][0] != '\0') {
            at += snprintf(text + at, capacity - (size_t)at, " %s", parts[i]);
        }
    }
    for (char *p = text; *p != '\0'; p++) {
        *p = (unsigned char)*p < ' ' || (unsigned char)*p > '~' ? '?' : *p;
    }
}
