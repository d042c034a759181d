/* SPDX-License-Identifier: Apache-2.0 */
/* The folders of a pack: made or found, free for it, with room. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/cli/pack_priv.h"

typedef unsigned long long ull; /* for messages */

static bool exists_at(const struct pack_place *place, const char *name)
{
    return faccessat(place->fd, name, F_OK, 0) == 0;
}

int pack_check_name(const char *name)
{
    for (const char *at = name; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7F) {
            return err_set(ERR_USAGE, "%s: a pack knows no names with control characters; "
                           "rename it", name);
        }
    }
    return 0;
}

static int open_place(struct pack_place *place, const char *path)
{
    place->made = mkdir(path, 0777) == 0;
    if (!place->made && errno != EEXIST) {
        return err_set(ERR_OUTPUT, "%s: the folder cannot be made: %s", path, strerror(errno));
    }
    place->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (place->fd < 0) {
        return err_set(ERR_USAGE, "%s: cannot be used as a folder: %s", path, strerror(errno));
    }
    place->path = realpath(path, NULL);
    if (place->path == NULL) {
        return err_set(ERR_OUTPUT, "%s: cannot be followed to its place: %s", path,
                       strerror(errno));
    }
    return pack_check_name(place->path);
}

/* "NAME.tmp.1234" or "NAME.tmp.1234.1": left by a process that was killed while it wrote NAME. */
static bool is_temporary(const char *entry, const char *name)
{
    const char *at = strstr(entry, ".tmp.");
    size_t length = name != NULL ? strlen(name) : 0;
    return at != NULL && at[5] != '\0' && strspn(at + 5, "0123456789.") == strlen(at + 5) &&
           (name == NULL || (strncmp(entry, name, length) == 0 && at == entry + length));
}

/* A new file system has one entry of its own. */
static bool is_foreign(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, "lost+found") != 0 &&
           strcmp(name, PACK_PROBE) != 0 && !is_temporary(name, PACK_JOURNAL);
}

/* Takes away what killed runs left: of a folder that is ours anything temporary. */
static void sweep(const struct pack_place *place, bool ours)
{
    int fd = dup(place->fd);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (stream == NULL) {
        return;
    }
    rewinddir(stream);
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (is_temporary(entry->d_name, ours ? NULL : PACK_JOURNAL) ||
            strcmp(entry->d_name, PACK_PROBE) == 0) {
            unlinkat(place->fd, entry->d_name, 0);
        }
    }
    closedir(stream);
}

static int check_free(const struct pack_place *place)
{
    int fd = dup(place->fd);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (stream == NULL) {
        return err_set(ERR_OUTPUT, "%s: cannot be listed: %s", place->path, strerror(errno));
    }
    int rc = 0;
    rewinddir(stream);
    for (const struct dirent *entry; rc == 0 && (entry = readdir(stream)) != NULL;) {
        if (is_foreign(entry->d_name)) {
            rc = err_set(ERR_USAGE, "%s: is not empty (%s); pack overwrites nothing, name a new "
                         "folder", place->path, entry->d_name);
        }
    }
    closedir(stream);
    return rc;
}

static int check_places(struct pack_places *places)
{
    const struct pack_place *home = &places->place[0];
    for (uint32_t i = 0; i < places->count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(places->place[i].path, places->place[k].path) == 0) {
                return err_set(ERR_USAGE, "%s: is given twice; each part of a pack needs a folder "
                               "of its own", places->place[i].path);
            }
        }
    }
    if (exists_at(home, PACK_MANIFEST)) {
        return err_set(ERR_USAGE, "%s: is a finished pack; remove it to make another there, or "
                       "prove it with --verify", home->path);
    }
    places->resumed = exists_at(home, PACK_JOURNAL);
    for (uint32_t i = 0; i < places->count && !places->resumed; i++) {
        TRY(check_free(&places->place[i]));
    }
    if (flock(home->fd, LOCK_EX | LOCK_NB) < 0) {
        return err_set(ERR_USAGE, "%s: another k3ring pack is writing it", home->path);
    }
    for (uint32_t i = 0; i < places->count; i++) {
        sweep(&places->place[i], places->resumed && i == 0);
    }
    return 0;
}

int pack_places_open(struct pack_places *places, const struct pack_options *options)
{
    *places = (struct pack_places){.count = 0};
    for (uint32_t i = 0; i <= options->to_count; i++) {
        struct pack_place *place = &places->place[i];
        place->fd = -1;
        places->count = i + 1;
        TRY(open_place(place, i == 0 ? options->dir : options->to[i - 1]));
        places->share[i] = options->shares != NULL ? options->shares[i] : 1;
    }
    return check_places(places);
}

void pack_places_close(struct pack_places *places, bool remove_made)
{
    for (uint32_t i = 0; i < places->count; i++) {
        struct pack_place *place = &places->place[i];
        if (place->fd >= 0) {
            close(place->fd);
        }
        if (remove_made && place->made && place->path != NULL) {
            rmdir(place->path);
        }
        free(place->path);
    }
    *places = (struct pack_places){.count = 0};
}

/* What the folders of one drive need together. */
static int check_drive(const struct pack_places *places, uint32_t first,
                       const uint64_t *need_bytes)
{
    struct stat mine;
    struct stat other;
    struct statvfs disk;
    uint64_t need = 0;
    if (fstat(places->place[first].fd, &mine) < 0 ||
        fstatvfs(places->place[first].fd, &disk) < 0) {
        return err_set(ERR_OUTPUT, "%s: its free space cannot be asked for: %s",
                       places->place[first].path, strerror(errno));
    }
    for (uint32_t i = first; i < places->count; i++) {
        bool same = fstat(places->place[i].fd, &other) == 0 && other.st_dev == mine.st_dev;
        need += same ? need_bytes[i] : 0;
    }
    uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (need <= free_bytes) {
        return 0;
    }
    return err_set(ERR_FIT, "%s: the pack needs %llu bytes (%.2f GB) and the drive has %llu "
                   "(%.2f GB) free; free some, leave the experts in place with --trunk-only, or "
                   "spread it with --to", places->place[first].path, (ull)need,
                   (double)need / 1e9, (ull)free_bytes, (double)free_bytes / 1e9);
}

int pack_places_check_space(const struct pack_places *places, const uint64_t *need_bytes)
{
    for (uint32_t i = 0; i < places->count; i++) {
        TRY(check_drive(places, i, need_bytes));
    }
    return 0;
}

int pack_sync_folder(const struct pack_place *place)
{
    if (fsync(place->fd) < 0 && errno != EINVAL) {
        return err_set(ERR_OUTPUT, "%s: cannot be brought to the drive: %s", place->path,
                       strerror(errno));
    }
    return 0;
}
