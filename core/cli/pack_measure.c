/* SPDX-License-Identifier: Apache-2.0 */
/* How fast each folder of a pack reads: a file of its own, read once around the page cache with
 * the depth and about the size of a run's requests. The shares of a pack follow it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/nondet.h"
#include "core/cli/engine_options.h"
#include "core/cli/pack_priv.h"
#include "core/cli/signals.h"
#include "io/io.h"

#define PROBE_BYTES (256 * MIB)
#define PROBE_DEPTH 8u
#define PROBE_READ_BYTES (1 * MIB)

static int write_probe(const struct pack_place *place, uint64_t bytes)
{
    int rc = 0;
    uint64_t *block = aligned_alloc(PAGE_BYTES, PROBE_READ_BYTES);
    int fd = openat(place->fd, PACK_PROBE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct rng rng = rng_seed(bytes);
    if (block == NULL || fd < 0) {
        rc = err_set(ERR_OUTPUT, "%s: a file to measure its speed with cannot be made: %s",
                     place->path, strerror(errno));
    }
    for (uint64_t at = 0; rc == 0 && at < bytes; at += PROBE_READ_BYTES) {
        for (size_t i = 0; i < PROBE_READ_BYTES / sizeof *block; i++) {
            block[i] = rng_next(&rng); /* a drive that compresses shall gain nothing */
        }
        ssize_t wrote = pwrite(fd, block, PROBE_READ_BYTES, (off_t)at);
        if (wrote != (ssize_t)PROBE_READ_BYTES) {
            rc = err_set(ERR_OUTPUT, "%s: cannot be written to: %s", place->path,
                         wrote < 0 ? strerror(errno) : "no space left");
        }
    }
    if (rc == 0 && (fdatasync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)) {
        rc = err_set(ERR_OUTPUT, "%s: cannot be written to: %s", place->path, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    free(block);
    return rc;
}

/* What requests in flight point to: to be kept until io_close(), which drains them. */
struct probe {
    struct io_req request[PROBE_DEPTH];
    unsigned char *target; /* PROBE_READ_BYTES for each */
    int error;             /* negative errno of a read that failed */
};

static void on_read(struct io_req *req)
{
    struct probe *probe = req->owner;
    probe->error = req->res < 0 ? req->res : probe->error;
}

/* Reads the whole file, PROBE_DEPTH requests in flight. */
static int read_all(struct io *io, uint64_t bytes, struct probe *probe)
{
    uint64_t at = 0;
    while (at < bytes || io_in_flight(io) > 0) {
        for (uint32_t i = 0; i < PROBE_DEPTH && at < bytes; i++) {
            struct io_req *request = &probe->request[i];
            if (request->magic == IO_REQ_MAGIC) {
                continue;
            }
            *request = (struct io_req){.offset_bytes = at, .size_bytes = PROBE_READ_BYTES,
                                       .target = probe->target + i * PROBE_READ_BYTES,
                                       .buffer = IO_NO_BUFFER, .done = on_read, .owner = probe};
            io_read(io, request);
            at += PROBE_READ_BYTES;
        }
        TRY(io_run(io, IO_WAIT_FOREVER));
    }
    return probe->error;
}

static int time_reads(const struct io_files *files, uint64_t bytes, uint64_t *taken_ns)
{
    struct io *io;
    struct io_options options = {.engine = IO_URING, .depth = PROBE_DEPTH};
    struct probe probe = {.target = aligned_alloc(PAGE_BYTES, PROBE_DEPTH * PROBE_READ_BYTES)};
    if (probe.target == NULL) {
        return err_set(ERR_MEMORY, "no memory to measure a drive with");
    }
    int rc = io_open(&io, &options, files);
    if (rc < 0) {
        err_clear();
        options.engine = IO_PREAD;
        rc = io_open(&io, &options, files);
    }
    if (rc == 0) {
        /* its pages are not part of the time */
        memset(probe.target, 0, PROBE_DEPTH * PROBE_READ_BYTES);
        uint64_t begun = nondet_now_ns();
        rc = read_all(io, bytes, &probe);
        *taken_ns = nondet_now_ns() - begun + 1;
        io_close(io);
        if (rc < 0) {
            rc = err_set(ERR_IO, "%s: reading it to measure its speed failed: %s",
                         files->file[0].path, strerror(-rc));
        }
    }
    free(probe.target);
    return rc;
}

/* Megabytes per second. */
static int measure(const struct pack_place *place, uint32_t *speed)
{
    struct statvfs disk;
    struct io_files files = {.file = NULL};
    uint64_t taken_ns = 1;
    uint64_t free_bytes = fstatvfs(place->fd, &disk) == 0
                              ? (uint64_t)disk.f_bavail * disk.f_frsize : 0;
    uint64_t bytes = align_down(min_u64(PROBE_BYTES, free_bytes / 4), PROBE_READ_BYTES);
    char *path = path_join(place->path, PACK_PROBE);
    if (path == NULL) {
        return ERR_MEMORY;
    }
    const char *paths[] = {path};
    bytes = max_u64(bytes, PROBE_READ_BYTES);
    int rc = write_probe(place, bytes);
    rc = rc < 0 ? rc : io_files_open(&files, paths, &bytes, 1);
    unlinkat(place->fd, PACK_PROBE, 0);
    rc = rc < 0 ? rc : time_reads(&files, bytes, &taken_ns);
    io_files_close(&files);
    free(path);
    double mb = (double)bytes / 1e6 / ((double)taken_ns / 1e9);
    *speed = mb < 1 ? 1 : mb > 1e6 ? 1000000 : (uint32_t)mb;
    return rc;
}

int pack_places_measure(struct pack_places *places, bool quiet)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < places->count; i++) {
        if (signals_caught() != 0) {
            return err_set(ERR_STOPPED, "packing was stopped");
        }
        TRY(measure(&places->place[i], &places->share[i]));
        sum += places->share[i];
    }
    for (uint32_t i = 0; i < places->count && !quiet; i++) {
        char line[4352];
        snprintf(line, sizeof line, "%s reads %.2f GB/s and gets %.1f %% of the pack",
                 places->place[i].path, places->share[i] / 1e3,
                 100.0 * places->share[i] / (double)sum);
        engine_cli_note(line);
    }
    return 0;
}
