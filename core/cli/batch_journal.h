/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_BATCH_JOURNAL_H
#define CLI_BATCH_JOURNAL_H

/* What a batch has finished, beside its output until all is done: OUT.part holds one line that
 * says which input and model it belongs to, then a line per finished sequence, with a checksum, in
 * order of completion. Ended at any moment, the same command takes it up again; what a line that
 * was cut or damaged stood for is made anew. When everything is there the lines are put in order
 * and OUT appears at once. */

#include <stdio.h>

#include "core/base/base.h"

#define JOURNAL_IDENTITY_BYTES 65 /* hex digits and a NUL */

struct batch_journal {
    const char *out_path;
    char *path;
    FILE *file;
    char **result;   /* [count] finished lines without their newline; NULL = not yet */
    uint32_t count, finished;
    uint32_t failed; /* of the finished, those that met a value that is not finite */
    bool ours;       /* locked, and of this input and model */
};

/* ERR_USAGE: the output is there already. */
int batch_journal_taken(const char *out_path);

/* Opens or takes up the journal of count sequences. ERR_USAGE when out_path is there already,
 * another process writes it, or the journal is of another input or model. */
int batch_journal_open(struct batch_journal *j, const char *out_path, uint32_t count,
                       const char identity[JOURNAL_IDENTITY_BYTES]);
/* Takes text, on the heap, as the result of a sequence, and brings it to the drive. */
int batch_journal_add(struct batch_journal *j, uint32_t index, bool failed, char *text);
/* All results in order to out_path; the journal goes. */
int batch_journal_finish(struct batch_journal *j);
/* Leaves the journal for later; removes it when nothing is finished. */
void batch_journal_close(struct batch_journal *j);

#endif
