/* SPDX-License-Identifier: Apache-2.0 */
#include "io/log.h"

#include <stdlib.h>

#include "core/base/err.h"
#include "io/io_priv.h"

int io_log_open(struct io_log *log, uint32_t capacity)
{
    *log = (struct io_log){.capacity = capacity};
    log->record = calloc(capacity, sizeof *log->record);
    return log->record != NULL ? 0 : err_set(ERR_MEMORY, "no memory for a log of %u reads",
                                             capacity);
}

void io_log_close(struct io_log *log)
{
    free(log->record);
    *log = (struct io_log){0};
}

void io_log_clear(struct io_log *log)
{
    log->count = 0;
    log->sent = 0;
    log->missed = 0;
}

uint64_t io_log_bytes(uint32_t capacity)
{
    return capacity * (uint64_t)sizeof(struct io_record);
}

/* ---- from the front and the backends ---- */

void io_log_begin(struct io *io, struct io_req *req)
{
    struct io_log *log = io->log;
    if (log == NULL || req->record != IO_NO_RECORD) {
        return; /* not wanted, or a repeat */
    }
    if (log->count == log->capacity) {
        log->missed++;
        return;
    }
    req->record = log->count;
    log->record[req->record] = (struct io_record){
        .begun_ns = io_now_ns(io), .offset_bytes = req->offset_bytes,
        .size_bytes = req->size_bytes, .begun_round = io->round, .file = (uint16_t)req->file,
        .label = req->label, .device = (uint8_t)io->files->file[req->file].device};
    atomic_store_explicit(&log->count, req->record + 1, memory_order_release);
}

void io_log_sent(struct io *io)
{
    struct io_log *log = io->log;
    if (log == NULL || log->sent == log->count) {
        return;
    }
    uint64_t now_ns = io_now_ns(io);
    for (; log->sent < log->count; log->sent++) {
        struct io_record *record = &log->record[log->sent];
        record->sent_ns = record->sent_ns == 0 ? now_ns : record->sent_ns;
    }
}

void io_log_repeat(struct io *io, const struct io_req *req, bool came_short)
{
    if (io->log != NULL && req->record != IO_NO_RECORD) {
        struct io_record *record = &io->log->record[req->record];
        record->repeats++;
        record->shorts = (uint16_t)(record->shorts + came_short);
    }
}

void io_log_end(struct io *io, const struct io_req *req, int32_t res, uint64_t now_ns)
{
    if (io->log == NULL || req->record == IO_NO_RECORD) {
        return;
    }
    struct io_record *record = &io->log->record[req->record];
    record->sent_ns = record->sent_ns == 0 ? record->begun_ns : record->sent_ns;
    record->ended_ns = max_u64(now_ns, record->sent_ns);
    record->ended_round = io->round;
    record->res = res;
}
