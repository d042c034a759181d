/* SPDX-License-Identifier: Apache-2.0 */
/* Which files are read for what, and what came of it. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/cli/verify.h"

static int no_memory(const struct verify *v)
{
    return err_set(ERR_MEMORY, "%s: no memory for its list of files", v->dir);
}

/* ---- the model's files ---- */

/* In the folder of the model by name, elsewhere by path. */
static const char *name_of(const struct verify *v, const char *path)
{
    size_t length = strlen(v->dir);
    const char *name = path_name(path);
    bool inside = strncmp(path, v->dir, length) == 0 &&
                  strspn(path + length, "/") == (size_t)(name - path) - length;
    return inside ? name : path;
}

static int add_file(struct verify *v, const char *path)
{
    struct verify_job *job = verify_reading_add(&v->reading, path, name_of(v, path));
    if (job == NULL) {
        return no_memory(v);
    }
    job->of_model = true;
    return 0;
}

/* Of a model that was refused: all shards that are there. */
static int add_shards(struct verify *v)
{
    char **names;
    uint32_t count;
    int rc = survey_shards(v->dir, &names, &count);
    if (rc < 0 && rc != ERR_MEMORY) {
        err_clear(); /* no folder: that was said when it was opened */
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        char *path = rc == 0 ? path_join(v->dir, names[i]) : NULL;
        rc = rc < 0 ? rc : path == NULL ? ERR_MEMORY : add_file(v, path);
        free(path);
        free(names[i]);
    }
    free(names);
    return rc;
}

static int add_files(struct verify *v)
{
    if (v->model == NULL) {
        return add_shards(v);
    }
    for (uint32_t i = 0; i < v->model->file_count; i++) {
        TRY(add_file(v, v->model->files[i].path));
    }
    return 0;
}

/* ---- files of a list ---- */

/* Relative to the model if it is there, else to the list. NULL without memory. */
static char *resolve(const struct verify *v, const char *list, const char *name)
{
    if (name[0] == '/') {
        return strdup(name);
    }
    char *path = path_join(v->dir, name);
    if (path == NULL || file_exists(path)) {
        return path;
    }
    free(path);
    size_t folder = (size_t)(path_name(list) - list);
    char *dir = folder > 0 ? strndup(list, folder) : strdup(".");
    path = dir != NULL ? path_join(dir, name) : NULL;
    free(dir);
    return path;
}

static bool same_file(const struct verify_job *job, const struct stat *status)
{
    return job->known && job->device == status->st_dev && job->inode == status->st_ino;
}

static void expect(struct verify *v, struct verify_job *job, const struct verify_entry *entry,
                   const char *list)
{
    if (job->expected != NULL && memcmp(job->expected, entry->hash, VERIFY_HASH_BYTES) != 0) {
        verify_say(v, VERIFY_BAD, "list", "%s: line %u gives %s another SHA-256 than a line "
                   "before", list, entry->line, entry->name);
        return;
    }
    job->expected = entry->hash;
    job->sha256 = true;
}

static int add_entry(struct verify *v, const char *list, const struct verify_entry *entry)
{
    struct stat status;
    char *path = resolve(v, list, entry->name);
    if (path == NULL) {
        return no_memory(v);
    }
    int rc = 0;
    if (stat(path, &status) != 0) {
        verify_say(v, VERIFY_BAD, "missing", "%s (line %u of %s) is neither in %s nor beside the "
                   "list: fetch it", entry->name, entry->line, list, v->dir);
    } else {
        bool found = false;
        for (uint32_t i = 0; i < v->reading.count; i++) {
            if (same_file(&v->reading.job[i], &status)) {
                expect(v, &v->reading.job[i], entry, list);
                found = true;
            }
        }
        struct verify_job *job =
            found ? NULL : verify_reading_add(&v->reading, path, entry->name);
        if (job != NULL) {
            expect(v, job, entry, list);
        } else if (!found) {
            rc = no_memory(v);
        }
    }
    free(path);
    return rc;
}

static int add_list(struct verify *v, const char *path, const struct verify_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        TRY(add_entry(v, path, &list->entry[i]));
    }
    return 0;
}

