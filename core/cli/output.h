/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

/* Files that appear whole or not at all: written under a temporary name beside the target, flushed
 * to the drive, then renamed. So that new names outlive a loss of power their folders are flushed
 * as well, once for all outputs of a command. */

#include <stdio.h>

#include <cjson/cJSON.h>

#include "core/base/base.h"

struct output {
    FILE *file;
    const char *path; /* the caller's */
    char *temporary;
    bool direct;      /* "-", a link, or anything else but a regular file: written in place */
    bool only_new;    /* the caller's: a file that took the name meanwhile is kept, ERR_OUTPUT */
};

/* From now on no output replaces a file that is in the folder of a model, or that it is read from:
 * ERR_USAGE. Nothing is said of a folder that is none. ERR_MEMORY. Kept until the program ends. */
int output_spare_model(const char *dir);

/* The same for files that a command reads: paths may hold NULL and what is no file. */
int output_spare_inputs(const char *const *paths, size_t count);

/* ERR_OUTPUT names the path and the cause. */
int output_open(struct output *out, const char *path);
/* Whether output_open() would succeed; nothing is left, and nothing that is no file is touched. */
int output_check(const char *path);
/* ERR_USAGE unless path is a regular file or nothing yet, which alone is replaced at once and
 * whole. option is what named it. */
int output_check_regular(const char *option, const char *path);
/* ERR_USAGE when path lies in the folder of a model, where a second run would not replace it. */
int output_check_outside(const char *option, const char *path, const char *dir);
/* Makes a file that is being written its owner's alone; what is written in place stays as it is. */
void output_private(const struct output *out);
/* Ends the file: renamed when everything was written, removed when not. */
int output_commit(struct output *out);
/* Flushes the folders of all files committed since the last call: when a command ends, and before
 * what needs their names to last. One thread at a time, as output_commit(). */
void output_flush_folders(void);
void output_abandon(struct output *out);

/* Unlinks what open outputs have written so far. Async-signal-safe: for a program that ends at
 * once. */
void output_remove_temporaries(void);

/* True when both paths name one place: the same folder and the same name in it. */
bool output_same(const char *a, const char *b);

/* text as a whole file at path ("-": standard output). */
int output_text(const char *path, const char *text);

/* A document as text, on the heap, and deletes it: '?' stands for bytes of names that are no UTF-8,
 * which JSON cannot hold. NULL with ERR_MEMORY set, also for NULL. cJSON_free() it. */
char *output_json_text(cJSON *root);

/* Prints a document as output_json_text() makes it, with a last newline. ERR_MEMORY. */
int output_json(FILE *file, cJSON *root);

/* Flushes standard output and reports what was lost. */
int output_flush_stdout(void);

#endif
