/* SPDX-License-Identifier: Apache-2.0 */
/* The file systems that files lie on: which drive is below, what is read directly, how much of the
 * files is holes, and whether what is read is what lies there. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/proc.h"
#include "core/cli/environment_priv.h"
#include "io/file.h"
#include "io/probe.h"

#define EXTENTS_AT_ONCE 128U
#define EXTENTS_ASKED 32U      /* times that many of each file are looked at */

_Static_assert(ENVIRONMENT_PLACES_MAX == IO_DEVICES_MAX, "a place for each device of io/file.h");

/* ---- nature ---- */

static const struct {
    const char *file_system;   /* or how its name begins */
    enum environment_nature nature;
} natures[] = {
    {"tmpfs", NATURE_MEMORY},       {"ramfs", NATURE_MEMORY},    {"hugetlbfs", NATURE_MEMORY},
    {"devtmpfs", NATURE_MEMORY},    {"zfs", NATURE_TRANSFORMING}, {"squashfs", NATURE_TRANSFORMING},
    {"erofs", NATURE_TRANSFORMING}, {"nfs", NATURE_REMOTE},      {"9p", NATURE_REMOTE},
    {"fuse", NATURE_REMOTE},        {"cifs", NATURE_REMOTE},     {"smb", NATURE_REMOTE},
    {"ceph", NATURE_REMOTE},        {"lustre", NATURE_REMOTE},   {"virtiofs", NATURE_REMOTE},
    {"afs", NATURE_REMOTE},         {"vboxsf", NATURE_REMOTE},   {"gpfs", NATURE_REMOTE},
    {"beegfs", NATURE_REMOTE},
};

static enum environment_nature nature_of(const char *file_system)
{
    for (size_t i = 0; i < countof(natures); i++) {
        const char *name = natures[i].file_system;
        if (strncmp(file_system, name, strlen(name)) == 0) {
            return natures[i].nature;
        }
    }
    return NATURE_DRIVE;
}

const char *environment_nature_name(enum environment_nature nature)
{
    static const char *const names[] = {[NATURE_DRIVE] = "drive", [NATURE_MEMORY] = "memory",
                                        [NATURE_TRANSFORMING] = "transforming",
                                        [NATURE_REMOTE] = "remote"};
    return names[nature];
}

/* True when the mount compresses what is written to it. */
static bool mount_compresses(const char *options)
{
    static const char *const names[] = {"compress", "compress-force", "compression"};
    for (size_t i = 0; i < countof(names); i++) {
        char value[ENVIRONMENT_NAME_BYTES];
        environment_option(options, names[i], value, sizeof value);
        if (value[0] != '\0' && strcmp(value, "no") != 0 && strcmp(value, "none") != 0) {
            return true;
        }
    }
    return false;
}

/* ---- the device ---- */

/* The device a mount's source names, for file systems whose files have numbers of their own. */
static void device_of_source(struct environment *env, struct environment_place *place)
{
    char folder[PROC_PATH_BYTES];
    char number[ENVIRONMENT_NAME_BYTES];
    struct stat st;
    if (strncmp(place->source, "/dev/", 5) != 0) {
        return;
    }
    snprintf(folder, sizeof folder, "%s/sys/class/block/%s", env->root,
             strrchr(place->source, '/') + 1);
    place->top = environment_add_folder(env, folder);
    if (place->top != ENVIRONMENT_NONE) {
        proc_line(number, sizeof number, "%s/dev", folder);
        (void)sscanf(number, "%u:%u", &place->number[0], &place->number[1]);
    } else if (stat(place->source, &st) == 0 && S_ISBLK(st.st_mode)) {
        place->number[0] = major(st.st_rdev);
        place->number[1] = minor(st.st_rdev);
        place->top = environment_add_device(env, place->number[0], place->number[1]);
    }
}

/* A btrfs of several devices names one of them as its source; sysfs lists all. */
static void look_others(struct environment *env, struct environment_place *place)
{
    char pattern[PROC_PATH_BYTES];
    const char *name = strrchr(place->source, '/');
    glob_t self;
    glob_t all;
    if (name == NULL || strcmp(place->file_system, "btrfs") != 0) {
        return;
    }
    snprintf(pattern, sizeof pattern, "%s/sys/fs/btrfs/*/devices%s", env->root, name);
    if (glob(pattern, 0, NULL, &self) != 0) {
        return;
    }
    snprintf(pattern, sizeof pattern, "%.*s/*",
             (int)(strrchr(self.gl_pathv[0], '/') - self.gl_pathv[0]), self.gl_pathv[0]);
    globfree(&self);
    if (glob(pattern, 0, NULL, &all) != 0) {
        return;
    }
    for (size_t i = 0; i < all.gl_pathc; i++) {
        uint32_t device = environment_add_folder(env, all.gl_pathv[i]);
        place->others |= device != ENVIRONMENT_NONE && device != place->top ? 1U << device : 0;
    }
    globfree(&all);
}

