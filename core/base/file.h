/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

/* Small whole files and paths. The text lies in a mapping of its own, so that freeing it gives
 * the memory back to the system at once. Any thread. */

#include <dirent.h>

#include "core/base/base.h"

struct file_text {
    char *text;        /* followed by at least one NUL byte */
    size_t size_bytes;
};

/* Reads a regular file of at most cap_bytes. Returns 0, ERR_MODEL when it is absent, not a
 * regular file or longer than the cap, or ERR_IO / ERR_MEMORY. Free with file_text_free(). */
int file_read(const char *path, uint64_t cap_bytes, struct file_text *out);
void file_text_free(struct file_text *file); /* an empty struct is fine */

/* The first size_bytes of a file. As file_read(); ERR_IO when it is shorter. */
int file_read_begin(const char *path, void *target, size_t size_bytes);

/* Opens for reading without ever waiting for another process. Returns -1 with errno set. */
int file_open(const char *path);
/* The same for a folder; NULL with errno set. */
DIR *file_open_folder(const char *path);

/* What a user can do about a path that cannot be opened, by errno. */
const char *file_cure(int error);
/* The error of a path that could not be opened, from errno: ERR_MODEL when path or permissions are
 * wrong, ERR_IO when the system failed. doing: "open", "list this folder". */
int file_refused(const char *path, const char *doing);

/* True when path names something that can be reached, of any kind. */
bool file_exists(const char *path);

/* "dir/name" on the heap, without a second slash; NULL with ERR_MEMORY set. */
char *path_join(const char *dir, const char *name);

/* The part of path behind its last slash. */
const char *path_name(const char *path);

/* Reads exactly size_bytes at offset_bytes, on after short reads; what is transient is tried again
 * for about half a second. ERR_IO with path and offset when the file ends before that or the system
 * refuses. */
int file_read_at(int fd, const char *path, uint64_t offset_bytes, void *target,
                 size_t size_bytes);

#endif
