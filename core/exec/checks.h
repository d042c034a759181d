/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EXEC_CHECKS_H
#define EXEC_CHECKS_H

/* Checked reads: what was read is compared with checksums before a kernel sees it. Part of the
 * engine; exec_priv.h says who owns what.
 *
 * Of a checkpoint, every page has a sum in a file beside it (core/model/page_sums.h); the slice of
 * that file that covers what is read is read with it, into memory of the account. Of a pack, a
 * tile's or expert's checksum stands in the manifest, in memory already.
 *
 * A tile or an expert takes a ticket when its reads begin. When the last one has ended, comparing
 * is a task for the workers like any other, and what waited for the data waits for that task. The
 * ticket returns with it, so that no more than a few are on the way. Nothing waits for a ticket
 * whose holder waits for anything but its own reads and a worker: so this never stands still. */

#include <pthread.h>
#include <stdatomic.h>

#include "core/model/page_sums.h"

enum checks_by { CHECKS_OFF, CHECKS_SUMS, CHECKS_TILES };

#define CHECKS_NO_TICKET UINT32_MAX

struct checks_ticket {
    _Atomic uint32_t taken;    /* by the I/O thread; given back by whoever compared */
    unsigned char *slices;     /* memory for sums, or NULL */
};

struct checks {
    enum checks_by by;
    struct page_sums *sums;    /* with CHECKS_SUMS */
    uint32_t file;             /* of sums, in the engine's files; UINT32_MAX without */
    unsigned char *row_slices; /* [chunk][row_slice_bytes] */
    uint64_t row_slice_bytes;
    /* With CHECKS_TILES: room for the largest tile of rows, and to read it through; one a time. */
    pthread_mutex_t row_lock;
    unsigned char *row_tile, *row_bounce;
    struct checks_ticket *tile, *expert;
    uint32_t tile_count, expert_count;
    _Atomic uint32_t open;     /* tickets on the way, until all is done that followed from them */
    _Atomic uint64_t checked_bytes, sums_bytes, sums_requests;
};

#endif
