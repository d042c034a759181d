/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/synth.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/cli/synth_config.h"
#include "core/cli/synth_layout.h"
#include "core/cli/synth_shard.h"
#include "core/model/model.h"

/* Room the small files and the file system's own tables may take beyond what was counted. */
#define MARGIN_BYTES (4 * MIB)
#define INDEX_LINE_BYTES 160

static const char *const small_files[] = {MODEL_SYNTH_MARKER, "model.safetensors.index.json",
                                          "generation_config.json", "config.json"};

/* One run: the folder and what is to come into it. */
struct run {
    struct synth_target target;
    bool made_dir;
    const struct synth_options *options;
    struct synth_geometry geometry;
    struct synth_survey survey;
};

static int fail(const struct run *run, const char *file, const char *what)
{
    return err_set(ERR_OUTPUT, "%s/%s: %s failed: %s", run->target.dir, file, what,
                   strerror(errno));
}

/* Whether name, with or without the suffix of what is not whole, is of a file we write. */
static bool is_own(const char *name, const char *own)
{
    size_t length = strlen(own);
    return strncmp(name, own, length) == 0 &&
           (name[length] == '\0' || strcmp(name + length, SYNTH_PARTIAL_SUFFIX) == 0);
}

static bool is_shard(const char *name)
{
    unsigned shard, of;
    int end = 0;
    return sscanf(name, "model-%5u-of-%6u.safetensors%n", &shard, &of, &end) == 2 && end > 0 &&
           (name[end] == '\0' || strcmp(name + end, SYNTH_PARTIAL_SUFFIX) == 0);
}

/* A folder that a killed run left: our files alone, the marker that comes first among them, and no
 * config, which comes last. */
static bool is_unfinished(DIR *stream)
{
    bool marked = false, ours = true;
    rewinddir(stream);
    for (const struct dirent *e; ours && (e = readdir(stream)) != NULL;) {
        bool folder = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
        bool small = false;
        for (size_t i = 0; i < countof(small_files); i++) {
            small = small || is_own(e->d_name, small_files[i]);
        }
        marked = marked || is_own(e->d_name, MODEL_SYNTH_MARKER);
        ours = (folder || small || is_shard(e->d_name)) && strcmp(e->d_name, "config.json") != 0;
    }
    return ours && marked;
}

/* The marker goes last: no folder with holes is ever without it. */
static int begin_anew(const char *dir, DIR *stream)
{
    rewinddir(stream);
    for (const struct dirent *e; (e = readdir(stream)) != NULL;) {
        if (e->d_name[0] != '.' && !is_own(e->d_name, MODEL_SYNTH_MARKER) &&
            unlinkat(dirfd(stream), e->d_name, 0) != 0) {
            return err_set(ERR_OUTPUT, "%s/%s: was left by a run that was killed and cannot be "
                           "removed: %s", dir, e->d_name, strerror(errno));
        }
    }
    unlinkat(dirfd(stream), MODEL_SYNTH_MARKER SYNTH_PARTIAL_SUFFIX, 0);
    unlinkat(dirfd(stream), MODEL_SYNTH_MARKER, 0);
    return 0;
}

/* Negative unless the folder holds nothing, or what a killed run left, which is removed. */
static int check_empty(const char *dir)
{
    DIR *stream = opendir(dir);
    if (stream == NULL) {
        return err_set(ERR_USAGE, "%s: cannot be used as a folder: %s", dir, strerror(errno));
    }
    int rc = 0;
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            rc = err_set(ERR_USAGE, "%s: is not empty (%s); synth overwrites nothing, name a new "
                         "folder", dir, entry->d_name);
            break;
        }
    }
    if (rc < 0 && is_unfinished(stream)) {
        err_clear();
        rc = begin_anew(dir, stream);
    }
    closedir(stream);
    return rc;
}

