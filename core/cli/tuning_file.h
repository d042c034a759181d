/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_TUNING_FILE_H
#define CLI_TUNING_FILE_H

/* What measurements of drives found, remembered between runs in one small JSON file of the user's
 * cache folder. Losing it costs a measurement: whatever is wrong with it is a note, never an
 * error, and it changes time, never output. */

#include "core/base/base.h"

#define TUNING_TEXT_BYTES 512
#define TUNING_ENTRIES_MAX 32   /* the oldest go first */

struct tuning_entry {
    char device[TUNING_TEXT_BYTES]; /* identity of all drives below the files */
    char asked[128];                /* what the measurement was free to choose, within what */
    uint64_t io_depth, io_size_bytes;
    uint64_t bytes_per_s, best_bytes_per_s;
    uint64_t date_s;                /* since 1970 */
};

/* $XDG_CACHE_HOME/k3ring/tuning.json, else ~/.cache/k3ring/tuning.json; to be free()d. NULL when
 * neither variable holds an absolute path. */
char *tuning_file_path(void);

/* True when an entry for the same device and question is there; its figures are filled in.
 * note: told what is wrong with the file; may be NULL. */
bool tuning_file_find(const char *path, struct tuning_entry *entry,
                      void (*note)(const char *line));

/* Puts the entry in place of an older one. Folders are made as needed. */
void tuning_file_store(const char *path, const struct tuning_entry *entry,
                       void (*note)(const char *line));

#endif