static void find_device(struct environment *env, struct environment_place *place)
{
    place->number[0] = major(place->device);
    place->number[1] = minor(place->device);
    place->top = environment_add_device(env, place->number[0], place->number[1]);
    if (place->top == ENVIRONMENT_NONE) {
        device_of_source(env, place);
    }
    if (place->top != ENVIRONMENT_NONE) {
        look_others(env, place);
    }
}

/* Everything of the place that one open file of it tells. */
static int look_place(struct environment *env, int fd, struct environment_place *place)
{
    struct io_place probed;
    int rc = io_probe(fd, &probed);
    if (rc < 0) {
        return rc;
    }
    *place = (struct environment_place){.device = probed.device, .top = ENVIRONMENT_NONE};
    snprintf(place->file_system, sizeof place->file_system, "%s", probed.file_system);
    environment_look_mount(env, fd, place);
    place->nature = nature_of(place->file_system);
    find_device(env, place);
    return 0;
}

/* What is read through an overlay lies in one of its folders, if this process may see them. */
static void look_lower(struct environment *env, struct environment_place *place)
{
    static const char *const names[] = {"upperdir", "lowerdir"};
    for (size_t i = 0; i < countof(names) && place->lower[0] == '\0'; i++) {
        char path[ENVIRONMENT_TEXT_BYTES];
        struct environment_place lower;
        environment_option(place->options, names[i], path, sizeof path);
        path[strcspn(path, ":")] = '\0';
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0) {
            continue;
        }
        if (look_place(env, fd, &lower) == 0) {
            snprintf(place->lower, sizeof place->lower, "%s", lower.file_system);
            place->nature = lower.nature;
            place->top = lower.top;
            place->others = lower.others;
            memcpy(place->number, lower.number, sizeof place->number);
        }
        close(fd);
    }
}

/* ---- content ---- */

static uint64_t holes_of(int fd, uint64_t size)
{
    uint64_t holes = 0;
    for (uint64_t at = 0; at < size;) {
        off_t data = lseek(fd, (off_t)at, SEEK_DATA);
        if (data < 0) {
            return errno == ENXIO ? holes + (size - at) : holes;
        }
        holes += min_u64((uint64_t)data, size) - at;
        off_t hole = lseek(fd, data, SEEK_HOLE);
        if (hole <= data) {
            return holes;
        }
        at = (uint64_t)hole;
    }
    return holes;
}

/* Flags that any of the first extents of a file has; false where the file system tells none. */
static bool extent_flags(int fd, uint32_t *flags)
{
    uint64_t room[(sizeof(struct fiemap) + EXTENTS_AT_ONCE * sizeof(struct fiemap_extent)) / 8];
    struct fiemap *map = (struct fiemap *)room;
    uint64_t at = 0;
    *flags = 0;
    for (uint32_t asked = 0; asked < EXTENTS_ASKED; asked++) {
        memset(room, 0, sizeof room);
        map->fm_start = at;
        map->fm_length = UINT64_MAX - at;
        map->fm_extent_count = EXTENTS_AT_ONCE;
        if (ioctl(fd, FS_IOC_FIEMAP, map) != 0) {
            return false;
        }
        for (uint32_t i = 0; i < map->fm_mapped_extents; i++) {
            const struct fiemap_extent *x = &map->fm_extents[i];
            *flags |= x->fe_flags;
            at = x->fe_logical + x->fe_length;
        }
        if (map->fm_mapped_extents == 0 || (*flags & FIEMAP_EXTENT_LAST) != 0) {
            break;
        }
    }
    return true;
}

static void look_file(struct environment_place *place, const struct io_file *file)
{
    uint32_t flags;
    bool told = extent_flags(file->fd, &flags);
    place->files++;
    place->direct_files += file->direct;
    place->alignment = (uint32_t)max_u64(place->alignment, file->alignment);
    place->bytes += file->size_bytes;
    place->holes_bytes += holes_of(file->fd, file->size_bytes);
    if (told) {
        bool encrypted = (flags & FIEMAP_EXTENT_DATA_ENCRYPTED) != 0;
        place->encrypted = place->encrypted || encrypted;
        place->compressed = place->compressed || (!encrypted && (flags & FIEMAP_EXTENT_ENCODED));
    } else {
        place->compressed = place->compressed || mount_compresses(place->options);
    }
}

static void conclude(struct environment_place *place)
{
    if (place->compressed && place->nature == NATURE_DRIVE) {
        place->nature = NATURE_TRANSFORMING;
    }
}

int environment_look_files(struct environment *env, const char *const *paths, uint32_t count)
{
    struct io_files files;
    TRY(io_files_open(&files, paths, NULL, count));
    for (uint32_t i = 0; i < files.count; i++) {
        const struct io_file *file = &files.file[i];
        struct environment_place *place = &env->place[file->device];
        if (file->device == env->place_count) {
            int rc = look_place(env, file->fd, place);
            if (rc < 0) {
                io_files_close(&files);
                return err_set(ERR_IO, "%s: cannot be looked at: %s", paths[i], strerror(-rc));
            }
            look_lower(env, place);
            env->place_count++;
        }
        look_file(place, file);
    }
    io_files_close(&files);
    for (uint32_t i = 0; i < env->place_count; i++) {
        conclude(&env->place[i]);
    }
    return 0;
}
