/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/utf8.h"
#include "core/cli/temporary.h"
#include "core/model/pack.h"

#define TEMPORARIES_MAX 8

/* Names of files being written; read by a signal handler, on any thread. */
static _Atomic(char *) temporaries[TEMPORARIES_MAX];

static void remember(char *temporary)
{
    for (int i = 0; i < TEMPORARIES_MAX; i++) {
        char *none = NULL;
        if (atomic_compare_exchange_strong(&temporaries[i], &none, temporary)) {
            return;
        }
    }
}

static void forget(const char *temporary)
{
    for (int i = 0; i < TEMPORARIES_MAX; i++) {
        if (atomic_load(&temporaries[i]) == temporary) {
            atomic_store(&temporaries[i], NULL);
        }
    }
}

void output_remove_temporaries(void)
{
    for (int i = 0; i < TEMPORARIES_MAX; i++) {
        const char *temporary = atomic_load(&temporaries[i]);
        if (temporary != NULL) {
            unlink(temporary);
        }
    }
}

static int refuse(const char *path, const char *what)
{
    return err_set(ERR_OUTPUT, "%s: %s: %s", path, what,
                   errno != 0 ? strerror(errno) : "an earlier write failed");
}

/* ---- what is never replaced ---- */

static struct spared {
    dev_t dev;
    ino_t ino;
    bool input; /* of this command, not a file of the model */
} *spared;
static size_t spared_count;

static int spare(const struct stat *st, bool input)
{
    struct spared *more = realloc(spared, (spared_count + 1) * sizeof *spared);
    if (more == NULL) {
        return err_set(ERR_MEMORY, "no memory for a list of files");
    }
    spared = more;
    spared[spared_count++] = (struct spared){st->st_dev, st->st_ino, input};
    return 0;
}

/* 0 unless path is a file that is never replaced. */
static int check_spared(const char *path)
{
    struct stat st;
    const struct spared *found = NULL;
    if (stat(path, &st) == 0) {
        for (size_t i = 0; i < spared_count && found == NULL; i++) {
            found = spared[i].dev == st.st_dev && spared[i].ino == st.st_ino ? &spared[i] : NULL;
        }
    }
    if (found == NULL) {
        return 0;
    }
    return err_set(ERR_USAGE, "%s: is %s, and is not replaced; give another name", path,
                   found->input ? "read by this command too"
                                : "a file in the model's folder, or one of the model");
}

/* The files of a folder, links followed: shards may lie elsewhere. */
static int spare_folder(const char *dir)
{
    DIR *stream = opendir(dir);
    int rc = 0;
    for (struct dirent *e; stream != NULL && rc == 0 && (e = readdir(stream)) != NULL;) {
        struct stat st;
        if (fstatat(dirfd(stream), e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode)) {
            rc = spare(&st, false);
        }
    }
    if (stream != NULL) {
        closedir(stream);
    }
    return rc;
}

/* A pack's data may lie on other drives, and experts in the checkpoint it was made of. */
static int spare_pack(const char *dir)
{
    struct model_options options = {.allow_holes = true};
    struct model *model;
    if (model_open(dir, &options, &model) < 0) {
        err_clear(); /* whoever opens it next says so */
        return 0;
    }
    int rc = model->pack != NULL ? spare_folder(model->pack->source) : 0;
    for (uint32_t i = 0; i < model->file_count && rc == 0; i++) {
        struct stat st;
        rc = stat(model->files[i].path, &st) == 0 ? spare(&st, false) : 0;
    }
    model_close(model);
    return rc;
}

int output_spare_model(const char *dir)
{
    char *manifest = path_join(dir, PACK_MANIFEST);
    bool pack = manifest != NULL && access(manifest, F_OK) == 0;
    free(manifest);
    TRY(spare_folder(dir));
    return pack ? spare_pack(dir) : 0;
}

int output_spare_inputs(const char *const *paths, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct stat st;
        if (paths[i] != NULL && stat(paths[i], &st) == 0 && S_ISREG(st.st_mode)) {
            TRY(spare(&st, true));
        }
    }
    return 0;
}

/* ---- outputs ---- */

/* The folder of path, resolved. Free it; NULL when there is none. */
static char *folder_of(const char *path)
{
    char *copy = strdup(path);
    char *folder = copy != NULL ? realpath(dirname(copy), NULL) : NULL;
    free(copy);
    return folder;
}

bool output_same(const char *a, const char *b)
{
    const char *name_a = strrchr(a, '/') != NULL ? strrchr(a, '/') + 1 : a;
    const char *name_b = strrchr(b, '/') != NULL ? strrchr(b, '/') + 1 : b;
    char *folder_a = folder_of(a);
    char *folder_b = folder_of(b);
    bool same = strcmp(name_a, name_b) == 0 && folder_a != NULL && folder_b != NULL &&
                strcmp(folder_a, folder_b) == 0;
    free(folder_a);
    free(folder_b);
    return same;
}

int output_open(struct output *out, const char *path)
{
    struct stat st;
    *out = (struct output){.path = path};
    if (strcmp(path, "-") == 0) {
        out->file = stdout;
        out->direct = true;
        return 0;
    }
    if (path[0] == '\0') {
        errno = ENOENT;
        return refuse("an output with an empty name", "cannot be written");
    }
    TRY(check_spared(path));
    /* A symbolic link is written through, never replaced: /dev/stdout is one. */
    out->direct = lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
    if (out->direct) {
        out->file = fopen(path, "we");
        return out->file != NULL ? 0 : refuse(path, "cannot be opened for writing");
    }
    int fd = temporary_open(path, &out->temporary);
    if (fd < 0) {
        return refuse(path, "cannot be written");
    }
    remember(out->temporary);
    out->file = fdopen(fd, "w");
    if (out->file == NULL) {
        int rc = refuse(path, "cannot be written");
        close(fd);
        output_abandon(out);
        return rc;
    }
    return 0;
}

