/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/output.h"

#include <errno.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"

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
    /* A symbolic link is written through, never replaced: /dev/stdout is one. */
    out->direct = lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
    if (out->direct) {
        out->file = fopen(path, "we");
        return out->file != NULL ? 0 : refuse(path, "cannot be opened for writing");
    }
    if (asprintf(&out->temporary, "%s.tmp.%ld", path, (long)getpid()) < 0) {
        out->temporary = NULL;
        return err_set(ERR_MEMORY, "no memory for a file name");
    }
    unlink(out->temporary); /* left by a killed process of the same number */
    out->file = fopen(out->temporary, "wxe");
    if (out->file == NULL) {
        int rc = refuse(path, "cannot be written");
        free(out->temporary);
        out->temporary = NULL;
        return rc;
    }
    remember(out->temporary);
    return 0;
}

void output_abandon(struct output *out)
{
    if (out->file != NULL && out->file != stdout) {
        fclose(out->file);
    }
    if (out->temporary != NULL) {
        unlink(out->temporary);
        forget(out->temporary);
        free(out->temporary);
    }
    *out = (struct output){0};
}

int output_commit(struct output *out)
{
    errno = 0;
    bool bad = fflush(out->file) != 0 || ferror(out->file) != 0;
    if (!bad && out->temporary != NULL) {
        bad = fsync(fileno(out->file)) != 0 && errno != EINVAL;
    }
    if (!bad && out->file != stdout) {
        bad = fclose(out->file) != 0;
        out->file = NULL;
    }
    if (!bad && out->temporary != NULL) {
        bad = rename(out->temporary, out->path) != 0;
    }
    int rc = bad ? refuse(strcmp(out->path, "-") == 0 ? "standard output" : out->path,
                          "cannot be written") : 0;
    if (!bad) {
        forget(out->temporary);
        free(out->temporary);
        out->temporary = NULL;
    }
    output_abandon(out);
    return rc;
}

int output_text(const char *path, const char *text)
{
    struct output out;
    TRY(output_open(&out, path));
    fputs(text, out.file);
    return output_commit(&out);
}

int output_json(FILE *file, cJSON *root)
{
    char *text = root != NULL ? cJSON_Print(root) : NULL;
    cJSON_Delete(root);
    if (text == NULL) {
        return err_set(ERR_MEMORY, "no memory for the report");
    }
    fputs(text, file);
    fputc('\n', file); /* still buffered: a full drive is met again, and named, by the flush */
    cJSON_free(text);
    return 0;
}

int output_flush_stdout(void)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return refuse("standard output", "cannot be written");
    }
    return 0;
}
