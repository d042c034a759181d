/* SPDX-License-Identifier: Apache-2.0 */
#include "io/probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/base/proc.h"

static const struct {
    uint32_t magic;
    const char *name;
} file_systems[] = {
    {0xEF53, "ext4"},         {0x58465342, "xfs"},      {0x9123683E, "btrfs"},
    {0x01021994, "tmpfs"},    {0x794C7630, "overlayfs"}, {0x2FC12FC1, "zfs"},
    {0x6969, "nfs"},          {0x65735546, "fuse"},     {0xF2F52010, "f2fs"},
    {0x858458F6, "ramfs"},    {0x01021997, "9p"},       {0x2011BAB0, "exfat"},
    {0x4D44, "vfat"},         {0xCA451A4E, "bcachefs"}, {0x0BD00BD0, "lustre"},
    {0x73717368, "squashfs"}, {0xE0F5E1E2, "erofs"},    {0xFF534D42, "cifs"},
    {0x00C36400, "ceph"},     {0x7366746E, "ntfs3"},    {0x5346544E, "ntfs"},
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

bool io_drive_folder(const char *folder, char drive[PATH_MAX])
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.4000s/partition", folder);
    bool partition = access(path, F_OK) == 0;
    snprintf(path, sizeof path, "%.4000s%s", folder, partition ? "/.." : "");
    return realpath(path, drive) != NULL;
}

void io_describe_drive(const char *drive, struct io_place *place)
{
    static const char *const names[] = {"device/serial", "serial", "device/wwid", "wwid",
                                        "dm/uuid"};
    snprintf(place->drive, sizeof place->drive, "%.63s", strrchr(drive, '/') + 1);
    proc_line(place->model, sizeof place->model, "%s/device/model", drive);
    for (size_t i = 0; i < countof(names) && place->serial[0] == '\0'; i++) {
        proc_line(place->serial, sizeof place->serial, "%s/%s", drive, names[i]);
    }
    place->request_kib_max = (uint32_t)proc_value(0, "%s/queue/max_sectors_kb", drive);
}

int io_probe(int fd, struct io_place *place)
{
    struct stat st;
    char folder[64];
    char drive[PATH_MAX];
    *place = (struct io_place){0};
    if (fstat(fd, &st) != 0) {
        return -errno;
    }
    place->device = st.st_dev;
    name_file_system(fd, place);
    snprintf(folder, sizeof folder, "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
    if (io_drive_folder(folder, drive)) {
        io_describe_drive(drive, place);
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
