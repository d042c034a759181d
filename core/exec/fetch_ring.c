/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of the I/O thread: which backend opens, which memory it knows, what it has counted. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/memory.h"
#include "core/exec/exec_priv.h"

void fetch_note(const struct engine *e, const char *line)
{
    if (e->options.note != NULL) {
        e->options.note(line);
    }
}

static uint64_t locked_bytes(const struct engine *e)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < slab_slice_count(e->slab); i++) {
        bytes += slab_slice(e->slab, i)->size_bytes;
    }
    return bytes;
}

/* From here on every read is a plain one. The kernel counts locked memory by user: a slab below the
 * limit may find it taken. */
static void fixed_refused(struct engine *e, int error)
{
    char line[320];
    uint64_t allowed = memory_lockable();
    if (error == ENOMEM && allowed != UINT64_MAX) {
        snprintf(line, sizeof line, "registered buffers off: the slab needs %.1f MiB of locked "
                 "memory, the limit is %.1f MiB for all processes of this user together (ulimit "
                 "-l, LimitMEMLOCK=), and others hold some of it; this costs a little CPU per read",
                 (double)locked_bytes(e) / (double)MIB, (double)allowed / (double)MIB);
    } else {
        snprintf(line, sizeof line, "registered buffers off: the kernel refused them: %s; this "
                 "costs a little CPU per read", strerror(error));
    }
    fetch_note(e, line);
    e->fetch.fixed = false;
}

/* Registers every slice that is present; later ones follow as they come. All or none. */
void fetch_register_slices(struct engine *e)
{
    struct fetch *f = &e->fetch;
    uint32_t count = slab_slice_count(e->slab);
    for (uint32_t i = 0; i < count && f->slices_known < count; i++) {
        const struct slab_slice *slice = slab_slice(e->slab, i);
        if (f->slice_known[i] || !slab_slice_present(e->slab, i)) {
            continue;
        }
        f->slice_known[i] = true;
        f->slices_known++;
        int rc = f->fixed ? io_register_buffer(e->io, i, slice->base, slice->size_bytes) : 0;
        if (rc < 0) {
            fixed_refused(e, -rc);
        }
    }
}

/* Fixed buffers for the whole slab or none: decided once, from the limit of locked memory. */
static bool lockable(struct engine *e)
{
    uint64_t allowed = memory_lockable();
    uint64_t needed = locked_bytes(e);
    if (needed <= allowed) {
        return true;
    }
    char line[256];
    snprintf(line, sizeof line, "registered buffers off: the slab needs %.1f MiB of locked memory, "
             "the limit is %.1f MiB (ulimit -l, LimitMEMLOCK=); this costs a little CPU per read",
             (double)needed / (double)MIB, (double)allowed / (double)MIB);
    fetch_note(e, line);
    return false;
}

/* What reports read, while nobody writes it. */
void fetch_copy_figures(struct engine *e)
{
    e->io_stats = *io_stats(e->io);
    memcpy(e->latency, e->fetch.latency, sizeof e->latency);
    e->io_cpu_ns = nondet_thread_cpu_ns();
    e->io_fixed = e->fetch.fixed;
    snprintf(e->io_features, sizeof e->io_features, "%s", io_features(e->io));
    if (e->cache != NULL) {
        e->cache_stats = *cache_stats(e->cache);
    }
}

int fetch_open_ring(struct engine *e)
{
    struct io_options options = {.engine = e->options.io, .depth = e->options.io_depth,
                                 .buffer_count = slab_slice_count(e->slab),
                                 .sim = e->options.sim, .log = e->options.log};
    options.sim.threads = !e->options.stepped;
    int rc = io_open(&e->io, &options, &e->files);
    if (rc < 0 && options.engine == IO_URING) {
        char line[ERR_MESSAGE_BYTES + 64];
        snprintf(line, sizeof line, "%s; reading with pread threads instead", err_message());
        fetch_note(e, line);
        snprintf(e->io_refused, sizeof e->io_refused, "%s", err_message());
        err_clear();
        options.engine = IO_PREAD;
        rc = io_open(&e->io, &options, &e->files);
    }
    if (rc == 0) {
        e->fetch.fixed = options.engine == IO_URING && lockable(e);
        fetch_register_slices(e);
        fetch_copy_figures(e);
    }
    return rc;
}

void fetch_close_ring(struct engine *e)
{
    if (e->io != NULL) {
        e->io_stats = *io_stats(e->io);
        io_close(e->io);
    }
}