void output_abandon(struct output *out)
{
    if (out->temporary != NULL) {
        unlink(out->temporary); /* while it is locked, if it still is: the name is ours */
    }
    if (out->file != NULL && out->file != stdout) {
        fclose(out->file);
    }
    if (out->temporary != NULL) {
        forget(out->temporary);
        free(out->temporary);
    }
    *out = (struct output){0};
}

/* ---- folders that have new names ---- */

#define FOLDERS_MAX 8

static char *folders[FOLDERS_MAX]; /* resolved; the first folder_count */
static size_t folder_count;

/* The files are whole and in their places by then: a file system that keeps no folders in order is
 * no reason to call them lost. */
void output_flush_folders(void)
{
    for (size_t i = 0; i < folder_count; i++) {
        int fd = open(folders[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0) {
            (void)fsync(fd);
            close(fd);
        }
        free(folders[i]);
        folders[i] = NULL;
    }
    folder_count = 0;
}

/* Several outputs most often lie in one folder, and each flush waits for the drive. */
static void note_folder(const char *path)
{
    char *folder = folder_of(path);
    bool known = folder == NULL;
    for (size_t i = 0; i < folder_count && !known; i++) {
        known = strcmp(folders[i], folder) == 0;
    }
    if (known) {
        free(folder);
        return;
    }
    if (folder_count == FOLDERS_MAX) {
        output_flush_folders();
    }
    folders[folder_count++] = folder;
}

/* ---- the end of an output ---- */

/* Whether anything was lost; errno says why. An earlier write may have taken the reason with it: a
 * byte more meets it again. */
static bool flush(FILE *file)
{
    errno = 0;
    bool bad = fflush(file) != 0;
    if (!bad && ferror(file) != 0) {
        bad = true;
        errno = 0;
        fputc('\n', file);
        fflush(file);
    }
    return bad;
}

/* Some file systems cannot name a file and look for another of that name at once. */
static int give_name(const struct output *out)
{
    if (!out->only_new) {
        return rename(out->temporary, out->path);
    }
    int rc = renameat2(AT_FDCWD, out->temporary, AT_FDCWD, out->path, RENAME_NOREPLACE);
    if (rc == 0 || (errno != EINVAL && errno != ENOSYS)) {
        return rc;
    }
    if (access(out->path, F_OK) == 0) {
        errno = EEXIST;
        return -1;
    }
    return rename(out->temporary, out->path);
}

int output_commit(struct output *out)
{
    bool bad = flush(out->file);
    if (!bad && out->temporary != NULL) {
        bad = fsync(fileno(out->file)) != 0 && errno != EINVAL;
    }
    int lock = out->temporary != NULL ? dup(fileno(out->file)) : -1; /* until it has its name */
    if (!bad && out->file != stdout) {
        bad = fclose(out->file) != 0;
        out->file = NULL;
    }
    if (!bad && out->temporary != NULL) {
        bad = give_name(out) != 0;
        if (!bad) {
            note_folder(out->path);
        }
    }
    if (lock >= 0) {
        close(lock);
    }
    const char *what = bad && out->only_new && errno == EEXIST
                           ? "came while this ran and is kept; move it and give the command again"
                           : "cannot be written";
    int rc = bad ? refuse(strcmp(out->path, "-") == 0 ? "standard output" : out->path, what) : 0;
    if (!bad) {
        forget(out->temporary);
        free(out->temporary);
        out->temporary = NULL;
    }
    output_abandon(out);
    return rc;
}

int output_check(const char *path)
{
    struct output probe;
    struct stat st;
    TRY(check_spared(path));
    if (strcmp(path, "-") == 0 || (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))) {
        return 0;
    }
    TRY(output_open(&probe, path));
    output_abandon(&probe);
    return 0;
}

int output_check_regular(const char *option, const char *path)
{
    struct stat st;
    if (strcmp(path, "-") == 0) {
        return err_set(ERR_USAGE, "--%s: give a file; it is replaced as a whole", option);
    }
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        return err_set(ERR_USAGE, "--%s: %s is not a regular file; give the file itself, not a "
                       "link", option, path);
    }
    return 0;
}

int output_check_outside(const char *option, const char *path, const char *dir)
{
    char *folder = folder_of(path);
    char *model = realpath(dir, NULL);
    const bool inside = folder != NULL && model != NULL && strcmp(folder, model) == 0;
    free(folder);
    free(model);
    return inside ? err_set(ERR_USAGE, "--%s: %s is in the model's folder, where nothing is "
                            "replaced; name a file elsewhere", option, path)
                  : 0;
}

void output_private(const struct output *out)
{
    if (out->temporary != NULL) {
        (void)fchmod(fileno(out->file), S_IRUSR | S_IWUSR);
    }
}

int output_text(const char *path, const char *text)
{
    struct output out;
    TRY(output_open(&out, path));
    fputs(text, out.file);
    return output_commit(&out);
}

char *output_json_text(cJSON *root)
{
    char *text = root != NULL ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    if (text == NULL) {
        err_set(ERR_MEMORY, "no memory for the report");
        return NULL;
    }
    utf8_mend(text);
    return text;
}

int output_json(FILE *file, cJSON *root)
{
    char *text = output_json_text(root);
    if (text == NULL) {
        return ERR_MEMORY;
    }
    fputs(text, file);
    fputc('\n', file); /* still buffered: a full drive is met again, and named, by the flush */
    cJSON_free(text);
    return 0;
}

int output_flush_stdout(void)
{
    if (flush(stdout)) {
        return refuse("standard output", "cannot be written");
    }
    return 0;
}
