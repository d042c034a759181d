/* SPDX-License-Identifier: Apache-2.0 */
#ifndef IO_LOG_H
#define IO_LOG_H

/* Every read of a run, in the order in which reads were begun: for benchmarks. Filled by the owner
 * of a struct io that was opened with it; others look once that one has nothing in flight. All
 * figures are computed from it afterwards (figures.h), so that a run only writes it down.
 *
 * One read is one request of the caller, which is one SQE unless it was repeated or came in parts;
 * its times then span all of them. */

#include <stdatomic.h>

#include "core/base/base.h"

struct io_record {
    uint64_t begun_ns;     /* about to be handed to the kernel */
    uint64_t sent_ns;      /* the call that did so had returned */
    uint64_t ended_ns;     /* the owner saw the completion; 0 = it has not */
    uint64_t offset_bytes;
    uint32_t size_bytes;   /* asked for: whole pages */
    int32_t res;           /* bytes, or a negative errno */
    uint32_t begun_round;  /* equal for those handed over by one call, */
    uint32_t ended_round;  /* and for those reaped together */
    uint16_t file;
    uint16_t repeats;      /* transfers beyond the first, */
    uint16_t shorts;       /* of them those for the rest of one that came short */
    uint8_t label;         /* the caller's */
    uint8_t device;
};

struct io_log {
    struct io_record *record;
    uint32_t capacity;
    _Atomic uint32_t count; /* may be looked at while reads are made; the records may not */
    uint64_t missed;       /* reads begun when it was full */
    uint32_t sent;         /* private: records below this have sent_ns */
};

/* ERR_MEMORY. The pages are not made present before they are written. */
int io_log_open(struct io_log *log, uint32_t capacity);
void io_log_close(struct io_log *log);
/* Forgets all records. Only while nothing is in flight. */
void io_log_clear(struct io_log *log);

/* What a log of so many reads takes. */
uint64_t io_log_bytes(uint32_t capacity);

#endif
