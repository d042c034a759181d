/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_PACK_H
#define CLI_PACK_H

/* Writing a pack of a checkpoint, and proving one equal to its source. docs/PACK.md has the
 * format. Called from the main thread, after signals_catch(): a caught signal stops both. */

#include "core/model/pack.h"

struct pack_options {
    const char *source;
    const char *dir;            /* new, empty, or an unfinished pack of the same options */
    const char *const *to;      /* further folders */
    uint32_t to_count;
    const uint32_t *shares;     /* [1 + to_count]; NULL: measured */
    bool trunk_only;            /* experts stay in the source */
    uint64_t tile_bytes;        /* or PLAN_AUTO */
    uint32_t threads;
    bool quiet;                 /* no talk and no progress */
};

struct pack_summary {
    uint64_t raw_bytes, stored_bytes; /* matrices of the walk as bf16 and as stored */
    uint64_t other_bytes;             /* experts, embedding rows, small tensors: written (packing),
                                       * compared (verifying) */
    uint64_t kept_bytes;              /* of an earlier run that was stopped */
    uint64_t tiles, experts;
    uint64_t taken_ns;
};

/* ERR_USAGE: the folder is not free for it. ERR_FIT: no room on the drive. ERR_OUTPUT, ERR_IO,
 * ERR_STOPPED: what is written so far stays, and the same call goes on from there. */
int pack_write(const struct pack_options *options, struct pack_summary *out);

/* Decodes every tile and compares all bytes with the source. ERR_RUN names the first difference,
 * or says why the pack cannot be read; ERR_MODEL when dir is no pack. */
int pack_verify(const char *dir, uint32_t threads, bool quiet, struct pack_summary *out);

#endif