/* ---- what came of it ---- */

static void hex(char text[2 * VERIFY_HASH_BYTES + 1], const unsigned char *hash)
{
    for (uint32_t i = 0; i < VERIFY_HASH_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
    }
}

static void judge(struct verify *v, const struct verify_job *job, bool listed, uint64_t *good)
{
    char is[2 * VERIFY_HASH_BYTES + 1];
    char wanted[2 * VERIFY_HASH_BYTES + 1];
    if (job->rc < 0) {
        verify_fail(v, job->rc, "read", "%s", job->message != NULL ? job->message : job->path);
    } else if (job->expected != NULL &&
               memcmp(job->expected, job->hash, VERIFY_HASH_BYTES) != 0) {
        hex(is, job->hash);
        hex(wanted, job->expected);
        verify_say(v, VERIFY_BAD, "sha256", "%s: is %s, the list says %s: fetch this file again",
                   job->name, is, wanted);
    } else if (job->expected != NULL) {
        (*good)++;
    } else if (listed && job->of_model) {
        verify_say(v, VERIFY_BAD, "extra", "%s: is of the model but not in the list, so it was not "
                   "compared", job->name);
    }
}

static void judge_all(struct verify *v, const char *list)
{
    uint64_t good = 0;
    for (uint32_t i = 0; i < v->reading.count; i++) {
        judge(v, &v->reading.job[i], list != NULL, &good);
    }
    if (list != NULL && good > 0) {
        verify_say(v, VERIFY_OK, "sha256", "%llu files have the SHA-256 that %s says",
                   (unsigned long long)good, list);
    }
    if (v->reading.read_bytes > 0) {
        double seconds = (double)(v->reading.taken_ns + 1) / 1e9;
        verify_say(v, VERIFY_OK, "read", "%.3f GB in %.1f s, %.2f GB/s, on %u threads",
                   (double)v->reading.read_bytes / 1e9, seconds,
                   (double)v->reading.read_bytes / 1e9 / seconds, v->reading.threads);
    }
}

static void print_hash(void *ctx, const struct verify_job *job)
{
    (void)ctx;
    if (job->done && job->of_model) {
        verify_list_write(stdout, job->hash, job->name);
        fflush(stdout);
    }
}

static int read_all(struct verify *v, const struct verify_wish *wish)
{
    struct verify_pages_out sums = {.head = NULL};
    int fd = -1;
    int rc = wish->write_pages != NULL ? verify_pages_write(v, wish->write_pages, &sums) : 0;
    if (rc == 0 && wish->check_pages != NULL) {
        rc = verify_pages_check(v, wish->check_pages, &fd);
    }
    rc = rc < 0 ? rc : verify_reading_run(&v->reading);
    if (rc == 0) {
        judge_all(v, wish->checksums);
    }
    if (rc == 0 && wish->check_pages != NULL) {
        verify_pages_checked(v, wish->check_pages);
    }
    if (rc == 0 && wish->write_pages != NULL) {
        rc = verify_pages_written(v, &sums);
    }
    verify_pages_abandon(&sums);
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

int verify_files(struct verify *v, const struct verify_wish *wish)
{
    struct verify_list list = {.entry = NULL};
    v->reading.threads = wish->threads;
    v->reading.quiet = wish->quiet;
    v->reading.what = wish->write_pages != NULL ? "reading" : "checking";
    v->reading.ended = wish->hash ? print_hash : NULL;
    int rc = add_files(v);
    for (uint32_t i = 0; rc == 0 && wish->hash && i < v->reading.count; i++) {
        v->reading.job[i].sha256 = true;
    }
    if (rc == 0 && wish->checksums != NULL) {
        rc = verify_list_read(v, wish->checksums, &list);
        rc = rc < 0 ? rc : add_list(v, wish->checksums, &list);
    }
    rc = rc < 0 ? rc : read_all(v, wish);
    for (uint32_t i = 0; i < v->reading.count; i++) {
        v->reading.job[i].expected = NULL; /* was of the list */
    }
    verify_list_free(&list);
    return rc;
}
