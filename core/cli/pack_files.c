/* SPDX-License-Identifier: Apache-2.0 */
/* The data files of a pack while it is made: written under partial names, renamed when all of
 * them are whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/cli/pack_priv.h"

const char *pack_file_name(const struct pack_output *out, uint32_t file)
{
    return file < out->places->count ? PACK_TRUNK : PACK_EXPERTS;
}

static const struct pack_place *place_of(const struct pack_output *out, uint32_t file)
{
    return &out->places->place[pack_file_place(out, file)];
}

static void partial_name(const struct pack_output *out, uint32_t file, char name[64])
{
    snprintf(name, 64, "%s" PACK_PARTIAL_SUFFIX, pack_file_name(out, file));
}

static int fail(const struct pack_output *out, uint32_t file, const char *what, int error)
{
    return err_set(ERR_OUTPUT, "%s/%s: %s: %s; what is written stays, the same command goes on "
                   "from there", place_of(out, file)->path, pack_file_name(out, file), what,
                   strerror(error));
}

int pack_output_write(const struct pack_output *out, uint32_t file, uint64_t offset_bytes,
                      const void *bytes, uint64_t size_bytes)
{
    const char *at = bytes;
    while (size_bytes > 0) {
        ssize_t wrote = pwrite(out->fd[file], at, size_bytes, (off_t)offset_bytes);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            return fail(out, file, "cannot be written", wrote < 0 ? errno : ENOSPC);
        }
        at += wrote;
        offset_bytes += (uint64_t)wrote;
        size_bytes -= (uint64_t)wrote;
    }
    return 0;
}

static int write_head(struct pack_output *out, uint32_t file, uint64_t id)
{
    unsigned char page[PAGE_BYTES] = {0};
    struct pack_head head = {.version = PACK_VERSION, .file = file, .id = id};
    memcpy(head.magic, PACK_MAGIC, sizeof head.magic);
    memcpy(page, &head, sizeof head);
    return pack_output_write(out, file, 0, page, sizeof page);
}

static int check_head(const struct pack_output *out, uint32_t file, uint64_t id)
{
    struct pack_head head = {.version = 0};
    ssize_t got = pread(out->fd[file], &head, sizeof head, 0);
    if (got != (ssize_t)sizeof head || memcmp(head.magic, PACK_MAGIC, sizeof head.magic) != 0 ||
        head.file != file || head.id != id) {
        return err_set(ERR_USAGE, "%s: holds no part of the unfinished pack in %s; give the "
                       "folders it was begun with, or remove it and begin anew",
                       place_of(out, file)->path, out->places->place[0].path);
    }
    return 0;
}

int pack_output_need_all(const struct pack_output *out)
{
    for (uint32_t i = 0; i < out->count; i++) {
        if (out->fd[i] < 0) {
            return err_set(ERR_USAGE, "%s/%s" PACK_PARTIAL_SUFFIX ": is missing or empty, a file "
                           "of the unfinished pack in %s; mount or bring back its folder, or "
                           "remove the pack to begin anew", place_of(out, i)->path,
                           pack_file_name(out, i), out->places->place[0].path);
        }
    }
    return 0;
}

/* Opens a file by a name; 1 when there is none, or an empty one: the end came before its head. */
static int open_named(struct pack_output *out, uint32_t file, const char *name, uint64_t id)
{
    struct stat status;
    out->fd[file] = openat(place_of(out, file)->fd, name, O_RDWR | O_CLOEXEC);
    if (out->fd[file] < 0) {
        return errno == ENOENT ? 1 : fail(out, file, "cannot be opened again", errno);
    }
    if (fstat(out->fd[file], &status) == 0 && status.st_size == 0) {
        close(out->fd[file]);
        out->fd[file] = -1;
        return 1;
    }
    return check_head(out, file, id);
}

/* An end between the renaming and the manifest left the final name. 1 when there is neither. */
static int find_again(struct pack_output *out, uint32_t file, uint64_t id)
{
    char name[64];
    const struct pack_place *place = place_of(out, file);
    partial_name(out, file, name);
    int rc = open_named(out, file, name, id);
    if (rc != 1) {
        return rc;
    }
    rc = open_named(out, file, pack_file_name(out, file), id);
    if (rc == 0 && renameat(place->fd, pack_file_name(out, file), place->fd, name) < 0) {
        return fail(out, file, "cannot be renamed", errno);
    }
    return rc;
}

static int make_new(struct pack_output *out, uint32_t file, uint64_t id)
{
    char name[64];
    const int only_new = out->places->resumed ? 0 : O_EXCL; /* else it may be there, empty */
    partial_name(out, file, name);
    out->fd[file] = openat(place_of(out, file)->fd, name,
                           O_RDWR | O_CREAT | only_new | O_CLOEXEC, 0666);
    if (out->fd[file] < 0) {
        return fail(out, file, "cannot be made", errno);
    }
    return write_head(out, file, id);
}

int pack_output_open(struct pack_output *out, const struct pack_places *places, uint32_t count,
                     uint64_t id)
{
    *out = (struct pack_output){.places = places, .count = count};
    for (uint32_t i = 0; i < PACK_FILES_MAX; i++) {
        out->fd[i] = -1;
        out->end_bytes[i] = PAGE_BYTES;
    }
    for (uint32_t i = 0; i < count && places->resumed; i++) {
        TRY(find_again(out, i, id));
    }
    return 0;
}

int pack_output_make(struct pack_output *out, uint64_t id)
{
    for (uint32_t i = 0; i < out->count; i++) {
        if (out->fd[i] < 0) {
            TRY(make_new(out, i, id));
        }
    }
    for (uint32_t i = 0; i < out->places->count; i++) {
        TRY(pack_sync_folder(&out->places->place[i])); /* the names outlive the machine */
    }
    return 0;
}

void pack_output_close(struct pack_output *out)
{
    for (uint32_t i = 0; i < out->count; i++) {
        if (out->fd[i] >= 0) {
            close(out->fd[i]);
            out->fd[i] = -1;
        }
    }
}

int pack_output_sync(const struct pack_output *out)
{
    for (uint32_t i = 0; i < out->count; i++) {
        if (fdatasync(out->fd[i]) < 0) {
            return fail(out, i, "cannot be brought to the drive", errno);
        }
        posix_fadvise(out->fd[i], 0, 0, POSIX_FADV_DONTNEED); /* nobody reads it soon */
    }
    return 0;
}

int pack_output_cut(const struct pack_output *out)
{
    for (uint32_t i = 0; i < out->count; i++) {
        if (ftruncate(out->fd[i], (off_t)out->end_bytes[i]) < 0) {
            return fail(out, i, "cannot be brought to its size", errno);
        }
    }
    return 0;
}

int pack_output_rename(struct pack_output *out)
{
    for (uint32_t i = 0; i < out->count; i++) {
        char name[64];
        partial_name(out, i, name);
        const struct pack_place *place = place_of(out, i);
        if (renameat(place->fd, name, place->fd, pack_file_name(out, i)) < 0) {
            return fail(out, i, "cannot be renamed", errno);
        }
    }
    for (uint32_t i = 0; i < out->places->count; i++) {
        TRY(pack_sync_folder(&out->places->place[i]));
    }
    return 0;
}