static int open_dir(struct run *run)
{
    run->made_dir = mkdir(run->target.dir, 0777) == 0;
    if (!run->made_dir && errno != EEXIST) {
        return err_set(ERR_OUTPUT, "%s: the folder cannot be made: %s", run->target.dir,
                       strerror(errno));
    }
    run->target.dir_fd = open(run->target.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (run->target.dir_fd < 0) {
        return err_set(errno == ENOTDIR ? ERR_USAGE : ERR_OUTPUT, "%s: the folder cannot be "
                       "opened: %s", run->target.dir, strerror(errno));
    }
    if (flock(run->target.dir_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        run->made_dir = false;
        return err_set(ERR_USAGE, "%s: another k3ring is writing a model there", run->target.dir);
    }
    return check_empty(run->target.dir);
}

/* Tensors that the shards hold, an upper bound: what the index lists. */
static uint64_t index_bytes_max(const struct model_config *c)
{
    return (T_COUNT + (uint64_t)c->layers * (T_LAYER_COUNT + (uint64_t)c->experts * EXPERT_PARTS)) *
           INDEX_LINE_BYTES;
}

static int check_space(const struct run *run)
{
    struct statvfs disk;
    const uint64_t shards = run->survey.disk_bytes + run->survey.disk_bytes / 256;
    const uint64_t need = shards + index_bytes_max(&run->geometry.config) + MARGIN_BYTES;
    if (fstatvfs(run->target.dir_fd, &disk) != 0) {
        return fail(run, "", "asking for free space");
    }
    const uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (need > free_bytes) {
        const bool k3 = run->options->preset == SYNTH_K3;
        return err_set(ERR_FIT, "%s: the model needs %.2f GB and the disk has %.2f GB free; %s",
                       run->target.dir, (double)need / 1e9, (double)free_bytes / 1e9,
                       !k3 ? "free some or name another disk"
                       : run->options->sparse ? "free some, or cut it with --layers or --experts"
                       : "use --sparse, or cut it with --layers, --experts or --vocab");
    }
    return 0;
}

/* A file being written under its partial name; NULL with the error set. */
static FILE *begin_file(const struct run *run, const char *name)
{
    char partial[64];
    snprintf(partial, sizeof partial, "%s" SYNTH_PARTIAL_SUFFIX, name);
    const int fd = openat(run->target.dir_fd, partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                          0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL) {
        fail(run, name, "creating the file");
        if (fd >= 0) {
            close(fd);
        }
    }
    return file;
}

static int end_file(const struct run *run, const char *name, FILE *file)
{
    char partial[64];
    snprintf(partial, sizeof partial, "%s" SYNTH_PARTIAL_SUFFIX, name);
    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        return fail(run, name, "write");
    }
    if (renameat(run->target.dir_fd, partial, run->target.dir_fd, name) != 0) {
        return fail(run, name, "rename");
    }
    return 0;
}

/* Takes text, which may be NULL. */
static int write_text(const struct run *run, const char *name, char *text)
{
    if (text == NULL) {
        return err_set(ERR_MEMORY, "%s/%s: no memory to make it", run->target.dir, name);
    }
    FILE *file = begin_file(run, name);
    if (file == NULL) {
        free(text);
        return ERR_OUTPUT;
    }
    fprintf(file, "%s\n", text);
    free(text);
    return end_file(run, name, file);
}

static int write_marker(const struct run *run)
{
    const struct synth_options *options = run->options;
    const struct model_config *c = &run->geometry.config;
    FILE *file = begin_file(run, MODEL_SYNTH_MARKER);
    if (file == NULL) {
        return ERR_OUTPUT;
    }
    fprintf(file, "A synthetic model made by k3ring synth: right in form, without any training.\n"
            "preset: %s\nlayers: %u\nexperts: %u\nvocab: %u\nseed: %llu\nsparse: %s\n",
            options->preset == SYNTH_TINY ? "tiny" : "k3", c->layers, c->experts, c->vocab,
            (unsigned long long)options->seed,
            options->sparse ? "yes (most weights are holes and read as zero)" : "no");
    return end_file(run, MODEL_SYNTH_MARKER, file);
}

static int write_index(const struct run *run)
{
    const char *name = "model.safetensors.index.json";
    FILE *file = begin_file(run, name);
    if (file == NULL) {
        return ERR_OUTPUT;
    }
    const int rc = synth_index_print(&run->geometry, run->survey.tensor_bytes, file);
    if (rc < 0) {
        fclose(file);
        return rc;
    }
    return end_file(run, name, file);
}

/* What is written must read back as the geometry it came from. */
static int write_config(const struct run *run)
{
    struct model_config config;
    char *text = synth_config_text(&run->geometry);
    if (text != NULL && config_parse(text, strlen(text), "config.json", &config) < 0) {
        free(text);
        return ERR_MODEL;
    }
    return write_text(run, "config.json", text);
}

static int sync_file(const struct run *run, const char *name)
{
    const int fd = openat(run->target.dir_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail(run, name, "opening it again");
    }
    const int rc = fdatasync(fd) == 0 ? 0 : fail(run, name, "writing it to the disk");
    close(fd);
    return rc;
}

/* Waits until the disk has every shard: failures of delayed writes show only here. Not for a
 * sparse model: its half a million scattered pages would take most of the run to settle. */
static int sync_shards(const struct run *run)
{
    const struct synth_options *options = run->options;
    const uint64_t all = run->survey.write_bytes;
    for (uint32_t i = 0; !options->sparse && i < run->geometry.shard_count; i++) {
        char name[SYNTH_FILE_NAME_BYTES];
        synth_shard_name(&run->geometry, i, name);
        TRY(sync_file(run, name));
        if (options->progress != NULL && !options->progress(options->user, all, all)) {
            return err_set(ERR_STOPPED, "synth: stopped on request");
        }
    }
    return 0;
}

/* The marker comes first, so that no folder with holes is ever without it, and the config last:
 * a folder without one is not a model. */
static int write_files(const struct run *run)
{
    TRY(write_marker(run));
    TRY(synth_shards_write(&run->target, &run->geometry, run->options, run->survey.write_bytes));
    TRY(write_index(run));
    TRY(sync_shards(run));
    TRY(write_text(run, "generation_config.json", synth_generation_text(&run->geometry)));
    return write_config(run);
}

static void remove_both(const struct run *run, const char *name)
{
    char partial[64];
    snprintf(partial, sizeof partial, "%s" SYNTH_PARTIAL_SUFFIX, name);
    unlinkat(run->target.dir_fd, name, 0);
    unlinkat(run->target.dir_fd, partial, 0);
}

/* The folder was empty, so whatever bears one of our names is ours; the marker goes last. */
static void remove_files(const struct run *run)
{
    for (uint32_t i = 0; i < run->geometry.shard_count; i++) {
        char name[SYNTH_FILE_NAME_BYTES];
        synth_shard_name(&run->geometry, i, name);
        remove_both(run, name);
    }
    for (uint32_t i = countof(small_files); i > 0; i--) {
        remove_both(run, small_files[i - 1]);
    }
}

static int write_into(struct run *run)
{
    int rc = open_dir(run);
    rc = rc == 0 ? check_space(run) : rc;
    if (rc == 0) {
        rc = write_files(run);
        if (rc < 0) {
            remove_files(run);
        }
    }
    if (run->target.dir_fd >= 0) {
        close(run->target.dir_fd);
    }
    return rc;
}

int synth_write(const char *dir, const struct synth_options *options)
{
    struct run run = {.target = {.dir_fd = -1, .dir = dir}, .options = options};
    TRY(synth_geometry_init(options, &run.geometry));
    TRY(synth_survey_run(&run.geometry, options->sparse, &run.survey));
    const int rc = write_into(&run);
    if (rc < 0 && run.made_dir) {
        rmdir(dir);
    }
    return rc;
}
