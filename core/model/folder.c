/* SPDX-License-Identifier: Apache-2.0 */
/* What is given in the place of a model, and what was meant by it. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/retry.h"
#include "core/model/model_priv.h"

#define WANTED "the folder that holds config.json and the *.safetensors files"
#define LOOKED_AT_MAX 1000 /* entries of a folder: enough to know what it is */

static bool ends(const char *name, const char *with)
{
    const size_t bytes = strlen(name);
    return bytes >= strlen(with) && strcmp(name + bytes - strlen(with), with) == 0;
}

static bool holds_config(const char *dir)
{
    char *path = path_join(dir, "config.json");
    const bool found = path != NULL && file_exists(path);
    free(path);
    return found;
}

/* A shard, or GGUF, where the folder belongs. */
static int refuse_file(const char *path, mode_t mode)
{
    char magic[4] = "";
    if (S_ISREG(mode) && file_read_begin(path, magic, sizeof magic) < 0) {
        err_clear(); /* a short file, or one that may not be read: not a folder all the same */
    }
    if (memcmp(magic, "GGUF", sizeof magic) == 0) {
        return err_set(ERR_MODEL, "%s: is a GGUF file: only the safetensors files of the release "
                       "are supported; give " WANTED, path);
    }
    char *dir = strdup(path);
    char *slash = dir != NULL ? strrchr(dir, '/') : NULL;
    if (slash != NULL) {
        *slash = '\0';
    }
    const char *parent = slash == NULL ? "." : slash == dir ? "/" : dir;
    const bool beside = holds_config(parent);
    const int rc = err_set(ERR_MODEL, "%s: is not a folder: give %s%s", path,
                           beside ? "the one it lies in, " : WANTED, beside ? parent : "");
    free(dir);
    return rc;
}

/* owner/name, as on Hugging Face, where no folder `owner` is. */
static bool is_hub_name(const char *dir)
{
    const char *slash = strchr(dir, '/');
    struct stat status;
    if (slash == NULL || slash == dir || slash[1] == '\0' || strchr(slash + 1, '/') != NULL ||
        dir[0] == '.' || dir[0] == '~') {
        return false;
    }
    char *owner = strndup(dir, (size_t)(slash - dir));
    const bool absent = owner != NULL && stat(owner, &status) < 0;
    free(owner);
    return absent;
}

static int refuse_absent(const char *dir, int error)
{
    if (error == EACCES) {
        return err_set(ERR_MODEL, "%s: cannot be looked at: %s: let this user enter the folders of "
                       "its path", dir, strerror(error));
    }
    if (error != ENOENT && error != ENOTDIR) {
        errno = error;
        return file_refused(dir, "look at this folder");
    }
    if (is_hub_name(dir)) {
        return err_set(ERR_MODEL, "%s: there is no such folder: if this is a name on Hugging Face, "
                       "download it first (hf download %s --local-dir DIR) and give that folder",
                       dir, dir);
    }
    return err_set(ERR_MODEL, "%s: there is no such folder: give the one a checkpoint was "
                   "downloaded to, or make a small model: k3ring synth %s", dir, dir);
}

/* What a folder holds that has no config.json. */
struct found {
    char *model; /* a folder below that has one; the caller's to free */
    uint32_t entries, gguf;
};

static void look_into(const char *dir, struct found *found, bool deeper)
{
    DIR *stream = opendir(dir);
    const struct dirent *entry;
    while (stream != NULL && (entry = readdir(stream)) != NULL &&
           found->entries < LOOKED_AT_MAX) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        found->entries++;
        found->gguf += ends(entry->d_name, ".gguf");
        char *path = path_join(dir, entry->d_name);
        if (path != NULL && found->model == NULL && holds_config(path)) {
            found->model = path;
            path = NULL;
        } else if (path != NULL && deeper && strcmp(entry->d_name, "snapshots") == 0) {
            look_into(path, found, false); /* of a download cache */
        }
        free(path);
    }
    if (stream != NULL) {
        closedir(stream);
    }
}

static int refuse_folder(const char *dir)
{
    struct found found = {.model = NULL};
    look_into(dir, &found, true);
    int rc;
    if (found.model != NULL) {
        rc = err_set(ERR_MODEL, "%s: holds no config.json, but %s does: give that folder", dir,
                     found.model);
    } else if (found.gguf > 0) {
        rc = err_set(ERR_MODEL, "%s: holds GGUF files: only the safetensors files of the release "
                     "are supported; give " WANTED, dir);
    } else if (found.entries == 0) {
        rc = err_set(ERR_MODEL, "%s: is an empty folder: download a checkpoint into it, or give "
                     WANTED, dir);
    } else {
        rc = err_set(ERR_MODEL, "%s: holds no config.json: download what is missing, or give "
                     WANTED, dir);
    }
    free(found.model);
    return rc;
}

int model_folder_check(const char *dir)
{
    struct stat status;
    if (dir[0] == '\0') {
        return err_set(ERR_MODEL, "the name of the model is empty: give " WANTED);
    }
    uint32_t retries = 0;
    int rc;
    do {
        rc = stat(dir, &status);
    } while (rc != 0 && retry_after(errno, &retries));
    if (rc != 0) {
        return refuse_absent(dir, errno);
    }
    if (!S_ISDIR(status.st_mode)) {
        return refuse_file(dir, status.st_mode);
    }
    /* Where it may not be looked into, opening config.json says why. */
    DIR *stream = file_open_folder(dir);
    if (stream == NULL) {
        return 0;
    }
    closedir(stream);
    if (holds_config(dir)) {
        return 0;
    }
    return err_code() == ERR_MEMORY ? ERR_MEMORY : refuse_folder(dir);
}
